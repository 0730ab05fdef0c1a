"""The report that ``verify`` returns; it is true if the dataset is sound."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tfshards.schemas import Problem
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
        key: the record's key in the file of keys; None if that is damaged, or if there are no keys.
    """

    record: int = 0
    offset: int = 0
    key: str | None = None


@dataclass(frozen=True, repr=False)
class VerificationReport:
    """Every problem of a dataset; true if there is none. ``str()`` is what ``tfshards verify`` prints.

    Attributes:
        dataset: the folder of the dataset, as it was given.
        problems: every fault, shard by shard, that is left; the faults of records are ``RecordProblem``.
        repaired: the paths of the files that were rebuilt.
        remedies: how to repair what is left, one line for each folder of a build.
    """

    dataset: str
    problems: tuple[Problem, ...]
    repaired: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the dataset is sound."""
        return not self.problems

    def __repr__(self) -> str:
        """Return the files rebuilt, the problems and their number, and the remedies, one per line."""
        lines = [one_line(f"rebuilt: {path}") for path in self.repaired]
        numbers = Counter[str]()
        for problem in self.problems:
            numbers[problem.place] += 1
            if numbers[problem.place] <= _SHOWN_PER_FILE:
                lines.append(str(problem))
        lines += [
            one_line(f"{place}: and {number - _SHOWN_PER_FILE:,} more problems")
            for place, number in numbers.items()
            if number > _SHOWN_PER_FILE
        ]
        verdict = counted(len(self.problems), "problem") if self.problems else "sound"
        rebuilt = f", {counted(len(self.repaired), 'file')} rebuilt" if self.repaired else ""
        return "\n".join([*lines, one_line(f"{self.dataset}: {verdict}{rebuilt}"), *self.remedies])

    def to_json(self) -> dict[str, Json]:
        """Return the attributes; a problem is an object with ``place`` and ``message``."""
        found: dict[str, Json] = as_json(self)
        return found
