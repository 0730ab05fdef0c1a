"""Read JSON documents field by field, and collect all problems instead of raising the first one."""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

from tfshards.schemas.errors import FormatError, Problem

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
# Returns what is wrong with a text, or None.
Fault: TypeAlias = Callable[[str], str | None]
T = TypeVar("T", bool, int, str, list[Json], dict[str, Json])

_JSON_NAMES = {bool: "true or false", int: "an integer", str: "a string", list: "a list", dict: "an object"}
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


def parse_json(text: str, subject: str) -> Json:
    """Parse JSON strictly: no repeated names, no number beyond float64; ``subject`` starts an error."""
    try:
        value: Json = json.loads(
            text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise FormatError(subject, [Problem("(document)", f"not readable as JSON: {error}")]) from error
    return value


def as_json(value: object) -> Any:  # noqa: ANN401 -- JSON values
    """Return a value as JSON values: a dataclass by the names of its fields, in their order."""
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    named = value if isinstance(value, Mapping) else vars(value)
    optional = getattr(value, "optional", ())
    return {name: as_json(each) for name, each in named.items() if each is not None or name not in optional}


class JsonRecord:
    """A dataclass whose JSON object has its fields, by their names and in their order.

    Fields named in ``optional`` are left out if they are None.
    """

    optional: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON values, as in ``dataset.json``."""
        return cast("dict[str, Json]", as_json(self))


def matching(pattern: str, form: str) -> Fault:
    """Return the fault of texts that do not match a pattern."""
    compiled = re.compile(pattern)
    return lambda text: None if compiled.fullmatch(text) else f"is {shown(text)}, must be {form}"


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    names: dict[str, Json] = {}
    for name, value in pairs:
        if name in names:
            raise ValueError(f"the name {shown(name)} is repeated in an object")
        names[name] = value
    return names


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {shown(digits)} is too large")
    return number


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


@cache
def _types(record: type) -> dict[str, object]:
    return {each.name: each.type for each in fields(record)}


@dataclass
class ObjectReader:
    """Reads typed fields of one JSON object, and notes problems in a list that all readers share.

    ``value`` is empty if the document has a value of another type there; its problems are then not shared, so
    that only the wrong type is reported.
    """

    value: Mapping[str, Json]
    place: str = ""
    problems: list[Problem] = field(default_factory=list)

    def at(self, name: str) -> str:
        """Return the location of the field ``name`` in the document."""
        spelled = name if name and name.isprintable() else repr(name)
        return f"{self.place}.{spelled}" if self.place else spelled

    def note(self, name: str, message: str) -> None:
        """Add a problem with the field ``name``."""
        self.problems.append(Problem(self.at(name), message))

    def take(self, name: str, kind: type[T], default: T) -> T:
        """Return the field ``name`` if its type is ``kind``; else note a problem and return ``default``."""
        if name not in self.value:
            self.note(name, "is missing")
            return default
        return self._typed(self.value[name], self.at(name), kind, default)

    def text(self, name: str, fault: Fault) -> str:
        """Return the string in the field ``name``, and note the fault that ``fault`` finds in it, if any."""
        found = self.take(name, str, "")
        message = fault(found) if isinstance(self.value.get(name), str) else None
        if message:
            self.note(name, message)
        return found

    def values(self, record: type, faults: Mapping[str, Fault]) -> dict[str, Any]:
        """Return the fields of a dataclass: counts, counts by name, and texts with what ``text`` needs."""
        types = _types(record)
        self.only(types)
        return {
            name: self.text(name, faults[name])
            if name in faults
            else (self.count if kind == "int" else self.counts)(name)
            for name, kind in types.items()
        }

    def count(self, name: str, least: int = 0) -> int:
        """Return the integer in the field ``name``, which must be at least ``least``."""
        number = self.take(name, int, least)
        if not least <= number <= MAX_INT:
            self.note(name, f"is {shown(number)}, must lie between {least} and 2^63 - 1")
            return least
        return number

    def object(self, name: str) -> ObjectReader:
        """Return a reader of the object in the field ``name``."""
        self.take(name, dict, {})
        return self._inner(self.value.get(name), self.at(name))

    def objects(self, name: str) -> Iterator[ObjectReader]:
        """Yield a reader for each object of the list in the field ``name``."""
        for index, item in enumerate(self.take(name, list, [])):
            place = f"{self.at(name)}[{index}]"
            self._typed(item, place, dict, {})
            yield self._inner(item, place)

    def strings(self, name: str) -> tuple[str, ...]:
        """Return the strings of the list in the field ``name``."""
        items = self.take(name, list, [])
        for index, item in enumerate(items):
            self._typed(item, f"{self.at(name)}[{index}]", str, "")
        return tuple(item for item in items if isinstance(item, str))

    def counts(self, name: str) -> dict[str, int]:
        """Return the object in the field ``name``, whose values must be integers of at least 0."""
        inner = self.object(name)
        return {key: inner.count(key) for key in inner.value}

    def only(self, names: Iterable[str]) -> None:
        """Note a problem for each field whose name is not in ``names``."""
        for name in sorted(set(self.value) - set(names)):
            self.note(name, "is not a field of this format")

    def _inner(self, value: Json, place: str) -> ObjectReader:
        if isinstance(value, dict):
            return ObjectReader(value, place, self.problems)
        return ObjectReader({}, place)

    def _typed(self, value: Json, place: str, kind: type[T], default: T) -> T:
        # bool is a subclass of int in Python, but not in JSON
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.problems.append(Problem(place, f"is {shown(value)}, must be {_JSON_NAMES[kind]}"))
            return default
        return value
