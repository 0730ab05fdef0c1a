"""Compare a run that was stopped and resumed with the undisturbed one: lost, repeated, changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest

# The ids of the examples of each global batch of an epoch, by epoch.
Epochs = Mapping[int, Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Difference:
    """What a resumed run did differently from the undisturbed one.

    Attributes:
        lost: how many deliveries of an example are missing in their epoch.
        repeated: how many deliveries of an example are too many in their epoch.
        changed: batches whose examples, in any order, are not those of the undisturbed run at the same step.
        later: batches of the undisturbed run after the stop.
    """

    lost: int
    repeated: int
    changed: int
    later: int

    @property
    def is_exact(self) -> bool:
        """Whether the resumed run had exactly the undisturbed batches."""
        return not (self.lost or self.repeated or self.changed)


def compare(undisturbed: Epochs, resumed: Epochs, stop: int) -> Difference:
    """Return how ``resumed`` differs from ``undisturbed``.

    Args:
        undisturbed: all batches of the run that was not stopped.
        resumed: the batches before the stop, from whichever run, and those after it.
        stop: the number of batches before the stop.
    """
    lost = repeated = changed = 0
    for epoch in sorted({*undisturbed, *resumed}):
        expected, found = undisturbed.get(epoch, ()), resumed.get(epoch, ())
        wanted, given = _counts(expected), _counts(found)
        lost += (wanted - given).total()
        repeated += (given - wanted).total()
        changed += sum(
            left is None or right is None or sorted(left) != sorted(right)
            for left, right in zip_longest(expected, found)
        )
    return Difference(lost, repeated, changed, sum(map(len, undisturbed.values())) - stop)


def joined(steps: Iterable[tuple[int, Sequence[int]]]) -> dict[int, list[Sequence[int]]]:
    """Return the batches of ``steps``, pairs of an epoch and the ids of a batch, by epoch."""
    epochs: dict[int, list[Sequence[int]]] = {}
    for epoch, ids in steps:
        epochs.setdefault(epoch, []).append(ids)
    return epochs


def summary(differences: Sequence[Difference], errors: Sequence[str]) -> dict[str, object]:
    """Return the sums over all stops of one kind, and its errors with their counts, as JSON values."""
    zero = Difference(0, 0, 0, 0)
    total = {name: sum(asdict(each)[name] for each in differences) for name in asdict(zero)}
    exact = sum(each.is_exact for each in differences)
    return {
        "stops": len(differences) + len(errors),
        "failed": len(errors),
        "exact": exact,
        **total,
        "errors": dict(Counter(errors).most_common()),
    }


def _counts(batches: Sequence[Sequence[int]]) -> Counter[int]:
    return Counter(example for batch in batches for example in batch)
