"""What workers do: link shards that stay, and copy records, frame by frame, into new shards.

The plan file of a shard holds all that its worker needs: the entries of the old shards that it reads, and the
runs of records. Engines may repeat or duplicate any call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.progress.lines import Reporter
from tfshards.prep.records.frames import FrameReader, RecordError
from tfshards.prep.records.shard_file import Frames, ShardFile, compressed, join_small
from tfshards.prep.rewriting.layout import Rewrite
from tfshards.prep.rewriting.origin import SEE_VERIFY, Origin
from tfshards.prep.verification.checks import shard_problems
from tfshards.prep.writing.area import BuildArea, FinishedShard, ShardId
from tfshards.prep.writing.running import Running, stopping
from tfshards.prep.writing.shard_names import shard_name
from tfshards.schemas import BuildError, Shard
from tfshards.schemas.compression import Compression
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import load_json
from tfshards.schemas.storage.untrusted import RECORD, read_whole

# Bytes of frames that are collected before they are hashed, compressed and written.
_RUN_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CopyTask:
    """What a worker needs to write any new shard, in addition to its plan file; it is sent to every worker.

    Attributes:
        area: the build area.
        origins: the datasets, without their shards.
        name: name of the new dataset.
        num_shards: number of new shards of each split.
        compression: that of the new shards.
        verifies: whether shards that stay are verified.
        reporter: receives progress.
    """

    area: BuildArea
    origins: Sequence[Origin]
    name: str
    num_shards: Mapping[str, int]
    compression: Compression
    verifies: bool
    reporter: Reporter

    @classmethod
    def of(cls, plan: Rewrite, reporter: Reporter, *, verifies: bool) -> CopyTask:
        """Return the task of a rewrite."""
        outline = plan.outline
        return cls(
            # all that grows with a dataset is in the plan files
            area=replace(plan.area, options={}),
            origins=[
                replace(each, manifest=replace(each.manifest, splits={}, options={}), new_labels={})
                for each in plan.origins
            ],
            name=outline.name,
            num_shards={name: len(of.kept) for name, of in plan.splits.items()},
            compression=outline.compression,
            verifies=verifies,
            reporter=reporter,
        )

    def shard_path(self, shard: ShardId) -> str:
        """Return the path of a new shard, relative to the dataset."""
        return shard_name(self.name, *shard, self.num_shards[shard.split], build_id=self.area.plan_id)


def write_plan(plan: Rewrite, shard: ShardId) -> None:
    """Write the plan file of a new shard."""
    layout = plan.splits[shard.split]
    olds, pieces = np.array([layout.kept[shard.shard_index]]), np.empty((0, 4), np.int64)
    if not plan.is_kept(shard):
        pieces = layout.pieces(shard.shard_index)
        olds, pieces[:, 1] = np.unique(pieces[:, 1], return_inverse=True)
    content = {
        "is_kept": plan.is_kept(shard),
        "has_labels": layout.has_labels,
        "has_keys": layout.has_keys,
        "shards": [
            [origin, vars(old), [*plan.origins[origin].new_labels.get(old.path, {}).items()]]
            for origin, old in (layout.shards[index] for index in olds.tolist())
        ],
        "pieces": pieces.tolist(),
    }
    plan.area.note_path("first", shard, "plan").write_bytes(json.dumps(content).encode("ascii"))


@dataclass(frozen=True)
class _Old:
    """An old shard with its origin, which has the new labels of this shard."""

    origin_index: int
    origin: Origin
    shard: Shard

    def labels(self) -> IntArray | None:
        """Return the labels of its records, or None."""
        labels = self.origin.labels(self.shard)
        changed = self.origin.new_labels.get(self.shard.path, {})
        if labels is not None and changed:
            labels = labels.copy()
            labels[[*changed]] = [*changed.values()]
        return labels


@dataclass(frozen=True)
class _Plan:
    """The content of a plan file."""

    is_kept: bool
    has_labels: bool
    has_keys: bool
    olds: Sequence[_Old]
    pieces: IntArray

    @classmethod
    def read(cls, task: CopyTask, shard: ShardId) -> _Plan:
        """Read the plan file of a new shard."""
        content = load_json(read_whole(task.area.note_path("first", shard, "plan"), RECORD))
        olds = []
        for index, entry, labels in content["shards"]:
            old, origin = Shard(**entry), task.origins[index]
            olds.append(_Old(index, replace(origin, new_labels={old.path: dict(labels)}), old))
        pieces = np.array(content["pieces"], np.int64).reshape(-1, 4)
        return cls(content["is_kept"], content["has_labels"], content["has_keys"], olds, pieces)


def write_group(task: CopyTask, shards: Sequence[ShardId]) -> None:
    """Link one shard, or write some of a split in one pass over the old ones; skip those that are finished.

    Raises:
        InputError, BuildError: an old shard is damaged, a file cannot be read or written, or the rewrite was
            stopped.
    """
    with stopping(task.area, task.shard_path(shards[0])):
        try:
            missing = [shard for shard in shards if task.area.read_finished("first", shard) is None]
            plans = {shard: _Plan.read(task, shard) for shard in missing}
            if any(plan.is_kept for plan in plans.values()):
                _link(task, *plans.popitem())
            elif missing:
                with ExitStack() as opened:
                    _copy_records(task, plans, opened)
        except RecordError as error:
            raise BuildError("shard-damaged", SEE_VERIFY, text=str(error)) from None
        except OSError as error:
            filename = error.filename or task.area.out
            raise BuildError("file-fault", filename=filename, why=error.strerror) from None


def _link(task: CopyTask, shard: ShardId, plan: _Plan) -> None:
    """Make a shard that stays a hard link, or a copy if the file system has none or in a store."""
    area, (kept,) = task.area, plan.olds
    new = replace(kept.shard, path=task.shard_path(shard))
    area.link_shard(kept.origin.root, kept.shard, new)
    if task.verifies:
        if problems := shard_problems(area.shards, new):
            # the fault is in the origin, so the message has the path there
            fault = str(problems[0]).replace(new.path, kept.shard.path)
            raise BuildError("origin-damaged", root=kept.origin.root, fault=fault, see_verify=SEE_VERIFY)
        task.reporter.report(new.num_examples, new.num_bytes)
    area.write_finished("first", shard, FinishedShard(new, rows_digest="", e_tags=area.e_tags(new)))


def _copy_records(task: CopyTask, plans: Mapping[ShardId, _Plan], opened: ExitStack) -> None:
    running = Running(task.area)
    targets = [_NewShard(task, shard, plan, running, opened) for shard, plan in plans.items()]
    pieces = np.concatenate([plan.pieces for plan in plans.values()])
    target_of = np.repeat(np.arange(len(plans)), [len(plan.pieces) for plan in plans.values()])
    olds = [plan.olds for plan in plans.values()]
    # by origin, the open old shard, its reader, its labels and its keys: each origin is read in order
    readers: dict[int, tuple[str, FrameReader, IntArray | None, Sequence[bytes] | None]] = {}
    held = {index: opened.enter_context(ExitStack()) for index in range(len(task.origins))}
    for at in np.argsort(pieces[:, 0], kind="stable").tolist():
        _, number, first, count = pieces[at].tolist()
        target, old = targets[target_of[at]], olds[target_of[at]][number]
        index = old.origin_index
        if index not in readers or readers[index][0] != old.shard.path:
            held[index].close()
            reader = held[index].enter_context(closing(old.origin.frames(old.shard)))
            labels = old.labels() if target.plan.has_labels else None
            keys = old.origin.keys(old.shard) if target.plan.has_keys else None
            readers[index] = old.shard.path, reader, labels, keys
        _, reader, labels, keys = readers[index]
        for record in range(first, first + count):
            label = 0 if labels is None else int(labels[record])
            target.append(*reader.read(record), label, keys[record] if keys is not None else b"")


class _NewShard:
    """A new shard that is being written."""

    def __init__(
        self, task: CopyTask, shard: ShardId, plan: _Plan, running: Running, opened: ExitStack
    ) -> None:
        self.plan = plan
        self._task, self._shard, self._running, self._opened = task, shard, running, opened
        self._path = task.shard_path(shard)
        self._num_missing = int(plan.pieces[:, 3].sum())
        self._file: ShardFile | None = None
        self._clear()
        if not self._num_missing:
            self._finish()

    def _clear(self) -> None:
        self._frames: list[bytes] = []
        self._footers: list[bytes] = []
        self._labels: list[int] = []
        self._keys: list[bytes] = []
        self._num_bytes = 0

    def append(self, frame: bytes, footer: bytes, label: int, key: bytes) -> None:
        """Add a record; the last one finishes the shard."""
        self._frames.append(frame)
        self._footers.append(footer)
        self._labels.append(label)
        self._keys.append(key)
        self._num_bytes += len(frame)
        self._num_missing -= 1
        if not self._num_missing:
            self._finish()
        elif self._num_bytes >= _RUN_BYTES:
            self._running.check_often()
            self._write()

    def _write(self) -> ShardFile:
        """Write the collected records. The first call opens the file, because there may be many shards."""
        if self._file is None:
            path = self._task.area.new_path(self._path)
            self._file = ShardFile(path, self.plan.has_labels, self.plan.has_keys)
            # unless it is finished before
            self._opened.callback(self._file.abandon)
        lengths = [len(frame) for frame in self._frames]
        run = Frames(join_small(self._frames), lengths, b"".join(self._footers))
        labels = self._labels if self.plan.has_labels else ()
        keys = self._keys if self.plan.has_keys else ()
        self._file.append(compressed(run, self._task.compression), labels, keys)
        self._task.reporter.report(len(lengths), self._num_bytes)
        self._clear()
        return self._file

    def _finish(self) -> None:
        self._running.check()
        area, file = self._task.area, self._write()
        file.finish()
        shard, companions = file.describe(self._path)
        area.write_all(companions)
        area.publish(file.path, self._path)
        done = FinishedShard(shard, rows_digest="", e_tags=area.e_tags(shard))
        area.write_finished("first", self._shard, done)
