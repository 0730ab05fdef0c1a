"""Write one shard from pieces, in the order of its plan, and publish the finished file.

The pieces come from encoded inputs, or are runs of records of another dataset. Some engines repeat a task or
run it twice at the same time. Therefore each attempt writes to a separate file, and all attempts write the
same bytes.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, cast

from tfshards.prep.progress.threads import check_working, computing, num_writers
from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.records.shard_file import Frames, ShardFile, frames_of
from tfshards.prep.records.values import content_digest
from tfshards.prep.sources.base import Accepted, Outcome, Reader, Row, RowFields, pieces_of
from tfshards.prep.writing.build_folder import BuildFolder, FinishedShard, Reject, ShardId, plan_digest
from tfshards.schemas import BuildError, InputError, Schema, Shard, TfshardsError
from tfshards.schemas.compression import Compression


@dataclass(frozen=True)
class Piece:
    """Consecutive examples of a shard.

    Attributes:
        frames: their frames, as they are written.
        keys: their keys; empty if the examples have none.
        labels: their labels; empty if the schema has no scalar label.
        rejected: planned rows that are not in it.
        conversions: kinds of conversion, once for each image that was converted.
        converted_keys: by kind of conversion, the key of the first image that was converted.
        contents: digest of the content of each planned row, "" if it is rejected; if duplicates are searched.
    """

    frames: Frames
    keys: Sequence[bytes] = ()
    labels: Sequence[int] = ()
    rejected: Sequence[Reject] = ()
    conversions: Sequence[str] = ()
    converted_keys: Mapping[str, str] = field(default_factory=dict)
    contents: Sequence[str] = ()


class Pieces(Protocol):
    """What the examples of shards come from; it is sent to every worker."""

    def pieces(self, plan: bytes) -> Iterator[Piece]:
        """Yield the pieces of a shard."""


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """What a worker needs to write any shard of a build; it is sent to every worker.

    Attributes:
        name: name of the dataset, with which the names of shards begin.
        num_shards: number of shards of each split.
        expected: entries in the manifest of damaged shards, by their names; only the same bytes replace them.
    """

    folder: BuildFolder
    source: Pieces
    schema: Schema
    name: str
    num_shards: Mapping[str, int]
    expected: Mapping[str, Shard] = field(default_factory=dict)

    def shard_name(self, shard: ShardId) -> str:
        """Return the name of a shard in the folder of the build, as TensorFlow Datasets names them."""
        number = f"{shard.shard_index:05d}-of-{self.num_shards[shard.split]:05d}"
        return f"{self.name}-{shard.split}.tfrecord-{number}"


def write_shard(task: ShardTask, shard: ShardId) -> FinishedShard:
    """Write one shard with its companions, and return what the folder of the build records of it now.

    An unforeseen error is a BuildError that names the shard.
    """
    try:
        return _write_shard(task, shard)
    except (TfshardsError, OSError):
        raise
    except Exception as error:
        raise BuildError(f"{task.shard_name(shard)}: {type(error).__name__}: {error}") from error


def _write_shard(task: ShardTask, shard: ShardId) -> FinishedShard:
    folder = task.folder
    if earlier := folder.read_finished(shard):
        # A runner that starts its job again after a failure repeats every task.
        return earlier
    plan, name = folder.read_plan(shard), task.shard_name(shard)
    rejected: list[Reject] = []
    conversions: Counter[str] = Counter()
    converted_keys: dict[str, str] = {}
    contents: list[str] = []
    has_labels, has_keys = task.schema.label is not None, task.schema.key is not None
    with ShardFile(folder.new_file(name), has_labels, has_keys) as file:
        for piece in task.source.pieces(plan):
            file.append(piece.frames, piece.labels, piece.keys)
            rejected += piece.rejected
            conversions.update(piece.conversions)
            converted_keys = {**piece.converted_keys, **converted_keys}
            contents += piece.contents
            check_working(folder.work)
        described, companions = file.describe(f"{folder.name}/{name}")
        if task.expected.get(name, described) != described:
            raise InputError(
                f"{folder.root / name} is damaged, and the inputs now give other bytes; restore the inputs "
                "that the dataset was built from"
            )
    inside = len(folder.name) + 1
    folder.put_all({path[inside:]: content for path, content in companions.items()})
    finished = FinishedShard(
        shard=described,
        plan=plan_digest(plan),
        left=plan_digest(_without(plan, rejected) if rejected else plan),
        rejected=tuple(rejected),
        conversions=dict(sorted(conversions.items())),
        converted_keys=dict(sorted(converted_keys.items())),
        contents=tuple(contents),
        marks=folder.marks_of(described),
    )
    folder.write_finished(shard, finished)
    return finished


def inputs_plan(planned: RowFields) -> bytes:
    """Return the text of the plan of a shard of these inputs, in order."""
    return json.dumps(planned, separators=(",", ":")).encode("ascii")


def _without(plan: bytes, rejected: Sequence[Reject]) -> bytes:
    """Return the plan of a shard of inputs without the rejected ones."""
    gone = {reject.key for reject in rejected}
    return inputs_plan([*zip(*(row for row in _rows_of(plan) if row.key not in gone), strict=True)])


@dataclass(frozen=True)
class EncodedInputs:
    """Pieces that are read from a source and encoded; see ``Pieces``."""

    reader: Reader
    schema: Schema
    compression: Compression
    finds_duplicates: bool = False

    def pieces(self, plan: bytes) -> Iterator[Piece]:
        """Yield the pieces of a shard, while threads read the next ones: that releases the GIL.

        Each thread reads every n-th piece by one iterator, which may request the content of later pieces
        while the thread decodes this one.
        """
        encoded, pieces = _encoder(self), [*pieces_of(_rows_of(plan))]
        num_threads = min(num_writers(), len(pieces))
        outcomes = [
            self.reader.read([row for piece in pieces[first::num_threads] for row in piece], self.schema)
            for first in range(num_threads)
        ]

        def read(number: int) -> Piece:
            piece = pieces[number]
            with computing():
                return encoded(piece, [*islice(outcomes[number % num_threads], len(piece))])

        pool = ThreadPoolExecutor(max(1, num_threads))
        try:
            started = deque(pool.submit(read, number) for number in range(num_threads))
            for number in range(num_threads, num_threads + len(pieces)):
                piece = started.popleft().result()
                if number < len(pieces):
                    started.append(pool.submit(read, number))
                yield piece
        finally:
            pool.shutdown(cancel_futures=True)
            for each in outcomes:
                # now that its thread has ended: drops what was requested ahead
                if isinstance(each, Generator):
                    each.close()


def _rows_of(plan: bytes) -> list[Row]:
    return [*map(Row._make, zip(*json.loads(plan), strict=True))]


def _encoder(source: EncodedInputs) -> Callable[[Sequence[Row], Sequence[Outcome]], Piece]:
    schema = source.schema
    encode = example_encoder(schema)
    digest_of = content_digest(schema) if source.finds_duplicates else None
    label = schema.features.index(schema.label) if schema.label else None
    key = schema.features.index(schema.key) if schema.key else None

    def encoded(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> Piece:
        values: list[Sequence[Values]] = []
        rejected: list[Reject] = []
        contents: list[str] = []
        conversions: list[str] = []
        converted_keys: dict[str, str] = {}
        for row, outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, Accepted):
                values.append(outcome.values)
                contents += [digest_of(outcome.values)] if digest_of else []
                conversions += outcome.conversions
                for name in outcome.conversions:
                    converted_keys.setdefault(name, row.key)
            else:
                rejected.append(Reject(row.key, outcome.reason.value, outcome.detail, row.size))
                contents += [""] if digest_of else []
        return Piece(
            frames=frames_of(map(encode, values), source.compression),
            keys=[] if key is None else [cast("bytes", item[key]) for item in values],
            labels=[] if label is None else [cast("int", item[label]) for item in values],
            rejected=rejected,
            conversions=conversions,
            converted_keys=converted_keys,
            contents=contents,
        )

    return encoded
