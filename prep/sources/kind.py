"""The parts of a source kind, and what a manifest records about the source of a build."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfshards.prep.sources.base import Source
from tfshards.schemas import OptionsError, Schema
from tfshards.schemas.json_reader import Json


@dataclass(frozen=True)
class Recorded:
    """The source of a build, as a manifest records it.

    Attributes:
        schema: schema of the dataset.
        options: options of the build, as the manifest holds them.
        is_grown: whether the inputs may hold more than those of the build, or only new examples.
        follow_links: whether to follow links if the manifest does not record whether the build did.
        log: receives a line about columns that the source leaves out.
    """

    schema: Schema
    options: Mapping[str, Json]
    is_grown: bool
    follow_links: bool
    log: Callable[[str], None]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names in label order; None if the classes have no names."""
        return self.schema.class_names or None


@dataclass(frozen=True)
class SourceKind:
    """A kind of input: its name, and functions that create its sources.

    Attributes:
        name: name on the command line, and in manifests as the option ``source``.
        help: line on this kind in the help of ``build`` and ``plan``.
        group_help: help text of ``--group-by``.
        add_arguments: adds SOURCE and the options of this kind to a parser.
        from_arguments: returns the source that parsed arguments describe, with the given class names or None.
        restore: returns the source of a build from its record and the paths of the inputs, which may have
            moved.
        recorded: returns the options of the command line, by their flags without dashes, that give the source
            of a build as a manifest records it, for these inputs.
        can_reject: whether single inputs can be rejected, so that ``--max-rejected`` applies.
    """

    name: str
    help: str
    group_help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    from_arguments: Callable[[argparse.Namespace, Sequence[str] | None], Source]
    restore: Callable[[Recorded, Sequence[str]], Source]
    recorded: Callable[[Recorded, Sequence[str]], dict[str, Json]]
    can_reject: bool = True


def check_num_inputs(inputs: Sequence[str], most: int, allowed: str) -> None:
    """Raise OptionsError if there are no inputs or more than ``most``; ``allowed`` names what to give."""
    if not 1 <= len(inputs) <= most:
        raise OptionsError(f"the inputs are {', '.join(map(repr, inputs)) or 'missing'}; give {allowed}")
