"""Read the fields of protobuf's messages: protobuf.dev/programming-guides/encoding.

Offsets are those of the whole record, of which nothing is copied until a value is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# A field: its number << 3 | its type, and the offsets of its tag, of its value and of its end.
Field = tuple[int, int, int, int]

_NUMBER, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
# bytes of a number; tags and lengths have 32 bits
_MAX_VARINT, _MAX_SHORT = 10, 5
_MASK = (1 << 64) - 1
# up to this size a loop is faster than NumPy
_FEW_BYTES = 16


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message between two offsets.

    Raises:
        ValueError: these bytes are not a message, or have a field of a type that no ``tf.train.Example`` has.
    """
    at = start
    while at < end:
        tag, value = _varint(data, at, end, _MAX_SHORT)
        kind = tag & 7
        if kind == _BYTES:
            length, value = _varint(data, value, end, _MAX_SHORT)
            stop = value + length
        elif kind == _NUMBER:
            _, stop = _varint(data, value, end)
        elif kind in _FIXED:
            stop = value + _FIXED[kind]
        else:
            raise ValueError(f"the field at byte {at} has type {kind}")
        if stop > end:
            raise ValueError(f"the field at byte {at} ends {stop - end} bytes after its message")
        if not 8 <= tag < 1 << 32:
            raise ValueError(f"the field at byte {at} has number {tag >> 3}")
        yield tag, at, value, stop
        at = stop


def integers(data: bytes, start: int, end: int) -> list[int]:
    """Return the signed integers of 64 bits that are packed between two offsets.

    Raises:
        ValueError: these bytes are not packed integers.
    """
    if end - start > _FEW_BYTES:
        return _many_integers(data, start, end)
    found, at = [], start
    while at < end:
        number, at = _varint(data, at, end)
        found.append(number - (1 << 64) if number >> 63 else number)
    return found


def _many_integers(data: bytes, start: int, end: int) -> list[int]:
    octets = np.frombuffer(data, np.uint8, end - start, start)
    ends = np.flatnonzero(octets < 128)
    starts = np.concatenate(([0], ends + 1))
    lengths = np.diff(starts)
    if starts[-1] != len(octets) or lengths.max() > _MAX_VARINT:
        raise ValueError(f"the integers at byte {start} are cut off")
    shifts = 7 * (np.arange(len(octets)) - np.repeat(starts[:-1], lengths))
    bits = (octets & 127).astype(np.uint64) << shifts.astype(np.uint64)
    numbers: list[int] = np.bitwise_or.reduceat(bits, starts[:-1]).view(np.int64).tolist()
    return numbers


def floats(data: bytes, start: int, end: int) -> list[float]:
    """Return the floats of 32 bits between two offsets.

    Raises:
        ValueError: the bytes are not those of whole floats.
    """
    if (end - start) % 4:
        raise ValueError(f"the floats at byte {start} have {end - start} bytes")
    numbers: list[float] = np.frombuffer(data, "<f4", (end - start) // 4, start).tolist()
    return numbers


def _varint(data: bytes, at: int, end: int, most: int = _MAX_VARINT) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    if at < end and data[at] < 128:
        return data[at], at + 1
    number = 0
    for index, octet in enumerate(data[at : min(end, at + most)]):
        number |= (octet & 127) << 7 * index
        if octet < 128:
            return number & _MASK, at + index + 1
    raise ValueError(f"the number at byte {at} is cut off")
