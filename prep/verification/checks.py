"""Check the files of a shard, and its records, against the manifest and against each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias, cast

from tfshards.prep.progress.threads import Tick
from tfshards.prep.records.frames import Frame
from tfshards.prep.records.shard_file import scan
from tfshards.prep.records.values import parse_record
from tfshards.prep.sources.keys import to_text
from tfshards.prep.verification.report import RecordProblem
from tfshards.schemas import Feature, Manifest, Problem, Shard
from tfshards.schemas.companions import read_index, read_keys, read_labels
from tfshards.schemas.index import IntArray, RecordIndex
from tfshards.schemas.manifest import OTHER_BYTES
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.verbs import read_once

# How many images of one shard are queued or being decoded; all of them are in memory.
_MAX_WAITING = 16
# Starts to decode an image, and returns what will be wrong with it, or None.
Decode: TypeAlias = Callable[[bytes, Feature], "Future[str | None]"]


def shard_problems(folder: AnyPath, shard: Shard, tick: Tick = lambda _: None) -> list[Problem]:
    """Return the problems of the size, the digest or the last bytes of one shard."""
    fault = ""
    try:
        num_bytes, digest, last_bytes = read_once(folder / shard.path, tick)
        if num_bytes != shard.num_bytes:
            fault = f"has {num_bytes} bytes, but the manifest lists {shard.num_bytes}"
        elif digest != shard.digest:
            fault = OTHER_BYTES
        elif last_bytes != shard.last_bytes:
            fault = f"ends with the bytes {last_bytes}, but the manifest lists {shard.last_bytes}"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    return [Problem(shard.path, fault)] if fault else []


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
        message = f"record {record} at byte {offset}{named}: {fault}"
        return RecordProblem(shard.path, message, record, offset, key)


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
    decode: Decode | None,
    tick: Tick,
) -> list[Problem]:
    """Return every problem of the records of one shard, and of its images if there is ``decode``.

    The records are read by the index, so that damage hides no other record. A shard whose index is damaged
    is read in order.

    Raises:
        OSError: the file cannot be read.
    """
    decoding: deque[tuple[Frame, Future[str | None]]] = deque()
    undecodable: list[Frame] = []
    images = [feature for feature in manifest.schema.features if feature.is_encoded]
    # a memoryview returns Python integers, and faster than an array its own
    labels = None if companions.labels is None else companions.labels.data
    listed = [
        (feature.name, path, values)
        for feature, path, values in (
            (manifest.schema.label, shard.labels_path, labels),
            (manifest.schema.key, shard.keys_path, companions.keys),
        )
        if feature and values is not None
    ]

    def decoded(num_waiting: int) -> None:
        while len(decoding) > num_waiting:
            frame, future = decoding.popleft()
            if fault := future.result():
                undecodable.append(frame._replace(data=None, fault=fault))

    def look(frame: Frame) -> None:
        values = parse_record(frame.data or b"", manifest)
        for name, path, of_file in listed if frame.number < shard.num_examples else ():
            if values[name][0] != of_file[frame.number]:
                both = (values[name][0], of_file[frame.number])
                own, other = (to_text(value) if isinstance(value, bytes) else value for value in both)
                # records of another shard differ from their start on: one report is enough
                listed.clear()
                raise ValueError(f"has the {name} {own!r}, but {path} lists {other!r}")
        if decode:
            for feature in images:
                for data in cast("list[bytes]", values[feature.name]):
                    decoding.append((frame, decode(data, feature)))
            decoded(_MAX_WAITING)

    # a compressed file is shorter than its content
    share = shard.num_bytes / max(1, shard.record_bytes)
    path = folder / shard.path
    records, faults = scan(
        path, manifest.compression, look, companions.index, lambda count: tick(int(count * share))
    )
    decoded(0)
    found = {each.record: (each.offset, each.fault) for each in faults}
    found |= {each.number: (each.offset, each.fault or "") for each in undecodable}
    problems: list[Problem] = [companions.problem(shard, each, *found[each]) for each in sorted(found)]
    if problems:
        return problems
    fault = ""
    if len(records.lengths) != shard.num_examples:
        fault = f"holds {len(records.lengths)} records, but the manifest lists {shard.num_examples}"
    elif records.digest != shard.examples_digest:
        lists = f"but the manifest lists {shard.examples_digest}"
        fault = f"its records have the digest {records.digest}, {lists}"
    return [Problem(shard.path, fault)] if fault else []
