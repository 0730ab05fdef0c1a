"""``Position``: where a run is, and what its order depends on; ``Counter``: the steps that were taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tfshards.loader.options.validation import check_least, invalid
from tfshards.schemas import OptionsError

# The facts that the order of a run depends on, as JSON values by name.
Facts: TypeAlias = Mapping[str, str | int]
ORDER_FACTS = (
    *("build_id", "split", "examples", "global_batch_size", "remainder"),
    *("how", "seed", "run", "lanes"),
)


@dataclass(frozen=True)
class Position:
    """The position of a batch in a run: after ``step`` batches of epoch ``epoch``, both counted from 0.

    Attributes:
        epoch: from 0.
        step: from 0.
        order: the facts that the order of the run depends on, as ``load`` recorded them in a ``Progress``; a
            run with a different order cannot be resumed, and lanes and runs are those that it began with;
            None if they are not known.
    """

    epoch: int = 0
    step: int = 0
    order: Facts | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_least("Position.epoch", self.epoch, 0)
        check_least("Position.step", self.step, 0)
        if self.order is not None and not {*self.order} >= {*ORDER_FACTS}:
            lacking = ", ".join(sorted({*ORDER_FACTS} - {*self.order}))
            raise OptionsError(f"Position.order lacks {lacking}; take it from loader.Progress().position")

    def to_json(self) -> dict[str, object]:
        """Return the position as a dict of JSON values."""
        found: dict[str, object] = {"epoch": int(self.epoch), "step": int(self.step)}
        return found if self.order is None else {**found, "order": dict(self.order)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Position:
        """Return the position that ``to_json`` returned as ``found``.

        Raises:
            OptionsError: ``to_json`` did not return ``found``.
        """
        try:
            return cls(found["epoch"], found["step"], found.get("order"))
        except (TypeError, AttributeError, KeyError):
            raise invalid("position", found, "a dict as Position.to_json() returns it") from None


class Counter:
    """The position of a run. It counts the steps taken, not the batches read, because input is read ahead.

    Attributes:
        position: the position of the next batch, including what the order depends on.
    """

    def __init__(self, position: Position | None = None) -> None:
        super().__init__()
        self.position: Position = position or Position()
        # of the loaded dataset
        self._steps_per_epoch: int | None = None
        self._start = self.position

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self.position.epoch

    @property
    def step(self) -> int:
        """The number of steps taken in this epoch."""
        return self.position.step

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps in one epoch.

        Raises:
            OptionsError: no dataset was loaded with ``start=`` this position.
        """
        if self._steps_per_epoch is None:
            raise OptionsError("no dataset starts here yet: pass the restored progress to load(start=...)")
        return self._steps_per_epoch

    @property
    def is_at_start(self) -> bool:
        """Whether no step was taken since the dataset was loaded."""
        return self.position == self._start

    def advance(self, steps: int = 1) -> None:
        """Count ``steps`` more steps.

        Raises:
            OptionsError: no dataset was loaded with ``start=`` this position.
        """
        check_least("steps", steps, 0)
        total = self.epoch * self.steps_per_epoch + self.step + steps
        self.position = Position(*divmod(total, self.steps_per_epoch), self.position.order)

    def load_from_here(self, order: Facts, steps_per_epoch: int) -> None:
        """Attach a dataset that starts at this position; ``load`` calls it last, when nothing else can fail.

        Args:
            order: what the order of the run depends on; ``load`` has checked that it matches ``position``.
            steps_per_epoch: the number of steps in one epoch.
        """
        self.position = self._start = Position(self.epoch, self.step, dict(order))
        self._steps_per_epoch = steps_per_epoch
