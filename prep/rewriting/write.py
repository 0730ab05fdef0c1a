"""Write: new shards whose records are copied, frame by frame, and links to the shards that stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial

import numpy as np

from tfshards.prep.engines.table import Work, run_on_threads
from tfshards.prep.progress.lines import Reporter, WorkProgress, report_line
from tfshards.prep.progress.threads import num_writers
from tfshards.prep.records.frames import FrameReader, RecordError
from tfshards.prep.records.shard_file import Frames, ShardFile, compressed, join_small
from tfshards.prep.rewriting.layout import Rewrite
from tfshards.prep.rewriting.origin import SEE_VERIFY
from tfshards.prep.verification.checks import shard_problems
from tfshards.prep.writing.area import FinishedShard, ShardId
from tfshards.prep.writing.remote_area import compared
from tfshards.schemas import BuildError, Shard
from tfshards.schemas.errors import counted
from tfshards.schemas.files import require_space
from tfshards.schemas.storage import RemotePath

# Bytes of frames that are collected before they are hashed, compressed and written.
_RUN_BYTES = 1 << 20
_RECORDS_AT_ONCE = 1 << 10
# Number of shards that a thread writes in one pass if the records of each come from all parts of the origins.
# Each of them holds up to one run of records in memory.
_SHARDS_PER_PASS = 32


def write_shards(plan: Rewrite) -> dict[str, tuple[Shard, ...]]:
    """Write or link the shards that an earlier attempt has not finished, and return those of each split."""
    finished = _finished(plan)
    missing = [shard for shard in plan.written if shard not in finished]
    links = [shard for shard in plan.shards if plan.kept(shard) and shard not in finished]
    _require_space(plan, finished)
    # an edit has just read the shards that it keeps
    verifies = plan.verb == "merge"
    counted_in = missing + (links if verifies else [])
    num_examples = sum(len(plan.splits[shard.split].layout[shard.shard_index]) for shard in counted_in)
    num_finished, of = sum(shard in finished for shard in plan.written), counted(len(plan.written), "shard")
    if num_finished:
        report_line(f"resuming the {plan.verb}: {num_finished} of {of} finished")
    else:
        num_linked = f" and linking {len(links)}" if links else ""
        report_line(f"starting {plan.verb}: {counted(num_examples, 'example')}, writing {of}{num_linked}")
    progress = WorkProgress(plan.outline.name, num_examples)
    stop = threading.Event()
    steps: list[Callable[[threading.Event], None]] = [
        partial(_link, plan, shard, progress.reporter, verifies=verifies) for shard in links
    ]
    steps += [
        partial(write_pass, plan, group, progress.reporter)
        for split in plan.splits
        for group in _groups(plan, [shard for shard in missing if shard.split == split])
    ]
    run_on_threads(Work(lambda step: step(stop), steps, progress, lambda _: stop.set(), area=plan.area))
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


def _require_space(plan: Rewrite, finished: Mapping[ShardId, FinishedShard]) -> None:
    """Raise InputError if the output's file system cannot hold the missing shards."""
    compression = plan.outline.compression
    needed = 0
    if compression == "none":
        needed = sum(shard.record_bytes for shard in plan.read_shards)
    elif all(origin.manifest.compression == compression for origin in plan.origins):
        # otherwise the ratio of compression is unknown
        needed = sum(shard.num_bytes for shard in plan.read_shards)
    written = sum(done.shard.num_bytes for done in finished.values())
    require_space(plan.area.out, max(0, needed - written), "the dataset")


def _groups(plan: Rewrite, shards: Sequence[ShardId]) -> Iterator[Sequence[ShardId]]:
    # A run of records can be read from an uncompressed file without reading the rest. A compressed file must
    # be read from its start, and records that are assigned by size are spread over all files.
    is_cut = plan.outline.made.is_balanced_by_count and all(
        origin.manifest.compression == "none" for origin in plan.origins
    )
    per_pass = 1 if is_cut else max(1, min(_SHARDS_PER_PASS, -(-len(shards) // num_writers())))
    for start in range(0, len(shards), per_pass):
        yield shards[start : start + per_pass]


def _link(plan: Rewrite, shard: ShardId, reporter: Reporter, _: threading.Event, *, verifies: bool) -> None:
    """Make a shard that stays a hard link, or a copy if the file system has none or in a store."""
    area, kept = plan.area, plan.kept(shard)
    assert kept is not None
    origin, old, new = kept
    try:
        area.link_shard(origin.root, old, new)
    except OSError as error:
        raise BuildError("file-fault", filename=error.filename or area.out, why=error.strerror) from None
    if verifies:
        if problems := shard_problems(area.shards, new):
            # the fault is in the origin, so the message has the path there
            fault = str(problems[0]).replace(new.path, old.path)
            raise BuildError("origin-damaged", root=origin.root, fault=fault, see_verify=SEE_VERIFY)
        reporter.report(new.num_examples, new.num_bytes)
    area.write_finished("first", shard, FinishedShard(new, rows_digest="", e_tags=area.e_tags(new)))


def write_pass(plan: Rewrite, shards: Sequence[ShardId], reporter: Reporter, stop: threading.Event) -> None:
    """Write some new shards of a split in one pass, or return early once ``stop`` is set."""
    try:
        with ExitStack() as opened:
            _copy_records(plan, shards, reporter, opened, stop)
    except RecordError as error:
        raise BuildError("shard-damaged", SEE_VERIFY, text=str(error)) from None
    except OSError as error:
        filename = error.filename or plan.area.out
        raise BuildError("file-fault", filename=filename, why=error.strerror) from None


def _copy_records(
    plan: Rewrite, shards: Sequence[ShardId], reporter: Reporter, opened: ExitStack, stop: threading.Event
) -> None:
    split = plan.splits[shards[0].split]
    new_shards = [_NewShard(plan, shard, reporter, opened) for shard in shards]
    # by origin, the index of the open old shard and its reader: each origin is read in order
    readers: dict[int, tuple[int, FrameReader]] = {}
    held = {index: opened.enter_context(ExitStack()) for index in range(len(plan.origins))}
    layout = [split.layout[shard.shard_index] for shard in shards]
    wanted, targets = np.concatenate(layout), np.repeat(np.arange(len(layout)), [*map(len, layout)])
    in_order = np.argsort(wanted, kind="stable")
    for start in range(0, len(wanted), _RECORDS_AT_ONCE):
        if stop.is_set():
            return
        some = in_order[start : start + _RECORDS_AT_ONCE]
        numbers = split.order[wanted[some]]
        # if several shards start at the same number, all but the last are empty
        olds = np.searchsorted(split.starts, numbers, side="right") - 1
        records = numbers - split.starts[olds]
        for old, record, target in zip(olds.tolist(), records.tolist(), targets[some].tolist(), strict=True):
            origin, shard = split.shards[old]
            if origin not in readers or readers[origin][0] != old:
                held[origin].close()
                readers[origin] = old, held[origin].enter_context(closing(plan.origins[origin].frames(shard)))
            new_shards[target].append(*readers[origin][1].read(record))


class _NewShard:
    """A new shard that is being written."""

    def __init__(self, plan: Rewrite, shard: ShardId, reporter: Reporter, opened: ExitStack) -> None:
        self._plan, self._shard, self._reporter, self._opened = plan, shard, reporter, opened
        self._path = plan.shard_path(shard)
        layout = plan.splits[shard.split]
        self._labels = layout.labels_of(shard.shard_index)
        self._num_missing = len(layout.layout[shard.shard_index])
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
        area = self._plan.area
        if self._file is None:
            self._file = ShardFile(area.new_path(self._path), self._labels is not None)
            # unless it is finished before
            self._opened.callback(self._file.abandon)
        lengths = [len(frame) for frame in self._frames]
        run = Frames(join_small(self._frames), lengths, b"".join(self._footers))
        end = self._num_written + len(lengths)
        labels = self._labels[self._num_written : end] if self._labels is not None else ()
        self._file.append(compressed(run, self._plan.outline.compression), labels)
        self._num_written = end
        self._reporter.report(len(lengths), self._num_bytes)
        self._frames, self._footers, self._num_bytes = [], [], 0
        return self._file

    def _finish(self) -> None:
        area, file = self._plan.area, self._write()
        if area.is_remote and (why := area.stop_reason()) is not None:
            # what is written after the end of another run would stay in the store
            raise BuildError("build-failed", text=why)
        file.finish()
        shard, companions = file.describe(self._path)
        area.write_all(companions)
        area.publish(file.path, self._path)
        done = FinishedShard(shard, rows_digest="", e_tags=area.e_tags(shard))
        area.write_finished("first", self._shard, done)
