"""JSON of datasets: parsed, written from dataclasses, and read into them value by value."""

from __future__ import annotations

import json
import reprlib
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from tfshards.schemas.errors import Problem

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
T = TypeVar("T")

_JSON_NAMES = {int: "an integer", str: "a string", list: "a list", dict: "an object"}
# Integers that exceed int64 have no meaning in a dataset, and would overflow later.
MAX_INT = 2**63 - 1

# A value takes at most one line of a message, however large or deeply nested it is.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlist, _SHORT.maxdict = 2, 100, 6, 3


def shown(value: Json) -> str:
    """Return ``value`` as text for a message: printable, on one line, and shortened in the middle."""
    return "null" if value is None else _SHORT.repr(value)


def load_json(text: str | bytes) -> Any:  # noqa: ANN401 -- as json.loads
    """Parse JSON that somebody else may have written, or raise ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def as_json(value: object) -> Any:  # noqa: ANN401 -- JSON values
    """Return a value as JSON values: a dataclass by the names of its fields, in their order."""
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    named = value if isinstance(value, Mapping) else vars(value)
    optional = getattr(value, "optional", ())
    return {name: as_json(each) for name, each in named.items() if each or name not in optional}


class JsonRecord:
    """A dataclass whose JSON object has its fields, by their names and in their order.

    Fields named in ``optional`` are left out if they are None or empty. Properties named in ``stated`` are
    in the object as well, before the fields, and must agree with them.
    """

    optional: ClassVar[tuple[str, ...]] = ()
    stated: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON values, as in ``dataset.json``."""
        return cast("dict[str, Json]", as_json(self))

    def fault(self) -> tuple[str, str] | None:
        """Return the first field whose value is wrong, and what is wrong with it; None if all are right."""
        return None


class WrongValueError(ValueError):
    """A value is not what the format says; ``problem`` is the first fault, with its place in the document."""

    problem: Problem

    def __init__(self, place: str, message: str) -> None:
        self.problem = Problem(place or "(document)", message)
        super().__init__(str(self.problem))


def at(place: str, name: str) -> str:
    """Return the place of a field in the object at a place."""
    spelled = name if name and name.isprintable() else repr(name)
    return f"{place}.{spelled}" if place else spelled


def take(value: Json, hint: Any, place: str = "") -> Any:  # noqa: ANN401 -- a type, and its value
    """Return a JSON value as a type: a number, text, list, mapping, or a dataclass with its fields.

    Integers are counts, from 0 to 2^63 - 1. A field may be missing if ``optional`` names it.

    Raises:
        WrongValueError: it is of another type, a field is missing or unknown, or ``fault`` finds one.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and len(inner) == 2:
        # None or another type
        return value if value is None else take(value, inner[0], place)
    if origin is Literal:
        if value not in inner:
            raise WrongValueError(place, f"is {shown(value)}, must be {' or '.join(inner)}")
        return value
    if origin is tuple:
        items = _typed(value, list, place)
        return tuple(take(item, inner[0], f"{place}[{index}]") for index, item in enumerate(items))
    if is_dataclass(hint):
        return _record(_typed(value, dict, place), cast("type[JsonRecord]", hint), place)
    if hint is int:
        if not 0 <= _typed(value, int, place) <= MAX_INT:
            raise WrongValueError(place, f"is {shown(value)}, must lie between 0 and 2^63 - 1")
        return value
    if hint is str:
        return _typed(value, str, place)
    if origin is Mapping:
        named = _typed(value, dict, place)
        return {name: take(item, inner[1], at(place, name)) for name, item in named.items()}
    return value


def _record(value: dict[str, Json], record: type[JsonRecord], place: str) -> JsonRecord:
    hints = _hints(cast("type", record))
    for name in sorted({*hints, *record.stated} ^ value.keys()):
        if name in value:
            raise WrongValueError(at(place, name), "is not a field of this format")
        if name not in record.optional:
            raise WrongValueError(at(place, name), "is missing")
    # text, which most fields hold, needs neither its place nor a look at types
    found = {
        name: each if hints[name] is str and type(each) is str else take(each, hints[name], at(place, name))
        for name, each in value.items()
        if name in hints
    }
    try:
        made = record(**found)
        if fault := made.fault():
            raise WrongValueError(*fault)
    except WrongValueError as error:
        raise WrongValueError(at(place, error.problem.place), error.problem.message) from None
    for name in record.stated:
        if take(value[name], int, at(place, name)) != getattr(made, name):
            message = f"is {value[name]}, but the shards hold {getattr(made, name)}"
            raise WrongValueError(at(place, name), message)
    return made


@cache
def _hints(record: type) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {each.name: hints[each.name] for each in fields(record)}


def _typed(value: Any, kind: type[T], place: str) -> T:  # noqa: ANN401 -- JSON values
    # bool is a subclass of int in Python, but not in JSON
    if not isinstance(value, kind) or isinstance(value, bool):
        raise WrongValueError(place, f"is {shown(value)}, must be {_JSON_NAMES[kind]}")
    return value
