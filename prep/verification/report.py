"""The reports that ``verify`` and ``repair`` return; they are true if the dataset is sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfshards.schemas import Problem, Shard
from tfshards.schemas.errors import counted, one_line
from tfshards.schemas.json_reader import Json, as_json

# how many problems of one file are printed; all are counted
_SHOWN_PER_FILE = 20


@dataclass(frozen=True)
class RecordProblem(Problem):
    """A fault of one record.

    Attributes:
        record: the number of the record in its shard.
        offset: the offset of its frame in the uncompressed bytes.
        key: the record's key, if it can be read; if the record is damaged, the key may be wrong.
    """

    record: int = 0
    offset: int = 0
    key: str | None = None

    @classmethod
    def of(
        cls, shard: Shard, record: int, offset: int, key: str | None, fault: str, *, words: str = "key"
    ) -> RecordProblem:
        """Return the problem of a record; ``words`` introduce its key."""
        named = "" if key is None else f", {words} {key!r}"
        return cls(shard.path, f"record {record} at byte {offset}{named}: {fault}", record, offset, key)


@dataclass(frozen=True, repr=False)
class VerificationReport:
    """Every problem of a dataset; true if there is none. ``str()`` is what ``tfshards verify`` prints.

    Attributes:
        dataset: the folder of the dataset, as it was given.
        problems: every fault, shard by shard; those of a record are ``RecordProblem``.
    """

    dataset: str
    problems: tuple[Problem, ...]

    def __bool__(self) -> bool:
        """Return whether the dataset is sound."""
        return not self.problems

    def __str__(self) -> str:
        """Return the problems, one per line, and their number."""
        return "\n".join([*_lines(self.problems), _verdict(self.dataset, self.problems)])

    __repr__ = __str__

    def to_json(self) -> dict[str, Json]:
        """Return the dataset, and every problem as an object with ``place`` and ``message``."""
        return {"dataset": self.dataset, "problems": as_json(self.problems)}


@dataclass(frozen=True, repr=False)
class RepairReport:
    """The problems that a repair found and fixed; true if the dataset is sound now.

    ``str()`` is what ``tfshards verify --repair`` prints.

    Attributes:
        dataset: the folder of the dataset, as it was given.
        found: the problems before the repair.
        repaired: the paths of the files that were rebuilt.
        left: the problems that remain.
        remedies: how to repair what remains, one line for each folder of a build that has damaged files.
    """

    dataset: str
    found: tuple[Problem, ...]
    repaired: tuple[str, ...]
    left: tuple[Problem, ...]
    remedies: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether the dataset is sound now."""
        return not self.left

    def __str__(self) -> str:
        """Return the problems found, the files rebuilt, the problems left, and the remedies, one per line."""
        lines = _lines(self.found)
        lines += [one_line(f"rebuilt: {path}") for path in self.repaired]
        if self.left and self.repaired:
            lines += ["still damaged:", *_lines(self.left)]
        rebuilt = f", {counted(len(self.repaired), 'file')} rebuilt" if self.repaired else ""
        return "\n".join([*lines, f"{_verdict(self.dataset, self.left)}{rebuilt}", *self.remedies])

    __repr__ = __str__

    def to_json(self) -> dict[str, Json]:
        """Return the attributes."""
        return {
            "dataset": self.dataset,
            "found": as_json(self.found),
            "repaired": list(self.repaired),
            "left": as_json(self.left),
            "remedies": list(self.remedies),
        }


def _lines(problems: Sequence[Problem]) -> list[str]:
    by_place: dict[str, list[str]] = {}
    for problem in problems:
        by_place.setdefault(problem.place, []).append(str(problem))
    lines = []
    for place, texts in by_place.items():
        lines += texts[:_SHOWN_PER_FILE]
        if len(texts) > _SHOWN_PER_FILE:
            lines.append(one_line(f"{place}: and {len(texts) - _SHOWN_PER_FILE:,} more problems"))
    return lines


def _verdict(dataset: str, problems: Sequence[Problem]) -> str:
    return one_line(f"{dataset}: {counted(len(problems), 'problem') if problems else 'sound'}")
