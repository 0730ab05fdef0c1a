"""Text files that people write: UTF-8 with or without a byte order mark; an error names other encodings."""

from __future__ import annotations

import codecs
import os

from tfshards.prep.sources.fetching import unreadable
from tfshards.schemas import InputError
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.untrusted import LISTS, Limit, read_whole

_LOOKED_AT = 64


def read_file(path: AnyPath | str | os.PathLike[str], limit: Limit = LISTS) -> bytes:
    """Return the content of a file, or raise InputError if it cannot be read, or is larger than allowed."""
    try:
        return read_whole(any_path(path), limit)
    except OSError as error:
        raise unreadable(str(path), error) from None


def read_text(path: AnyPath | str | os.PathLike[str], limit: Limit = LISTS) -> str:
    """Return the text of a file, or raise InputError if it cannot be read, or is not UTF-8."""
    data = read_file(path, limit)
    try:
        return decoded(data)
    except ValueError as error:
        raise InputError(f"{path} {error}") from None


def read_paths(path: AnyPath) -> bytes:
    """Return the text of a file of paths, which need not be UTF-8, without a byte order mark."""
    data = read_file(path)
    try:
        return without_mark(data)
    except ValueError as error:
        raise InputError(f"{path} {error}") from None


def decoded(data: bytes) -> str:
    """Return the text in the content of a file, or raise ValueError if it is not UTF-8."""
    try:
        return without_mark(data).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None


def without_mark(start: bytes) -> bytes:
    """Return UTF-8 without its byte order mark, or raise ValueError if it evidently is another encoding."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start[:_LOOKED_AT]:
        raise ValueError("is UTF-16, UTF-32 or binary; save it as UTF-8")
    return start.removeprefix(codecs.BOM_UTF8)
