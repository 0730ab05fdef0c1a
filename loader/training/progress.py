"""``Progress``: the position of a training run, saved in a checkpoint together with the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import tensorflow as tf

from tfshards.loader.graph.raw_ops import JsonState
from tfshards.loader.options.selection import Facts, Position
from tfshards.loader.options.validation import check_integer
from tfshards.schemas import OptionsError


class Progress(tf.Module):  # type: ignore[misc]
    """The position of a run, saved in a ``tf.train.Checkpoint`` together with the model that it belongs to.

    >>> progress = loader.Progress()
    >>> checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, progress=progress)
    >>> manager = tf.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)
    >>> manager.restore_or_initialize()
    >>> for batch in loader.load("data/photos", "train", batch_size=256, epochs=90, start=progress):
    ...     train_step(batch)
    ...     progress.advance()
    ...     if progress.step % 100 == 0:
    ...         manager.save()

    It counts the steps taken, not the batches read, because input is read ahead. ``load`` and ``distribute``
    start at this position and store in it what their order depends on; resuming with a different order is an
    error.
    """

    def __init__(self, position: Position | None = None) -> None:
        super().__init__(name="progress")
        start = position or Position()
        with tf.device("CPU"):
            self._epoch = tf.Variable(start.epoch, trainable=False, dtype=tf.int64, name="epoch")
            self._step = tf.Variable(start.step, trainable=False, dtype=tf.int64, name="step")
        # The names of these three attributes are in checkpoints.
        self._run = JsonState(start.order)
        self._loaded: _Loaded | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return int(self._epoch.numpy())

    @property
    def step(self) -> int:
        """The number of steps taken in this epoch."""
        return int(self._step.numpy())

    @property
    def position(self) -> Position:
        """The position of the next batch, including what the order depends on."""
        return Position(self.epoch, self.step, cast("Facts | None", self._run.value))

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps in one epoch.

        Raises:
            OptionsError: no dataset was loaded with ``start=`` this progress.
        """
        return self._checked().steps_per_epoch

    @property
    def epochs(self) -> int | None:
        """The epoch at which the loaded dataset stops, exclusive; None if it does not stop.

        Raises:
            OptionsError: no dataset was loaded with ``start=`` this progress.
        """
        return self._checked().epochs

    def advance(self, steps: int = 1) -> None:
        """Count ``steps`` more steps; call it from Python, not inside a ``tf.function``.

        Raises:
            OptionsError: no dataset was loaded with ``start=`` this progress, a checkpoint was restored after
                the dataset was loaded, or a graph is being traced.
        """
        if not tf.executing_eagerly():
            raise OptionsError("advance-in-graph")
        check_integer("steps", steps)
        loaded, now = self._checked(), (self.epoch, self.step)
        if now != loaded.reached:
            raise OptionsError(
                "progress-moved",
                now=now[0],
                now2=now[1],
                reached=loaded.reached[0],
                reached2=loaded.reached[1],
            )
        total = now[0] * loaded.steps_per_epoch + now[1] + steps
        epoch, step = divmod(total, loaded.steps_per_epoch)
        self._epoch.assign(epoch)
        self._step.assign(step)
        self._loaded = replace(loaded, reached=(epoch, step))

    @property
    def is_at_start(self) -> bool:
        """Whether no step was taken since the dataset was loaded."""
        return (self.epoch, self.step) == self._checked().start

    def load_from_here(self, order: Facts, steps_per_epoch: int, epochs: int | None) -> None:
        """Attach a dataset that starts at this position; ``load`` calls it last, when nothing else can fail.

        Args:
            order: what the order of the run depends on; ``load`` has checked that it matches ``position``.
            steps_per_epoch: the number of steps in one epoch.
            epochs: the epoch at which the dataset stops, exclusive; None if it does not stop.
        """
        now = (self.epoch, self.step)
        self._run.value = dict(order)
        self._loaded = _Loaded(steps_per_epoch, epochs, now, now)

    def _checked(self) -> _Loaded:
        if self._loaded is None:
            raise OptionsError("progress-unstarted")
        return self._loaded


@dataclass(frozen=True)
class _Loaded:
    """The loaded dataset; ``start`` and ``reached`` are pairs of epoch and step."""

    steps_per_epoch: int
    epochs: int | None
    start: tuple[int, int]
    reached: tuple[int, int]
