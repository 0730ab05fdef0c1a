"""Check the files of a shard, and its records, against the manifest and against each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS
from tfshards.prep.progress.threads import Tick
from tfshards.prep.records.frames import Frame, read_frames
from tfshards.prep.records.values import parse_record
from tfshards.prep.sources.keys import to_text
from tfshards.prep.verification.report import RecordProblem
from tfshards.schemas import Manifest, Problem, Shard
from tfshards.schemas.companions import read_index, read_keys, read_labels
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.example import Decoded
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray, RecordIndex, keys_path, labels_path
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import OTHER_BYTES
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_regular, size_of
from tfshards.schemas.storage.verbs import read_once

# How many images of one shard are queued or being decoded; all of them are in memory.
_MAX_WAITING = 16
_TICK_BYTES = 1 << 20
# The number of a record, the offset of its frame, and what is wrong with it.
_Fault: TypeAlias = tuple[int, int, str]


def shard_problems(folder: AnyPath, shard: Shard, tick: Tick = lambda _: None) -> list[Problem]:
    """Return the problems of the size, the digest or the last bytes of one shard."""
    path = folder / shard.path
    try:
        with open_regular(path, buffering=0) as file:
            num_bytes = size_of(file)
        if num_bytes != shard.num_bytes:
            tick(shard.num_bytes)
            return [Problem(shard.path, f"has {num_bytes} bytes, but the manifest lists {shard.num_bytes}")]
        _, digest, last_bytes = read_once(path, tick)
    except OSError as error:
        return [Problem(shard.path, f"cannot be read: {error.strerror}")]
    if digest != shard.digest:
        return [Problem(shard.path, OTHER_BYTES)]
    if last_bytes != shard.last_bytes:
        message = f"ends with the bytes {last_bytes}, but the manifest lists {shard.last_bytes}"
        return [Problem(shard.path, message)]
    return []


@dataclass(frozen=True, eq=False)
class Companions:
    """The index, labels and keys of a shard, None where there are none or problems; and all problems."""

    index: RecordIndex | None
    labels: IntArray | None
    keys: list[bytes] | None
    problems: list[Problem]

    def problem(self, shard: Shard, record: int, offset: int, fault: str) -> RecordProblem:
        """Return the problem of a record, with its key."""
        is_listed = self.keys is not None and record < shard.num_examples
        key = to_text(self.keys[record]) if self.keys is not None and is_listed else None
        named = "" if key is None else f", key {key!r}"
        return RecordProblem(
            shard.path, f"record {record} at byte {offset}{named}: {fault}", record, offset, key
        )


def companions(folder: AnyPath, shard: Shard) -> Companions:
    """Return the index, labels and keys of one shard, and their problems."""
    index, of_index = read_index(folder, shard)
    labels, of_labels = read_labels(folder, shard) if shard.labels_digest else (None, [])
    keys, of_keys = read_keys(folder, shard) if shard.keys_digest else (None, [])
    return Companions(index, labels, keys, of_index + of_labels + of_keys)


def record_problems(
    folder: AnyPath,
    shard: Shard,
    manifest: Manifest,
    companions: Companions,
    decoders: ThreadPoolExecutor | None,
    tick: Tick,
) -> list[Problem]:
    """Return every problem of the records of one shard; images are decoded if there are ``decoders``."""
    faults: list[_Fault] = []
    decoding = _Decoding(manifest, decoders) if decoders else None
    difference = _differences(shard, manifest, companions)
    lengths: list[int] = []
    checksums: list[int] = []
    is_whole = follows = True
    for number, offset, data, checksum, fault in _frames(folder, shard, manifest, companions, tick):
        values: dict[str, Decoded] = {}
        if data is None:
            is_whole = False
        else:
            lengths.append(len(data))
            checksums.append(checksum)
        if data is not None and not fault:
            values, fault = parse_record(data, manifest)
            if not fault and follows and number < shard.num_examples:
                fault = difference(number, len(data), values)
                # moved records differ from there on: one report is enough
                follows = fault is None
        if fault:
            faults.append((number, offset, fault))
        elif decoding:
            faults += decoding.add(number, offset, values)
    if decoding:
        faults += decoding.end()
    problems: list[Problem] = [companions.problem(shard, *fault) for fault in sorted(faults)]
    if is_whole and len(lengths) != shard.num_examples:
        message = f"holds {len(lengths)} records, but the manifest lists {shard.num_examples}"
        problems.append(Problem(shard.path, message))
    if is_whole and not problems:
        found = examples_digest(np.array(lengths, np.int64), np.array(checksums, np.uint32))
        if found != shard.examples_digest:
            lists = f"but the manifest lists {shard.examples_digest}"
            problems.append(Problem(shard.path, f"its records have the digest {found}, {lists}"))
    return problems


def _frames(
    folder: AnyPath, shard: Shard, manifest: Manifest, companions: Companions, tick: Tick
) -> Iterator[Frame]:
    """Yield all frames of a shard; of a file that cannot be read, at the end one that says so."""
    # a compressed file is shorter than its content
    share = shard.num_bytes / max(1, shard.record_bytes)
    done = end = number = 0
    try:
        for frame in read_frames(
            folder / shard.path,
            manifest.compression,
            index=companions.index,
            record_bytes=shard.record_bytes,
        ):
            yield frame
            number, end = frame.number + 1, frame.offset + FRAME_OVERHEAD + len(frame.data or b"")
            if end - done >= _TICK_BYTES:
                tick(int((end - done) * share))
                done = end
    except OSError as error:
        yield Frame(number, end, None, fault=f"cannot be read: {error.strerror}")
    tick(int(max(0, shard.record_bytes - done) * share))


def _differences(
    shard: Shard, manifest: Manifest, companions: Companions
) -> Callable[[int, int, dict[str, Decoded]], str | None]:
    """Return what names how a record differs from the index, the file of labels or the file of keys."""
    label, key, keys = manifest.schema.label, manifest.schema.key, companions.keys
    # memoryviews return Python integers, and faster than arrays their own
    lengths = None if companions.index is None else companions.index.lengths.data
    labels = None if companions.labels is None else companions.labels.data

    def difference(record: int, num_bytes: int, values: dict[str, Decoded]) -> str | None:
        length = num_bytes + FRAME_OVERHEAD
        if lengths is not None and length != lengths[record]:
            return f"has {length} bytes with its frame, but the index lists {lengths[record]}"
        if label and labels is not None and values[label.name][0] != labels[record]:
            path = labels_path(shard.path)
            return f"has the label {values[label.name][0]!r}, but {path} lists {labels[record]}"
        if key and keys is not None and values[key.name][0] != keys[record]:
            path, own = keys_path(shard.path), cast("bytes", values[key.name][0])
            return f"has the key {to_text(own)!r}, but {path} lists {to_text(keys[record])!r}"
        return None

    return difference


class _Decoding:
    """Images of the records of one shard that threads decode, and the faults of these."""

    def __init__(self, manifest: Manifest, decoders: ThreadPoolExecutor) -> None:
        self._images = [feature for feature in manifest.schema.features if feature.is_encoded]
        self._max_pixels = max(_max_pixels(dict(manifest.options)), default=DEFAULT_MAX_PIXELS)
        self._decoders = decoders
        self._waiting: deque[tuple[int, int, Future[str | None]]] = deque()

    def add(self, number: int, offset: int, values: dict[str, Decoded]) -> Iterator[_Fault]:
        """Decode the images of a record, and yield faults of earlier ones."""
        # Pillow is needed only here
        from tfshards.prep.imaging.stored import decoded_fault

        for feature in self._images:
            for data in cast("list[bytes]", values[feature.name]):
                future = self._decoders.submit(decoded_fault, data, feature, self._max_pixels)
                self._waiting.append((number, offset, future))
                yield from self.end(_MAX_WAITING)

    def end(self, num_waiting: int = 0) -> Iterator[_Fault]:
        """Yield the faults of all images but the last ``num_waiting``."""
        while len(self._waiting) > num_waiting:
            number, offset, future = self._waiting.popleft()
            if fault := future.result():
                yield number, offset, fault


def _max_pixels(options: Json) -> Iterator[int]:
    """Yield each ``max_pixels`` in the options of a dataset and of those that it was derived from."""
    inner: list[Json] = options if isinstance(options, list) else []
    if isinstance(options, dict):
        inner = [*options.values()]
        limit = options.get("max_pixels")
        if isinstance(limit, int):
            yield limit
    for value in inner:
        yield from _max_pixels(value)
