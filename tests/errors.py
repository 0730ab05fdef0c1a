"""Compare errors by their class, and by the parts of their messages that matter: values, names, paths."""

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tfshards.schemas import TfshardsError
from tfshards.schemas.errors import texts

_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+|format|usage|unreadable")


@dataclass(frozen=True)
class Fault:
    """An expected error by the code of a table: its code, and some of its values."""

    code: str
    values: dict[str, Any] = field(default_factory=dict)


def fault(code: str, **values: object) -> Fault:
    """Return an expected error, for tables of them."""
    return Fault(code, values)


def raises(
    kind: type[TfshardsError],
    expected: object = "",
    *parts: object,
    code: str | None = None,
    **values: object,
) -> Any:
    """Expect an error of a class whose message has some parts.

    Args:
        kind: the class.
        expected: a part of the message; a tuple for several, so that tables can give them.
        parts: more parts.
        code: the code, of errors that a program can act on.
        values: values of an error that has a code of a table.
    """
    by_code = expected if isinstance(expected, Fault) else None
    if isinstance(expected, str) and _CODE.fullmatch(expected) and not parts:
        by_code = Fault(expected, values)
    wanted = (*expected, *parts) if isinstance(expected, tuple) else (expected, *parts)

    def is_wanted(error: TfshardsError) -> bool:
        if by_code and by_code.code in texts():
            found = {name: _plain(error.values.get(name)) for name in by_code.values}
            # an assertion shows both sides, unlike False
            assert (error.code, found) == (by_code.code, by_code.values), error
        elif not by_code:
            missing = [part for part in wanted if str(part) not in str(error)]
            assert not missing, (missing, str(error))
        assert code is None or error.code == code, (error.code, str(error))
        return True

    return pytest.raises(kind, check=is_wanted)


def _plain(value: object) -> object:
    """Return a value as a test writes it: paths as text, sequences as lists."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else str(value)
