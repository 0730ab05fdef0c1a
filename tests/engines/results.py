"""The table of results that ``make engines`` prints."""

from __future__ import annotations

from dataclasses import astuple, dataclass

RESULTS: list[Result] = []
_HEADER = ("engine", "disturbance", "outcome", "same bytes", "written twice", "jobs left over", "seconds")


@dataclass(frozen=True)
class Result:
    """What became visible of one build, over all attempts.

    Attributes:
        engine: name of the engine.
        disturbance: what was done to it.
        outcome: how the first attempt ended, and whether a second one was needed.
        same_bytes: whether the dataset equals that of engine="local".
        num_written_twice: number of finished shards that were written again.
        num_left_over: number of jobs of a failed or interrupted attempt that still ran.
        seconds: of each attempt.
    """

    engine: str
    disturbance: str
    outcome: str
    same_bytes: bool
    num_written_twice: int
    num_left_over: int
    seconds: str


def table(results: list[Result]) -> list[str]:
    """Return the lines of the table."""
    rows = [_HEADER, *(tuple(map(_cell, astuple(result))) for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _cell(value: object) -> str:
    return {True: "yes", False: "NO"}[value] if isinstance(value, bool) else str(value)
