"""Derive a shard's entry in the manifest, its index and its labels from the file alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfshards.prep.records.example import decode_label
from tfshards.prep.records.reader import RecordError, read_frames
from tfshards.schemas import Feature, Shard
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.files import bytes_digest, read_once
from tfshards.schemas.index import FRAME_OVERHEAD, RecordIndex, index_path
from tfshards.schemas.labels import labels_bytes, labels_path
from tfshards.schemas.manifest import Compression
from tfshards.schemas.storage import AnyPath

# Called with each record's number, the offset of its frame, and its data.
Look = Callable[[int, int, bytes], None]


def scan_shard(
    root: AnyPath,
    path: str,
    compression: Compression,
    look: Look | None = None,
    label: Feature | None = None,
) -> tuple[Shard, dict[str, bytes]]:
    """Return the entry of a shard in the manifest, and the content of its index and labels by path.

    Args:
        root: the dataset's directory.
        path: path of the shard, relative to ``root``.
        compression: the compression of the file.
        look: called with the number, the offset and the data of each record.
        label: the feature whose values are the labels; None if the dataset has no labels.

    Raises:
        RecordError: a record is damaged, or does not have exactly one label.
        OSError: the file cannot be read.
    """
    lengths: list[int] = []
    checksums: list[int] = []
    labels: list[int] = []
    file_path = root / path
    for found in read_frames(file_path, compression):
        data = found.require_data(file_path)
        if look:
            look(found.number, found.offset, data)
        if label:
            try:
                labels.append(decode_label(data, label.name))
            except ValueError as error:
                raise RecordError(file_path, found.number, found.offset, str(error)) from None
        lengths.append(len(data))
        checksums.append(found.checksum)
    sizes = np.array(lengths, dtype=np.int64)
    index = RecordIndex(sizes + FRAME_OVERHEAD)
    companions = {index_path(path): index.to_text().encode("ascii")}
    if label:
        companions[labels_path(path)] = labels_bytes(labels)
    num_bytes, digest, last_bytes = read_once(file_path)
    shard = Shard(
        path,
        len(lengths),
        num_bytes,
        index.num_bytes,
        digest,
        bytes_digest(companions[index_path(path)]),
        examples_digest(sizes, np.array(checksums, dtype=np.uint32)),
        last_bytes,
        bytes_digest(companions[labels_path(path)]) if label else "",
    )
    return shard, companions
