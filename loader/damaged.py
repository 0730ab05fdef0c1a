"""Which records of a split cannot be read, found by reading all of it once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.checks import split_name
from tfshards.loader.headers import frame_faults
from tfshards.loader.read import COMPRESSIONS, records_of
from tfshards.loader.stages import flat_mapped, mapped
from tfshards.loader.trust import REMEDY, Inspected, inspect_shards
from tfshards.schemas import FormatError, InputError, Problem, Shard, Split, read_manifest
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.manifest import Compression

_LISTED = 3
_READ_TOGETHER = 4096
_BUFFER_BYTES = 1 << 20


class DamagedRecord(NamedTuple):
    """A record that cannot be read: the shard's path in the dataset, its number there, its first byte."""

    shard: str
    record: int
    offset: int


def damaged_records(path: str | os.PathLike[str], split: str | None = None) -> list[DamagedRecord]:
    """Return the records of a split that ``load(…, on_damage="skip")`` leaves out, in stored order.

    All shards of the split are read. A shard that is missing or empty counts with all of its records. In
    compressed shards nothing that stands behind damage can be read.

    Args:
        path: the directory with ``dataset.json``.
        split: may be left out where there is one only.

    Raises:
        InputError: there is no dataset, or no such split.
        FormatError: the manifest or an index breaks the format, or a shard holds other records than the
            manifest says although each of them is sound.
    """
    root, manifest = Path(path), read_manifest(path)
    name = split_name(manifest, split, root)
    taken = manifest.splits[name]
    inspected = inspect_shards(root, taken)
    damage = find_damage(root, taken, inspected, manifest.compression)
    return [
        DamagedRecord(shard.path, int(record), int(seen.index.offsets[record]))
        for shard, bad, seen in zip(taken.shards, damage, inspected, strict=True)
        for record in np.flatnonzero(bad)
    ]


def find_damage(
    root: Path, split: Split, inspected: Sequence[Inspected], compression: Compression
) -> list[npt.NDArray[np.bool_]]:
    """Return for each shard which of its records cannot be read.

    Raises:
        FormatError: as for ``damaged_records``.
    """

    def scan(shard: Shard, seen: Inspected) -> tuple[npt.NDArray[np.bool_], str | None]:
        return _scan(root / shard.path, shard, seen, compression)

    problems = [problem for seen in inspected for problem in seen.index_problems]
    if problems:
        raise FormatError(f"{root}: the indexes of the shards ({REMEDY})", problems)
    # TensorFlow's reader lets other threads run meanwhile
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        found = list(threads.map(scan, split.shards, inspected))
    foreign = [
        Problem(shard.path, fault)
        for shard, (_, fault) in zip(split.shards, found, strict=True)
        if fault is not None
    ]
    if foreign:
        raise FormatError(f"{root}: the records of the shards ({REMEDY})", foreign)
    return [bad for bad, _ in found]


def warn_of_damage(root: Path, name: str, split: Split, damage: Sequence[npt.NDArray[np.bool_]]) -> None:
    """Warn of the records that are left out, if there are any.

    Raises:
        InputError: no record is left.
    """
    number = sum(int(bad.sum()) for bad in damage)
    if not number:
        return
    if number == split.num_examples:
        raise InputError(f"{root}: all {number} records of split {name!r} are damaged; {REMEDY}")
    places = (
        f"{shard.path} record {record}"
        for shard, bad in zip(split.shards, damage, strict=True)
        for record in np.flatnonzero(bad)
    )
    listed = ", ".join(place for place, _ in zip(places, range(_LISTED), strict=False))
    more = f" and {number - _LISTED} more" if number > _LISTED else ""
    warnings.warn(
        f"{root}: {number} of the {split.num_examples} records of split {name!r} are damaged and have weight "
        f"0: {listed}{more}; loader.damaged_records lists them, {REMEDY}",
        stacklevel=4,
    )


def _scan(
    path: Path, shard: Shard, seen: Inspected, compression: Compression
) -> tuple[npt.NDArray[np.bool_], str | None]:
    """Return which records of a shard cannot be read, or that they are not those of the manifest."""
    num_records = len(seen.index.lengths)
    bad = np.zeros(num_records, bool)
    try:
        size = path.stat().st_size
        wrong, digest = frame_faults(path, seen.index, compression)
    except OSError:
        return ~bad, None
    bad[wrong] = True
    offsets, ends = seen.index.offsets, np.cumsum(seen.index.lengths)
    if compression == "none":
        bad |= ends > size
    # TensorFlow never sees a frame whose header is wrong: a length that it believes may end the process
    for first, last in list(_runs(~bad)):
        while first < last:
            sound = _num_sound(path, seen.index.lengths[first:last], int(offsets[first]), compression)
            first += sound
            if first < last and compression == "gzip":
                bad[first:] = True
                break
            if first < last:
                bad[first] = True
                first += 1
    if not bad.any() and digest != shard.examples_digest:
        return bad, f"holds other records than the manifest says: their digest is {digest}"
    return bad, None


def _num_sound(
    path: Path, frame_lengths: npt.NDArray[np.int64], offset: int, compression: Compression
) -> int:
    """Return how many records from ``offset`` on can be read and have the length that the index says."""

    def read(start: tf.Tensor) -> tf.data.Dataset:
        records = records_of(tf.constant(str(path)), COMPRESSIONS[compression], start, _BUFFER_BYTES)
        return mapped(records, lambda record: tf.strings.length(record))

    # inside a function: see records_of
    lengths = flat_mapped(tf.data.Dataset.from_tensors(tf.constant(offset, tf.int64)), read)
    # what stands behind is never touched: zip() looks once more when the numbers have ended
    lengths = lengths.take(len(frame_lengths))
    # zip() takes a number also for what fails, so that a file that is gone fails only so often
    numbered = tf.data.Dataset.zip(tf.data.Dataset.range(len(frame_lengths)), lengths).ignore_errors()
    sound = 0
    for numbers, found in numbered.batch(_READ_TOGETHER).as_numpy_iterator():
        wanted = frame_lengths[sound : sound + len(found)] - FRAME_OVERHEAD
        right = (numbers == np.arange(sound, sound + len(found))) & (found == wanted)
        sound += len(found) if right.all() else int(np.argmin(right))
        if not right.all():
            break
    return sound


def _runs(wanted: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the half-open ranges in which all are wanted."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]])))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
