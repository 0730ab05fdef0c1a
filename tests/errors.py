"""Compare errors by their codes and values, not by their texts."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tfshards.schemas import TfshardsError


@dataclass(frozen=True)
class Fault:
    """An expected error: its code, and some of its values."""

    code: str
    values: dict[str, Any] = field(default_factory=dict)


def fault(code: str, **values: object) -> Fault:
    """Return an expected error, for tables of them."""
    return Fault(code, values)


def raises(kind: type[TfshardsError], expected: str | Fault, **values: object) -> Any:
    """Expect an error of a class, with a code and, among others, some values."""
    wanted = expected if isinstance(expected, Fault) else Fault(expected, values)

    def is_wanted(error: TfshardsError) -> bool:
        found = {name: _plain(error.values.get(name)) for name in wanted.values}
        # an assertion shows both sides, unlike False
        assert (error.code, found) == (wanted.code, wanted.values), error
        return True

    return pytest.raises(kind, check=is_wanted)


def _plain(value: object) -> object:
    """Return a value as a test writes it: paths as text, sequences as lists."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else str(value)
