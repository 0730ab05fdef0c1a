"""``memory_budget=``: the maximum memory of a pipeline, from the sizes of a few stored examples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.examples.content import Content
from tfshards.loader.options.image import Image
from tfshards.loader.order.assignment import STREAM_BYTES
from tfshards.loader.order.source import OpenSplit
from tfshards.loader.records.record_reader import RecordReader
from tfshards.loader.records.shards import Shards
from tfshards.loader.records.streams import STREAMS_OPEN
from tfshards.loader.tensors.batches import Ahead, parse_examples
from tfshards.schemas import Feature, OptionsError, Split
from tfshards.schemas.index import HEADER_BYTES, MAX_RECORD_BYTES
from tfshards.schemas.schema import ITEM_SIZES
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
    source: OpenSplit, shards: Shards, lengths: npt.NDArray[np.float64], features: Sequence[Feature]
) -> dict[str, int]:
    """Return the maximum number of pixels of each of the images ``features`` in the longest records.

    The first records of compressed shards are examined, since compressed shards can only be read from the
    start.
    """
    found = {feature.name: 1 for feature in features}
    if not features:
        return found
    for record in _records(source, shards, lengths):
        try:
            images = parse_examples(tf.constant([record]), features)
        except tf.errors.InvalidArgumentError:
            # a damaged record is reported when it is read
            continue
        for name, values in images.items():
            found[name] = max(found[name], _pixels(values[0]))
    return found


def _records(source: OpenSplit, shards: Shards, lengths: npt.NDArray[np.float64]) -> Iterator[bytes]:
    root, split = source.root, source.split
    if shards.compression:
        path = next((root / shard.path for shard in split.shards if shard.num_examples), None)
        if path is None:
            return
        file, most = open_unpacked(path, source.manifest.compression)
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


# Copies of an image that exist during decoding: its pixels, and the coefficients of a progressive JPEG.
_DECODING_COPIES = 3
# The result of resizing is float32 before it is converted to the requested dtype.
_RESIZING_BYTES = 8
# The allocator of glibc does not reuse memory freed in one arena for threads of others: up to twice the size.
# Large blocks are returned to the system or reused: batches of 18 and 73 MiB took no additional memory.
_SLACK = 2
_LARGE_BLOCK = 128 << 10
_BUFFERS = 8 << 20
# Computing the order of an epoch takes some ten numbers per run.
_RUN_BYTES = 80


@dataclass(frozen=True)
class Sizes:
    """The sizes of what the pipeline processes, in bytes.

    Attributes:
        group: size of the records that are parsed together.
        open_streams: size of the records that are read but not parsed yet, and of the buffers of files.
        decoding: additional size of one example while its images are decoded; 0 if none are.
        example: size of one example as it is delivered.
        by_example: whether examples are processed one by one and then batched.
        fetched: size of the blocks of a bucket, see ``records.shards.Fetcher``.
    """

    batch_size: int
    group: int
    open_streams: int
    decoding: int
    example: int
    by_example: bool = False
    num_steps: int | None = None
    fetched: int = 0

    @property
    def least(self) -> int:
        """The smallest budget."""
        return min(self.held(each) for each in _ever_less(Ahead()))

    def held(self, ahead: Ahead) -> int:
        """Return the maximum number of bytes in memory."""
        # Groups are read, joined and distributed; parsing holds records, ordered copies, and values.
        groups = (3 + 3 * ahead.parsed) * self.group
        # one batch is being made and one is in use; a short run has no more batches than steps
        num_batches = 2 + ahead.batches
        if self.num_steps is not None:
            num_batches = min(num_batches, self.num_steps)
        batch = self.batch_size * self.example
        whole = num_batches * batch * _slack(batch)
        if self.by_example:
            # the examples of a batch, before they are copied into it
            whole += batch * _slack(self.example)
        examples = ahead.decoded * (self.decoding + self.example)
        return int(_SLACK * (groups + examples + self.open_streams) + self.fetched + whole + _BUFFERS)


def _slack(block: int) -> int:
    return 1 if block >= _LARGE_BLOCK else _SLACK


def ahead_within(sizes: Sizes, budget: int, ahead: Ahead) -> Ahead:
    """Return the largest part of ``ahead`` that a budget in bytes allows."""
    for each in _ever_less(ahead):
        least = sizes.held(each)
        if least <= budget:
            return each
    raise OptionsError(
        "budget-too-small",
        budget=budget,
        batch_size=sizes.batch_size,
        rounded_up=f"{-(-least // (1 << 20))}MiB",
    )


def forecast(source: OpenSplit, reader: RecordReader, content: Content, spec: object) -> Sizes:
    """Return the sizes of what the pipeline processes."""
    plan, assignment, shards = reader.plan, reader.plan.assignment, reader.shards
    lengths = record_lengths(shards, source.split)
    images = [each for each in content.features if each.name in content.images and not each.pixels]
    pixels = most_pixels(source, shards, lengths, images)
    # of arrays the pixels are known
    pixels |= {
        each.name: math.prod(side or 1 for side in each.shape[:2]) for each in content.features if each.pixels
    }
    group = longest_records(lengths, assignment.group * assignment.batch_size)
    # the next streams are opened as well
    num_open = max(assignment.worker_lanes if assignment.lanes else 0, 2 * STREAMS_OPEN)
    held, more = reader.unit_bytes
    buffers = (shards.buffer_bytes + held) * num_open + more * max(STREAMS_OPEN, assignment.num_readers)
    # By lanes the next group is read ahead; by steps, the open streams and the next ones.
    stream = min(STREAM_BYTES, source.split.record_bytes)
    ahead = group if assignment.lanes else 2 * STREAMS_OPEN * stream
    longest = int(lengths.max(initial=0))
    return Sizes(
        batch_size=assignment.batch_size,
        group=group,
        open_streams=buffers + ahead + _RUN_BYTES * plan.order.num_runs,
        decoding=sum(
            decoding_bytes(content.images[feature.name], pixels[feature.name], ITEM_SIZES[feature.dtype])
            for feature in content.features
            if feature.name in content.images
        ),
        example=delivered_bytes(spec, longest),
        by_example=content.by_example,
        num_steps=plan.num_steps,
    )


def longest_records(lengths: npt.NDArray[np.float64], count: int) -> int:
    """Return the bytes of the ``count`` longest records; if there are fewer, they are repeated."""
    if not len(lengths):
        return 0
    rounds, rest = divmod(count, len(lengths))
    longest = np.partition(lengths, len(lengths) - rest)[len(lengths) - rest :] if rest else lengths[:0]
    return int(rounds * lengths.sum() + longest.sum())


def delivered_bytes(spec: object, longest: int) -> int:
    """Return the bytes of one example with the tensors ``spec``; ``longest`` is the longest record's size."""
    num_bytes = 0
    for tensor in tf.nest.flatten(spec):
        dtype = tensor.dtype
        if (
            isinstance(tensor, tf.RaggedTensorSpec)
            or dtype == tf.string
            or not tensor.shape.is_fully_defined()
        ):
            # values without a fixed size are as large as stored; small integers are stored in fewer bytes
            num_bytes += longest * (1 if dtype == tf.string else dtype.size)
        else:
            num_bytes += prod(tensor.shape) * dtype.size
    return num_bytes


def decoding_bytes(image: Image, pixels: int, sample: int = 1) -> int:
    """Return the bytes that decoding one image of ``pixels`` pixels takes, with ``sample`` bytes each."""
    channels = image.channels or 3
    resized = prod(image.size) * channels * _RESIZING_BYTES if image.size is not None else 0
    return _DECODING_COPIES * pixels * channels * sample + resized


def _ever_less(ahead: Ahead) -> Iterator[Ahead]:
    for batches in range(ahead.batches, 0, -1):
        yield replace(ahead, batches=batches)
    decoded = ahead.decoded
    while decoded:
        yield Ahead(decoded, batches=1, parsed=1)
        decoded //= 2
