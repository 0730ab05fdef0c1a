"""Writing shards whose records are copied, frame by frame, from the shards of other datasets.

No record is parsed. Threads do it, and no pipeline: files, checksums, hashing and compression leave the
interpreter free meanwhile, so that threads keep the cores busy, and the disk is the limit before long.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from tfshards.prep.area import BuildArea, Done, ShardId
from tfshards.prep.copies.dealing import deal, mix
from tfshards.prep.copies.origin import Origin, ShardReader
from tfshards.prep.copies.tasks import NUM_THREADS, run_tasks
from tfshards.prep.files import require_space
from tfshards.prep.options import Balance
from tfshards.prep.plan import IntArray
from tfshards.prep.progress import Progress, Reporter, Talk, counted
from tfshards.prep.proofs.verify import shard_problems
from tfshards.prep.shard import publish, shard_path
from tfshards.prep.shard_file import Frames, ShardFile, compressed, join_small
from tfshards.prep.tfrecord import RecordError
from tfshards.schemas import BuildError, Shard
from tfshards.schemas.manifest import Compression
from tfshards.schemas.sizes import size

# Frames are kept until there are so many bytes of them: the unit of hashing, writing and compression.
_RUN_BYTES = 1 << 20
# Where the records of a new shard lie scattered over the old ones, a thread fills so many shards in one pass
# over those; each takes up to a run of memory.
_SHARDS_A_PASS = 32
_RECORDS_AT_ONCE = 1 << 10


@dataclass(frozen=True)
class Copying:
    """Which new shards are made, and of what.

    Attributes:
        area: of the dataset that they will be.
        name: of that dataset.
        origins: the datasets whose records they hold.
        num_shards: of each split.
        balance: what is even among them.
        compression: of the new shards.
    """

    area: BuildArea
    name: str
    origins: Sequence[Origin]
    num_shards: Mapping[str, int]
    balance: Balance
    compression: Compression

    def shard_path(self, shard: ShardId) -> str:
        """Return the path of a new shard, relative to the dataset."""
        return shard_path(self.name, shard, self.area.build_id, self.num_shards[shard.split])

    def finished(self, shard: ShardId) -> Done | None:
        """Return what an earlier attempt has noted of a new shard, if the files are still what it wrote."""
        done = self.area.read_done("first", shard)
        is_ours = done and done.shard.path == self.shard_path(shard)
        return done if done and is_ours and not shard_problems(self.area.out, done.shard) else None


def copy_shards(copying: Copying, talk: Talk) -> dict[str, tuple[Shard, ...]]:
    """Write the shards that an earlier attempt has not finished; return those of each split.

    Raises:
        BuildError: a record of an origin is damaged, or the output cannot be written.
    """
    copying.area.open()
    shards = [ShardId(split, index) for split, count in copying.num_shards.items() for index in range(count)]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        kept = dict(zip(shards, pool.map(copying.finished, shards), strict=True))
    missing = [shard for shard, done in kept.items() if done is None]
    deals = {split: _deal(copying, split) for split in copying.num_shards}
    _say_what_is_there(copying, len(shards) - len(missing), len(shards), talk)
    _require_space(copying, [done for done in kept.values() if done])
    left = sum(len(deals[shard.split].layout[shard.shard_index]) for shard in missing)
    progress = Progress(copying.name, left)
    passes = [
        _Pass(copying, deals[split], group, progress.reporter)
        for split in copying.num_shards
        for group in _groups(copying, [shard for shard in missing if shard.split == split])
    ]
    run_tasks([one.run for one in passes], progress)
    written = {shard: copying.area.read_done("first", shard) for shard in shards}
    return {
        split: tuple(done.shard for shard, done in written.items() if done and shard.split == split)
        for split in copying.num_shards
    }


def _say_what_is_there(copying: Copying, num_finished: int, num_shards: int, talk: Talk) -> None:
    of, build_id = counted(num_shards, "shard"), copying.area.build_id
    if num_finished:
        talk(f"resuming build {build_id}: {num_finished} of {of} finished")
    else:
        num_examples = sum(origin.manifest.num_examples for origin in copying.origins)
        record_bytes = sum(
            shard.record_bytes for origin in copying.origins for shard in origin.manifest.shards
        )
        talk(f"starting build {build_id}: {counted(num_examples, 'example')}, {size(record_bytes)}, {of}")


def _require_space(copying: Copying, finished: Sequence[Done]) -> None:
    """Raise InputError if the output's file system cannot hold what is still to be written."""
    shards = [shard for origin in copying.origins for shard in origin.manifest.shards]
    compressions = {origin.manifest.compression for origin in copying.origins}
    if copying.compression == "none":
        needed = sum(shard.record_bytes for shard in shards)
    elif compressions == {"gzip"}:
        needed = sum(shard.num_bytes for shard in shards)
    else:
        # what compression will save is not known
        needed = 0
    there = sum(done.shard.num_bytes for done in finished)
    require_space(copying.area.out, max(0, needed - there), "the dataset")


@dataclass(frozen=True, eq=False)
class _Deal:
    """How the records of one split are dealt.

    Attributes:
        shards: the old ones, each with the number of its origin.
        starts: shape ``(len(shards),)``, the number of each one's first record.
        order: shape ``(num_examples,)``, record numbers in the order in which they are dealt.
        layout: by new shard, places in ``order``, ascending.
        labels: shape ``(num_examples,)``, by record number; None where there are none.
    """

    shards: list[tuple[int, Shard]]
    starts: IntArray
    order: IntArray
    layout: list[IntArray]
    labels: IntArray | None

    def labels_of(self, shard: ShardId) -> IntArray | None:
        """Return the labels of the records of a new shard, in order; None where there are none."""
        if self.labels is None:
            return None
        return self.labels[self.order[self.layout[shard.shard_index]]]


def _deal(copying: Copying, split: str) -> _Deal:
    splits = [origin.manifest.splits.get(split) for origin in copying.origins]
    shards = [(number, shard) for number, held in enumerate(splits) if held for shard in held.shards]
    order = mix([held.num_examples for held in splits if held])
    sizes = None
    if copying.balance == "bytes":
        indexes = [copying.origins[number].index(shard) for number, shard in shards]
        sizes = np.concatenate([index.lengths for index in indexes])[order]
    ends = np.cumsum([shard.num_examples for _, shard in shards])
    starts = np.concatenate([[0], ends[:-1]])
    found = [copying.origins[number].labels(shard) for number, shard in shards]
    labels = [of_shard for of_shard in found if of_shard is not None]
    return _Deal(
        shards,
        starts,
        order,
        deal(len(order), copying.num_shards[split], sizes),
        np.concatenate(labels) if labels else None,
    )


def _groups(copying: Copying, shards: Sequence[ShardId]) -> Iterator[Sequence[ShardId]]:
    """Yield the shards that are written in one pass over the old ones."""
    # What is cut out of plain files needs no look at the rest of them. A compressed file is read from its
    # start, and records dealt by their size lie everywhere.
    is_cut = copying.balance == "count" and all(
        origin.manifest.compression == "none" for origin in copying.origins
    )
    together = 1 if is_cut else max(1, min(_SHARDS_A_PASS, -(-len(shards) // NUM_THREADS)))
    for start in range(0, len(shards), together):
        yield shards[start : start + together]


@dataclass(frozen=True, eq=False)
class _Pass:
    """Some new shards of a split, written in one pass over the old ones."""

    copying: Copying
    deal: _Deal
    shards: Sequence[ShardId]
    reporter: Reporter

    def run(self, stop: threading.Event) -> None:
        """Write the shards.

        Raises:
            BuildError: as for ``copy_shards``.
        """
        try:
            with ExitStack() as opened:
                self._copy(_Readers(self.copying.origins, self.deal, opened), opened, stop)
        except RecordError as error:
            raise BuildError(str(error), "tfshards verify names all that is damaged") from None
        except OSError as error:
            raise BuildError(f"{error.filename or self.copying.area.out}: {error.strerror}") from None

    def _copy(self, readers: _Readers, opened: ExitStack, stop: threading.Event) -> None:
        layout = self.deal.layout
        growing = [_Growing(self, shard, len(layout[shard.shard_index]), opened) for shard in self.shards]
        for numbers, places in self._records():
            if stop.is_set():
                return
            olds = np.searchsorted(self.deal.starts, numbers, side="right") - 1
            # an old shard may be empty: the last of those that start here is the one
            records = numbers - self.deal.starts[olds]
            for old, record, place in zip(olds.tolist(), records.tolist(), places.tolist(), strict=True):
                growing[place].append(*readers.read(old, record))

    def _records(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the numbers of the records to copy, in order, and the place in ``shards`` of each one's."""
        layout = [self.deal.layout[shard.shard_index] for shard in self.shards]
        wanted = np.concatenate(layout)
        places = np.repeat(np.arange(len(layout)), [len(one) for one in layout])
        in_order = np.argsort(wanted, kind="stable")
        for start in range(0, len(wanted), _RECORDS_AT_ONCE):
            some = in_order[start : start + _RECORDS_AT_ONCE]
            yield self.deal.order[wanted[some]], places[some]


class _Readers:
    """The old shards that are being read: of each origin one at a time, since each is read in its order."""

    def __init__(self, origins: Sequence[Origin], deal: _Deal, opened: ExitStack) -> None:
        self._origins, self._deal = origins, deal
        self._reading: dict[int, ShardReader] = {}
        self._last: dict[int, int] = {}
        opened.callback(self._close)

    def read(self, old: int, record: int) -> tuple[bytes, bytes]:
        """Return a record of the old shard of this number, see ``ShardReader.read``."""
        reader = self._reading.get(old)
        if reader is None:
            number, shard = self._deal.shards[old]
            if number in self._last:
                self._reading.pop(self._last[number]).close()
            reader = self._reading[old] = ShardReader(self._origins[number], shard)
            self._last[number] = old
        return reader.read(record)

    def _close(self) -> None:
        for reader in self._reading.values():
            reader.close()


class _Growing:
    """A new shard that is being written."""

    def __init__(self, one: _Pass, shard: ShardId, num_examples: int, opened: ExitStack) -> None:
        self._pass, self._shard, self._missing, self._opened = one, shard, num_examples, opened
        self._path = one.copying.shard_path(shard)
        self._labels = one.deal.labels_of(shard)
        self._num_written = 0
        self._file: ShardFile | None = None
        self._frames: list[bytes] = []
        self._footers: list[bytes] = []
        self._num_bytes = 0
        if not num_examples:
            self._finish()

    def append(self, frame: bytes, footer: bytes) -> None:
        """Write a record behind those that are there; the last one finishes the shard."""
        self._frames.append(frame)
        self._footers.append(footer)
        self._num_bytes += len(frame)
        self._missing -= 1
        if not self._missing:
            self._finish()
        elif self._num_bytes >= _RUN_BYTES:
            self._write()

    def _write(self) -> ShardFile:
        """Write what was kept; a file is opened with the first run, since there may be many shards."""
        area = self._pass.copying.area
        if self._file is None:
            unfinished = area.unfinished_path(f"{self._path}.{uuid.uuid4().hex}")
            self._file = self._opened.enter_context(ShardFile(unfinished, self._labels is not None))
        lengths = [len(frame) for frame in self._frames]
        run = Frames(join_small(self._frames), lengths, b"".join(self._footers))
        end = self._num_written + len(lengths)
        labels = self._labels[self._num_written : end] if self._labels is not None else ()
        self._file.append(compressed(run, self._pass.copying.compression), labels)
        self._num_written = end
        self._pass.reporter.report(len(lengths), self._num_bytes)
        self._frames, self._footers, self._num_bytes = [], [], 0
        return self._file

    def _finish(self) -> None:
        area, file = self._pass.copying.area, self._write()
        file.sync()
        file.__exit__(None, None, None)
        for beside, data in file.beside(self._path).items():
            publish(area, beside, data)
        file.path.replace(area.out / self._path)
        area.write_done("first", self._shard, Done(file.shard(self._path), rows_digest=""))
