"""``Progress``: where a run is, to be kept with the model, and what a position says of the run it is from."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from hashlib import sha256

import numpy as np
import tensorflow as tf

from tfshards.loader.assign import Assignment, divisors
from tfshards.loader.options import Facts, Position, Shuffle, Worker, check_integer
from tfshards.schemas import OptionsError

# What an order depends on: how it is called, and what to do where it differs.
_FACTS = {
    "build_id": ("the build of the dataset", "load the one that the run began with"),
    "split": ("the split", "name the one that the run began with"),
    "examples": ("the choice of examples", "give take=, classes= and the Mix as the run had them"),
    "global_batch_size": (
        "the global batch size",
        "give batch_size= so that with all workers it is the same",
    ),
    "remainder": ("remainder=", "give it as the run had it"),
    "how": ("the kind of order (Shuffle.how)", "give shuffle= as the run had it"),
    "seed": ("Shuffle.seed", "give it as the run had it"),
    "run": ("Shuffle.run", "leave it out, the position keeps it"),
    "lanes": ("Shuffle.lanes", "leave it out, the position keeps it"),
}


class Progress(tf.Module):  # type: ignore[misc]
    """Where a run is; a part of a ``tf.train.Checkpoint``, so that no model is kept with another's position.

    >>> progress = loader.Progress()
    >>> checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, progress=progress)
    >>> manager = tf.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)
    >>> manager.restore_or_initialize()
    >>> for batch in loader.load("data/photos", "train", batch_size=256, epochs=90, start=progress):
    ...     train_step(batch)
    ...     progress.advance()
    ...     if progress.step % 100 == 0:
    ...         manager.save()

    It counts the steps that were taken, not the batches that were read, since input is read ahead. ``load``
    and ``distribute`` begin where it stands, remember in it what their order depends on, and refuse to go on
    with another order.
    """

    def __init__(self, position: Position | None = None) -> None:
        super().__init__(name="progress")
        begin = position or Position()
        with tf.device("CPU"):
            self._epoch = tf.Variable(begin.epoch, trainable=False, dtype=tf.int64, name="epoch")
            self._step = tf.Variable(begin.step, trainable=False, dtype=tf.int64, name="step")
        self._run = _Run(begin.order)

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return int(self._epoch.numpy())

    @property
    def step(self) -> int:
        """The steps that were taken in this epoch."""
        return int(self._step.numpy())

    @property
    def position(self) -> Position:
        """The position of the next batch, with what the order depends on."""
        return Position(self.epoch, self.step, self._run.order)

    @property
    def steps_per_epoch(self) -> int:
        """The steps of one epoch.

        Raises:
            OptionsError: nothing was loaded with ``start=`` this progress.
        """
        return self._loaded().steps_per_epoch

    @property
    def epochs(self) -> int | None:
        """The epoch before which the loaded dataset stops; None for no end.

        Raises:
            OptionsError: nothing was loaded with ``start=`` this progress.
        """
        return self._loaded().epochs

    def advance(self, steps: int = 1) -> None:
        """Count ``steps`` that were taken; called from Python, not in a ``tf.function``.

        Raises:
            OptionsError: nothing was loaded from here, the position was restored behind the dataset's back,
                or this is called while a graph is made.
        """
        if not tf.executing_eagerly():
            raise OptionsError("advance() in a tf.function would count once only; call it from Python")
        check_integer("steps", steps)
        loaded, now = self._loaded(), (self.epoch, self.step)
        if now != loaded.reached:
            raise OptionsError(
                f"the position was set to epoch {now[0]}, step {now[1]} after the dataset had begun, which "
                f"is at epoch {loaded.reached[0]}, step {loaded.reached[1]}; restore first, then call load()"
            )
        total = now[0] * loaded.steps_per_epoch + now[1] + steps
        epoch, step = divmod(total, loaded.steps_per_epoch)
        self._epoch.assign(epoch)
        self._step.assign(step)
        self._run.loaded = replace(loaded, reached=(epoch, step))

    @property
    def is_at_its_begin(self) -> bool:
        """Whether the first batch of what was loaded is the next one."""
        return (self.epoch, self.step) == self._loaded().begin

    def load_from_here(self, order: Facts, steps_per_epoch: int, epochs: int | None) -> None:
        """Remember what was loaded; for ``load``, which has found that the order is the same."""
        now = (self.epoch, self.step)
        self._run.order = dict(order)
        self._run.loaded = _Loaded(steps_per_epoch, epochs, now, now)

    def _loaded(self) -> _Loaded:
        if self._run.loaded is None:
            raise OptionsError("nothing begins at this progress yet; give it to load(start=...) first")
        return self._run.loaded


@dataclass(frozen=True)
class _Loaded:
    """What was loaded; ``begin`` and ``reached`` are epoch and step."""

    steps_per_epoch: int
    epochs: int | None
    begin: tuple[int, int]
    reached: tuple[int, int]


class _Run(tf.train.experimental.PythonState):  # type: ignore[misc]
    """What the order depends on, within a checkpoint as JSON; and what was loaded, which is not kept."""

    def __init__(self, order: Facts | None) -> None:
        self.order = order
        self.loaded: _Loaded | None = None

    def serialize(self) -> str:
        """Return the order's facts as JSON."""
        return json.dumps(self.order)

    def deserialize(self, text: bytes) -> None:
        """Take the order's facts from JSON."""
        self.order = json.loads(text)


def order_facts(
    build_id: str, split: str, population: object, assignment: Assignment, shuffle: Shuffle | None
) -> Facts:
    """Return what the order of a run depends on, but for the number of workers, as values of JSON."""
    digest = sha256()
    for field in fields(population):  # type: ignore[arg-type]
        digest.update(np.ascontiguousarray(getattr(population, field.name), np.int64).data)
    return {
        "build_id": build_id,
        "split": split,
        "examples": f"{assignment.num_examples} {digest.hexdigest()[:16]}",
        "global_batch_size": assignment.global_batch_size,
        "remainder": assignment.remainder,
        "how": "stored" if shuffle is None else shuffle.how,
        "seed": 0 if shuffle is None else shuffle.seed,
        "run": assignment.run,
        "lanes": assignment.lanes,
    }


def kept_shuffle(shuffle: Shuffle | None, order: Facts | None) -> Shuffle | None:
    """Return ``shuffle`` with the run and the lanes that a position keeps, where it has none of its own."""
    if shuffle is None or order is None or shuffle.how != "runs" or order["how"] != "runs":
        return shuffle
    return replace(
        shuffle,
        run=int(order["run"]) if shuffle.run is None else shuffle.run,
        lanes=int(order["lanes"]) if shuffle.lanes is None else shuffle.lanes,
    )


def check_workers(order: Facts | None, batch_size: int, worker: Worker) -> None:
    """Raise unless so many workers can go on with a run.

    Raises:
        OptionsError: its global batch, or its lanes, cannot be dealt to them.
    """
    if order is None:
        return
    whole, lanes = int(order["global_batch_size"]), int(order["lanes"])
    if (lanes or whole) % worker.count:
        what = f"{lanes} lanes" if lanes else f"global batch of {whole} examples"
        raise OptionsError(
            f"{worker.count} workers cannot go on with a run whose {what} they do not divide; use "
            f"{', '.join(map(str, divisors(lanes or whole)))} workers"
        )
    if batch_size * worker.count != whole:
        raise OptionsError(
            f"the global batch size is {batch_size * worker.count} (batch_size={batch_size} on each of "
            f"{worker.count} workers), but start= belongs to a run with {whole}; use batch_size="
            f"{whole // worker.count}, or leave start= out to begin anew"
        )


def check_same_order(then: Facts | None, now: Facts) -> None:
    """Raise unless the order is that of the run to go on with.

    Raises:
        OptionsError: it is another; the message has the first difference.
    """
    if then is None:
        return
    for name in [*_FACTS, *(name for name in then if name not in _FACTS)]:
        if then.get(name) != now.get(name):
            what, remedy = _FACTS.get(name, (repr(name), "go on with the release that wrote the position"))
            raise OptionsError(
                f"start= belongs to a run in which {what} was {then.get(name)!r}, here it is "
                f"{now.get(name)!r}; {remedy}, or leave start= out to begin anew"
            )
