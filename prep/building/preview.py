"""Plan a build without executing it, and estimate it from a timed sample."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from tfshards.prep.building.decisions import check_usable
from tfshards.prep.building.losses import loss_warnings
from tfshards.prep.building.output import dataset_name, output_folder
from tfshards.prep.building.output_state import inspect_output
from tfshards.prep.engines.local import Helper, num_helpers, pickled
from tfshards.prep.planning.balance import permutation
from tfshards.prep.planning.estimate import (
    Amount,
    Estimate,
    Measured,
    memory_of,
    output_of,
    seconds_of,
    start_seconds_of,
)
from tfshards.prep.planning.make_plan import check_types, make_plan
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.planning.plan import Plan
from tfshards.prep.progress.lines import Reporter, Written
from tfshards.prep.progress.threads import num_jobs, num_writers
from tfshards.prep.sources.base import Reader, Source
from tfshards.prep.writing.area import BuildArea, FinishedShard, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas.compression import Compression
from tfshards.schemas.index import IntArray
from tfshards.schemas.storage import AnyPath

# Each round reads more examples than the one before, until the rounds have taken about this long together.
_SECONDS = 2.0
_FACTOR = 4
_WATCH_SECONDS = 0.01
_STATUS = Path("/proc/self/status")

_Writer: TypeAlias = Callable[[ShardId], None]


class _Round(NamedTuple):
    """What was written at the same time, and the seconds of planning it."""

    measured: Measured
    finished: list[FinishedShard]
    plan_seconds: float


def estimate_build(
    plan: Plan, reader: Reader, compression: Compression, list_seconds: float, seconds: float = _SECONDS
) -> Estimate:
    """Return what a build with the local engine would take.

    Examples are chosen at random by a fixed seed, read, checked and encoded as the build would do it, and
    written to a temporary folder, in a process like those of the build. It takes about ``seconds`` however
    many examples there are, or as long as one example takes.

    Args:
        plan: the plan of the build.
        reader: reads the source; it is not a preview.
        compression: compression of the shards.
        list_seconds: time that listing and planning took.
        seconds: time of the sample.

    Raises:
        InputError: an example cannot be read, or has changed since it was listed.
    """
    amount = _amount_of(plan)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        task = _task(plan, reader, compression, Path(folder))
        function = pickled(partial(measure_shard, task))
        if function is None:
            # what cannot be pickled is written in this process
            amount = replace(amount, num_helpers=0, shards_at_once=num_writers())
        writers = _started(task, function, 1 + amount.num_helpers, stack)
        own_bytes = memory_bytes()
        rounds = [*_rounds(plan, task, writers, seconds)]
    measured = [one.measured for one in rounds]
    finished = [shard for one in rounds for shard in one.finished]
    num_sampled = sum(one.num_examples for one in measured)
    rejected = Counter(reject.reason for shard in finished for reject in shard.rejected)
    # this process lists, and plans every shard, before the first one is written
    before = list_seconds + sum(one.plan_seconds for one in rounds) / num_sampled * amount.num_examples
    return Estimate(
        num_sampled=num_sampled,
        sample_seconds=sum(one.seconds for one in measured),
        num_cores=num_jobs(),
        num_processes=1 + amount.num_helpers,
        seconds=before
        + start_seconds_of(measured[0].seconds, amount)
        + seconds_of(measured, amount, sum(rejected.values()) / num_sampled),
        memory_bytes=memory_of(measured, amount, own_bytes),
        output_bytes=output_of(measured, amount),
        rejected=dict(sorted(rejected.items())),
        losses=tuple(loss_warnings(finished)),
    )


def _amount_of(plan: Plan) -> Amount:
    num_shards, source_bytes = sum(map(len, plan.layouts.values())), int(plan.listing.sizes.sum())
    helpers = num_helpers(Written(plan.listing.num_examples, source_bytes), num_shards)
    return Amount(
        num_examples=plan.listing.num_examples,
        source_bytes=source_bytes,
        num_shards=num_shards,
        num_helpers=helpers,
        shards_at_once=1 if helpers else num_writers(),
        num_cores=num_jobs(),
    )


def _task(plan: Plan, reader: Reader, compression: Compression, folder: Path) -> ShardTask:
    """Return the task of writing shards of the sample to a folder, in a build area that is open."""
    area = BuildArea(folder, plan.plan_id)
    area.open()
    return ShardTask(
        area=area,
        reader=reader,
        schema=plan.listing.schema,
        phase="first",
        name=plan.name,
        num_shards={"sample": 1},
        reporter=Reporter(),
        finds_duplicates="duplicates" in plan.options,
        compression=compression,
    )


def _started(task: ShardTask, function: bytes | None, count: int, stack: ExitStack) -> list[_Writer]:
    """Start as many processes as the build has, since they share cores, memory and disk.

    Without a function that other processes can load, this process writes.
    """
    if function is None:
        return [partial(measure_shard, task)]
    return [stack.enter_context(Helper(function)) for _ in range(count)]


def _rounds(plan: Plan, task: ShardTask, writers: Sequence[_Writer], seconds: float) -> Iterator[_Round]:
    """Write shards, one by each writer in a round, and yield what each round took.

    Each round has more examples than the one before, up to those of the largest shard of the build.
    """
    numbers = permutation(plan.listing.num_examples, 0, "sample")
    largest = len(writers) * max(len(shard) for layout in plan.layouts.values() for shard in layout)
    first, count, left, index = 0, len(writers), seconds, 0
    with ThreadPoolExecutor(len(writers)) as pool:
        while count and first < len(numbers):
            chosen = numbers[first : first + count]
            one = _round(plan, task, chosen, writers, pool, first_shard=index * len(writers))
            yield one
            if index:
                left -= one.measured.seconds
                # the last round is as long as the time allows
                fitting = int(count * left / max(one.measured.seconds, 1e-6))
            else:
                # it loads libraries
                fitting = largest
            first, index = first + len(chosen), index + 1
            is_over = fitting < min(count, largest) / 2
            count = 0 if is_over else min(_FACTOR * count, max(fitting, len(writers)), largest)


def _round(
    plan: Plan,
    task: ShardTask,
    chosen: IntArray,
    writers: Sequence[_Writer],
    pool: ThreadPoolExecutor,
    first_shard: int,
) -> _Round:
    """Plan and write a shard with each writer at the same time, and return what it took."""
    area = task.area
    shards = [ShardId("sample", first_shard + index) for index in range(len(writers))]
    rows = map(plan.listing.columns, np.array_split(chosen, len(writers)))
    began = time.perf_counter()
    area.write_plans("first", zip(shards, rows, strict=True))
    planned = time.perf_counter()
    list(pool.map(lambda write, shard: write(shard), writers, shards))
    seconds = time.perf_counter() - planned
    found = area.finished("first", shards)
    return _Round(_read_round(area, shards, seconds), [found[shard] for shard in shards], planned - began)


def measure_shard(task: ShardTask, shard: ShardId) -> None:
    """Write a planned shard, remove it, and write what it took as a file of the build area."""
    with PeakMemory() as memory:
        cpu = time.process_time()
        write_shard(task, shard)
        cpu_seconds = time.process_time() - cpu
    written = task.area.finished(task.phase, [shard])[shard].shard
    rows, _ = task.area.read_plan(task.phase, shard)
    (task.area.shards / written.path).unlink()
    measured = Measured(
        num_examples=len(rows),
        source_bytes=sum(row.size for row in rows),
        shard_bytes=written.num_bytes,
        seconds=0.0,
        cpu_seconds=cpu_seconds,
        first_bytes=memory.first_bytes,
        most_bytes=memory.most_bytes,
    )
    _measured_path(task.area, shard).write_bytes(json.dumps(asdict(measured)).encode())


def _read_round(area: BuildArea, shards: Sequence[ShardId], seconds: float) -> Measured:
    """Return what shards that were written at the same time took together."""
    each = [Measured(**json.loads(_measured_path(area, shard).read_bytes())) for shard in shards]
    return Measured(
        num_examples=sum(one.num_examples for one in each),
        source_bytes=sum(one.source_bytes for one in each),
        shard_bytes=sum(one.shard_bytes for one in each),
        seconds=seconds,
        cpu_seconds=sum(one.cpu_seconds for one in each),
        first_bytes=max(one.first_bytes for one in each),
        most_bytes=max(one.most_bytes for one in each),
    )


def _measured_path(area: BuildArea, shard: ShardId) -> AnyPath:
    return area.root / f"measured-{shard.shard_index}.json"


class PeakMemory:
    """Records the most memory that this process has, in a thread; a context manager."""

    def __init__(self) -> None:
        self.first_bytes: int = memory_bytes()
        self.most_bytes: int = self.first_bytes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_SECONDS):
            self.most_bytes = max(self.most_bytes, memory_bytes())

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.most_bytes = max(self.most_bytes, memory_bytes())


def memory_bytes() -> int:
    """Return the memory of this process, without pages of files, which the system can take back."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) << 10
    # the most so far, with pages of files
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage << 10


def plan(
    source: Source,
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    seed: int = 0,
    options: Options | None = None,
    estimate: bool = False,
) -> Plan:
    """Return what ``build`` would produce with the same arguments; nothing is written to ``dataset``.

    Args:
        source: inputs of the build, such as ``ImageFolder("photos/")``.
        dataset: folder of the dataset.
        shards: number of shards of every split, or a dict of them by split; by default as many as
            ``options.shard_size`` gives.
        seed: random seed for the splits by ratio and the order of examples.
        options: all other options.
        estimate: also estimate time, memory and bytes of the build on this machine, from a sample of examples
            that is read, checked and written to a temporary folder for about two seconds. Without it, no
            image is decoded. Arrays that a build copies, such as those in .npz files, are copied as well.

    Returns:
        The plan. Printed, it is the table that ``tfshards plan`` prints; ``warnings`` are the lines that a
        build would log.

    Raises:
        OptionsError: an argument is not valid.
        InputError: the source or the output does not allow the build.
    """
    options = Options() if options is None else options
    check_types(source, seed, options)
    counts = ShardCounts.of(shards)
    folder = output_folder(dataset, source.location())
    check_usable(inspect_output(folder))
    with tempfile.TemporaryDirectory() as staging:
        began = time.perf_counter()
        reader = source.stage(Path(staging), preview=not estimate)
        found = make_plan(reader, dataset_name(folder, options), counts, seed, options)
        if not estimate:
            return found

        seconds = time.perf_counter() - began
        return replace(found, estimate=estimate_build(found, reader, options.compression, seconds))
