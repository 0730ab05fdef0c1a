"""What the manifest says of a shard, and what stands beside it, learned from the file itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tfshards.prep.example import decode_label
from tfshards.prep.files import bytes_digest, file_digest
from tfshards.prep.tfrecord import RecordError, masked_crc32c, read_records
from tfshards.schemas import Feature, RecordIndex, Shard, index_path, labels_bytes, labels_path
from tfshards.schemas.digests import NUM_LAST_BYTES, examples_digest
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.manifest import Compression

# What looks at each record: its number, the offset of its frame, and its data.
Look = Callable[[int, int, bytes], None]


def scan_shard(
    root: Path,
    path: str,
    compression: Compression = "none",
    look: Look | None = None,
    label: Feature | None = None,
) -> tuple[Shard, dict[str, bytes]]:
    """Return the shard at ``path`` in the directory ``root`` as a manifest has it, and what stands beside it.

    The latter is the content of each file, by path.

    Args:
        root: the dataset's directory.
        path: of the shard, relative to it.
        compression: of the file.
        look: is given each record: its number, its offset, and its data.
        label: the feature whose values stand beside the shard; None if no labels do.

    Raises:
        RecordError: a record is damaged, or has not the one label.
        OSError: the file cannot be read.
    """
    lengths: list[int] = []
    checksums: list[int] = []
    labels: list[int] = []
    for number, (offset, data) in enumerate(read_records(root / path, compression)):
        if look:
            look(number, offset, data)
        if label:
            try:
                labels.append(decode_label(data, label.name))
            except ValueError as error:
                raise RecordError(root / path, number, offset, str(error)) from None
        lengths.append(len(data))
        checksums.append(masked_crc32c(data))
    sizes = np.array(lengths, dtype=np.int64)
    index = RecordIndex(sizes + FRAME_OVERHEAD)
    beside = {index_path(path): index.to_text().encode("ascii")}
    if label:
        beside[labels_path(path)] = labels_bytes(labels)
    num_bytes = (root / path).stat().st_size
    with (root / path).open("rb") as file:
        file.seek(max(0, num_bytes - NUM_LAST_BYTES))
        last_bytes = file.read().hex()
    shard = Shard(
        path,
        len(lengths),
        num_bytes,
        index.num_bytes,
        file_digest(root / path),
        bytes_digest(beside[index_path(path)]),
        examples_digest(sizes, np.array(checksums, dtype=np.uint32)),
        last_bytes,
        bytes_digest(beside[labels_path(path)]) if label else "",
    )
    return shard, beside
