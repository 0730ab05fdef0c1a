"""The table row of a verb, and the parser of the command line that the rows give."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from tfshards.prep.cli.config import TakeConfig
from tfshards.prep.cli.derive import Call, description_of, not_empty, plain
from tfshards.prep.sources.kinds import KINDS, Kind
from tfshards.schemas import OptionsError

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


def make_parser(verbs: Mapping[str, Verb], arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser; it sets the attributes ``verb``, ``call`` and ``parser``, the parser of the verb.

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
        own = commands.add_parser(verb.name, help="" if only else verb.summary, allow_abbrev=False)
        own.set_defaults(verb=verb, parser=own)
        if only not in (None, verb.name):
            continue
        function = verb.load()
        if not verb.has_kinds:
            _add_arguments(own, verb, function, None)
            continue
        kinds = own.add_subparsers(required=True, metavar="KIND", parser_class=_IntermixedParser)
        for each in KINDS.values():
            leaf = kinds.add_parser(each.name, help=each.help, allow_abbrev=False)
            if kind in (None, each.name):
                _add_arguments(leaf, verb, function, each)
    return parser


def _add_arguments(
    parser: argparse.ArgumentParser, verb: Verb, function: Callable[..., Any], kind: Kind | None
) -> None:
    """Add the arguments of a verb: the parameters of its function, and what all verbs have."""
    call = Call.of(function, {"source": kind.source} if kind else {})
    parser.description = "\n\n".join(map(description_of, filter(None, [kind and kind.source, function])))
    parser.formatter_class = _Formatter
    left_out = ("max_rejected",) if kind and not kind.can_reject else ()
    call.add_to(parser, verb.positional, left_out)
    group = parser.add_argument_group("every command")
    group.add_argument(
        "--config",
        action=TakeConfig,
        default=argparse.SUPPRESS,
        ignored=verb.ignored,
        metavar="FILE",
        type=not_empty,
        help="TOML file of options by their names, such as shard_size = '256MiB'; flags on the command line "
        "replace them",
    )
    group.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="use at most N processes of this machine, or threads that compute (default: one per core)",
    )
    group.add_argument("--json", action="store_true", help="print the result, or the error, as JSON")
    only_one = group.add_mutually_exclusive_group()
    only_one.add_argument(
        "-q", "--quiet", action="store_true", help="print no status and no progress, only warnings and errors"
    )
    only_one.add_argument(
        "-v", "--verbose", action="store_true", help="also print logs of libraries, and tracebacks of errors"
    )
    if call.takes_beam_args:
        parser.epilog = _BEAM_EPILOG
    parser.set_defaults(verb=verb, parser=parser, call=call)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


class _Formatter(argparse.HelpFormatter):
    """Keeps the paragraphs of a description."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(each, width, indent) for each in text.split("\n\n"))


class _Parser(argparse.ArgumentParser):
    """A parser that raises a mistake; argparse prints all options, and ends the program."""

    def error(self, message: str) -> NoReturn:
        message = message.replace("ignored explicit argument", "a switch has no value, but it was given")
        hint = self._close(message) or self._hint(message)
        raise OptionsError(f"{message}{hint}; see {self.prog} --help", code="usage")

    def _hint(self, message: str) -> str:
        """Return what may be wrong about a word that resembles no other."""
        _, is_unrecognized, words = message.partition("unrecognized arguments: ")
        if not is_unrecognized:
            return ""
        if not words.startswith("-"):
            return "; repeat the flag for each NAME=VALUE" if "=" in words else ""
        call = self.get_default("call")
        return "; options of Apache Beam follow a bare --" if call and call.takes_beam_args else ""

    def _close(self, message: str) -> str:
        unknown = _UNKNOWN.search(message)
        known = [*self._option_string_actions, *subcommands(self)]
        known += re.findall(r"[\w-]+", message.partition("choose from")[2])
        close = get_close_matches(unknown[1] or unknown[2] or "", known, n=1, cutoff=0.7) if unknown else []
        return f"; was {close[0]} meant?" if close else ""


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
