"""Write one shard: read its examples in plan order, encode and append them, and publish the finished file.

Some runners repeat a task or run it twice at the same time. Therefore each attempt writes to a separate file,
and all attempts write the same bytes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

from tfshards.prep.progress.lines import Reporter
from tfshards.prep.progress.threads import computing, num_writers
from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.records.shard_file import Frames, ShardFile, frames_of, in_groups
from tfshards.prep.records.values import content_digest
from tfshards.prep.sources.base import Accepted, DistantReader, Outcome, Reader, Row, Started
from tfshards.prep.writing.area import BuildArea, FinishedShard, Phase, Reject, ShardId
from tfshards.prep.writing.running import Running, stopping
from tfshards.prep.writing.shard_names import rows_digest, shard_name
from tfshards.schemas import InputError, Schema
from tfshards.schemas.compression import Compression

# A shard is read in pieces of about this many bytes, by one thread each.
_PIECE_BYTES = 1 << 20
# Pieces are read a few ahead of the writer, so that the memory of a worker does not depend on the size of the
# shard.
_PIECE_ROWS = 1024
# For remote content, whose size may not be known.
_DISTANT_ROWS = 8


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
    """Write one shard with its index and labels, and return what the build area records of it now."""
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
    with ShardFile(written, task.schema.label is not None) as file:
        for piece in _read_ahead(rows, task.reader, task.schema, _encoder(task)):
            running.check_often()
            file.append(piece.frames, piece.labels)
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
    """Consecutive examples, encoded and framed, with their labels if the schema has one."""

    frames: Frames
    labels: list[int]
    accepted: list[Row]
    rejected: list[Reject]
    conversions: list[str]
    converted_keys: dict[str, str]
    contents: list[str]


def _encoder(task: ShardTask) -> Callable[[Sequence[Row], Sequence[Outcome]], _Piece]:
    encode = example_encoder(task.schema)
    content = content_digest(task.schema) if task.finds_duplicates else None
    label = task.schema.features.index(task.schema.label) if task.schema.label else None

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
        return _Piece(frames, labels, accepted, rejected, conversions, converted_keys, contents)

    return encoded


def _read_ahead(
    rows: Sequence[Row],
    reader: Reader,
    schema: Schema,
    encoded: Callable[[Sequence[Row], Sequence[Outcome]], _Piece],
) -> Iterator[_Piece]:
    """Yield the pieces in order, while threads read the next ones; reading and decoding release the GIL.

    What is far away is requested long before a thread decodes it.
    """
    distant = reader if isinstance(reader, DistantReader) and reader.num_in_flight else None
    most_rows = _DISTANT_ROWS if distant else _PIECE_ROWS
    # half of the requests are under way while the other half is decoded
    least_rows = 2 * distant.num_in_flight if distant else 0
    started: deque[tuple[Future[_Piece], int, Started | None]] = deque()

    def read(piece: Sequence[Row], ahead: Started | None) -> _Piece:
        started = ahead.result() if ahead else None
        with computing():
            return encoded(piece, reader.read(piece, schema) if started is None else started)

    num_threads = num_writers()
    with ThreadPoolExecutor(num_threads) as pool:
        num_rows = 0
        try:
            for piece in in_groups(rows, lambda row: row.size, _PIECE_BYTES, most_rows):
                ahead = distant.start(piece, schema) if distant else None
                started.append((pool.submit(read, piece, ahead), len(piece), ahead))
                num_rows += len(piece)
                while len(started) > num_threads and (
                    num_rows - started[0][1] >= least_rows or started[0][0].done()
                ):
                    future, count, _ = started.popleft()
                    num_rows -= count
                    yield future.result()
            while started:
                yield started.popleft()[0].result()
        finally:
            for future, _, ahead in started:
                if future.cancel() and ahead:
                    ahead.cancel()
