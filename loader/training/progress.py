"""``Progress``: the position of a training run, saved in a checkpoint together with the model."""

from __future__ import annotations

import json

import tensorflow as tf

from tfshards.loader.options.position import Counter, Position
from tfshards.loader.tensors.stages import PythonState
from tfshards.schemas import OptionsError


class Progress(Counter, PythonState):  # type: ignore[misc]
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

    It counts the steps taken, not the batches read, because input is read ahead. ``load``, ``batches`` and
    ``distribute`` start at this position and store in it what their order depends on; resuming with a
    different order is an error.
    """

    position: Position

    def advance(self, steps: int = 1) -> None:
        """Count ``steps`` more steps; call it from Python, not inside a ``tf.function``.

        Raises:
            OptionsError: no dataset was loaded with ``start=`` this progress since it was made, or restored;
                or a graph is being traced.
        """
        if not tf.executing_eagerly():
            raise OptionsError("advance() inside a tf.function would count only once; call it from Python")
        super().advance(steps)

    def serialize(self) -> str:
        """Return the position as JSON, for a checkpoint."""
        return json.dumps(self.position.to_json())

    def deserialize(self, text: bytes) -> None:
        """Take the position of a checkpoint. A dataset that was loaded before is elsewhere."""
        self.position, self._steps_per_epoch = Position.from_json(json.loads(text)), None
