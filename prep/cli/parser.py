"""Create the parser of the command line from the table of verbs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import NoReturn

from tfshards.prep.cli.config_file import add_config
from tfshards.prep.cli.verb import Verb
from tfshards.schemas.errors import one_line

# The message of argparse about a word for an integer.
_NO_INTEGER = re.compile(r"^argument (\S+): invalid int value: '(.*)'$")

# A file of options serves both: each also knows the options of the other.
_WITH_KINDS = {"build", "plan"}


def make_parser(verbs: Mapping[str, Verb], only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser; it sets the attributes ``verb`` and ``parser``, the parser of the verb.

    Args:
        verbs: the table of verbs.
        only: name of the verb whose arguments to add, since those of others may need packages that are not
            installed; None to add those of all verbs.
    """
    parser = _Parser(
        prog="tfshards",
        description="Convert images, arrays and tables to balanced TFRecord shards, and inspect them.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tfshards {version('tfshards')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_IntermixedParser)
    for verb in verbs.values():
        # a new option must not change what an abbreviation in somebody's script means
        own = commands.add_parser(
            verb.name, help=verb.help, description=_sentence(verb.help), allow_abbrev=False
        )
        own.set_defaults(verb=verb, parser=own)
        if only not in (None, verb.name) and not {only, verb.name} <= _WITH_KINDS:
            continue
        verb.add_arguments(own)
        options = {action.dest for action in own._actions if action.option_strings} - {"help"}
        if options and "config" not in options:
            add_config(own)
    return parser


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


class _Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line; argparse prints all options before it."""

    def error(self, message: str) -> NoReturn:
        message = _NO_INTEGER.sub(r"\1 \2 must be an integer", message)
        self.exit(2, one_line(f"{self.prog}: {message}; see {self.prog} --help") + "\n")


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
