"""Check the files of a shard, and its records, against the manifest and against each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

import numpy as np

from tfshards.prep.imaging.options import DEFAULT_MAX_PIXELS
from tfshards.prep.progress.threads import Tick
from tfshards.prep.records.frames import Frame, read_frames
from tfshards.prep.records.values import parse_record
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.verification.report import RecordProblem
from tfshards.schemas import Manifest, Problem, Shard
from tfshards.schemas.companions import read_index, read_keys, read_labels
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.example import Decoded, decode_example
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray, RecordIndex, keys_path, labels_path
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import OTHER_BYTES
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_regular, size_of
from tfshards.schemas.storage.verbs import read_once

# How many images of one shard are queued or being decoded; all of them are in memory.
_MAX_WAITING = 16
_TICK_BYTES = 1 << 20


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
    check = _ShardCheck(shard, manifest, companions, decoders)
    done = end = number = 0
    try:
        for frame in read_frames(
            folder / shard.path,
            manifest.compression,
            index=companions.index,
            record_bytes=shard.record_bytes,
        ):
            check.add(frame)
            if frame.offset - done >= _TICK_BYTES:
                # a compressed file is shorter than its content
                tick((frame.offset - done) * shard.num_bytes // max(1, shard.record_bytes))
                done = frame.offset
            number, end = frame.number + 1, frame.offset + FRAME_OVERHEAD + len(frame.data or b"")
    except OSError as error:
        check.add(Frame(number, end, None, fault=f"cannot be read: {error.strerror}"))
    tick(max(0, shard.record_bytes - done) * shard.num_bytes // max(1, shard.record_bytes))
    return check.end()


class _ShardCheck:
    """A check of the records of one shard, one by one, and its findings."""

    def __init__(
        self, shard: Shard, manifest: Manifest, companions: Companions, decoders: ThreadPoolExecutor | None
    ) -> None:
        self._shard, self._manifest, self._decoders = shard, manifest, decoders
        # memoryviews return Python integers, and faster than arrays their own
        self._listed = (
            None if companions.index is None else companions.index.lengths.data,
            None if companions.labels is None else companions.labels.data,
            companions.keys,
        )
        self._images = [feature for feature in manifest.schema.features if feature.is_encoded]
        self._max_pixels = max(_max_pixels(dict(manifest.options)), default=DEFAULT_MAX_PIXELS)
        self._waiting: deque[tuple[Frame, str | None, Future[str | None]]] = deque()
        # whether all records can be located, and agree with the companions so far
        self._is_whole = self._follows = True
        self._problems: list[RecordProblem] = []
        self._checksums: list[int] = []
        self._lengths: list[int] = []

    def add(self, frame: Frame) -> None:
        """Check one frame."""
        if frame.fault:
            self._note(frame, frame.fault, _key_of(frame.data))
        if frame.data is None:
            self._is_whole = False
            return
        self._lengths.append(len(frame.data))
        self._checksums.append(frame.checksum)
        if frame.is_sound:
            self._check_values(frame, frame.data)

    def end(self) -> list[Problem]:
        """Return the findings of all frames."""
        while self._waiting:
            self._note_decoded()
        shard, count = self._shard, len(self._lengths)
        problems: list[Problem] = [*sorted(self._problems, key=lambda problem: problem.record)]
        if self._is_whole and count != shard.num_examples:
            message = f"holds {count} records, but the manifest lists {shard.num_examples}"
            problems.append(Problem(shard.path, message))
        if self._is_whole and not problems:
            checksums = np.array(self._checksums, dtype=np.uint32)
            found = examples_digest(np.array(self._lengths, dtype=np.int64), checksums)
            if found != shard.examples_digest:
                lists = f"but the manifest lists {shard.examples_digest}"
                problems.append(Problem(shard.path, f"its records have the digest {found}, {lists}"))
        return problems

    def _check_values(self, frame: Frame, data: bytes) -> None:
        values, fault = parse_record(data, self._manifest)
        key = _key_in(values) if not fault else _key_of(data)
        if fault:
            self._note(frame, fault, key)
        label, number = self._manifest.schema.label, None
        if label and not fault:
            (number,) = cast("list[int]", values[label.name])
        if self._follows and frame.number < self._shard.num_examples:
            self._follow(frame, len(data) + FRAME_OVERHEAD, number, key)
        if self._decoders and not fault:
            self._decode(frame, key, values, self._decoders)

    def _follow(self, frame: Frame, length: int, label: int | None, key: str | None) -> None:
        """Report the first record that differs from the index, the file of labels or the file of keys."""
        lengths, labels, keys = self._listed
        fault = ""
        if lengths is not None and length != lengths[frame.number]:
            fault = f"has {length} bytes with its frame, but the index lists {lengths[frame.number]}"
        elif labels is not None and label is not None and label != labels[frame.number]:
            path = labels_path(self._shard.path)
            fault = f"has the label {label}, but {path} lists {labels[frame.number]}"
        elif keys is not None and key is not None and to_bytes(key) != keys[frame.number]:
            fault = f"{keys_path(self._shard.path)} lists the key {to_text(keys[frame.number])!r} for it"
        if fault:
            # moved records differ from there on: one report is enough
            self._follows = False
            self._note(frame, fault, key)

    def _decode(
        self, frame: Frame, key: str | None, values: dict[str, Decoded], decoders: ThreadPoolExecutor
    ) -> None:
        # Pillow is needed only here
        from tfshards.prep.imaging.stored import decoded_fault

        for feature, data in [(each, data) for each in self._images for data in values[each.name]]:
            assert isinstance(data, bytes)
            future = decoders.submit(decoded_fault, data, feature, self._max_pixels)
            # only the number and offset are still needed: release the data
            self._waiting.append((frame._replace(data=None), key, future))
            if len(self._waiting) > _MAX_WAITING:
                self._note_decoded()

    def _note_decoded(self) -> None:
        frame, key, future = self._waiting.popleft()
        if fault := future.result():
            self._note(frame, fault, key)

    def _note(self, frame: Frame, message: str, key: str | None) -> None:
        words = "key" if frame.is_sound else "its key reads"
        self._problems.append(
            RecordProblem.of(self._shard, frame.number, frame.offset, key, message, words=words)
        )


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


def _key_of(data: bytes | None) -> str | None:
    """Return the key in the bytes of a record, sound or not; None if it has none."""
    if data is None:
        return None
    try:
        return _key_in(decode_example(data))
    except ValueError:
        return None


def _key_in(values: dict[str, Decoded]) -> str | None:
    found = values.get("key", [])
    return to_text(found[0]) if len(found) == 1 and isinstance(found[0], bytes) else None
