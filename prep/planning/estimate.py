"""The estimate of a build: what a timed sample of it took, and what all of it takes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfshards.schemas.errors import one_line
from tfshards.schemas.json_reader import Json
from tfshards.schemas.sizes import size
from tfshards.schemas.summary import table

# The work for an example in addition to the work for its bytes, in bytes.
BYTES_PER_EXAMPLE = 4 << 10
# A shard is read in pieces of about this many bytes, by one thread each.
PIECE_BYTES = 1 << 20
# Rounds of a sample with at least the largest one's work divided by this are the larger ones.
_LARGE_ROUND = 4


@dataclass(frozen=True)
class Measured:
    """What it took to write some examples of a build as shards, one in each process.

    Attributes:
        num_examples: number of examples.
        source_bytes: their bytes in the source.
        shard_bytes: bytes of the shards.
        seconds: wall time.
        cpu_seconds: time of all threads on a core.
        first_bytes: memory of a process before it, without pages of files.
        most_bytes: the most memory of a process until the end.
    """

    num_examples: int
    source_bytes: int
    shard_bytes: int
    seconds: float
    cpu_seconds: float
    first_bytes: int
    most_bytes: int


@dataclass(frozen=True)
class Amount:
    """How much a build writes, and with how many processes.

    Attributes:
        num_examples: number of examples.
        source_bytes: their bytes in the source.
        num_shards: number of shards of all splits.
        num_helpers: number of processes that help this one.
        shards_at_once: number of shards that this process writes at the same time.
        num_cores: number of cores that the processes may use.
    """

    num_examples: int
    source_bytes: int
    num_shards: int
    num_helpers: int
    shards_at_once: int
    num_cores: int


@dataclass(frozen=True)
class Estimate:
    """What a build with the local engine takes on this machine.

    Attributes:
        num_sampled: number of examples that were read, checked, and written to a temporary folder.
        sample_seconds: wall time of the sample.
        num_cores: number of cores.
        num_processes: number of processes that write shards.
        seconds: wall time of the build, without the start of the program.
        memory_bytes: the most memory of all processes together, without pages of files.
        output_bytes: bytes of the shards.
        rejected: number of examples of the sample by reason for which they are rejected.
        losses: warnings about what conversions of the sample lose, with the options that keep it.
    """

    num_sampled: int
    sample_seconds: float
    num_cores: int
    num_processes: int
    seconds: float
    memory_bytes: int
    output_bytes: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    losses: tuple[str, ...] = ()


def seconds_of(rounds: list[Measured], amount: Amount, rejected: float = 0.0) -> float:
    """Return the seconds in which the shards are written.

    Args:
        rounds: the sample, in the order of time, each written by as many processes as the build has.
        amount: what the build writes.
        rejected: share of the examples that are rejected.
    """
    # the first round loads libraries
    counted = rounds[1:] or rounds
    each = [(one.seconds * _parallel(one, amount), _work_of(one)) for one in counted]
    # what a shard costs in addition to its examples hardly shows in the larger rounds, and most in the others
    least = max(work for _, work in each) / _LARGE_ROUND
    large = [(seconds, work) for seconds, work in each if work >= least]
    of_work = sum(seconds for seconds, _ in large) / sum(work for _, work in large)
    more = [seconds - of_work * work for seconds, work in each if work < least]
    of_shard = max(0.0, statistics.median(more)) / (1 + amount.num_helpers) if more else 0.0
    total = of_work * _work(amount.num_examples, amount.source_bytes) + of_shard * amount.num_shards
    # a shard that lost an example is written again
    again: float = 1 - (1 - rejected) ** (amount.num_examples / amount.num_shards)
    return total * (1 + again)


def start_seconds_of(seconds: float, amount: Amount) -> float:
    """Return by how much longer a build takes because its helpers need these seconds to start.

    Until then this process writes alone; the work that the helpers have not done is shared by all.
    """
    return seconds * amount.num_helpers / (1 + amount.num_helpers)


def _parallel(one: Measured, amount: Amount) -> float:
    """Return by how much less time the work of a round takes in a build, which has many pieces.

    Each thread of a process reads one piece, and the threads of a short round end at different times.
    """
    if 1 + amount.num_helpers >= amount.num_cores:
        return 1.0
    pieces = max(1.0, one.source_bytes / PIECE_BYTES)
    possible = amount.num_cores / min(amount.num_cores, pieces / math.ceil(pieces / amount.num_cores))
    busy = one.cpu_seconds / one.seconds
    return busy / min(amount.num_cores, busy * possible)


def output_of(rounds: list[Measured], amount: Amount) -> int:
    """Return the bytes of the shards, extrapolated from the sample in proportion to its source."""
    written = sum(one.shard_bytes for one in rounds)
    whole = _work(amount.num_examples, amount.source_bytes)
    return round(written * whole / sum(map(_work_of, rounds)))


def memory_of(rounds: list[Measured], amount: Amount, own_bytes: int) -> int:
    """Return the memory of this process, which has ``own_bytes`` now, and of its helpers."""
    most = max(one.most_bytes for one in rounds)
    grown = max(0, most - rounds[0].first_bytes)
    at_once = min(amount.shards_at_once, amount.num_shards)
    return own_bytes + grown * at_once + amount.num_helpers * most


def _work_of(one: Measured) -> int:
    return _work(one.num_examples, one.source_bytes)


def _work(num_examples: int, source_bytes: int) -> int:
    return source_bytes + BYTES_PER_EXAMPLE * num_examples


def estimate_lines(found: Estimate) -> list[str]:
    """Return an estimate as lines of text."""
    processes = f"{found.num_processes} process{'es' if found.num_processes > 1 else ''}"
    cores = f"{found.num_cores} core{'s' if found.num_cores > 1 else ''}"
    rows = [
        ("estimate", "time", "memory", "shards"),
        (
            f"{processes} on {cores}",
            duration(found.seconds),
            size(found.memory_bytes),
            size(found.output_bytes),
        ),
    ]
    lines = [
        *table(rows),
        f"  from {found.num_sampled:,} examples, which took {found.sample_seconds:.1f} s; a build with other "
        "engines, or on busy cores, takes another time",
    ]
    lines += [
        f"  rejected in the sample: {count:,} {one_line(reason)}" for reason, count in found.rejected.items()
    ]
    return [*lines, *(f"  in the sample: {one_line(loss)}" for loss in found.losses)]


def duration(seconds: float) -> str:
    """Return a time as text, such as ``2 min`` or ``1.5 h``, to two digits."""
    for unit, most in (("s", 120), ("min", 120 * 60), ("h", math.inf)):
        if seconds < most:
            value = seconds / {"s": 1, "min": 60, "h": 3600}[unit]
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    raise AssertionError


def estimate_json(found: Estimate, typed: Callable[[str], str] = str) -> dict[str, Json]:
    """Return an estimate as a JSON object, whose messages name parameters as ``typed`` returns them."""
    return {
        "num_sampled": found.num_sampled,
        "sample_seconds": round(found.sample_seconds, 3),
        "num_cores": found.num_cores,
        "num_processes": found.num_processes,
        "seconds": round(found.seconds, 3),
        "memory_bytes": found.memory_bytes,
        "output_bytes": found.output_bytes,
        "rejected": dict(found.rejected),
        "losses": [*map(typed, found.losses)],
    }
