"""Checks of single values, whose errors name the option, what was found and what is allowed."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeGuard, TypeVar

import numpy as np

from tfshards.schemas import OptionsError

P = ParamSpec("P")
Result = TypeVar("Result")

_SIZES = {"batch_size": "the examples of one worker", "global_batch_size": "those of all workers together"}


def invalid(name: str, found: object, allowed: str) -> OptionsError:
    """Return the error of an option whose value is not ``allowed``."""
    return OptionsError(f"{name}={found!r} must be {allowed}")


def check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    """Raise unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise invalid(name, value, f"one of {', '.join(map(repr, allowed))}")


def check_type(name: str, value: object, kind: type, example: str = "") -> None:
    """Raise unless ``value`` is None or of type ``kind``, a public class of ``loader``."""
    if value is not None and not isinstance(value, kind):
        raise invalid(name, value, f"loader.{kind.__name__}({example or '...'}), or None")


def is_integer(number: object) -> TypeGuard[int]:
    """Return whether ``number`` is an integer of Python or NumPy."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def check_least(name: str, number: object, least: int) -> None:
    """Raise unless ``number`` is an integer of at least ``least``."""
    if not is_integer(number) or number < least:
        raise invalid(name, number, f"an integer of at least {least}")


def check_index(name: str, index: int, count: int) -> None:
    """Raise unless ``index`` is one of ``count``, which is at least 1; ``name`` is the owner of both."""
    check_least(f"{name}.count", count, 1)
    if not is_integer(index) or not 0 <= index < count:
        raise invalid(f"{name}.index", index, f"an integer from 0 to {count - 1}, since count={count}")


def check_seed(name: str, seed: int) -> None:
    """Raise unless ``seed`` fits an int64."""
    if not is_integer(seed) or not -(2**63) <= seed < 2**63:
        raise invalid(name, seed, "an integer of 64 bits, from -2**63 to 2**63 - 1")


def suggests(function: Callable[P, Result]) -> Callable[P, Result]:
    """Return ``function`` with an error for unknown parameters that names the one that was meant."""
    names = [*inspect.signature(function).parameters]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        for name in kwargs:
            if name not in names:
                (meant,) = difflib.get_close_matches(name, names, 1) or [""]
                remedy = f"was {meant}= meant?" if meant else f"its parameters are {', '.join(names)}"
                if name in _SIZES and meant in _SIZES:
                    remedy = f"it takes {meant}=, {_SIZES[meant]}"
                elif name == "seed" and "shuffle" in names:
                    remedy = "give shuffle=Shuffle(seed)"
                raise OptionsError(f"{function.__name__}() has no parameter {name}=; {remedy}")
        return function(*args, **kwargs)

    return call
