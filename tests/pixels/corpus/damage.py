"""Damage good files: changed bytes, truncation, two files spliced."""

import random
import struct
import zlib

# Extreme values of sizes, counts and markers.
_ODD = (0, 1, 2, 0x7F, 0x80, 0xC4, 0xD9, 0xDA, 0xFE, 0xFF)


def _changed(data: bytes, draw: random.Random) -> bytes:
    """Change one to four bytes, half of the time near the start, where the headers are."""
    changed = bytearray(data)
    near = min(len(data), draw.choice([64, 700, len(data)]))
    for _ in range(draw.randint(1, 4)):
        changed[draw.randrange(near)] = draw.choice([draw.choice(_ODD), draw.randrange(256)])
    return bytes(changed)


def _cut_out(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    return data[:start] + data[start + draw.randint(1, 64) :]


def _inserted(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    return data[:start] + draw.randbytes(draw.randint(1, 16)) + data[start:]


def _truncated(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))] + draw.choice([b"", b"\xff\xd9", b";", bytes(99)])


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


def damaged(seeds: list[tuple[str, bytes]], draw: random.Random) -> tuple[str, bytes]:
    """Return the suffix and the bytes of a good file after one to three kinds of damage."""
    suffix, data = draw.choice(seeds)
    for _ in range(draw.randint(1, 3)):
        data = (
            draw.choice([_changed, _changed, _cut_out, _inserted, _truncated])(data, draw) if data else data
        )
    if draw.randrange(8) == 0:
        _, other = draw.choice(seeds)
        data = data[: draw.randint(0, len(data))] + other[draw.randrange(len(other)) :]
    return suffix, repaired(data) if draw.random() < 0.5 else data
