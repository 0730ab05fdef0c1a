"""The verb ``completion``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tfshards.prep.cli.option_files import subcommands
from tfshards.prep.cli.verb import Result, Verb

# What a shell lists for arguments with these metavars; it lists nothing for others.
_FILES = ("FILE", "SOURCE", "SOURCES", "PATH")
_FOLDERS = ("DATASET", "FOLDER", "DIR")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def _run(args: argparse.Namespace) -> Result:
    # imported late, because no other verb needs them
    import shtab

    from tfshards.prep.cli.parser import make_parser

    parser = make_parser(args.verbs)
    # flags of all kinds may follow a verb if --config gives KIND
    for verb in subcommands(parser).values():
        actions = [action for kind in subcommands(verb).values() for action in kind._actions]
        for action in actions:
            if action.option_strings and not {*action.option_strings} & {*verb._option_string_actions}:
                verb._add_action(action)
    for each in _with_subcommands(parser):
        for action in each._actions:
            if action.metavar in (*_FILES, *_FOLDERS):
                action.complete = shtab.FILE if action.metavar in _FILES else shtab.DIRECTORY  # type: ignore[attr-defined]
    script = shtab.complete(parser, args.shell)
    return Result(lambda: script, lambda: {"shell": args.shell, "script": script})


def _with_subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for each in subcommands(parser).values():
        yield from _with_subcommands(each)


COMPLETION = Verb(
    "completion", "print a script that completes commands in a shell", _add_arguments, _run, takes_jobs=False
)
