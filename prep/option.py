"""Options as fields of frozen dataclasses: the check of their choices, and what manifests record of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from itertools import chain
from types import NoneType
from typing import Any, ClassVar, Literal, Protocol, get_args, get_origin, get_type_hints

from tfshards.schemas.errors import OptionsError
from tfshards.schemas.json_reader import Json

# the values of types that have few
_FEW: Mapping[object, tuple[object, ...]] = {bool: (True, False), NoneType: (None,)}


class Record(Protocol):
    """A dataclass whose fields are options."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@cache
def choices_of(record: type[Record]) -> dict[str, tuple[object, ...]]:
    """Return the allowed values of the fields that have few: of a ``Literal`` or bool, perhaps with None."""
    found: dict[str, tuple[object, ...]] = {}
    for name, hint in get_type_hints(record).items():
        members = (hint,) if hint is bool or get_origin(hint) is Literal else get_args(hint)
        values = [
            _FEW.get(each) or (get_args(each) if get_origin(each) is Literal else ()) for each in members
        ]
        if values and all(values):
            found[name] = tuple(chain.from_iterable(values))
    return found


def check_choices(record: Record) -> None:
    """Raise OptionsError if the value of an option is not one of its choices."""
    for name, allowed in choices_of(type(record)).items():
        value = getattr(record, name)
        # True equals 1
        if (type(value), value) not in [(type(each), each) for each in allowed]:
            raise OptionsError(f"{name}={value!r} must be one of {', '.join(map(str, allowed))}")


def changed_options(record: Record, names: Iterable[str]) -> dict[str, Json]:
    """Return the named options that differ from their default values."""
    by_name = {each.name: each for each in fields(record)}
    return {name: getattr(record, name) for name in names if getattr(record, name) != _default(by_name[name])}


def _default(each: Field[Any]) -> object:
    return each.default if each.default_factory is MISSING else each.default_factory()


def recorded_options(names: Iterable[str], recorded: Mapping[str, Json]) -> dict[str, Any]:
    """Return the named options among those that a manifest records."""
    return {name: recorded[name] for name in names if name in recorded}
