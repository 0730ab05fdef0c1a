"""Write some new shards in one pass over the shards of the origins, record by record."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from tfshards.prep.derivation.origin import SEE_VERIFY, Origin
from tfshards.prep.derivation.rewrite_plan import RewritePlan, SplitPlan
from tfshards.prep.progress.lines import Reporter
from tfshards.prep.records.reader import FrameReader, RecordError
from tfshards.prep.records.shard_file import Frames, ShardFile, compressed, join_small
from tfshards.prep.writing.area import FinishedShard, ShardId
from tfshards.schemas import BuildError
from tfshards.schemas.index import IntArray

# Bytes of frames that are collected before they are hashed, compressed and written.
_RUN_BYTES = 1 << 20
_RECORDS_AT_ONCE = 1 << 10


@dataclass(frozen=True, eq=False)
class ShardPass:
    """Some new shards of a split, written in one pass.

    Attributes:
        plan: plan of all new shards.
        split_plan: plan of the split.
        shards: the new shards.
        reporter: receives the number of written records and bytes.
    """

    plan: RewritePlan
    split_plan: SplitPlan
    shards: Sequence[ShardId]
    reporter: Reporter

    def run(self, stop: threading.Event) -> None:
        """Write the shards, or return early once ``stop`` is set.

        Raises:
            BuildError: a record of an origin is damaged, or a file cannot be read or written.
        """
        try:
            with ExitStack() as opened:
                self._copy_records(_Readers(self.plan.origins, self.split_plan, opened), opened, stop)
        except RecordError as error:
            raise BuildError("shard-damaged", SEE_VERIFY, text=str(error)) from None
        except OSError as error:
            raise BuildError(
                "file-fault", filename=error.filename or self.plan.area.out, why=error.strerror
            ) from None

    def _copy_records(self, readers: _Readers, opened: ExitStack, stop: threading.Event) -> None:
        new_shards = [_NewShard(self, shard, opened) for shard in self.shards]
        starts = self.split_plan.starts
        for numbers, targets in self._records():
            if stop.is_set():
                return
            # if several shards start at the same number, all but the last are empty
            olds = np.searchsorted(starts, numbers, side="right") - 1
            records = numbers - starts[olds]
            for old, record, target in zip(olds.tolist(), records.tolist(), targets.tolist(), strict=True):
                new_shards[target].append(*readers.read(old, record))

    def _records(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the numbers of the records to copy, in order, and the index in ``shards`` of each target."""
        layout = [self.split_plan.layout[shard.shard_index] for shard in self.shards]
        wanted = np.concatenate(layout)
        targets = np.repeat(np.arange(len(layout)), [len(one) for one in layout])
        in_order = np.argsort(wanted, kind="stable")
        for start in range(0, len(wanted), _RECORDS_AT_ONCE):
            some = in_order[start : start + _RECORDS_AT_ONCE]
            yield self.split_plan.order[wanted[some]], targets[some]


class _Readers:
    """The open shards of the origins: one for each, because each origin is read in order."""

    def __init__(self, origins: Sequence[Origin], split_plan: SplitPlan, opened: ExitStack) -> None:
        self._origins, self._split_plan = origins, split_plan
        self._readers: dict[int, FrameReader] = {}
        self._last: dict[int, int] = {}
        opened.callback(self._close)

    def read(self, old: int, record: int) -> tuple[bytes, bytes]:
        """Return a record of the shard with the index ``old``; see ``FrameReader.read``."""
        reader = self._readers.get(old)
        if reader is None:
            origin, shard = self._split_plan.shards[old]
            if origin in self._last:
                self._readers.pop(self._last[origin]).close()
            reader = self._readers[old] = self._origins[origin].frames(shard)
            self._last[origin] = old
        return reader.read(record)

    def _close(self) -> None:
        for reader in self._readers.values():
            reader.close()


class _NewShard:
    """A new shard that is being written."""

    def __init__(self, of: ShardPass, shard: ShardId, opened: ExitStack) -> None:
        self._pass, self._shard, self._opened = of, shard, opened
        self._path = of.plan.shard_path(shard)
        self._labels = of.split_plan.labels_of(shard)
        self._num_missing = of.split_plan.num_examples(shard)
        self._num_written = 0
        self._file: ShardFile | None = None
        self._frames: list[bytes] = []
        self._footers: list[bytes] = []
        self._num_bytes = 0
        if not self._num_missing:
            self._finish()

    def append(self, frame: bytes, footer: bytes) -> None:
        """Add a record; the last one finishes the shard."""
        self._frames.append(frame)
        self._footers.append(footer)
        self._num_bytes += len(frame)
        self._num_missing -= 1
        if not self._num_missing:
            self._finish()
        elif self._num_bytes >= _RUN_BYTES:
            self._write()

    def _write(self) -> ShardFile:
        """Write the collected records. The first call opens the file, because there may be many shards."""
        area = self._pass.plan.area
        if self._file is None:
            self._file = ShardFile(area.new_path(self._path), self._labels is not None)
            # unless it is finished before
            self._opened.callback(self._file.abandon)
        lengths = [len(frame) for frame in self._frames]
        run = Frames(join_small(self._frames), lengths, b"".join(self._footers))
        end = self._num_written + len(lengths)
        labels = self._labels[self._num_written : end] if self._labels is not None else ()
        self._file.append(compressed(run, self._pass.plan.compression), labels)
        self._num_written = end
        self._pass.reporter.report(len(lengths), self._num_bytes)
        self._frames, self._footers, self._num_bytes = [], [], 0
        return self._file

    def _finish(self) -> None:
        area, file = self._pass.plan.area, self._write()
        if area.is_remote and (why := area.stop_reason()) is not None:
            # what is written after the end of another run would stay in the store
            raise BuildError("build-failed", text=why)
        file.finish()
        shard, companions = file.describe(self._path)
        area.write_all(companions)
        area.publish(file.path, self._path)
        done = FinishedShard(shard, rows_digest="", e_tags=area.e_tags(shard))
        area.write_finished("first", self._shard, done)
