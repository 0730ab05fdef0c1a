"""The option ``--config``: a TOML file whose keys are parameters, and whose values replace their defaults."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from tfshards.prep.cli.derive import Append
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.untrusted import OPTIONS, read_whole

_MOST_DOTS = 1000
_SHOWN = 100


def add_config(parser: argparse._ActionsContainer) -> None:
    """Add the option ``--config``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file of options by their names, such as shard_size = '256MiB'; flags on the command line "
        "replace them",
    )


@dataclass(frozen=True)
class Config:
    """The options of a file.

    Attributes:
        path: the file; empty if none is given.
        values: values by parameter.
    """

    path: str = ""
    values: Mapping[str, object] = field(default_factory=dict)

    def with_origin(self, message: str, args: argparse.Namespace) -> str:
        """Return the message of an error, with the origin of the first option of the file that it names."""
        for name, value in self.values.items():
            named = re.search(rf"(?<![\w-]){name}=", message)
            if named and getattr(args, name, value) is value:
                return f"{message} ({name} is from {self.path})"
        return message


def read_config(
    arguments: Sequence[str], parser: argparse.ArgumentParser, others: Sequence[argparse.ArgumentParser] = ()
) -> Config:
    """Make the options of the file that a command line names the defaults of its parser.

    Args:
        arguments: the command line.
        parser: the parser of the verb.
        others: parsers of verbs that share the file; their options are known, but have no effect.

    Raises:
        OptionsError: the file is not valid.
        InputError: the file cannot be read.
    """
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_config(early)
    path = early.parse_known_args(arguments)[0].config
    if path is None:
        return Config()
    if not path:
        parser.error("argument --config: it is empty")
    content, options = _read_toml(path), _options_of(parser)
    known = {*options}.union(*map(_options_of, others))
    values: dict[str, object] = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in known:
            close = get_close_matches(name, sorted(known), n=1)
            hint = f"was {close[0]} meant?" if close else f"it has {', '.join(sorted(known))}"
            raise OptionsError(f"{path}: {_toml(key)} is not an option of {parser.prog}; {hint}")
        if name in options:
            values[name] = _value_of(parser, options[name], value, f"{path}: {key} = {_toml(value)}")
            options[name].required = False
    parser.set_defaults(**values)
    return Config(path, values)


def _options_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the options of a parser by their parameters."""
    actions = [action for action in parser._actions if action.option_strings]
    return {action.dest: action for action in actions if action.dest not in ("help", "config")}


def _value_of(parser: argparse.ArgumentParser, action: argparse.Action, value: object, place: str) -> object:
    """Return the value of an option, which may be text as on the command line."""
    is_repeatable = isinstance(action, Append)
    has_names = "=" in str(action.metavar)
    if action.nargs == 0 and isinstance(value, bool):
        return value
    items = value if is_repeatable and isinstance(value, list) else [value]
    names = [""] * len(items)
    if has_names and isinstance(value, dict):
        items, names = [*value.values()], [f"{name}=" for name in value]
    if action.nargs == 0 or any(isinstance(each, (bool, list, dict)) for each in items):
        several = (", a list of these" if is_repeatable else "") + (", or a table" if has_names else "")
        allowed = "true or false" if action.nargs == 0 else f"text or a number{several}"
        raise OptionsError(f"{place} must be {allowed}")
    try:
        texts = [f"{name}{each}" for name, each in zip(names, items, strict=True)]
        found = [parser._get_value(action, text) for text in texts]
        for each in found:
            parser._check_value(action, each)
    except argparse.ArgumentError as error:
        raise OptionsError(f"{place}: {error.message}") from None
    return found if is_repeatable else found[0]


def _read_toml(path: str) -> dict[str, object]:
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
        raise InputError(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise OptionsError(f"{path}: its lists are nested too deeply for options") from None
    except ValueError as error:
        raise OptionsError(f"{path} is not TOML: {error}") from None
    return content


def _toml(value: object) -> str:
    # as in TOML, except for tables, dates and times
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
