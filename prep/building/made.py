"""What the options in a manifest record of how its dataset was made, as typed values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from tfshards.schemas import Manifest
from tfshards.schemas.json_reader import Json


def made_of(manifest: Manifest) -> Made:
    """Return how a dataset was made."""
    return Made(manifest.options)


@dataclass(frozen=True)
class Made:
    """How a dataset was made, from the options in its manifest."""

    options: Mapping[str, Json]

    @property
    def source(self) -> str | None:
        """The kind of source of the build, or the verb that made the dataset from others, or ``adopt``."""
        source = self.options.get("source")
        return source if isinstance(source, str) else None

    @property
    def ratios(self) -> Mapping[str, str]:
        """The ratio of each split of a build, as text; empty without."""
        return cast("Mapping[str, str]", self.options.get("splits", {}))

    @property
    def group_by(self) -> str | None:
        """What kept examples in one split of a build by ratios."""
        return cast("str | None", self.options.get("group_by"))

    @property
    def made_by(self) -> str:
        """What made this generation: the kind of source of a build, or the verb that derived it."""
        return str(self.options.get("made_by", self.source or ""))

    @property
    def origins(self) -> list[Made]:
        """The datasets that this one was made from."""
        several = self.options.get("of")
        held = [self.options.get("origin"), *(several if isinstance(several, list) else ())]
        found = [each.get("options") for each in held if isinstance(each, dict)]
        return [Made(options) for options in found if isinstance(options, dict)]

    def builds(self) -> Iterator[Made]:
        """Yield how the builds were made that the examples come from."""
        if self.source in ("reshard", "remove", "relabel", "merge"):
            for origin in self.origins:
                yield from origin.builds()
        else:
            yield self
