"""The command ``tfshards``: the verbs of prep and of the loader, and completion in a shell.

It belongs to neither room, since neither imports the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Literal, NoReturn

from tfshards.prep.cli.main import entry
from tfshards.prep.cli.parser import Verb, make_parser, subcommands
from tfshards.prep.cli.verbs import VERBS as VERBS_OF_PREP

_ROWS = (
    Verb("bench", "tfshards.loader.speeds"),
    Verb("which", "tfshards.loader.receipts", ("position",)),
    Verb("when", "tfshards.loader.receipts", ("position", "examples")),
    Verb("completion", __name__),
)
VERBS = VERBS_OF_PREP | {verb.name: verb for verb in _ROWS}


def completion(shell: Literal["bash", "zsh", "fish"]) -> str:
    """Return a script that completes commands in a shell.

    Args:
        shell: bash, zsh or fish.

    Raises:
        ModuleNotFoundError: shtab is not installed (``tfshards[prep]``).
    """
    # imported late, because no other verb needs it
    import shtab

    parser = make_parser(VERBS)
    for each in _with_subcommands(parser):
        for action in each._actions:
            if action.choices is None and action.nargs != 0:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    script: str = shtab.complete(parser, shell)
    return script


def _with_subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for each in subcommands(parser).values():
        yield from _with_subcommands(each)


def run() -> NoReturn:
    """Run the command and end the process."""
    entry(VERBS)
