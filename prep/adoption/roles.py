"""What is said of features where records alone cannot tell it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfshards.schemas import Feature, OptionsError

_LABEL_NAMES = re.compile(r"(?:.*/)?(?:label|class)")
_RAW = re.compile(r"(?P<name>.+)=(?P<dtype>\w+)\[(?P<shape>(?:[0-9]+(?:,[0-9]+)*)?)\]", re.DOTALL)


@dataclass(frozen=True)
class Roles:
    """What features are, beside what their values tell.

    Attributes:
        label: the integers that are classes; by default those named ``label`` or ``class``.
        images: the bytes that are images, each of them.
        raw: tensors that are stored as little-endian bytes, by name with dtype and shape.
        drop: features that are left out of the schema.

    Raises:
        OptionsError: a feature is named twice, or a tensor has a dtype or shape that there is not.
    """

    label: str | None = None
    images: tuple[str, ...] = ()
    raw: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    drop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, times in Counter(self.names).items():
            if times > 1:
                raise OptionsError(
                    f"the feature {name!r} is named {times} times; it is one thing or is dropped"
                )
        for name, (dtype, shape) in self.raw.items():
            try:
                Feature(name, "raw", dtype, shape)
            except ValueError as error:
                raise OptionsError(f"--raw {name}={dtype}{list(shape)}: {error}") from None

    @property
    def names(self) -> list[str]:
        """All features that are named."""
        return [*([self.label] if self.label else []), *self.images, *self.raw, *self.drop]

    def may_be_label(self, name: str) -> bool:
        """Whether the values of a feature may be classes, if they are integers."""
        return name == self.label if self.label else _LABEL_NAMES.fullmatch(name) is not None


def parse_raw(texts: Sequence[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the tensors in texts such as ``image_raw=uint8[28,28,1]``.

    Raises:
        OptionsError: a text is not of that form, or a name stands twice.
    """
    raw: dict[str, tuple[str, tuple[int, ...]]] = {}
    for text in texts:
        match = _RAW.fullmatch(text)
        if match is None:
            raise OptionsError(f"--raw {text}: must be NAME=DTYPE[SHAPE], such as image_raw=uint8[28,28,1]")
        if match["name"] in raw:
            raise OptionsError(f"--raw {text}: the feature {match['name']!r} stands twice")
        shape = tuple(int(number) for number in match["shape"].split(",") if number)
        raw[match["name"]] = match["dtype"], shape
    return raw
