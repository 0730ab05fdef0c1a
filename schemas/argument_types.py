"""Check the types of arguments of the public functions; a wrong one is an error that names the argument."""

from __future__ import annotations

import os

from tfshards.schemas.errors import OptionsError


def check_path(name: str, value: object) -> None:
    """Raise OptionsError unless the argument ``name`` is a path."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise OptionsError("not-a-path", name=name, found=value)


def check_strings(name: str, value: object) -> None:
    """Raise OptionsError unless the argument ``name`` is a list or a tuple of strings."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise OptionsError("not-strings", name=name, found=value)


def check_instance(name: str, value: object, kind: type) -> None:
    """Raise OptionsError unless the argument ``name`` is an instance of a class."""
    if not isinstance(value, kind):
        raise OptionsError("wrong-type", name=name, found=value, kind=kind.__name__)
