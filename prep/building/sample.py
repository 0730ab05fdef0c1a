"""Estimate a build from a timed sample: some of its examples are written as shards to a temporary folder."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from tfshards.prep.building.losses import loss_warnings
from tfshards.prep.engines.helper import Helper, pickled
from tfshards.prep.engines.local import num_helpers
from tfshards.prep.planning.balance import permutation
from tfshards.prep.planning.estimate import Amount, Estimate, Measured, memory_of, output_of, seconds_of
from tfshards.prep.planning.plan import Plan
from tfshards.prep.progress.lines import Reporter, Written
from tfshards.prep.progress.threads import NUM_CORES, NUM_WRITERS
from tfshards.prep.sources.base import Reader
from tfshards.prep.writing.area import BuildArea, FinishedShard, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard
from tfshards.schemas.manifest import Compression
from tfshards.schemas.storage import AnyPath

# Each round reads more examples than the one before, until the rounds have taken about this long together.
_SECONDS = 2.0
_FACTOR = 4
_WATCH_SECONDS = 0.01
_STATUS = Path("/proc/self/status")


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
    num_shards, source_bytes = sum(map(len, plan.layouts.values())), int(plan.listing.sizes.sum())
    written = Written(plan.listing.num_examples, source_bytes)
    numbers = permutation(plan.listing.num_examples, 0, "sample")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        area = BuildArea(Path(folder), plan.plan_id)
        area.open()
        task = ShardTask(
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
        function = pickled(partial(measure_shard, task))
        helpers = num_helpers(written, num_shards) if function is not None else 0
        started = time.perf_counter()
        # as many processes as the build has, since they share cores, memory and disk
        calls: list[Callable[[ShardId], None]] = [partial(measure_shard, task)]
        if function is not None:
            calls = [stack.enter_context(Helper(function)) for _ in range(1 + helpers)]
        pool = stack.enter_context(ThreadPoolExecutor(len(calls)))
        rounds: list[Measured] = []
        finished: list[FinishedShard] = []
        largest = len(calls) * max(len(shard) for layout in plan.layouts.values() for shard in layout)
        own_bytes, plan_seconds, start_seconds = memory_bytes(), 0.0, 0.0
        first, count, left = 0, len(calls), seconds
        while first < len(numbers):
            chosen = np.array_split(numbers[first : first + count], len(calls))
            shards = [ShardId("sample", len(finished) + index) for index in range(len(calls))]
            began = time.perf_counter()
            area.write_plans("first", zip(shards, map(plan.listing.columns, chosen), strict=True))
            plan_seconds, began = plan_seconds + time.perf_counter() - began, time.perf_counter()
            list(pool.map(lambda call, shard: call(shard), calls, shards))
            elapsed = time.perf_counter() - began
            start_seconds = start_seconds or time.perf_counter() - started
            rounds.append(_read_round(area, shards, elapsed))
            found = area.finished("first", shards)
            finished += [found[shard] for shard in shards]
            first, left = first + sum(map(len, chosen)), left - (elapsed if len(rounds) > 1 else 0)
            # no shard is larger than those of the build, and the last round is as long as the time allows
            fitting = int(count * left / max(elapsed, 1e-6)) if len(rounds) > 1 else largest
            if fitting < min(count, largest) / 2:
                break
            count = min(_FACTOR * count, max(fitting, len(calls)), largest)
    amount = Amount(
        num_examples=plan.listing.num_examples,
        source_bytes=source_bytes,
        num_shards=num_shards,
        num_helpers=helpers,
        shards_at_once=1 if helpers else NUM_WRITERS,
        num_cores=NUM_CORES,
    )
    rejected = Counter(reject.reason for shard in finished for reject in shard.rejected)
    in_one_process = list_seconds + plan_seconds / first * plan.listing.num_examples
    # the build ends after its helpers, which first load what they need
    in_one_process += start_seconds if helpers else 0
    return Estimate(
        num_sampled=first,
        sample_seconds=sum(one.seconds for one in rounds),
        num_cores=NUM_CORES,
        num_processes=1 + helpers,
        seconds=in_one_process + seconds_of(rounds, amount, sum(rejected.values()) / first),
        memory_bytes=memory_of(rounds, amount, own_bytes),
        output_bytes=output_of(rounds, amount),
        rejected=dict(sorted(rejected.items())),
        losses=tuple(loss_warnings(finished)),
    )


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
