"""The option ``--config``: a TOML file whose keys are parameters, and whose values replace their defaults."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from tfshards.schemas import OptionsError
from tfshards.schemas.storage.paths import local_path
from tfshards.schemas.storage.stored import OPTIONS

_SHOWN = 100


def read_config(parser: argparse.ArgumentParser, path: str, ignored: Sequence[str]) -> dict[str, object]:
    """Return the values in a file of options by parameter, as the parser gives those of flags.

    Args:
        parser: the parser of the options.
        path: path of the file.
        ignored: names of options that the file may have for another verb.

    Raises:
        OptionsError: the file cannot be read, or is not valid.
    """
    own = {each.dest: each for each in parser._actions if each.option_strings}
    del own["help"], own["config"]
    values: dict[str, object] = {}
    for key, value in _read_toml(path).items():
        name = key.replace("-", "_")
        if name in own:
            values[name] = _value_of(parser, own[name], value, f"{path}: {key} = {_toml(value)}")
        elif name not in ignored:
            close = get_close_matches(name, own, n=1)
            hint = f"was {close[0]} meant?" if close else f"it has {', '.join(sorted(own))}"
            raise OptionsError(f"{path}: {_toml(key)} is not an option of {parser.prog}; {hint}")
    return values


def _value_of(parser: argparse.ArgumentParser, action: argparse.Action, value: object, place: str) -> object:
    """Return the value of an option, which may be text as on the command line."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise OptionsError(f"{place} must be true or false")
        return value
    items, names = value if isinstance(value, list) else [value], [""]
    if isinstance(value, dict) and "=" in str(action.metavar):
        items, names = [*value.values()], [f"{name}=" for name in value]
    is_repeatable = isinstance(action, argparse._AppendAction)
    if any(isinstance(each, (bool, list, dict)) for each in items) or not (is_repeatable or len(items) == 1):
        raise OptionsError(
            f"{place} must be text, a number, or, if it is repeatable, a list or table of these"
        )
    try:
        texts = [f"{name}{each}" for name, each in zip(names * len(items), items, strict=False)]
        found = [parser._get_values(action, [text]) for text in texts]
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
        text = local_path(path).read_whole(OPTIONS).decode("utf-8")
        content: dict[str, object] = tomllib.loads(text)
    except OSError as error:
        raise OptionsError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise OptionsError(f"{path} is not TOML: {error}") from None
    return content


def _toml(value: object) -> str:
    # as in TOML, except for tables, dates and times
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
