"""The estimate of a build as a value, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from tfshards.schemas.errors import one_line
from tfshards.schemas.json_reader import Json
from tfshards.schemas.sizes import size
from tfshards.schemas.summary import table

# The work for an example in addition to the work for its bytes, in bytes.
BYTES_PER_EXAMPLE = 4 << 10
# A shard is read in pieces of about this many bytes, by one thread each.
PIECE_BYTES = 1 << 20


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


def work_of(num_examples: int, num_bytes: int) -> int:
    """Return the work for examples of the source, in bytes."""
    return num_bytes + BYTES_PER_EXAMPLE * num_examples


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
    """Return an estimate as a JSON object; for ``typed`` see ``plan_text``."""
    return {
        **asdict(found),
        "sample_seconds": round(found.sample_seconds, 3),
        "seconds": round(found.seconds, 3),
        "losses": [*map(typed, found.losses)],
    }
