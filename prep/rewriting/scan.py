"""Read all records of a dataset: on threads of this process, or each shard by a worker of an engine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tfshards.prep.building.planned_build import run_work
from tfshards.prep.engines.table import Work, cancel_lost_job, run_on_threads
from tfshards.prep.progress.lines import Reporter, WorkProgress, Written
from tfshards.prep.records.frames import RecordError, read_frames
from tfshards.prep.rewriting.origin import SEE_VERIFY, Origin
from tfshards.prep.writing.area import BuildArea
from tfshards.prep.writing.running import Running, stopping
from tfshards.schemas import BuildError, Shard
from tfshards.schemas.build_area import areas
from tfshards.schemas.names import ID_DIGITS
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import RECORD, read_whole

# Records, and bytes of them, between two reports of progress.
_RECORDS, _BYTES = 1 << 10, 1 << 24

# Returns bytes of fixed length, given the data of a record and its masked CRC-32C.
Pack = Callable[[bytes, int], bytes]


class Workers(NamedTuple):
    """Who reads the shards, and the folder of the dataset in which they write what they have found.

    ``run`` is that of an engine.
    """

    folder: AnyPath
    run: Callable[[Work], None]


def read_shards(origin: Origin, label: str, pack: Pack, workers: Workers | None = None) -> list[bytes]:
    """Read all records of a dataset and return the results of ``pack`` for each shard, joined in order.

    With workers, ``pack`` must be picklable.
    """
    if workers:
        return _read_by_workers(origin, label, pack, workers)
    progress = WorkProgress(label, origin.manifest.num_examples)
    found: dict[str, bytes] = {}
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise BuildError("build-stopped")

    def read(shard: Shard) -> None:
        found[shard.path] = _read_shard(
            origin, shard.path, shard.num_examples, pack, progress.reporter, check
        )

    run_on_threads(Work(read, origin.manifest.shards, progress, lambda _: stop.set()))
    return [found[shard.path] for shard in origin.manifest.shards]


def _read_by_workers(origin: Origin, label: str, pack: Pack, workers: Workers) -> list[bytes]:
    """Read all shards by way of a build area of its own, which is removed when all results have been read.

    It is that of every command that reads this generation of the dataset, so that one that is repeated, or
    follows another that was killed, ends what is left of it, and reads only the missing shards.
    """
    manifest = origin.manifest
    shards = {str(number): shard for number, shard in enumerate(manifest.shards)}
    area_id = hashlib.sha256(f"keys of {manifest.build_id}".encode()).hexdigest()[:ID_DIGITS]
    area = BuildArea(workers.folder, area_id)
    if isinstance(workers.folder, Path):
        # because of the lock, no other command works there; a cluster may have no room for two jobs
        for root in areas(workers.folder):
            cancel_lost_job(BuildArea(workers.folder, root.name).job_path)
    area.open()

    def present() -> set[str]:
        return {path.name for path in area.shards.iterdir()}

    done = present()
    missing = {name: shard for name, shard in shards.items() if name not in done}

    def size(names: Collection[str]) -> Written:
        of = [shard for name, shard in missing.items() if name in names]
        return Written(sum(shard.num_examples for shard in of), sum(shard.record_bytes for shard in of))

    def result(name: str) -> bytes:
        try:
            return read_whole(area.shards / name, RECORD)
        except FileNotFoundError:
            raise BuildError("shard-unfinished", where=f"the keys of {shards[name].path}") from None

    if missing:
        whole = size(missing)
        progress = WorkProgress(label, whole.num_examples)
        lean = replace(origin, manifest=replace(manifest, splits={}, options={}))
        work = Work(
            partial(_scan, _Task(area, lean, pack, progress.reporter)),
            # not all that the manifest records of them, for which a job graph has no room
            [(name, shard.path, shard.num_examples) for name, shard in missing.items()],
            progress,
            stop=area.stop,
            size=whole,
            area=area,
            sources=(origin.root,),
            measure=lambda: size(present()),
        )
        run_work(workers.run, work)
    found = area.each(result, shards)
    area.remove()
    return found


@dataclass(frozen=True)
class _Task:
    """What a worker needs to read any shard; it is sent to every worker."""

    area: BuildArea
    origin: Origin
    pack: Pack
    reporter: Reporter


def _scan(task: _Task, item: tuple[str, str, int]) -> None:
    """Write what is found in the records of a shard into a file of this name in the build area."""
    name, path, num_examples = item
    with stopping(task.area, path):
        # an engine repeats the tasks of a worker that it has lost
        if (task.area.shards / name).exists():
            return
        running = Running(task.area)
        found = _read_shard(task.origin, path, num_examples, task.pack, task.reporter, running.check_often)
        running.check()
        task.area.write_all({name: found})


def _read_shard(
    origin: Origin, name: str, num_examples: int, pack: Pack, reporter: Reporter, check: Callable[[], None]
) -> bytes:
    """Return the results for all records; ``check`` raises if nobody needs them any more."""
    packed = bytearray()
    path = origin.root / name
    num_packed = unreported = num_bytes = 0
    try:
        for frame in read_frames(path, origin.manifest.compression):
            data = frame.require_data(path)
            try:
                packed += pack(data, frame.checksum)
            except ValueError as error:
                raise RecordError(path, frame.number, frame.offset, str(error)) from None
            num_packed, unreported, num_bytes = num_packed + 1, unreported + 1, num_bytes + len(data)
            if unreported == _RECORDS or num_bytes >= _BYTES:
                reporter.report(unreported, num_bytes)
                unreported = num_bytes = 0
                check()
    except RecordError as error:
        raise BuildError("shard-damaged", SEE_VERIFY, text=str(error)) from None
    reporter.report(unreported, num_bytes)
    if num_packed != num_examples:
        raise BuildError("keys-miscounted", path=path, num_packed=num_packed, num_examples=num_examples)
    return bytes(packed)
