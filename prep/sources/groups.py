"""Groups of examples: what the values that name them have in common in tables and arrays."""

from __future__ import annotations

from tfshards.schemas import InputError


def require_values(by: str, num_missing: int, where: str) -> None:
    """Raise InputError if rows have no value, since they would all be one group.

    Args:
        by: name of the column or the array.
        num_missing: number of rows whose value is NaN, empty or missing.
        where: "column" or "array".
    """
    if num_missing:
        rows = "1 row has" if num_missing == 1 else f"{num_missing:,} rows have"
        raise InputError(
            f"group_by={by!r}: {rows} no value in this {where}; fill them in, or group by another {where}"
        )
