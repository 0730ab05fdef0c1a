"""Plan a build without executing it, and estimate it from a timed sample."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from tfshards.prep.building.output import dataset_name, output_folder
from tfshards.prep.building.output_state import check_usable, inspect_output
from tfshards.prep.building.planned_build import PlannedBuild
from tfshards.prep.building.rejects import loss_warnings
from tfshards.prep.engines.local import num_helpers
from tfshards.prep.planning.balance import permutation
from tfshards.prep.planning.make_plan import check_types, make_plan
from tfshards.prep.planning.options import Options, ShardCounts, Shards
from tfshards.prep.planning.plan import VIEW_SIDE, Estimate, Plan
from tfshards.prep.progress.lines import Reporter, Written
from tfshards.prep.progress.threads import num_jobs, num_writers
from tfshards.prep.sources.base import Accepted, Reader, Source
from tfshards.prep.writing.area import BuildArea, FinishedShard, ShardId
from tfshards.prep.writing.shard import ShardTask, write_shard

# Each round reads more examples than the one before, until the rounds have taken about this long together.
_SECONDS = 2.0
_FACTOR = 4
_WATCH_SECONDS = 0.01
_MOST_VIEWS = 32
_STATUS = Path("/proc/self/status")


class _Round(NamedTuple):
    """A shard of the sample: its examples and bytes in the source, and what it took."""

    source: Written
    finished: FinishedShard
    plan_seconds: float
    seconds: float
    cpu_seconds: float


def estimate_build(plan: Plan, reader: Reader, options: Options, list_seconds: float) -> Estimate:
    """Return what a build with the local engine would take.

    Examples are chosen at random by a fixed seed, read, checked and encoded as the build would do it, and
    written to a temporary folder by this process. It takes about two seconds however many examples there
    are, or as long as one example takes. ``list_seconds`` is the time of the plan.
    """
    num_shards = sum(map(len, plan.layouts.values()))
    whole = Written(plan.listing.num_examples, int(plan.listing.sizes.sum()))
    helpers = num_helpers(whole, num_shards)
    with tempfile.TemporaryDirectory() as folder, _watched_memory() as memory:
        area = BuildArea(Path(folder), plan.plan_id)
        area.open()
        build = PlannedBuild(reader=reader, plan=plan, area=area, options=options)
        rounds = [*_rounds(plan, build.task("first", {"sample": []}, Reporter()))]
    num_sampled = sum(one.source.num_examples for one in rounds)
    rejected = Counter(reject.reason for one in rounds for reject in one.finished.rejected)
    # this process lists, and plans every shard, before the first one is written
    before = list_seconds + sum(one.plan_seconds for one in rounds) / num_sampled * whole.num_examples
    # the first round loads libraries
    timed = rounds[1:] or rounds
    wall, cpu = sum(one.seconds for one in timed), sum(one.cpu_seconds for one in timed)
    # helpers use the cores that this process leaves idle
    writing = max(cpu / num_jobs(), wall / (1 + helpers)) if helpers else wall
    # a shard that lost an example is written again
    again: float = 1 - (1 - rejected.total() / num_sampled) ** (whole.num_examples / num_shards)
    grown = max(memory) - memory[0]
    at_once = 1 if helpers else min(num_writers(), num_shards)
    shard_bytes = sum(one.finished.shard.num_bytes for one in rounds)
    conversions: Counter[str] = Counter()
    for one in rounds:
        conversions.update(one.finished.conversions)
    return Estimate(
        num_sampled=num_sampled,
        sample_seconds=sum(one.seconds for one in rounds),
        num_cores=num_jobs(),
        num_processes=1 + helpers,
        seconds=before + writing * _share(whole, timed) * (1 + again),
        memory_bytes=(1 + helpers) * memory[0] + (at_once + helpers) * grown,
        output_bytes=round(shard_bytes * _share(whole, rounds)),
        rejected=dict(sorted(rejected.items())),
        losses=tuple(loss_warnings(one.finished for one in rounds)),
        conversions=dict(conversions.most_common()),
        views_per_second=_views_per_second(plan, reader),
    )


def _views_per_second(plan: Plan, reader: Reader) -> float | None:
    """Return how many images one core decodes from the shards in a second; None if there are none."""
    schema = plan.listing.schema
    places = [
        index
        for index, feature in enumerate(schema.features)
        if feature.kind == "image" and feature.is_encoded
    ]
    if not places:
        return None
    from tfshards.prep.imaging.stored import draw_view

    chosen = permutation(plan.listing.num_examples, 0, "sample")[:_MOST_VIEWS]
    images: list[bytes] = []
    ends = time.monotonic() + _SECONDS / 2
    for row in plan.listing.rows(chosen):
        [outcome] = reader.read([row], schema)
        # an image may be missing
        if isinstance(outcome, Accepted) and (data := cast("bytes", outcome.values[places[0]])):
            images.append(data)
        if time.monotonic() > ends:
            break
    # the first one loads libraries
    for data in images[:1]:
        draw_view(data, VIEW_SIDE)
    began = time.thread_time()
    for data in images:
        draw_view(data, VIEW_SIDE)
    return len(images) / (time.thread_time() - began) if images else None


def _share(whole: Written, rounds: Sequence[_Round]) -> float:
    """Return how many times the work of these rounds is in the whole build."""
    return whole.work / sum(one.source.work for one in rounds)


def _rounds(plan: Plan, task: ShardTask) -> Iterator[_Round]:
    """Write shards, and yield what each took.

    Each has more examples than the one before, up to those of the largest shard of the build, and as many as
    the time allows.
    """
    area = task.area
    numbers = permutation(plan.listing.num_examples, 0, "sample")
    largest = max(len(shard) for layout in plan.layouts.values() for shard in layout)
    first, count, left, index = 0, 1, _SECONDS, 0
    while count and first < len(numbers):
        shard, chosen = ShardId("sample", index), numbers[first : first + count]
        began = time.perf_counter()
        area.write_plans("first", [(shard, plan.listing.columns(chosen))])
        planned, cpu = time.perf_counter(), time.process_time()
        write_shard(task, shard)
        seconds, cpu_seconds = time.perf_counter() - planned, time.process_time() - cpu
        (area.shards / task.shard_path(shard)).unlink()
        source = Written(len(chosen), int(plan.listing.sizes[chosen].sum()))
        finished = area.finished("first", [shard])[shard]
        yield _Round(source, finished, planned - began, seconds, cpu_seconds)
        first += count
        left -= seconds if index else 0
        fitting = max(0, int(count * left / max(seconds, 1e-6))) if index else largest
        count, index = min(_FACTOR * count, fitting, largest), index + 1


@contextmanager
def _watched_memory() -> Iterator[list[int]]:
    """Yield a list to which a thread adds the memory of this process all the time."""
    found, ended = [memory_bytes()], threading.Event()

    def watch() -> None:
        while not ended.wait(_WATCH_SECONDS):
            found.append(memory_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
        found.append(memory_bytes())


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
        return replace(found, estimate=estimate_build(found, reader, options, seconds))
