"""Read the index, the labels and the keys of a shard from their files; check them against the manifest."""

from __future__ import annotations

from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import FormatError, Problem
from tfshards.schemas.index import (
    MAX_LINE,
    IntArray,
    RecordIndex,
    index_path,
    keys_path,
    labels_path,
    labels_size,
    parse_index,
    parse_keys,
    parse_labels,
)
from tfshards.schemas.manifest_file import OTHER_BYTES
from tfshards.schemas.split import Shard
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import INDEX, KEYS, LABELS, Limit, read_whole


def read_index(root: AnyPath, shard: Shard) -> tuple[RecordIndex | None, list[Problem]]:
    """Return the index of a shard of the dataset in ``root``, or None and what is wrong with it."""
    path = index_path(shard.path)
    try:
        data = read_whole(root / path, _limit(INDEX, shard, MAX_LINE * shard.num_examples))
        index = parse_index(data.decode("ascii"), path)
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return None, [Problem(path, "holds characters other than digits and spaces")]
    except FormatError as error:
        return None, [Problem(path, str(problem)) for problem in error.problems]
    if (len(index.lengths), index.num_bytes) != (shard.num_examples, shard.record_bytes):
        found = f"{len(index.lengths)} records of {index.num_bytes} bytes"
        fault = f"has {found}, but the manifest lists {shard.num_examples} of {shard.record_bytes}"
        return None, [Problem(path, fault)]
    if bytes_digest(data) != shard.index_digest:
        return None, [Problem(path, OTHER_BYTES)]
    return index, []


def read_labels(root: AnyPath, shard: Shard) -> tuple[IntArray | None, list[Problem]]:
    """Return the labels of a shard of the dataset in ``root``, or None and what is wrong with them."""
    path = labels_path(shard.path)
    try:
        data = read_whole(root / path, _limit(LABELS, shard, labels_size(shard.num_examples)))
        labels = parse_labels(data, shard.num_examples, path)
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}")]
    except FormatError as error:
        return None, list(error.problems)
    if bytes_digest(data) != shard.labels_digest:
        return None, [Problem(path, OTHER_BYTES)]
    return labels, []


def read_keys(root: AnyPath, shard: Shard) -> tuple[list[bytes] | None, list[Problem]]:
    """Return the keys of a shard of the dataset in ``root``, or None and what is wrong with them."""
    path = keys_path(shard.path)
    try:
        # each record holds its key, and the frame has room for the separator
        data = read_whole(root / path, _limit(KEYS, shard, shard.record_bytes))
        keys = parse_keys(data, shard.num_examples, path)
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}")]
    except FormatError as error:
        return None, list(error.problems)
    if bytes_digest(data) != shard.keys_digest:
        return None, [Problem(path, OTHER_BYTES)]
    return keys, []


def _limit(kind: Limit, shard: Shard, num_bytes: int) -> Limit:
    """Return the limit of a file that has at most ``num_bytes`` for the records of a shard."""
    if num_bytes > kind.most_bytes:
        return kind
    return Limit(f"{kind.kind} of {shard.num_examples} records", num_bytes)
