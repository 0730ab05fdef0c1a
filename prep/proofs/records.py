"""Looking at every record of a shard: frames, values, keys, labels, pixels, and what they are together."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.example import Decoded, decode_example
from tfshards.prep.images import decoded_fault
from tfshards.prep.proofs.files import Beside, Tick
from tfshards.prep.proofs.values import parse_record
from tfshards.prep.proofs.walk import Frame, walk_frames
from tfshards.prep.sources.listing import to_text
from tfshards.schemas import Manifest, Problem, RecordIndex, Shard, labels_path
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.reading import Json

# Of a key: enough to see repetitions, whatever the keys' lengths.
_KEY_BYTES = 16
# Images of one shard that wait to be decoded, or are; each is in memory.
_MAX_WAITING = 16
_MAX_PIXELS = 89_000_000
_TICK_BYTES = 1 << 20


@dataclass(frozen=True)
class RecordProblem(Problem):
    """A fault of one record.

    Attributes:
        record: its number in the shard.
        offset: the byte at which its frame starts, uncompressed.
        key: of the record, if one can be read; where the record is damaged, so may be the key.
    """

    record: int = 0
    offset: int = 0
    key: str | None = None


@dataclass(frozen=True)
class Records:
    """What the records of one shard are.

    Attributes:
        problems: with them, in their order.
        keys: shape ``(n,)``, 16 bytes of hash of the key of each sound record.
        numbers: shape ``(n,)`` int64, the numbers of these records.
        labels: how often each label occurs; None if not all records could be read.
    """

    problems: list[Problem]
    keys: npt.NDArray[np.void]
    numbers: npt.NDArray[np.int64]
    labels: Counter[int] | None


NO_RECORDS = Records([], np.array([], dtype=f"V{_KEY_BYTES}"), np.array([], dtype=np.int64), None)


def look_at_records(
    folder: Path,
    shard: Shard,
    manifest: Manifest,
    beside: Beside,
    decoders: ThreadPoolExecutor | None,
    tick: Tick,
) -> Records:
    """Return what the records of one shard are, and all that is wrong with them.

    Args:
        folder: the dataset's directory.
        shard: of it.
        manifest: of it.
        beside: what stands beside the shard, with which the records are compared.
        decoders: decode the images; None decodes none.
        tick: is told how many bytes of the file are done.
    """
    look = _Look(shard, manifest, beside, decoders)
    done = 0
    for frame in walk_frames(folder / shard.path, shard, manifest.compression, beside.index):
        look.at(frame)
        if frame.offset - done >= _TICK_BYTES:
            # compressed, a file is shorter than what is in it
            tick((frame.offset - done) * shard.num_bytes // max(1, shard.record_bytes))
            done = frame.offset
    tick(max(0, shard.record_bytes - done) * shard.num_bytes // max(1, shard.record_bytes))
    return look.end()


def places_of(
    folder: Path, shard: Shard, manifest: Manifest, index: RecordIndex | None, wanted: set[int]
) -> Iterator[tuple[int, int, str]]:
    """Yield number, offset and key of some records, all of which can be read."""
    for frame in walk_frames(folder / shard.path, shard, manifest.compression, index):
        if frame.number in wanted:
            yield frame.number, frame.offset, _key_of(frame.data) or ""


@dataclass
class _Fault:
    """A fault of a record while the key that names it is still sought."""

    frame: Frame
    message: str
    key: str | None
    words: str


@dataclass
class _Look:
    """What is known of a shard's records so far."""

    shard: Shard
    manifest: Manifest
    beside: Beside
    decoders: ThreadPoolExecutor | None
    faults: list[_Fault] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    labels: Counter[int] = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._images = [feature for feature in self.manifest.schema.features if feature.kind == "image"]
        self._max_pixels = max(_max_pixels(dict(self.manifest.options)), default=_MAX_PIXELS)
        self._waiting: deque[tuple[Frame, str | None, Future[str | None]]] = deque()
        self._last_key: str | None = None
        self._is_whole = self._follows_index = self._follows_labels = True

    def at(self, frame: Frame) -> None:
        """Take in one frame."""
        if frame.fault:
            key = _key_of(frame.data)
            self._note(frame, frame.fault, key, "key" if frame.is_sound else "its key reads")
        if frame.data is None:
            self._is_whole = False
        else:
            self.lengths.append(len(frame.data))
            self.checksums.append(frame.checksum)
        if frame.is_sound and frame.data is not None:
            self._look_into(frame, frame.data)

    def end(self) -> Records:
        """Return what there was."""
        while self._waiting:
            self._decoded()
        are_sound = not self.faults
        problems: list[Problem] = [
            _problem(self.shard, fault) for fault in sorted(self.faults, key=lambda fault: fault.frame.number)
        ]
        problems += self._together(are_sound)
        labels = self.labels if are_sound and len(self.lengths) == self.shard.num_examples else None
        return Records(
            problems,
            np.frombuffer(b"".join(self.keys), dtype=f"V{_KEY_BYTES}"),
            np.array(self.numbers, dtype=np.int64),
            labels,
        )

    def _look_into(self, frame: Frame, data: bytes) -> None:
        values, fault = parse_record(data, self.manifest)
        key = _key_in(values) if not fault else _key_of(data)
        if fault:
            self._note(frame, fault, key, "key")
        self._follow_index(frame, len(data) + FRAME_OVERHEAD, key)
        if key is not None:
            self._name(key)
            self.keys.append(_hashed(key))
            self.numbers.append(frame.number)
        if fault:
            return
        label = self.manifest.schema.label
        if label:
            (number,) = cast("list[int]", values[label.name])
            self.labels[number] += 1
            self._follow_labels(frame, number, key)
        if self.decoders:
            self._decode(frame, key, values, self.decoders)

    def _follow_index(self, frame: Frame, length: int, key: str | None) -> None:
        """Note the first record that is not where the index says."""
        index = self.beside.index
        if index is None or not self._follows_index or frame.number >= len(index.lengths):
            return
        stated = int(index.lengths[frame.number])
        if length != stated:
            self._follows_index = False
            self._note(frame, f"takes {length} bytes with its frame, the index says {stated}", key, "key")

    def _follow_labels(self, frame: Frame, label: int, key: str | None) -> None:
        """Note the first record whose label is not the one that stands beside the shard."""
        labels = self.beside.labels
        # records that are not where they were have other labels there, too
        follows = self._follows_labels and self._follows_index
        if labels is None or not follows or frame.number >= len(labels):
            return
        stated = int(labels[frame.number])
        if label != stated:
            self._follows_labels = False
            path = labels_path(self.shard.path)
            self._note(frame, f"has the label {label}, {path} says {stated}", key, "key")

    def _decode(
        self, frame: Frame, key: str | None, values: dict[str, Decoded], decoders: ThreadPoolExecutor
    ) -> None:
        for feature in self._images:
            (data,) = cast("list[bytes]", values[feature.name])
            future = decoders.submit(decoded_fault, data, feature, self._max_pixels)
            # what waits needs the place alone, no longer the data
            self._waiting.append((frame._replace(data=None), key, future))
            if len(self._waiting) > _MAX_WAITING:
                self._decoded()

    def _decoded(self) -> None:
        frame, key, future = self._waiting.popleft()
        fault = future.result()
        if fault:
            self._note(frame, fault, key, "key")

    def _note(self, frame: Frame, message: str, key: str | None, words: str) -> None:
        if key is None and self._last_key is not None:
            key, words = self._last_key, "behind key"
        self.faults.append(_Fault(frame, message, key, words))

    def _name(self, key: str) -> None:
        """Keep the key of a sound record: it names the damaged ones behind it, and those before it."""
        if self._last_key is None:
            for fault in self.faults:
                if fault.key is None:
                    fault.key, fault.words = key, "before key"
        self._last_key = key

    def _together(self, are_sound: bool) -> Iterator[Problem]:
        """Yield what only all records together show."""
        shard, path = self.shard, self.shard.path
        if not self._is_whole:
            return
        if len(self.lengths) != shard.num_examples:
            message = f"holds {len(self.lengths)} records, the manifest says {shard.num_examples}"
            yield Problem(path, message)
        elif are_sound:
            lengths = np.array(self.lengths, dtype=np.int64)
            found = examples_digest(lengths, np.array(self.checksums, dtype=np.uint32))
            if found != shard.examples_digest:
                message = f"the digest of its records is {found}, the manifest says {shard.examples_digest}"
                yield Problem(path, message)


def _max_pixels(options: Json) -> Iterator[int]:
    """Yield how many pixels an image may have, of a build and of those that a dataset was made of."""
    inner: list[Json] = options if isinstance(options, list) else []
    if isinstance(options, dict):
        inner = [*options.values()]
        limit = options.get("max_pixels")
        if isinstance(limit, int):
            yield limit
    for value in inner:
        yield from _max_pixels(value)


def _problem(shard: Shard, fault: _Fault) -> RecordProblem:
    named = f", {fault.words} {fault.key!r}" if fault.key is not None else ""
    number, offset = fault.frame.number, fault.frame.offset
    own = fault.key if fault.words in ("key", "its key reads") else None
    message = f"record {number} at byte {offset}{named}: {fault.message}"
    return RecordProblem(shard.path, message, number, offset, own)


def _key_of(data: bytes | None) -> str | None:
    """Return the key in the bytes of a record, whatever else is in them; None if there is none."""
    if data is None:
        return None
    try:
        return _key_in(decode_example(data))
    except ValueError:
        return None


def _key_in(values: dict[str, Decoded]) -> str | None:
    found = values.get("key", [])
    return to_text(found[0]) if len(found) == 1 and isinstance(found[0], bytes) else None


def _hashed(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=_KEY_BYTES).digest()
