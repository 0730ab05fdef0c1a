"""Add to a command line the options of a TOML file."""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.untrusted import OPTIONS, read_whole

_MOST_DOTS = 1000
_SHOWN = 100
# Flags that name the source of options, or that are not options.
_NO_KEYS = ("help", "config")
# Options that say the same thing, in addition to those which the parser excludes.
_RIVALS = ({"shards", "shard-size"},)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--config``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file of options: keys are the names of flags, such as resize = 'short=256'; flags on the "
        "command line replace them",
    )


@dataclass(frozen=True)
class Expanded:
    """A command line with the options of files, and by flag where each of these comes from."""

    arguments: list[str]
    origins: Mapping[str, str] = field(default_factory=dict)

    def with_origin(self, message: str) -> str:
        """Return the message of an error, with the origin of the first option that it names."""
        for flag, origin in self.origins.items():
            if re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", message):
                return f"{message} ({flag} is from {origin})"
        return message


def expand(arguments: Sequence[str], parser: argparse.ArgumentParser) -> Expanded:
    """Return the command line with the options of the files that it names.

    An option on the command line takes precedence over ``--config``.
    Positional arguments of the file are used if they are not on the command line.

    Raises:
        OptionsError: the file of options is invalid.
        InputError: the file cannot be read.
    """
    commands = subcommands(parser)
    if not arguments or arguments[0] not in commands:
        return Expanded([*arguments])
    before, kinds = [arguments[0]], subcommands(commands[arguments[0]])
    early = type(parser)(prog=commands[before[0]].prog, add_help=False, allow_abbrev=False)
    add_config(early)
    found, rest = early.parse_known_args(arguments[1:])
    path = str(found.config or "")
    if not path:
        return Expanded([*arguments])
    config = _read_config(path)
    own, others = commands[before[0]], []
    if kinds:
        kind = rest.pop(0) if rest and rest[0] in kinds else _kind_in(path, config, [*kinds])
        before, own = [*before, kind], kinds[kind]
        # a file of options serves build and plan
        others = [subcommands(each)[kind] for each in commands.values() if kind in subcommands(each)]
    keys = keys_of(own)
    for key in config:
        if key not in {"kind", *keys, *(each for other in others for each in keys_of(other))}:
            raise OptionsError("config-key-unknown", path=path, key=_value_text(key))
    given, positionals = _given(own, rest)
    positional = [key for key, action in keys.items() if not action.option_strings]
    if positionals and all(key in config for key in positional):
        config = {key: value for key, value in config.items() if key not in positional}
    replaced = _replaced(given, own)
    values = {key: config[key] for key in config if key in keys and key not in replaced}
    flags = [key for key in values if keys[key].option_strings]
    added = (_arguments(values, keys, some, path) for some in (positional[:1], flags, positional[1:]))
    first, options, last = added
    origins = {keys[key].option_strings[-1]: path for key in flags}
    return Expanded([*before, *first, *options, *rest, *last], origins)


def _read_config(path: str) -> dict[str, object]:
    """Return the content of a TOML file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        # of the extra, which commands without a file of options do not need
        import tomli as tomllib

    try:
        text = read_whole(local_path(path), OPTIONS).decode("utf-8")
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            # a key of many parts takes the square of their number
            raise ValueError(f"a line has more than {_MOST_DOTS:,} dots")
        content: dict[str, object] = tomllib.loads(text)
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
    except RecursionError:
        raise OptionsError("config-too-deep", path=path) from None
    except ValueError as error:
        # of TOML, or of UTF-8
        raise OptionsError("config-not-toml", path=path, error=error) from None
    return content


def _kind_in(path: str, config: Mapping[str, object], kinds: Sequence[str]) -> str:
    kind = config.get("kind")
    if kind is None:
        raise OptionsError("config-no-kind", path=path, kinds=kinds)
    if not isinstance(kind, str) or kind not in kinds:
        raise OptionsError("config-kind", path=path, kind=kind, kinds=kinds)
    return kind


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


def keys_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the arguments of a parser by their keys: flags without dashes, names of positional ones."""
    return {
        action.option_strings[-1].lstrip("-") if action.option_strings else action.dest: action
        for action in parser._actions
        if action.dest not in _NO_KEYS
    }


def arguments_of(action: argparse.Action, value: object, place: str) -> list[str]:
    """Return the arguments that give a value to an option or a positional argument; argparse checks them.

    Args:
        action: the argument.
        value: its value; where the flag is repeatable also a list, or a table if the flag is ``NAME=VALUE``.
        place: file and key, for messages.
    """
    if action.nargs == 0 and isinstance(value, bool):
        return [action.option_strings[-1]] if value else []
    is_repeatable = isinstance(action, argparse._AppendAction) or action.nargs == "+"
    has_names = is_repeatable and "=" in str(action.metavar)
    values = [*value] if is_repeatable and isinstance(value, (list, tuple)) else [value]
    names = [""] * len(values)
    if has_names and isinstance(value, Mapping):
        values, names = [*value.values()], [f"{name}=" for name in value]
    are_scalars = all(isinstance(each, (str, int, float)) and not isinstance(each, bool) for each in values)
    if action.nargs == 0 or not are_scalars:
        several = (", a list of these" if is_repeatable else "") + (", or a table" if has_names else "")
        allowed = "true or false" if action.nargs == 0 else f"text or a number{several}"
        raise OptionsError("config-value", place=place, found=_value_text(value), allowed=allowed)
    flag = f"{action.option_strings[-1]}=" if action.option_strings else ""
    return [f"{flag}{name}{each}" for name, each in zip(names, values, strict=True)]


def _arguments(
    values: Mapping[str, object], keys: Mapping[str, argparse.Action], some: Sequence[str], path: str
) -> list[str]:
    """Return the arguments for some of the values, which are those of a file."""
    found = [key for key in some if key in values]
    return [text for key in found for text in arguments_of(keys[key], values[key], f"{path}: {key}")]


def _value_text(value: object) -> str:
    # as in TOML, except for tables, dates and times
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _given(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    """Return the options on a command line by their key, and the positional arguments."""
    probe = type(parser)(prog=parser.prog, add_help=False, allow_abbrev=False)
    keys = {key: action for key, action in keys_of(parser).items() if action.option_strings}
    for key, action in keys.items():
        own = copy.copy(action)
        own.dest, own.default, own.required = key, argparse.SUPPRESS, False
        probe._add_action(own)
    found, others = probe.parse_known_args(arguments)
    return vars(found), [other for other in others if not other.startswith("-")]


def _replaced(given: Mapping[str, object], parser: argparse.ArgumentParser) -> set[str]:
    """Return the keys of options that are given, and of those that exclude them."""
    by_dest = {action.dest: key for key, action in keys_of(parser).items()}
    groups = [
        {by_dest[action.dest] for action in group._group_actions}
        for group in parser._mutually_exclusive_groups
    ]
    return {*given}.union(*(group for group in [*groups, *_RIVALS] if group & {*given}))
