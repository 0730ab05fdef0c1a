"""Write: new shards whose records are copied, frame by frame, and links to the shards that stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from tfshards.prep.engines.table import Work, run_on_threads
from tfshards.prep.progress.lines import Log, Reporter, WorkProgress
from tfshards.prep.progress.threads import num_writers
from tfshards.prep.records.frames import FrameReader, RecordError
from tfshards.prep.records.shard_file import Frames, ShardFile, compressed, join_small
from tfshards.prep.rewriting.layout import Rewrite, SplitLayout
from tfshards.prep.rewriting.origin import SEE_VERIFY, Origin
from tfshards.prep.verification.checks import shard_problems
from tfshards.prep.writing.area import FinishedShard, ShardId
from tfshards.prep.writing.remote_area import compared
from tfshards.schemas import BuildError, Shard
from tfshards.schemas.errors import counted
from tfshards.schemas.files import require_space
from tfshards.schemas.index import IntArray
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import RemotePath

# Bytes of frames that are collected before they are hashed, compressed and written.
_RUN_BYTES = 1 << 20
_RECORDS_AT_ONCE = 1 << 10
# Number of shards that a thread writes in one pass if the records of each come from all parts of the origins.
# Each of them holds up to one run of records in memory.
_SHARDS_PER_PASS = 32


def write_shards(plan: Rewrite, log: Log) -> dict[str, tuple[Shard, ...]]:
    """Write or link the shards that an earlier attempt has not finished, and return those of each split.

    Raises:
        InputError: an origin is damaged, or the output has too little space.
        BuildError: a record or a linked shard of an origin is damaged, or the output cannot be written.
    """
    finished = _finished(plan)
    missing = [shard for shard in plan.written if shard not in finished]
    links = [shard for shard in plan.shards if plan.kept(shard) and shard not in finished]
    _log_start(plan, sum(shard in finished for shard in plan.written), log)
    _require_space(plan, finished)
    num_linked = sum(kept[2].num_examples for kept in map(plan.kept, links) if kept)
    num_written = sum(len(plan.splits[shard.split].layout[shard.shard_index]) for shard in missing)
    progress = WorkProgress(plan.name, num_written + (num_linked if plan.verifies_kept else 0))
    stop = threading.Event()
    steps: list[_Link | ShardPass] = [_Link(plan, shard, progress.reporter) for shard in links]
    steps += [
        ShardPass(plan, split, group, progress.reporter)
        for split in plan.splits
        for group in _groups(plan, [shard for shard in missing if shard.split == split])
    ]
    run_on_threads(Work(lambda step: step.run(stop), steps, progress, lambda _: stop.set(), area=plan.area))
    done = plan.area.finished("first", plan.shards)
    return {
        split: tuple(done[shard].shard for shard in plan.shards if shard.split == split)
        for split in plan.splits
    }


def _finished(plan: Rewrite) -> dict[ShardId, FinishedShard]:
    """Return the shards that an earlier attempt finished, if their files are unchanged."""
    area = plan.area
    recorded = area.finished("first", plan.shards)
    found = {shard: done for shard, done in recorded.items() if done.shard.path == plan.shard_path(shard)}
    if isinstance(area.shards, RemotePath):
        is_same = compared(area.shards)
        return {shard: done for shard, done in found.items() if is_same(done.shard, done.e_tags)}
    # a local link costs less than this comparison
    found = {shard: done for shard, done in found.items() if plan.kept(shard) is None}
    with ThreadPoolExecutor(num_writers()) as pool:
        problems = pool.map(lambda done: shard_problems(area.shards, done.shard), found.values())
        return {shard: found[shard] for shard, faults in zip(found, problems, strict=True) if not faults}


def _log_start(plan: Rewrite, num_finished: int, log: Log) -> None:
    of = counted(len(plan.written), "shard")
    if num_finished:
        log(f"resuming the {plan.verb}: {num_finished} of {of} finished")
        return
    shards = [shard for layout in plan.splits.values() for shard in layout.read_shards]
    if not plan.written:
        linked = [kept[2] for kept in map(plan.kept, plan.shards) if kept]
        examples = counted(sum(shard.num_examples for shard in linked), "example")
        log(f"starting {plan.verb}: {examples}, {counted(len(linked), 'shard')}, linked unchanged")
        return
    examples = counted(sum(shard.num_examples for shard in shards), "example")
    log(f"starting {plan.verb}: {examples}, {size(sum(shard.record_bytes for shard in shards))}, {of}")


def _require_space(plan: Rewrite, finished: Mapping[ShardId, FinishedShard]) -> None:
    """Raise InputError if the output's file system cannot hold the missing shards."""
    shards = [shard for layout in plan.splits.values() for shard in layout.read_shards]
    compressions = {origin.manifest.compression for origin in plan.origins}
    if plan.compression == "none":
        needed = sum(shard.record_bytes for shard in shards)
    elif compressions == {plan.compression}:
        needed = sum(shard.num_bytes for shard in shards)
    else:
        # the ratio of compression is unknown
        needed = 0
    written = sum(done.shard.num_bytes for done in finished.values())
    require_space(plan.area.out, max(0, needed - written), "the dataset")


def _groups(plan: Rewrite, shards: Sequence[ShardId]) -> Iterator[Sequence[ShardId]]:
    """Yield the shards that are written in one pass."""
    # A run of records can be read from an uncompressed file without reading the rest. A compressed file must
    # be read from its start, and records that are assigned by size are spread over all files.
    is_cut = plan.in_order and all(origin.manifest.compression == "none" for origin in plan.origins)
    per_pass = 1 if is_cut else max(1, min(_SHARDS_PER_PASS, -(-len(shards) // num_writers())))
    for start in range(0, len(shards), per_pass):
        yield shards[start : start + per_pass]


@dataclass(frozen=True, eq=False)
class _Link:
    """A shard that stays: it becomes a hard link, or a copy if the file system has none or in a store."""

    plan: Rewrite
    shard: ShardId
    reporter: Reporter

    def run(self, _: threading.Event) -> None:
        """Link the shard, its index and its labels.

        Raises:
            BuildError: the shard differs from its manifest, or the output cannot be written.
        """
        area, kept = self.plan.area, self.plan.kept(self.shard)
        assert kept is not None
        origin, old, new = kept
        try:
            area.link_shard(origin.root, old, new)
        except OSError as error:
            raise BuildError("file-fault", filename=error.filename or area.out, why=error.strerror) from None
        if self.plan.verifies_kept:
            problems = shard_problems(area.shards, new)
            if problems:
                # the fault is in the origin, so the message has the path there
                fault = str(problems[0]).replace(new.path, old.path)
                raise BuildError("origin-damaged", root=origin.root, fault=fault, see_verify=SEE_VERIFY)
            self.reporter.report(new.num_examples, new.num_bytes)
        area.write_finished("first", self.shard, FinishedShard(new, rows_digest="", e_tags=area.e_tags(new)))


@dataclass(frozen=True, eq=False)
class ShardPass:
    """Some new shards of a split, written in one pass.

    Attributes:
        plan: all new shards.
        split: name of the split.
        shards: the new shards.
        reporter: receives the number of written records and bytes.
    """

    plan: Rewrite
    split: str
    shards: Sequence[ShardId]
    reporter: Reporter

    @property
    def layout(self) -> SplitLayout:
        """The layout of the split."""
        return self.plan.splits[self.split]

    def run(self, stop: threading.Event) -> None:
        """Write the shards, or return early once ``stop`` is set.

        Raises:
            BuildError: a record of an origin is damaged, or a file cannot be read or written.
        """
        try:
            with ExitStack() as opened:
                self._copy_records(_Readers(self.plan.origins, self.layout, opened), opened, stop)
        except RecordError as error:
            raise BuildError("shard-damaged", SEE_VERIFY, text=str(error)) from None
        except OSError as error:
            raise BuildError(
                "file-fault", filename=error.filename or self.plan.area.out, why=error.strerror
            ) from None

    def _copy_records(self, readers: _Readers, opened: ExitStack, stop: threading.Event) -> None:
        new_shards = [_NewShard(self, shard, opened) for shard in self.shards]
        starts = self.layout.starts
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
        layout = [self.layout.layout[shard.shard_index] for shard in self.shards]
        wanted = np.concatenate(layout)
        targets = np.repeat(np.arange(len(layout)), [len(one) for one in layout])
        in_order = np.argsort(wanted, kind="stable")
        for start in range(0, len(wanted), _RECORDS_AT_ONCE):
            some = in_order[start : start + _RECORDS_AT_ONCE]
            yield self.layout.order[wanted[some]], targets[some]


class _Readers:
    """The open shards of the origins: one for each, because each origin is read in order."""

    def __init__(self, origins: Sequence[Origin], layout: SplitLayout, opened: ExitStack) -> None:
        self._origins, self._layout = origins, layout
        self._readers: dict[int, FrameReader] = {}
        self._last: dict[int, int] = {}
        opened.callback(self._close)

    def read(self, old: int, record: int) -> tuple[bytes, bytes]:
        """Return a record of the shard with the index ``old``; see ``FrameReader.read``."""
        reader = self._readers.get(old)
        if reader is None:
            origin, shard = self._layout.shards[old]
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
        self._labels = of.layout.labels_of(shard.shard_index)
        self._num_missing = len(of.layout.layout[shard.shard_index])
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
