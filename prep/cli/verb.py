"""The description of a verb and of its result, and functions that several verbs share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED
from tfshards.schemas import Manifest
from tfshards.schemas.json_reader import Json


class HasJson(Protocol):
    """A value whose ``repr`` is its text for people, and which has another form for programs."""

    def to_json(self) -> Json | dict[str, Json] | list[Json]:
        """Return the value as JSON."""


@dataclass(frozen=True)
class Result:
    """What a verb prints to standard output, of which ``main`` prints one form, and the exit status."""

    text: Callable[[], str | Iterator[str]]
    to_json: Callable[[], Json | dict[str, Json] | list[Json]]
    status: int = 0

    @classmethod
    def of(cls, value: HasJson, status: int = 0) -> Result:
        """Return the result that is a value with both forms."""
        return cls(value.__repr__, value.to_json, status)

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> Result:
        """Return the result that is a manifest, as in its file."""
        return cls(manifest.__repr__, lambda: json.loads(manifest.to_text()))


@dataclass(frozen=True)
class Verb:
    """A verb of the command line.

    Each argument is stored under the name of the parameter that it sets, since errors of the library name
    parameters. ``run`` returns the result; nothing else is printed to standard output. Its arguments
    include ``beam_args``, the pipeline options after a bare ``--``, and those of a verb that takes them also
    ``engine``. A verb that has kinds has a parser for
    each kind of source, with the arguments of a build.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Result]
    takes_beam_args: bool = False
    is_resumable: bool = False
    takes_jobs: bool = True
    has_kinds: bool = False


def add_dataset(parser: argparse.ArgumentParser, text: str = "folder of the dataset") -> None:
    """Add the argument DATASET."""
    parser.add_argument("dataset", metavar="DATASET", help=text)


def add_max_rejected(parser: argparse.ArgumentParser, inputs: str) -> None:
    """Add the option ``--max-rejected``; ``inputs`` names the inputs of which it is a share."""
    parser.add_argument(
        "--max-rejected",
        default=DEFAULT_MAX_REJECTED,
        metavar="SHARE",
        help=f"fail if more than this share of the {inputs} is rejected (default: %(default)s)",
    )
