"""Checks of single values, whose errors name the option, what was found and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from tfshards.schemas import OptionsError


def check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    """Raise unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise OptionsError("not-a-choice", name=name, found=value, allowed=allowed)


def check_flag(name: str, value: object) -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise OptionsError("not-a-flag", name=name, found=value)


def check_seed(name: str, seed: int) -> None:
    """Raise unless ``seed`` fits an int64."""
    check_integer(name, seed)
    if not -(2**63) <= seed < 2**63:
        raise OptionsError("seed-64-bits", name=name, seed=seed)


def check_type(name: str, value: object, kind: type) -> None:
    """Raise unless ``value`` is None or of type ``kind``, a public class of ``loader``."""
    if value is not None and not isinstance(value, kind):
        raise OptionsError("wrong-loader-type", name=name, found=value, kind=kind.__name__)


def is_integer(number: object) -> TypeGuard[int]:
    """Return whether ``number`` is an integer of Python or NumPy."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def check_integer(name: str, number: object) -> None:
    """Raise unless ``number`` is an integer of Python or NumPy."""
    if not is_integer(number):
        raise OptionsError("not-an-integer", name=name, number=number)


def check_index(name: str, index: int, count: int) -> None:
    """Raise unless ``index`` is one of ``count``, which is at least 1; ``name`` is the owner of both."""
    check_least(f"{name}.count", count, 1)
    check_integer(f"{name}.index", index)
    if not 0 <= index < count:
        raise OptionsError("index-range", name=name, index=index, count=count, count2=count - 1)


def check_least(name: str, number: int, least: int) -> None:
    """Raise unless ``number`` is an integer of at least ``least``."""
    check_integer(name, number)
    if number < least:
        raise OptionsError("below-least", name=name, number=number, least=least)
