"""Random options of a run, and what the reference says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tests.order.conftest import NAMES, Data, mix
from tests.order.reference import batches_of, members_of, quotas_of
from tfshards.loader import Part, Shuffle

SEEDS = st.integers(0, 9) | st.integers(-(2**63), 2**63 - 1)
RATIOS = st.sampled_from([1, 1, 2, 3, 0.5, 0.1, 2.5, 7])
HOW = st.sampled_from(["stored", "runs", "runs", "full"])
RUNS = st.sampled_from([None, 2, 3, 7, 50])
WORKERS = st.sampled_from([1, 1, 2, 3, 4, 6])
LANES = st.sampled_from([1, 1, 2, 4])
ROWS = st.sampled_from([1, 1, 2, 3, 5, 8])
REMAINDERS = st.sampled_from(["drop", "keep", "pad"])
TAKES = st.sampled_from(["all", "all", "first", "part"])
LABELS = st.permutations(range(3))
ONE_OF_FIVE, ONE_OF_THREE = st.integers(0, 4), st.integers(0, 2)
EPOCHS = st.integers(0, 5) | st.integers(0, 2**40)


@dataclass(frozen=True)
class Case:
    """A run: a dataset, the order of the examples, and the choice of them as the reference needs it."""

    data: Data
    batch_size: int
    workers: int
    order: dict[str, Any]  # shuffle and remainder
    choice: dict[str, Any]  # take and classes
    groups: list[list[int]]
    ratios: list[float] | None

    @property
    def options(self):
        """The options of ``load`` and of all that has the same."""
        skip = {"on_damage": "skip"} if self.data.damaged else {}
        return {"batch_size": self.batch_size, **self.order, **self.choice, **skip}

    def members(self, epoch):
        return members_of(self.groups, self.ratios, self.choice.get("take"), epoch)

    def batches(self, epoch, workers=None, **order):
        """Return the rows of an epoch by step and worker; a damaged record is padding."""
        workers = workers or self.workers
        options = {**self.order, **order, "workers": workers, "take": self.choice.get("take")}
        size = self.batch_size * self.workers // workers
        steps = batches_of(
            self.data.stored, self.groups, epoch, batch_size=size, ratios=self.ratios, **options
        )
        bad = self.data.damaged
        return [[[None if number in bad else number for number in share] for share in step] for step in steps]

    def delivered(self, share):
        """Return the values of ``number``, and the weights, that a batch with these rows has."""
        first = next((n for n in range(len(self.data.numbers)) if n not in self.data.damaged), 0)
        values = [self.data.numbers[first if number is None else number] for number in share]
        return values, [float(number is not None) for number in share]


@st.composite
def cases(draw, datasets):
    """Draw a run of any kind."""
    data = datasets[draw(st.sampled_from(sorted(datasets)))]
    is_mixed = draw(ONE_OF_FIVE) == 0
    if is_mixed:
        parts = draw(st.permutations(["uneven", "large", "small"]))[: draw(st.integers(1, 3))]
        weights = draw(st.lists(RATIOS, min_size=len(parts), max_size=len(parts)))
        data = mix(weights, *(datasets[name] for name in parts))
    workers, per_worker = draw(WORKERS), draw(LANES)
    batch_size = per_worker * draw(ROWS)
    how, shuffle = draw(HOW), None
    if how == "runs":
        lanes = draw(st.sampled_from([None, workers * per_worker]))
        shuffle = Shuffle(draw(SEEDS), run=draw(RUNS), lanes=lanes)
    elif how == "full":
        shuffle = Shuffle(draw(SEEDS), how)
    remainder = "pad" if data.damaged else draw(REMAINDERS)
    count = len(data.numbers)
    choice, groups, ratios = {}, [list(range(count))], None
    if is_mixed:
        ratios, groups, begin = weights, [], 0
        for part in data.parts:
            groups.append(list(range(begin, begin + len(part.numbers))))
            begin += len(part.numbers)
    elif count and draw(ONE_OF_THREE) == 0:
        chosen = draw(LABELS)[: draw(st.integers(1, 3))]
        names = [NAMES[label] if data.has_names and draw(st.booleans()) else label for label in chosen]
        groups = [[n for n in range(count) if data.stored.labels[n] == label] for label in chosen]
        if draw(st.booleans()):
            ratios = draw(st.lists(RATIOS, min_size=len(names), max_size=len(names)))
            choice["classes"] = dict(zip(names, ratios, strict=True))
        else:
            choice["classes"] = names
            groups = [sorted(number for group in groups for number in group)]
    most = sum(map(len, groups))
    take = draw(TAKES) if most else "all"
    if take == "first":
        choice["take"] = draw(st.integers(1, most * (1 if ratios is None else 3)))
    elif take == "part" and min(map(len, groups)) > 4:
        parts = draw(st.integers(1, 4))
        choice["take"] = Part(draw(st.integers(0, parts - 1)), parts, rest=parts > 1 and draw(st.booleans()))
    order = {"shuffle": shuffle, "remainder": remainder}
    case = Case(data, batch_size, workers, order, choice, groups, ratios)
    # a group without a position is refused
    assume(ratios is None or all(quotas_of(ratios, len(case.members(0)))))
    return case
