"""The option ``--config``: a TOML file whose keys are parameters, and whose values replace their defaults."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import NamedTuple

from tfshards.prep.cli.derive import Append
from tfshards.schemas import OptionsError
from tfshards.schemas.storage.paths import local_path
from tfshards.schemas.storage.stored import OPTIONS

_MOST_DOTS = 1000
_SHOWN = 100


class Config(NamedTuple):
    """A file of options, and its values by parameter."""

    path: str = ""
    values: Mapping[str, object] = MappingProxyType({})


class TakeConfig(argparse.Action):
    """Gives options of the command the values of a file, unless flags give others, before it or after it."""

    def __init__(self, *args: object, ignored: tuple[str, ...] = (), **kwargs: object) -> None:
        """Take names of options that the file may have for another verb."""
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._ignored = ignored

    def __call__(
        self, parser: argparse.ArgumentParser, given: argparse.Namespace, path: object, _: str | None = None
    ) -> None:
        """Read the file; the namespace gets its options, and the attribute ``config``.

        Raises:
            OptionsError: the file cannot be read, or is not valid.
        """
        if hasattr(given, self.dest):
            raise argparse.ArgumentError(self, "is given twice")
        path = str(path)
        own = {each.dest: each for each in parser._actions if each.option_strings and each.dest != "help"}
        del own[self.dest]
        values: dict[str, object] = {}
        for key, value in _read_toml(path).items():
            name = key.replace("-", "_")
            if name in own:
                action = own[name]
                values[name] = _value_of(parser, action, value, f"{path}: {key} = {_toml(value)}")
                action.required = False
                if getattr(given, name, action.default) is action.default:
                    # a flag after the file replaces the default
                    action.default = values[name]
                    setattr(given, name, values[name])
            elif name not in self._ignored:
                close = get_close_matches(name, own, n=1)
                hint = f"was {close[0]} meant?" if close else f"it has {', '.join(sorted(own))}"
                raise OptionsError(f"{path}: {_toml(key)} is not an option of {parser.prog}; {hint}")
        setattr(given, self.dest, Config(path, values))


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
        text = local_path(path).read_whole(OPTIONS).decode("utf-8")
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            # a key of many parts takes the square of their number
            raise ValueError(f"a line has more than {_MOST_DOTS:,} dots")
        content: dict[str, object] = tomllib.loads(text)
    except OSError as error:
        raise OptionsError(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise OptionsError(f"{path}: its lists are nested too deeply for options") from None
    except ValueError as error:
        raise OptionsError(f"{path} is not TOML: {error}") from None
    return content


def _toml(value: object) -> str:
    # as in TOML, except for tables, dates and times
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
