"""Parse and format numbers of bytes with units."""

from __future__ import annotations

import re
from fractions import Fraction

from tfshards.schemas.errors import OptionsError

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}


def parse_size(text: str, name: str) -> int:
    """Return the bytes in a text such as ``128MiB``, ``1.5GB`` or ``4096``.

    Args:
        text: the number, with a unit or without.
        name: name of the parameter, for the message.

    Raises:
        OptionsError: the text is not of that form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if not match or match[2].upper() not in _UNITS:
        raise OptionsError(f"{name}={text!r} must be a size such as 128MiB, 1.5GB or 4096")
    return int(Fraction(match[1]) * _UNITS[match[2].upper()])


def size(num_bytes: float) -> str:
    """Return a number of bytes as text with a unit, such as ``1.4 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(num_bytes) < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} TiB"
