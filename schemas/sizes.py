"""Parse and format numbers of bytes with units."""

from __future__ import annotations

import re
from fractions import Fraction

from tfshards.schemas.errors import OptionsError, size

__all__ = ["parse_size", "size"]

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
    """Return the bytes in a text such as ``128MiB``, ``1.5GB`` or ``4096``; ``name`` is the parameter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if not match or match[2].upper() not in _UNITS:
        raise OptionsError("size-invalid", name=name, text=text)
    return int(Fraction(match[1]) * _UNITS[match[2].upper()])
