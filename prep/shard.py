"""Writing one shard: read its examples in plan order, encode them, append them, publish the file by renaming.

Safe to repeat and to run twice at once, as some runners do: each attempt writes a file of its own, and every
attempt makes the same bytes.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tfshards.prep.area import BuildArea, Done, Layout, Reject, ShardId, rows_digest
from tfshards.prep.duplicates import content_digest
from tfshards.prep.example import Values, example_encoder
from tfshards.prep.files import system_fault
from tfshards.prep.progress import Reporter
from tfshards.prep.shard_file import Frames, ShardFile, frames_of
from tfshards.prep.sources.listing import Accepted, Reader, Row
from tfshards.schemas import BuildError, InputError, Schema, TfshardsError
from tfshards.schemas.manifest import Compression

# Examples are read in pieces of about this many bytes, a few pieces ahead of the writer; so a worker's
# memory does not depend on the shard's size.
_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 1024
# One more than there are cores only makes them wait for each other.
_THREADS = max(2, min(4, os.cpu_count() or 1))


@dataclass(frozen=True)
class Job:
    """What a worker needs to know about a build; small, since it travels with the pipeline.

    Attributes:
        area: where plan and results are.
        reader: reads the examples.
        schema: of the dataset.
        layout: which of the two is being written.
        name: of the dataset.
        num_shards: by split.
        reporter: tells the main process how far the worker is.
        compares: whether the digest of each example's content is wanted, to find duplicates.
        compression: of the shards.
    """

    area: BuildArea
    reader: Reader
    schema: Schema
    layout: Layout
    name: str
    num_shards: dict[str, int]
    reporter: Reporter
    compares: bool = False
    compression: Compression = "none"

    def shard_path(self, shard: ShardId) -> str:
        """Return the shard's path relative to the dataset."""
        return shard_path(self.name, shard, self.area.build_id, self.num_shards[shard.split])


def shard_path(name: str, shard: ShardId, build_id: str, num_shards: int) -> str:
    """Return the path of a shard relative to its dataset, which has ``num_shards`` in this split."""
    of = f"{shard.shard_index:05d}-of-{num_shards:05d}"
    return f"{name}-{shard.split}-{build_id}.tfrecord-{of}"


def write_shard(job: Job, shard: ShardId) -> None:
    """Write one shard with the files beside it and note in the build area what became of it.

    Raises:
        TfshardsError: an input is gone or changed, or another worker failed; the build area says why.
        OSError: the output cannot be written.
    """
    try:
        _write(job, shard)
    except TfshardsError as error:
        job.area.stop(str(error))
        raise
    except OSError as error:
        job.area.stop(system_fault(job.area.out, error))
        raise
    except Exception as error:
        # nothing that can be foreseen: the others need not go on in vain
        job.area.stop(f"{job.shard_path(shard)}: {type(error).__name__}: {error}")
        raise


def _write(job: Job, shard: ShardId) -> None:
    rows, planned = job.area.read_plan(job.layout, shard)
    path = job.shard_path(shard)
    unfinished = job.area.unfinished_path(f"{Path(path).name}.{uuid.uuid4().hex}")
    accepted: list[Row] = []
    rejected: list[Reject] = []
    conversions: Counter[str] = Counter()
    contents: list[str] = []
    with ShardFile(unfinished, job.schema.label is not None) as file:
        for piece in _read_ahead(rows, _piece_reader(job)):
            if job.area.stop_path.exists():
                raise BuildError("stopped, since another worker failed")
            file.append(piece.frames, piece.labels)
            accepted += piece.accepted
            rejected += piece.rejected
            conversions.update(piece.conversions)
            contents += piece.contents
            job.reporter.report(len(piece.accepted) + len(piece.rejected), sum(piece.frames.lengths))
        file.sync()
    if rejected and job.layout == "final":
        raise InputError(
            f"{rejected[0].key}: was accepted before, and is now {rejected[0].reason}; it changed"
        )
    for beside, data in file.beside(path).items():
        publish(job.area, beside, data)
    unfinished.replace(job.area.out / path)
    there = rows_digest(accepted) if rejected else planned
    done = Done(file.shard(path), there, tuple(rejected), dict(sorted(conversions.items())), tuple(contents))
    job.area.write_done(job.layout, shard, done)


@dataclass(frozen=True)
class _Piece:
    """A run of examples, encoded and framed; with their labels, if they have such."""

    frames: Frames
    labels: list[int]
    accepted: list[Row]
    rejected: list[Reject]
    conversions: list[str]
    contents: list[str]


def _piece_reader(job: Job) -> Callable[[Sequence[Row]], _Piece]:
    encode = example_encoder(job.schema)
    content = content_digest(job.schema) if job.compares else None
    label = job.schema.features.index(job.schema.label) if job.schema.label else None

    def read(rows: Sequence[Row]) -> _Piece:
        accepted: list[Row] = []
        values: list[Sequence[Values]] = []
        rejected: list[Reject] = []
        conversions: list[str] = []
        for row, outcome in zip(rows, job.reader.read(rows, job.schema), strict=True):
            if isinstance(outcome, Accepted):
                accepted.append(row)
                values.append(outcome.values)
                conversions += outcome.conversions
            else:
                rejected.append(Reject(row.key, outcome.reason, outcome.detail, row.size, row.stamp))
        frames = frames_of(map(encode, values), job.compression)
        contents = [content(item) for item in values] if content else []
        labels = [] if label is None else [cast("int", item[label]) for item in values]
        return _Piece(frames, labels, accepted, rejected, conversions, contents)

    return read


def _read_ahead(rows: Sequence[Row], read: Callable[[Sequence[Row]], _Piece]) -> Iterator[_Piece]:
    """Yield the pieces in order, while threads read the next ones: reading and decoding release the GIL."""
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[_Piece]] = deque()
        try:
            for piece in _pieces(rows):
                waiting.append(pool.submit(read, piece))
                if len(waiting) > _THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _pieces(rows: Iterable[Row]) -> Iterator[list[Row]]:
    piece: list[Row] = []
    filled = 0
    for row in rows:
        piece.append(row)
        filled += row.size
        if filled >= _PIECE_BYTES or len(piece) == _PIECE_ROWS:
            yield piece
            piece, filled = [], 0
    if piece:
        yield piece


def publish(area: BuildArea, path: str, data: bytes) -> None:
    """Write a file of the dataset, such as an index, in one step."""
    unfinished = area.unfinished_path(f"{Path(path).name}.{uuid.uuid4().hex}")
    with unfinished.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    target = area.out / path
    target.parent.mkdir(exist_ok=True)
    unfinished.replace(target)
