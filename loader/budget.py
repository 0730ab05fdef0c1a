"""``memory_budget=``: what a pipeline holds at most, and how far ahead it may work for that.

The order never depends on it: only how much is read, decoded and batched ahead of the training step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.assign import STREAM_BYTES
from tfshards.loader.image_options import Image
from tfshards.loader.pixels import most_pixels, record_lengths
from tfshards.loader.places import Places
from tfshards.loader.reading import Ahead, Reading
from tfshards.loader.streams import STREAMS_OPEN
from tfshards.schemas import OptionsError, Split
from tfshards.schemas.sizes import size

# Copies of a decoded image that decoding holds for a moment: its pixels, a progressive JPEG's coefficients.
_DECODING_COPIES = 3
# The result of resizing is float32 before it is what was asked for.
_RESIZING_BYTES = 8
# glibc's allocator keeps what was freed in one arena from the threads of others: up to as much again.
_SLACK = 2
_BUFFERS = 8 << 20
# The order of an epoch takes some ten numbers for each run while it is made.
_RUN_BYTES = 80


@dataclass(frozen=True)
class Sizes:
    """What the pipeline works on, in bytes.

    Attributes:
        batch_size: examples.
        group: the records that are parsed together.
        open_streams: the records that are read before they are parsed, and the files' buffers.
        decoding: of one example, while its images are decoded; 0 if none are.
        example: of one example as it is delivered.
        cached: the copies of shards in this process's memory.
        by_example: whether examples are worked on one by one, and then put into batches.
    """

    batch_size: int
    group: int
    open_streams: int
    decoding: int
    example: int
    cached: int = 0
    by_example: bool = False

    def held(self, ahead: Ahead) -> int:
        """Return the bytes that are held at most."""
        # Groups are read, put together, dealt out; parsing holds records, copies in order, and values.
        groups = (3 + 3 * ahead.parsed) * self.group
        # one batch is made, one is trained on
        batches = (2 + ahead.batches) * self.batch_size * self.example
        examples = ahead.decoded * (self.decoding + self.example)
        if self.by_example:
            # the examples of a batch, before they are copied into it
            examples += self.batch_size * self.example
        return int(_SLACK * (groups + batches + examples + self.open_streams) + _BUFFERS) + self.cached


def ahead_within(sizes: Sizes, budget: int, ahead: Ahead) -> Ahead:
    """Return the most of ``ahead`` that a budget in bytes allows.

    Raises:
        OptionsError: it does not even allow the least; the message names the budget that does.
    """
    for each in _ever_less(ahead):
        least = sizes.held(each)
        if least <= budget:
            return each
    cached = f", {size(sizes.cached)} of it for the cache" if sizes.cached else ""
    raise OptionsError(
        f"memory_budget of {size(budget)} is less than the least for batches of {sizes.batch_size}, "
        f'{_rounded_up(least)}{cached}; use memory_budget="{_rounded_up(least)}" or a smaller batch_size'
    )


def forecast(root: Path, split: Split, reading: Reading, places: Places, spec: object, cached: int) -> Sizes:
    """Return what the pipeline of ``reading`` works on.

    Args:
        root: the dataset's directory.
        split: that is read.
        reading: what the graph is made from, with the paths of the dataset.
        places: how its places are read.
        spec: of the batches.
        cached: the bytes of the copies of shards in this process's memory.
    """
    assignment = reading.assignment
    lengths = record_lengths(reading.shards, split)
    pixels = most_pixels(root, reading.shards, split, lengths, tuple(reading.images))
    group = longest_records(lengths, assignment.group * assignment.batch_size)
    # the streams that come next are opened, too
    num_open = max(assignment.worker_lanes if assignment.lanes else 0, 2 * STREAMS_OPEN)
    held, more = places.unit_bytes
    # readers of lanes and streams by steps are as many
    files = (reading.shards.buffer_bytes + held) * num_open + more * STREAMS_OPEN
    # By lanes the next group is read ahead; by steps, the streams that are open and those that come next.
    ahead = group if assignment.lanes else 2 * STREAMS_OPEN * STREAM_BYTES
    longest = int(lengths.max(initial=0))
    return Sizes(
        assignment.batch_size,
        group,
        files + ahead + _RUN_BYTES * places.order.num_runs,
        sum(decoding_bytes(image, pixels[name]) for name, image in reading.images.items()),
        delivered_bytes(spec, longest),
        cached,
        reading.by_example,
    )


def longest_records(lengths: npt.NDArray[np.float64], count: int) -> int:
    """Return the bytes of the ``count`` longest of records; where there are fewer, they come again."""
    if not len(lengths):
        return 0
    rounds, rest = divmod(count, len(lengths))
    longest = np.partition(lengths, len(lengths) - rest)[len(lengths) - rest :] if rest else lengths[:0]
    return int(rounds * lengths.sum() + longest.sum())


def delivered_bytes(spec: object, longest: int) -> int:
    """Return the bytes of one example in batches of ``spec``; ``longest`` are those of the longest record."""
    num_bytes = 0
    for tensor in tf.nest.flatten(spec):
        dtype = tensor.dtype
        if isinstance(tensor, tf.TensorSpec) and dtype != tf.string and _has_size(tensor.shape):
            num_bytes += prod(tensor.shape[1:]) * dtype.size
        else:
            # what has no fixed size comes as it is stored; small numbers are stored shorter than they come
            num_bytes += longest * (1 if dtype == tf.string else dtype.size)
    return num_bytes


def _has_size(shape: tf.TensorShape) -> bool:
    return shape.rank is not None and None not in shape[1:]


def decoding_bytes(image: Image, pixels: int) -> int:
    """Return the bytes that decoding one image of so many pixels takes."""
    channels = image.channels or 3
    resized = prod(image.size) * channels * _RESIZING_BYTES if image.size is not None else 0
    return _DECODING_COPIES * pixels * channels + resized


def _ever_less(ahead: Ahead) -> Iterator[Ahead]:
    yield ahead
    while ahead.batches > 1:
        ahead = replace(ahead, batches=ahead.batches - 1)
        yield ahead
    if ahead.parsed > 1:
        ahead = replace(ahead, parsed=1)
        yield ahead
    while ahead.decoded > 1:
        ahead = replace(ahead, decoded=ahead.decoded // 2)
        yield ahead


def _rounded_up(num_bytes: int) -> str:
    return f"{-(-num_bytes // (1 << 20))}MiB"
