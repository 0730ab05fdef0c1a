"""Read the index and the labels of a shard from their files, and check both against the manifest."""

from __future__ import annotations

from tfshards.schemas.errors import FormatError, Problem
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.index import MAX_LINE, IntArray, RecordIndex, index_path, parse_index
from tfshards.schemas.labels import labels_path, labels_size, labels_size_fault, parse_labels
from tfshards.schemas.split import Shard
from tfshards.schemas.storage import AnyPath, read_small

OTHER_BYTES = "its bytes have changed: the digest differs"


def read_index(root: AnyPath, shard: Shard) -> tuple[RecordIndex | None, list[Problem]]:
    """Return the index of a shard of the dataset in ``root``, or None and what is wrong with it."""
    path = index_path(shard.path)
    try:
        most = MAX_LINE * shard.num_examples
        num_bytes, data = read_small(root / path, most)
        if data is None:
            fault = f"has {num_bytes} bytes; an index of {shard.num_examples} records has at most {most}"
            return None, [Problem(path, fault)]
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
        num_bytes, data = read_small(root / path, labels_size(shard.num_examples))
        fault = labels_size_fault(num_bytes, shard.num_examples)
        if fault or data is None:
            return None, [Problem(path, fault or OTHER_BYTES)]
        labels = parse_labels(data, shard.num_examples, path)
    except OSError as error:
        return None, [Problem(path, f"cannot be read: {error.strerror}")]
    except FormatError as error:
        # the file has changed since its size was read
        return None, list(error.problems)
    if bytes_digest(data) != shard.labels_digest:
        return None, [Problem(path, OTHER_BYTES)]
    return labels, []
