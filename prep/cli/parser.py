"""The table row of a verb, and the parser of the command line that the rows give."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from tfshards.prep.cli.config import read_config
from tfshards.prep.cli.derive import Call, description_of, plain
from tfshards.prep.sources.kinds import KINDS, Kind
from tfshards.schemas import OptionsError

# A new option must not change what an abbreviation in somebody's script means.
_SETTINGS: dict[str, Any] = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS}
# What argparse reports of a word that it does not know.
_UNKNOWN = re.compile(r"invalid choice: '([^']*)'|unrecognized arguments: (-[^ =]+)")
# Text after the options in the help of a verb that an engine runs.
_BEAM_EPILOG = (
    "All cores of this machine do the work. To use Apache Beam instead, give its pipeline options after a "
    "bare --, for example: -- --runner=FlinkRunner"
)


@dataclass(frozen=True)
class Verb:
    """A verb of the command line: a public function, whose parameters are the arguments.

    Attributes:
        name: name of the verb and of the function.
        module: module of the function, which is imported when the verb runs.
        positional: parameters that are positional arguments, in addition to the first one.
        has_kinds: whether a source, the first argument, is made from the arguments of one of the kinds.
        ignored: parameters of another verb, which a file of options that both take may have.
    """

    name: str
    module: str
    positional: tuple[str, ...] = ()
    has_kinds: bool = False
    ignored: tuple[str, ...] = ()

    def load(self) -> Callable[..., Any]:
        """Return the function."""
        found: Callable[..., Any] = getattr(import_module(self.module), self.name)
        return found

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, read from the file, since an import may take a second."""
        spec = find_spec(self.module)
        text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        found = re.search(rf'^def {self.name}\(.*?^    """(.*?)[.:;"\n]', text, re.MULTILINE | re.DOTALL)
        return plain(found[1]) if found else ""


@dataclass(frozen=True)
class Common:
    """What every verb has.

    Attributes:
        config: TOML file of options by their names, such as shard_size = '256MiB'; flags on the command line
            replace them.
        jobs: use at most N processes of this machine, or threads that compute; by default one per core.
        json: print the result, or the error, as JSON.
        quiet: print no status and no progress, only warnings and errors.
        verbose: also print logs of libraries, and tracebacks of errors.
    """

    config: str | os.PathLike[str] = ""
    jobs: int | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False


_COMMON = Call.of(Common)


def find_parser(verbs: Mapping[str, Verb], words: Sequence[str]) -> tuple[Parser, Sequence[str]]:
    """Return the parser of what a command line begins with, and the words that are left for it.

    It is that of a verb, or of a verb with a kind of source; else that of all verbs, without their arguments:
    these may need packages that are not installed or take long to import.
    """
    verb = verbs.get(words[0]) if words else None
    kind = KINDS.get("".join(words[1:2])) if verb and verb.has_kinds else None
    if verb is None or (verb.has_kinds and kind is None):
        parser = make_parser(verbs, lambda *_: None)
        return parser, words
    begin = [verb.name, kind.name] if kind else [verb.name]
    parser = Parser(prog=" ".join(["tfshards", *begin]), **_SETTINGS)
    parser.add_verb(verb, kind)
    return parser, words[len(begin) :]


def make_parser(verbs: Mapping[str, Verb], add_verb: Callable[[Parser, Verb, Kind | None], object]) -> Parser:
    """Return the parser of all verbs; a function adds the arguments of each to the parser of the verb."""
    parser = Parser(
        prog="tfshards",
        description="Convert images, arrays and tables to balanced TFRecord shards, and inspect them.",
        **_SETTINGS,
    )
    parser.add_argument("--version", action="version", version=f"tfshards {version('tfshards')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for verb in verbs.values():
        own = commands.add_parser(verb.name, help=verb.summary, **_SETTINGS)
        if not verb.has_kinds:
            add_verb(own, verb, None)
            continue
        kinds = own.add_subparsers(required=True, metavar="KIND", parser_class=Parser)
        for kind in KINDS.values():
            add_verb(kinds.add_parser(kind.name, help=kind.help, **_SETTINGS), verb, kind)
    return parser


class Parser(argparse.ArgumentParser):
    """A parser that raises a mistake; argparse prints all options, and ends the program.

    Attributes:
        call: the call of a verb that the arguments describe; None in the parser of all verbs.
    """

    call: Call | None = None
    description: str | None

    def add_verb(self, verb: Verb, kind: Kind | None) -> None:
        """Add the arguments of a verb: the parameters of its function, and what all verbs have."""
        function, self._ignored = verb.load(), verb.ignored
        self.call = Call.of(function, {"source": kind.source} if kind else {})
        self.description = "\n\n".join(map(description_of, filter(None, [kind and kind.source, function])))
        self.formatter_class = _Formatter
        left_out = ("max_rejected",) if kind and not kind.can_reject else ()
        self.call.add_to(self, verb.positional, left_out)
        group = self.add_argument_group("every command")
        for each in _COMMON.parameters:
            each.add_to(group, None)
        if self.call.takes_beam_args:
            self.epilog = _BEAM_EPILOG

    def parse(self, words: Sequence[str]) -> tuple[dict[str, Any], Common]:
        """Return the values of arguments, of which those on the command line replace those of a file."""
        if any(word.partition("=")[0] == "--config" for word in words):
            for action in self._actions:
                # the file may have it
                action.required = action.required and not action.option_strings
        try:
            # options may be between positional arguments
            parse = self.parse_intermixed_args if self.call else self.parse_args
            values = {name: value for name, value in vars(parse(words)).items() if value is not None}
        except BrokenPipeError:
            # the program that reads the help, such as head, has read enough
            abandon_stdout()
            self.exit(1)
        if {"quiet", "verbose"} <= {*values}:
            self.error("argument --quiet: not allowed with argument --verbose")
        if path := _COMMON.run(values).config:
            values = {**read_config(self, path, self._ignored), **values}
        return values, _COMMON.run(values)

    @property
    def is_resumable(self) -> bool:
        """Whether the same command resumes an interrupted one."""
        return self.call is not None and self.call.takes_beam_args

    def error(self, message: str) -> NoReturn:
        """Raise a mistake, with a hint."""
        unknown, hint = _UNKNOWN.search(message), ""
        if unknown:
            choices = re.findall(r"[\w-]+", message.partition("choose from")[2])
            known = [*self._option_string_actions, *choices]
            close = get_close_matches(unknown[1] or unknown[2] or "", known, n=1, cutoff=0.7)
            hint = f"; was {close[0]} meant?" if close else ""
        if not hint and "unrecognized arguments: -" in message and self.is_resumable:
            hint = "; options of Apache Beam follow a bare --"
        raise OptionsError(f"{message}{hint}; see {self.prog} --help", code="usage")


class _Formatter(argparse.HelpFormatter):
    """Keeps the paragraphs of a description."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(each, width, indent) for each in text.split("\n\n"))


def abandon_stdout() -> None:
    """Write what follows to nothing, since nobody reads it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
