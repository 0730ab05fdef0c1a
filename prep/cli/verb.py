"""The description of a verb, and functions that several verbs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from tfshards.prep.planning.options import DEFAULT_MAX_REJECTED
from tfshards.schemas import Manifest

# Text after the options in the help of a verb that builds.
BEAM_EPILOG = (
    "All cores of this machine write the shards. To use Apache Beam instead, give its pipeline options "
    "after a bare --, for example: -- --runner=FlinkRunner"
)


@dataclass(frozen=True)
class Verb:
    """A verb of the command line.

    Attributes:
        name: name on the command line.
        help: line in the list of verbs, and description of the verb.
        add_arguments: adds the arguments of the verb to its parser. Each is stored under the name of the
            library's parameter that it sets, since errors of the library name parameters.
        run: runs the verb with the parsed arguments and returns the exit status. They include ``log``, which
            prints status lines, and ``beam_args``.
        takes_beam_args: whether pipeline options of Apache Beam may follow a bare ``--``.
        is_resumable: whether the same command resumes an interrupted one.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    takes_beam_args: bool = False
    is_resumable: bool = False


def add_dataset(parser: argparse.ArgumentParser, text: str = "folder of the dataset") -> None:
    """Add the argument DATASET."""
    parser.add_argument("dataset", metavar="DATASET", help=text)


def add_json(parser: argparse.ArgumentParser, text: str = "print the manifest as JSON") -> None:
    """Add the option ``--json``."""
    parser.add_argument("--json", action="store_true", help=text)


def add_max_rejected(parser: argparse.ArgumentParser, inputs: str) -> None:
    """Add the option ``--max-rejected``; ``inputs`` names the inputs of which it is a share."""
    parser.add_argument(
        "--max-rejected",
        default=DEFAULT_MAX_REJECTED,
        metavar="SHARE",
        help=f"fail if more than this share of the {inputs} is rejected (default: %(default)s)",
    )


def print_manifest(manifest: Manifest, *, as_json: bool) -> None:
    """Print the manifest as text or as JSON."""
    print(manifest.to_text().strip() if as_json else repr(manifest))
