"""``Counter``: the position of a training run, counted by the steps that were taken."""

from __future__ import annotations

from tfshards.loader.options.selection import Facts, Position
from tfshards.loader.options.validation import check_least
from tfshards.schemas import OptionsError


class Counter:
    """The position of a run. It counts the steps taken, not the batches read, because input is read ahead.

    Attributes:
        position: the position of the next batch, including what the order depends on.
        epochs: the epoch at which the loaded dataset stops, exclusive; None if it does not stop.
    """

    def __init__(self, position: Position | None = None) -> None:
        super().__init__()
        self.position: Position = position or Position()
        self.epochs: int | None = None
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

    def load_from_here(self, order: Facts, steps_per_epoch: int, epochs: int | None) -> None:
        """Attach a dataset that starts at this position; ``load`` calls it last, when nothing else can fail.

        Args:
            order: what the order of the run depends on; ``load`` has checked that it matches ``position``.
            steps_per_epoch: the number of steps in one epoch.
            epochs: the epoch at which the dataset stops, exclusive; None if it does not stop.
        """
        self.position = self._start = Position(self.epoch, self.step, dict(order))
        self._steps_per_epoch, self.epochs = steps_per_epoch, epochs
