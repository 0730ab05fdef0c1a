"""Strategies that damage good files: changed bytes, truncation, two files spliced."""

import struct
import zlib
from collections.abc import Callable

from hypothesis import strategies as st

Damage = Callable[[bytes], bytes]


def _place(data: bytes, share: int) -> int:
    return share * len(data) >> 16


_SHARES = st.integers(0, (1 << 16) - 1)
# Extreme values of sizes, counts and markers.
_ODD = st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xC4, 0xD9, 0xDA, 0xFE, 0xFF])
_BYTES = st.one_of(_ODD, st.integers(0, 255))


@st.composite
def _changed(draw: st.DrawFn, data: bytes) -> bytes:
    """Change one to four bytes, half of the time near the start, where the headers are."""
    changed = bytearray(data)
    near = min(len(data), draw(st.sampled_from([64, 700, len(data)])))
    for _ in range(draw(st.integers(1, 4))):
        changed[_place(data[:near], draw(_SHARES))] = draw(_BYTES)
    return bytes(changed)


@st.composite
def _cut_out(draw: st.DrawFn, data: bytes) -> bytes:
    start = _place(data, draw(_SHARES))
    return data[:start] + data[start + draw(st.integers(1, 64)) :]


@st.composite
def _inserted(draw: st.DrawFn, data: bytes) -> bytes:
    start = _place(data, draw(_SHARES))
    return data[:start] + draw(st.binary(min_size=1, max_size=16)) + data[start:]


@st.composite
def _truncated(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: _place(data, draw(_SHARES))] + draw(st.sampled_from([b"", b"\xff\xd9", b";", bytes(99)]))


def repaired(data: bytes) -> bytes:
    """Return a PNG with correct checksums of its chunks; anything else unchanged."""
    if not data.startswith(b"\x89PNG"):
        return data
    fixed, place = bytearray(data), 8
    while place + 12 <= len(fixed):
        end = place + 8 + int.from_bytes(fixed[place : place + 4], "big")
        if end + 4 > len(fixed):
            break
        fixed[end : end + 4] = struct.pack(">I", zlib.crc32(fixed[place + 4 : end]))
        place = end + 4
    return bytes(fixed)


@st.composite
def damaged(draw: st.DrawFn, seeds: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    """The suffix and the bytes of a good file after one to three kinds of damage."""
    suffix, data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.sampled_from([_changed, _changed, _cut_out, _inserted, _truncated]))
        data = draw(how(data)) if data else data
    if draw(st.integers(0, 7)) == 0:
        _, other = draw(st.sampled_from(seeds))
        data = data[: _place(data, draw(_SHARES))] + other[_place(other, draw(_SHARES)) :]
    return suffix, repaired(data) if draw(st.booleans()) else data
