"""The parts of a source kind, and what a manifest records about the source of a build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfshards.prep.sources.base import Source
from tfshards.schemas import OptionsError, Schema
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import Record


@dataclass(frozen=True)
class Recorded:
    """The source of a build, as a manifest records it.

    Attributes:
        schema: schema of the dataset.
        options: options of the build, as the manifest holds them.
        is_grown: whether the inputs may hold more than those of the build, or only new examples.
        follow_links: whether to follow links if the manifest does not record whether the build did.
    """

    schema: Schema
    options: Mapping[str, Json]
    is_grown: bool
    follow_links: bool

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names in label order; None if the classes have no names."""
        return self.schema.class_names or None

    @property
    def label(self) -> str | None:
        """Name of the feature that holds the classes; None if there is none."""
        return next((feature.name for feature in self.schema.features if feature.kind == "label"), None)


@dataclass(frozen=True)
class SourceKind:
    """A kind of input: its name, its options, and functions that create its sources.

    Attributes:
        name: name on the command line, and in manifests as the option ``source``.
        help: line on this kind in the help of ``build`` and ``plan``.
        source_help, group_help: help texts of SOURCE and of ``--group-by``.
        records: returns the dataclasses whose options (``schemas/option.py``) are those of this kind; called
            late, since they may need Arrow.
        make: returns a source from SOURCE, the given class names or None, and the given options of each
            dataclass in ``records``.
        restore: returns the source of a build from its record and the paths of the inputs, which may have
            moved.
        takes_several: whether SOURCE may be several arguments, which are passed on as a list.
        can_reject: whether single inputs can be rejected, so that ``--max-rejected`` applies.
    """

    name: str
    help: str
    source_help: str
    group_help: str
    records: Callable[[], tuple[type[Record], ...]]
    make: Callable[..., Source]
    restore: Callable[[Recorded, Sequence[str]], Source]
    takes_several: bool = False
    can_reject: bool = True


def check_num_inputs(inputs: Sequence[str], most: int, allowed: str) -> None:
    """Raise OptionsError if there are no inputs or more than ``most``; ``allowed`` names what to give."""
    if not 1 <= len(inputs) <= most:
        raise OptionsError("inputs-number", join=", ".join(map(repr, inputs)) or "missing", allowed=allowed)
