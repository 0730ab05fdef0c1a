"""Files of keys, one per line: written by ``audit`` and read by ``remove``.

A line that starts with a quotation mark is a JSON string, which can hold any key; another line is the key
itself. Empty lines are ignored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import BinaryIO

from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import InputError
from tfshards.schemas.files import write_atomically
from tfshards.schemas.json_reader import shown
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.untrusted import KEYS, read_whole

_MARK = b'"'
_LONGEST = 1 << 16
_WRITTEN = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*"\n')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def write_keys(path: AnyPath, keys: Iterable[str]) -> None:
    """Write keys, as text, to a file: a JSON string in ASCII per line.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, "".join(f"{json.dumps(key)}\n" for key in keys).encode("ascii"))


def holds_written_keys(file: BinaryIO) -> bool:
    """Return whether a file holds what ``write_keys`` writes; lists that people write may look different."""
    return all(map(_WRITTEN.fullmatch, iter(lambda: file.readline(_LONGEST), b"")))


def read_keys(path: str | os.PathLike[str]) -> list[bytes]:
    """Return the keys in a file, in its order.

    Raises:
        InputError: the file cannot be read, or a line that starts with a quotation mark is not a JSON string.
    """
    found = any_path(path)
    try:
        lines = read_whole(found, KEYS).removeprefix(_BYTE_ORDER_MARK).split(b"\n")
    except OSError as error:
        raise InputError("unreadable", path=found, why=error.strerror) from None
    # editors of Windows end lines with \r\n; a key that ends so is written as JSON
    lines = [line.removesuffix(b"\r") for line in lines]
    return [_key(line, number, found) for number, line in enumerate(lines, 1) if line]


def _key(line: bytes, number: int, path: AnyPath) -> bytes:
    if not line.startswith(_MARK):
        return line
    try:
        key = json.loads(line)
        return to_bytes(key)
    except (ValueError, AttributeError):
        raise InputError("keys-line", path=path, number=number, line=shown(to_text(line))) from None
