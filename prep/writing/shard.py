"""Write one shard: read its examples in plan order, encode and append them, and publish the finished file.

Some runners repeat a task or run it twice at the same time. Therefore each attempt writes to a separate file,
and all attempts write the same bytes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import cast

from tfshards.prep.progress.lines import Reporter
from tfshards.prep.progress.threads import computing, num_writers
from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.records.shard_file import Frames, ShardFile, frames_of
from tfshards.prep.records.values import content_digest
from tfshards.prep.sources.base import Accepted, Outcome, Reader, Row, pieces_of
from tfshards.prep.writing.area import BuildArea, FinishedShard, Phase, Reject, ShardId
from tfshards.prep.writing.running import Running, stopping
from tfshards.prep.writing.shard_names import rows_digest, shard_name
from tfshards.schemas import InputError, Schema
from tfshards.schemas.compression import Compression


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """The information that a worker needs to write any shard of a phase; it is sent to every worker."""

    area: BuildArea
    reader: Reader
    schema: Schema
    phase: Phase
    name: str
    num_shards: dict[str, int]
    reporter: Reporter
    finds_duplicates: bool
    compression: Compression

    def shard_path(self, shard: ShardId) -> str:
        """Return the shard's path relative to the dataset."""
        return shard_name(self.name, *shard, self.num_shards[shard.split], build_id=self.area.plan_id)


def write_shard(task: ShardTask, shard: ShardId) -> FinishedShard:
    """Write one shard with its companions, and return what the build area records of it now."""
    with stopping(task.area, task.shard_path(shard)):
        return _write(task, shard)


def _write(task: ShardTask, shard: ShardId) -> FinishedShard:
    if earlier := task.area.read_finished(task.phase, shard):
        # A runner that starts its job again after a failure repeats every task.
        return earlier
    rows, planned = task.area.read_plan(task.phase, shard)
    path = task.shard_path(shard)
    written = task.area.new_path(path)
    accepted: list[Row] = []
    rejected: list[Reject] = []
    conversions: Counter[str] = Counter()
    converted_keys: dict[str, str] = {}
    contents: list[str] = []
    running = Running(task.area)
    with ShardFile(written, task.schema.label is not None, task.schema.key is not None) as file:
        for piece in _read_ahead(rows, task.reader, task.schema, _encoder(task)):
            running.check_often()
            file.append(piece.frames, piece.labels, piece.keys)
            accepted += piece.accepted
            rejected += piece.rejected
            conversions.update(piece.conversions)
            converted_keys = {**piece.converted_keys, **converted_keys}
            contents += piece.contents
            task.reporter.report(len(piece.accepted) + len(piece.rejected), sum(piece.frames.lengths))
        if rejected and task.phase == "final":
            raise InputError("input-changed", key=rejected[0].key, reason=rejected[0].reason)
        running.check()
    described, companions = file.describe(path)
    task.area.write_all(companions)
    task.area.publish(written, path)
    finished = FinishedShard(
        shard=described,
        rows_digest=rows_digest(accepted) if rejected else planned,
        rejected=tuple(rejected),
        conversions=dict(sorted(conversions.items())),
        converted_keys=dict(sorted(converted_keys.items())),
        contents=tuple(contents),
        e_tags=task.area.e_tags(described),
    )
    task.area.write_finished(task.phase, shard, finished)
    return finished


@dataclass(frozen=True)
class _Piece:
    """Consecutive examples, encoded and framed, with their labels and keys if the schema has these."""

    frames: Frames
    labels: list[int]
    keys: list[bytes]
    accepted: list[Row]
    rejected: list[Reject]
    conversions: list[str]
    converted_keys: dict[str, str]
    contents: list[str]


def _encoder(task: ShardTask) -> Callable[[Sequence[Row], Sequence[Outcome]], _Piece]:
    encode = example_encoder(task.schema)
    content = content_digest(task.schema) if task.finds_duplicates else None
    label, key = (
        task.schema.features.index(feature) if feature else None
        for feature in (task.schema.label, task.schema.key)
    )

    def encoded(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> _Piece:
        accepted: list[Row] = []
        values: list[Sequence[Values]] = []
        rejected: list[Reject] = []
        conversions: list[str] = []
        converted_keys: dict[str, str] = {}
        for row, outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, Accepted):
                accepted.append(row)
                values.append(outcome.values)
                conversions += outcome.conversions
                for name in outcome.conversions:
                    converted_keys.setdefault(name, row.key)
            else:
                rejected.append(Reject(row.key, outcome.reason.value, outcome.detail, row.size))
        frames = frames_of(map(encode, values), task.compression)
        contents = [content(item) for item in values] if content else []
        labels = [] if label is None else [cast("int", item[label]) for item in values]
        keys = [] if key is None else [cast("bytes", item[key]) for item in values]
        return _Piece(frames, labels, keys, accepted, rejected, conversions, converted_keys, contents)

    return encoded


def _read_ahead(
    rows: Sequence[Row],
    reader: Reader,
    schema: Schema,
    encoded: Callable[[Sequence[Row], Sequence[Outcome]], _Piece],
) -> Iterator[_Piece]:
    """Yield the pieces in order, while threads read the next ones; reading and decoding release the GIL.

    Each thread reads every n-th piece by one iterator, which may request the content of later pieces while
    the thread decodes this one.
    """
    pieces = [*pieces_of(rows)]
    num_threads = min(num_writers(), len(pieces))
    outcomes = [
        reader.read([row for piece in pieces[first::num_threads] for row in piece], schema)
        for first in range(num_threads)
    ]

    def read(number: int) -> _Piece:
        piece = pieces[number]
        with computing():
            return encoded(piece, [*islice(outcomes[number % num_threads], len(piece))])

    with ExitStack() as stack:
        for each in outcomes:
            # when its thread has ended: drops what was requested ahead
            if isinstance(each, Generator):
                stack.callback(each.close)
        pool = stack.enter_context(ThreadPoolExecutor(max(1, num_threads)))
        started = deque(pool.submit(read, number) for number in range(num_threads))
        try:
            for number in range(num_threads, num_threads + len(pieces)):
                piece = started.popleft().result()
                if number < len(pieces):
                    started.append(pool.submit(read, number))
                yield piece
        finally:
            for future in started:
                future.cancel()
