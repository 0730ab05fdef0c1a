"""Options as fields of frozen dataclasses: the check of their choices, and what manifests record of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Literal, Protocol, get_args, get_origin, get_type_hints

from tfshards.schemas.errors import OptionsError
from tfshards.schemas.json_reader import Json


class Record(Protocol):
    """A dataclass whose fields are options."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@cache
def choices_of(record: type[Record]) -> dict[str, tuple[object, ...]]:
    """Return the allowed values of the fields whose type is a ``Literal``, with None where it may be."""
    found: dict[str, tuple[object, ...]] = {}
    for name, hint in get_type_hints(record).items():
        members = (hint,) if get_origin(hint) is Literal else get_args(hint)
        if members and all(get_origin(each) is Literal or each is NoneType for each in members):
            values = [value for each in members for value in get_args(each) or (None,)]
            found[name] = tuple(values)
    return found


def check_choices(record: Record) -> None:
    """Raise OptionsError if the value of an option is not one of its choices."""
    for name, allowed in choices_of(type(record)).items():
        value = getattr(record, name)
        # True equals 1
        if value not in allowed or isinstance(value, (bool, float)):
            raise OptionsError("not-a-choice", name=name, found=value, allowed=allowed)


def changed_options(record: Record, names: Iterable[str]) -> dict[str, Json]:
    """Return those of the named options that do not have their default value."""
    by_name = {each.name: each for each in fields(record)}
    return {name: getattr(record, name) for name in names if getattr(record, name) != _default(by_name[name])}


def _default(each: Field[Any]) -> object:
    return each.default if each.default_factory is MISSING else each.default_factory()


def recorded_options(names: Iterable[str], recorded: Mapping[str, Json]) -> dict[str, Any]:
    """Return the named options among those that a manifest records."""
    return {name: recorded[name] for name in names if name in recorded}
