"""Reading of JSON documents field by field, with every problem collected instead of the first one raised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from tfshards.schemas.errors import FormatError, Problem

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
T = TypeVar("T", bool, int, str, list[Json], dict[str, Json])

_JSON_NAMES = {bool: "true or false", int: "an integer", str: "a string", list: "a list", dict: "an object"}
# Larger integers than int64 can have no meaning in a dataset, and overflow where they are used.
_MAX_INT = 2**63 - 1


def parse_json(text: str, subject: str) -> Json:
    """Return the JSON value in ``text``; a repeated name in an object is an error, as is NaN.

    Raises:
        FormatError: ``text`` is not JSON in that sense; the message starts with ``subject``.
    """

    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        names = dict(pairs)
        if len(names) < len(pairs):
            spelled = [name for name, _ in pairs]
            repeated = next(name for name in names if spelled.count(name) > 1)
            raise ValueError(f"the name {repeated!r} stands twice in one object")
        return names

    def no_constant(name: str) -> Json:
        raise ValueError(f"{name} is not JSON")

    try:
        value: Json = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(subject, [Problem("(document)", f"not readable as JSON: {error}")]) from error
    return value


@dataclass
class ObjectReader:
    """Takes typed fields out of one JSON object and notes what is wrong in a list shared by all readers.

    Attributes:
        value: the object; an empty one stands in where the document held something else.
        place: where the object stands in the document.
        problems: shared by every reader of the document.
    """

    value: Mapping[str, Json]
    place: str = ""
    problems: list[Problem] = field(default_factory=list)

    def at(self, name: str) -> str:
        """Return the place of the field ``name``."""
        return f"{self.place}.{name}" if self.place else name

    def note(self, name: str, message: str) -> None:
        """Add a problem with the field ``name``."""
        self.problems.append(Problem(self.at(name), message))

    def take(self, name: str, kind: type[T], default: T) -> T:
        """Return the field ``name`` if it is a ``kind``, else note a problem and return ``default``."""
        if name not in self.value:
            self.note(name, "is missing")
            return default
        return self._typed(self.value[name], self.at(name), kind, default)

    def count(self, name: str) -> int:
        """Return the field ``name``, an integer of at least 0."""
        number = self.take(name, int, 0)
        if not 0 <= number <= _MAX_INT:
            self.note(name, f"is {number}, must lie between 0 and 2^63 - 1")
            return 0
        return number

    def object(self, name: str) -> ObjectReader:
        """Return a reader of the object ``name``."""
        return ObjectReader(self.take(name, dict, {}), self.at(name), self.problems)

    def objects(self, name: str) -> Iterator[ObjectReader]:
        """Yield a reader for each object of the list ``name``."""
        for index, item in enumerate(self.take(name, list, [])):
            place = f"{self.at(name)}[{index}]"
            yield ObjectReader(self._typed(item, place, dict, {}), place, self.problems)

    def strings(self, name: str) -> tuple[str, ...]:
        """Return the list of strings ``name``."""
        items = enumerate(self.take(name, list, []))
        return tuple(self._typed(item, f"{self.at(name)}[{index}]", str, "") for index, item in items)

    def counts(self, name: str) -> dict[str, int]:
        """Return the object ``name``, whose values are integers of at least 0."""
        inner = self.object(name)
        return {key: inner.count(key) for key in inner.value}

    def only(self, names: Iterable[str]) -> None:
        """Note every field whose name is not among ``names``."""
        for name in sorted(set(self.value) - set(names)):
            self.note(name, "is not a field of this format")

    def _typed(self, value: Json, place: str, kind: type[T], default: T) -> T:
        # bool is a subclass of int in Python, but not in JSON
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            found = "null" if value is None else repr(value)
            shown = found if len(found) <= 60 else f"{found[:57]}..."
            self.problems.append(Problem(place, f"is {shown}, must be {_JSON_NAMES[kind]}"))
            return default
        return value
