"""Create the parser of the command line from the table of verbs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from typing import NoReturn, get_args

from tfshards.prep.cli.arguments import add_build_arguments
from tfshards.prep.cli.option_files import add_config
from tfshards.prep.cli.verb import Verb
from tfshards.prep.engines.table import EngineName
from tfshards.prep.sources.kinds import KINDS
from tfshards.schemas import OptionsError

# What argparse reports of a word that it does not know.
_UNKNOWN = re.compile(r"invalid choice: '([^']*)'|unrecognized arguments: (-[^ =]+)")
# A file of options serves both: each also knows the options of the other.
_WITH_KINDS = {"build", "plan"}
# Text after the options in the help of a verb that an engine runs.
_BEAM_EPILOG = (
    "All cores of this machine do the work. To use Apache Beam instead, give its pipeline options after a "
    "bare --, for example: -- --runner=FlinkRunner"
)


def make_parser(verbs: Mapping[str, Verb], arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser; it sets the attributes ``verb`` and ``parser``, the parser of the verb.

    Args:
        verbs: the table of verbs.
        arguments: the command line, for which the arguments of other verbs and kinds are left out, since they
            may need packages that are not installed or take long to import; None to add all.
    """
    only = None if arguments is None else next((word for word in arguments if word in verbs), "")
    kind = next((word for word in (arguments or [])[1:2] if word in KINDS), None)
    parser = _Parser(
        prog="tfshards",
        description="Convert images, arrays and tables to balanced TFRecord shards, and inspect them.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tfshards {version('tfshards')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_IntermixedParser)
    for verb in verbs.values():
        # a new option must not change what an abbreviation in somebody's script means
        sentence = f"{verb.help[0].upper()}{verb.help[1:]}."
        own = commands.add_parser(verb.name, help=verb.help, description=sentence, allow_abbrev=False)
        own.set_defaults(verb=verb, parser=own)
        if only not in (None, verb.name) and not {only, verb.name} <= _WITH_KINDS:
            continue
        leaves = [*_add_kinds(own, kind)] if verb.has_kinds else [own]
        for leaf in leaves:
            verb.add_arguments(leaf)
            if any(action.option_strings and action.dest != "help" for action in leaf._actions):
                add_config(leaf)
            _add_reporting(leaf)
            if verb.takes_beam_args:
                leaf.add_argument(
                    "--engine",
                    choices=get_args(EngineName),
                    help="engine that does the work: local, all cores of this machine, or beam, Apache Beam "
                    "(default: beam if pipeline options follow a bare --, or else local)",
                )
                leaf.epilog = " ".join(filter(None, [leaf.epilog, _BEAM_EPILOG]))
            if verb.takes_jobs:
                leaf.add_argument(
                    "--jobs",
                    type=int,
                    metavar="N",
                    help="use at most N processes, or threads that compute (default: one per core)",
                )
    return parser


def _add_kinds(parser: argparse.ArgumentParser, only: str | None) -> Iterator[_Parser]:
    """Add to a verb's parser one for each kind of source, and yield those whose arguments are needed."""
    add_config(parser)
    kinds = parser.add_subparsers(required=True, metavar="KIND", parser_class=_IntermixedParser)
    for kind in KINDS.values():
        own = kinds.add_parser(
            kind.name, help=kind.help, description=f"Source: {kind.help}.", allow_abbrev=False
        )
        own.set_defaults(kind=kind, parser=own)
        if only in (None, kind.name):
            add_build_arguments(own, kind)
            yield own


def _add_reporting(parser: argparse.ArgumentParser) -> None:
    """Add the options about what a command prints, which every verb has."""
    group = parser.add_argument_group("output")
    add = group.add_argument
    add("--json", action="store_true", help="print the result, or the error, as JSON")
    only_one = group.add_mutually_exclusive_group()
    only_one.add_argument(
        "-q", "--quiet", action="store_true", help="print no status and no progress, only warnings and errors"
    )
    only_one.add_argument(
        "-v", "--verbose", action="store_true", help="also print logs of libraries, and tracebacks of errors"
    )


class UsageError(OptionsError):
    """The command line is not one that a parser accepts."""

    def __init__(self, prog: str, message: str) -> None:
        super().__init__("usage", message=message, prog=prog)
        self.prog: str = prog


class _Parser(argparse.ArgumentParser):
    """A parser that raises a mistake; argparse prints all options, and ends the program."""

    def error(self, message: str) -> NoReturn:
        unknown = _UNKNOWN.search(message)
        known = [*self._option_string_actions]
        known += [str(choice) for action in self._actions for choice in action.choices or ()]
        close = get_close_matches(unknown[1] or unknown[2], known, n=1, cutoff=0.7) if unknown else []
        raise UsageError(self.prog, message + (f"; was {close[0]} meant?" if close else ""))


class _IntermixedParser(_Parser):
    """A parser that also accepts options between positional arguments, which argparse does not."""

    _is_intermixed = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._is_intermixed or self._subparsers is not None:
            # older releases of Python parse the two in turns, by this method
            return super().parse_known_args(args, namespace)
        self._is_intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed = False
