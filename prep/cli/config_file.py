"""Options in a TOML file under the names of the flags, and their conversion to command-line arguments."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.files import local_path
from tfshards.schemas.storage.untrusted import OPTIONS, read_whole

_MOST_DOTS = 1000
_SHOWN = 100
# The flags that say where options come from, or that are no options.
_NO_KEYS = ("help", "config")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--config``."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file of options: keys are the names of flags, such as resize = 'short=256'; flags on the "
        "command line replace them",
    )


def read_config(path: str) -> dict[str, object]:
    """Return the content of a TOML file.

    Raises:
        InputError: the file cannot be read.
        OptionsError: it is not valid TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        # of the extra, which commands without a file of options do not need
        import tomli as tomllib

    file = local_path(path)
    try:
        text = read_whole(file, OPTIONS).decode("utf-8")
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


def key_of(action: argparse.Action) -> str:
    """Return the key of an argument in a file: its flag without dashes, or the name of a positional one."""
    return action.option_strings[-1].lstrip("-") if action.option_strings else action.dest


def keys_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the arguments of a parser by their key."""
    return {key_of(action): action for action in parser._actions if key_of(action) not in _NO_KEYS}


def check_keys(keys: Collection[str], known: Collection[str], path: str) -> None:
    """Raise OptionsError if a key is not the name of an argument."""
    for key in keys:
        if key not in known:
            hint = close_to(key.replace("_", "-"), known) or "the keys are the names of flags"
            raise OptionsError("config-key-unknown", path=path, key=_shown(key), hint=hint)


def close_to(word: str, known: Collection[str]) -> str | None:
    """Return the question whether a known word that is like an unknown one was meant."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else None


def arguments_of(action: argparse.Action, value: object, place: str) -> list[str]:
    """Return the arguments that give a value to an option or a positional argument.

    Args:
        action: the argument.
        value: its value; where the flag is repeatable also a list, or a table if the flag is ``NAME=VALUE``.
        place: file and key, for messages.

    Raises:
        OptionsError: the value has another type, or is not one of the choices.
    """
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise _mistake(place, value, "true or false")
        return [action.option_strings[-1]] if value else []
    texts = list(_texts(action, value, place))
    return [f"{action.option_strings[-1]}={text}" for text in texts] if action.option_strings else texts


def _texts(action: argparse.Action, value: object, place: str) -> Iterator[str]:
    is_repeatable = isinstance(action, argparse._AppendAction) or action.nargs == "+"
    has_names = is_repeatable and "=" in str(action.metavar)
    allowed = _allowed(action, is_repeatable=is_repeatable, has_names=has_names)
    if is_repeatable and isinstance(value, list):
        values = value
    elif has_names and isinstance(value, Mapping):
        for name, each in value.items():
            if not _is_scalar(action, each):
                raise _mistake(f"{place}.{name}", each, _allowed(action))
            yield f"{name}={each}"
        return
    else:
        values = [value]
    for each in values:
        if not _is_scalar(action, each) or (action.choices and str(each) not in action.choices):
            raise _mistake(place, value, allowed)
        yield str(each)


def _is_scalar(action: argparse.Action, value: object) -> bool:
    if isinstance(value, bool):
        return False
    if action.type is int:
        return isinstance(value, int)
    return isinstance(value, (int, float) if action.type is float else (str, int, float))


def _allowed(action: argparse.Action, *, is_repeatable: bool = False, has_names: bool = False) -> str:
    if action.choices:
        return f"one of {', '.join(map(str, action.choices))}"
    single = "a number" if action.type is float else "text or a number"
    if action.type is int:
        single = "an integer"
    more = ", a list of these" if is_repeatable else ""
    return f"{single}{more}{', or a table' if has_names else ''}"


def _mistake(place: str, value: object, allowed: str) -> OptionsError:
    return OptionsError("config-value", place=place, found=_shown(value), allowed=allowed)


def _shown(value: object) -> str:
    # as in TOML, except for tables, dates and times
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
