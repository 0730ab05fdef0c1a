"""What ``verify`` prints: for people so many lines a file, for programs all of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from tfshards.prep.progress import counted
from tfshards.prep.proofs.repair import Repair
from tfshards.prep.proofs.verify import RecordProblem
from tfshards.schemas import Problem, one_line
from tfshards.schemas.reading import Json

# bounds what is printed of one file; the count goes on
_SHOWN_A_FILE = 20


def verify_text(root: str, problems: Sequence[Problem]) -> str:
    """Return the problems, and how many there are."""
    return "\n".join([*_lines(problems), _verdict(root, len(problems))])


def repair_text(root: str, repair: Repair, *, is_given: bool) -> str:
    """Return what was wrong and what became of it; ``is_given`` is whether there was a source."""
    lines = _lines(repair.found)
    lines += [one_line(f"made again: {path}") for path in repair.repaired]
    if repair.left and repair.repaired:
        lines += ["still wrong:", *_lines(repair.left)]
    made = f", {counted(len(repair.repaired), 'file')} made again" if repair.repaired else ""
    hint = "; shards need SRC: --repair SRC" if repair.left and not is_given else ""
    return "\n".join([*lines, f"{_verdict(root, len(repair.left))}{made}{hint}"])


def verify_json(problems: Sequence[Problem]) -> str:
    """Return the problems as a JSON list."""
    return json.dumps([_problem_json(problem) for problem in problems])


def repair_json(repair: Repair) -> str:
    """Return what was wrong and what became of it as a JSON object."""
    return json.dumps(
        {
            "found": [_problem_json(problem) for problem in repair.found],
            "repaired": list(repair.repaired),
            "left": [_problem_json(problem) for problem in repair.left],
        }
    )


def _lines(problems: Sequence[Problem]) -> list[str]:
    told: Counter[str] = Counter()
    lines = []
    for problem in problems:
        told[problem.place] += 1
        if told[problem.place] <= _SHOWN_A_FILE:
            lines.append(str(problem))
    lines += [
        one_line(f"{place}: and {count - _SHOWN_A_FILE:,} more problems")
        for place, count in told.items()
        if count > _SHOWN_A_FILE
    ]
    return lines


def _verdict(root: str, number: int) -> str:
    return one_line(f"{root}: {counted(number, 'problem') if number else 'sound'}")


def _problem_json(problem: Problem) -> dict[str, Json]:
    found: dict[str, Json] = {"place": problem.place, "message": problem.message}
    if isinstance(problem, RecordProblem):
        found |= {"record": problem.record, "offset": problem.offset, "key": problem.key}
    return found
