"""Read the index, the labels and the keys of a shard from their files; check them against the manifest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import FormatError, Problem
from tfshards.schemas.index import (
    MAX_LINE,
    IntArray,
    RecordIndex,
    holds_any,
    labels_size,
    parse_index,
    parse_keys,
    parse_labels,
)
from tfshards.schemas.manifest import OTHER_BYTES
from tfshards.schemas.split import Shard
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.stored import LISTS, Limit

T = TypeVar("T")


def read_index(root: AnyPath, shard: Shard) -> tuple[RecordIndex | None, list[Problem]]:
    """Return the index of a shard of the dataset in ``root``, or None and what is wrong with it."""

    def parse(data: bytes) -> RecordIndex:
        index = parse_index(data, path)
        if (len(index.lengths), index.num_bytes) != (shard.num_examples, shard.record_bytes):
            found = f"{len(index.lengths)} records of {index.num_bytes} bytes"
            lists = f"the manifest lists {shard.num_examples} of {shard.record_bytes}"
            raise FormatError(path, [Problem(path, f"has {found}, but {lists}")])
        return index

    path = shard.index_path
    return _read(root / path, path, MAX_LINE * shard.num_examples, shard.index_digest, parse)


def require_index(root: AnyPath, shard: Shard) -> RecordIndex:
    """Return the index of a shard of the dataset in ``root``; raise FormatError if it is damaged."""
    index, problems = read_index(root, shard)
    if index is None:
        subject = f"{root}: the index of a shard (`tfshards verify {root} --repair` rebuilds it)"
        raise FormatError(subject, problems)
    return index


def read_labels(root: AnyPath, shard: Shard) -> tuple[IntArray | None, list[Problem]]:
    """Return the labels of a shard of the dataset in ``root``, or None and what is wrong with them."""
    path, most = shard.labels_path, labels_size(shard.num_examples)
    return _read(
        root / path,
        path,
        most,
        shard.labels_digest,
        lambda data: parse_labels(data, shard.num_examples, path),
    )


def read_keys(
    root: AnyPath, shard: Shard, few: Collection[bytes] = ()
) -> tuple[list[bytes] | None, list[Problem]]:
    """Return the keys of a shard of the dataset in ``root``, or None and what is wrong with them.

    If a ``few`` keys are looked for, and the shard has none of them, the list is empty.
    """
    # each record holds its key, and the frame has room for the separator
    path, most = shard.keys_path, shard.record_bytes

    def parse(data: bytes) -> list[bytes]:
        return [] if few and not holds_any(data, few) else parse_keys(data, shard.num_examples, path)

    return _read(root / path, path, most, shard.keys_digest, parse)


def _read(
    file: AnyPath, path: str, most_bytes: int, digest: str, parse: Callable[[bytes], T]
) -> tuple[T | None, list[Problem]]:
    try:
        data = file.read_whole(Limit("it", min(most_bytes, LISTS.most_bytes)))
        if bytes_digest(data) != digest:
            return None, [Problem(path, OTHER_BYTES)]
        return parse(data), []
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}")]
    except FormatError as error:
        return None, [Problem(path, str(error.problems[0]))]
