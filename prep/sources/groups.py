"""Groups of examples: by a regular expression on their keys, or by values in tables and arrays."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from tfshards.schemas import InputError, OptionsError


def require_values(by: str, num_missing: int, where: str) -> None:
    """Raise InputError if rows have no value, since they would all be one group.

    Args:
        by: name of the column or the array.
        num_missing: number of rows whose value is NaN, empty or missing.
        where: "column" or "array".
    """
    if num_missing:
        rows = "1 row has" if num_missing == 1 else f"{num_missing:,} rows have"
        raise InputError("group-by-missing", by=by, rows=rows, where=where)


def groups_of_keys(by: str, keys: Sequence[bytes], allowed: str) -> list[bytes]:
    """Return what the one group of the regular expression ``by`` matches in each key.

    Args:
        by: the regular expression, which is searched for.
        keys: key of each example.
        allowed: what ``by`` may be, for messages.

    Raises:
        OptionsError: ``by`` is not a regular expression with one group.
        InputError: it does not match a key.
    """
    try:
        pattern = re.compile(os.fsencode(by))
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionsError("group-by-expression", by=by, error=error) from None
    if pattern.groups != 1:
        raise OptionsError("group-by-value", by=by, allowed=allowed)
    found = [pattern.search(key) for key in keys]
    for key, match in zip(keys, found, strict=True):
        if not match or match[1] is None:
            raise InputError("group-by-no-match", by=by, key=os.fsdecode(key))
    return [match[1] for match in found if match]
