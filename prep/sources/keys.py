"""Keys of examples: as bytes, as text, as hashes, in files, and groups of them."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, TypeVar, overload

from tfshards.prep.sources.fetching import read_paths
from tfshards.schemas import Feature, InputError, OptionsError
from tfshards.schemas.json_reader import shown
from tfshards.schemas.keys import hash_array as hash_array
from tfshards.schemas.keys import hash_key as hash_key
from tfshards.schemas.storage import AnyPath, any_path

KEY_FEATURE = Feature("key", "bytes", "bytes")

# 10^10 examples; keys are sorted as text
_NUMBER_DIGITS = 10
_Found = TypeVar("_Found")


def to_text(name: bytes) -> str:
    """Return a key or file name as plans and manifests store it, independently of the locale's encoding."""
    return name.decode("utf-8", "surrogateescape")


def to_bytes(name: str) -> bytes:
    """Return the bytes of a key or file name in a plan or manifest."""
    return name.encode("utf-8", "surrogateescape")


def in_any_form(path: bytes, find: Callable[[bytes], _Found | None]) -> _Found | None:
    """Return what is found for a path, or else for its other Unicode form if anything is found for only one.

    macOS writes a letter and its accent as two characters where other systems write one.
    """
    found = find(path)
    if found is not None or path.isascii():
        return found
    forms = {to_bytes(unicodedata.normalize(form, to_text(path))) for form in ("NFC", "NFD")} - {path}
    others = [other for other in map(find, sorted(forms)) if other is not None]
    return others[0] if len(others) == 1 else None


def number_key(number: int) -> str:
    """Return the key of an example that has none: its number, so that keys are sorted like numbers."""
    return f"{number:0{_NUMBER_DIGITS}d}"


class LazyKeys(Sequence[bytes]):
    """Keys that are created on demand; a slice of them is a list."""

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        numbers = range(len(self))[index]
        return [*map(self.at, numbers)] if isinstance(numbers, range) else self.at(numbers)

    def __iter__(self) -> Iterator[bytes]:
        return map(self.at, range(len(self)))

    @abstractmethod
    def at(self, number: int) -> bytes:
        """Return a key by its number."""


class RowKeys(LazyKeys):
    """The keys of arrays: row numbers in decimal digits."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def at(self, number: int) -> bytes:
        """Return a key by its number."""
        return b"%d" % number


def find_key(keys: Sequence[bytes], key: bytes) -> int | None:
    """Return the index of a key among sorted ones, or among row numbers; None if there is no such key."""
    if isinstance(keys, RowKeys):
        number = int(key) if key.isdigit() else len(keys)
    else:
        at = keys.at if isinstance(keys, LazyKeys) else keys.__getitem__
        number = bisect_left(range(len(keys)), key, key=at)
    return number if number < len(keys) and keys[number] == key else None


# Joining all keys at once would need more memory than the keys.
_KEYS_AT_ONCE = 1 << 16


def parts_of(keys: Sequence[bytes]) -> Iterator[bytes]:
    """Yield keys joined by NUL, many at a time."""
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        yield b"\0".join(keys[start : start + _KEYS_AT_ONCE])


_LONGEST = 1 << 16
_WRITTEN = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\.)*"\n')


def write_keys(path: AnyPath, keys: Iterable[str]) -> None:
    """Write keys, as text, to a file: a JSON string in ASCII per line."""
    path.put("".join(f"{json.dumps(key)}\n" for key in keys).encode("ascii"))


def holds_written_keys(file: BinaryIO) -> bool:
    """Return whether a file holds what ``write_keys`` writes; lists that people write may look different."""
    return all(map(_WRITTEN.fullmatch, iter(lambda: file.readline(_LONGEST), b"")))


def read_keys(path: str | os.PathLike[str]) -> list[bytes]:
    """Return the keys in a file, in its order; a line with a quotation mark at its start is a JSON string."""
    found = any_path(path)
    lines = read_paths(found).split(b"\n")
    # editors of Windows end lines with \r\n; a key that ends so is written as JSON
    keys = [line.removesuffix(b"\r") for line in lines]
    for index, line in enumerate(keys):
        if line.startswith(b'"'):
            try:
                keys[index] = to_bytes(json.loads(line))
            except (ValueError, AttributeError):
                text = shown(to_text(line))
                raise InputError(
                    f"{found}, line {index + 1}: {text} starts with a quotation mark but is not a JSON "
                    "string; write a key that starts with one as JSON"
                ) from None
    return [key for line, key in zip(lines, keys, strict=True) if line.removesuffix(b"\r")]


def groups_of_keys(by: str, keys: Sequence[bytes], allowed: str) -> list[bytes]:
    """Return what the one group of the regular expression ``by`` matches in each key."""
    try:
        pattern = re.compile(os.fsencode(by))
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionsError(f"group_by={by!r} is not a regular expression: {error}; correct it") from None
    if pattern.groups != 1:
        raise OptionsError(f"group_by={by!r} must be {allowed}")
    groups = []
    for key in keys:
        match = pattern.search(key)
        if not match or match[1] is None:
            raise InputError(f"group_by={by!r} does not match the key {os.fsdecode(key)!r}, as it has to")
        groups.append(match[1])
    return groups
