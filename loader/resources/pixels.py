"""Estimate the sizes of the stored records and images from a few of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.order.source import Source
from tfshards.loader.records.shards import Shards
from tfshards.schemas import Split
from tfshards.schemas.index import HEADER_BYTES, MAX_RECORD_BYTES
from tfshards.schemas.storage import read_range
from tfshards.schemas.storage.untrusted import open_unpacked, read_gradually

# Number of longest records to examine; more than one because one may be unusual.
_NUM_LOOKS = 16


def record_lengths(shards: Shards, split: Split) -> npt.NDArray[np.float64]:
    """Return the sizes of the records; in large splits, means over the records between two known offsets."""
    sizes, ends = shards.sizes, np.array([shard.record_bytes for shard in split.shards], np.int64)
    lengths = []
    for shard, first in enumerate(shards.first_offsets):
        known = -(-int(sizes[shard]) // shards.stride)
        offsets = shards.offsets[first : first + known]
        counts = np.diff(np.append(np.arange(known) * shards.stride, sizes[shard]))
        lengths.append(np.diff(np.append(offsets, ends[shard])) / np.maximum(counts, 1))
    return np.concatenate(lengths) if lengths else np.zeros(0)


def most_pixels(
    source: Source, shards: Shards, lengths: npt.NDArray[np.float64], names: Sequence[str]
) -> dict[str, int]:
    """Return the maximum number of pixels of each of the images ``names`` in the longest records.

    Of compressed shards the first records are examined, since compressed shards can only be read from the
    start.
    """
    found = dict.fromkeys(names, 1)
    if not names:
        return found
    wanted = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    for record in _records(source, shards, lengths):
        try:
            images = tf.io.parse_single_example(record, wanted)
        except tf.errors.InvalidArgumentError:
            # a damaged record is reported when it is read
            continue
        found |= {name: max(found[name], _pixels(encoded)) for name, encoded in images.items()}
    return found


def _records(source: Source, shards: Shards, lengths: npt.NDArray[np.float64]) -> Iterator[bytes]:
    root, split = source.root, source.split
    if shards.compression:
        path = next((root / shard.path for shard in split.shards if shard.num_examples), None)
        if path is None:
            return
        file, most = open_unpacked(path, "gzip")
        with file:
            for _ in range(_NUM_LOOKS):
                header = file.read(HEADER_BYTES)
                length = int.from_bytes(header[:8], "little")
                # a damaged record is reported when it is read
                if len(header) < HEADER_BYTES or length > min(most, MAX_RECORD_BYTES):
                    return
                yield read_gradually(file, length)
                file.read(4)
        return
    for known in np.argsort(lengths)[-_NUM_LOOKS:]:
        shard = int(np.searchsorted(shards.first_offsets, known, side="right")) - 1
        path, num_bytes = root / split.shards[shard].path, split.shards[shard].num_bytes
        start = int(shards.offsets[known]) + HEADER_BYTES
        length = int.from_bytes(read_range(path, start - HEADER_BYTES, start)[:8], "little")
        yield read_range(path, start, min(start + min(length, MAX_RECORD_BYTES), num_bytes))


def _pixels(encoded: tf.Tensor) -> int:
    """Return the number of pixels of an image; 1 if it cannot be decoded, which is reported on reading."""
    try:
        if tf.io.is_jpeg(encoded):
            shape = tf.io.extract_jpeg_shape(encoded).numpy()
        else:
            shape = tf.shape(tf.io.decode_image(encoded, expand_animations=False)).numpy()
    except tf.errors.OpError:
        return 1
    return int(shape[0]) * int(shape[1])
