"""``Resume``: a callback of Keras that keeps model and position together, and goes on with both."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, cast

import tensorflow as tf

from tfshards.loader.hosts import has_several_hosts
from tfshards.loader.keras_hooks import Hooks
from tfshards.loader.options import check_batch_size
from tfshards.loader.progress import Progress
from tfshards.schemas import InputError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The last one may be damaged by what killed the run; the one before it is there to be gone back to.
KEPT = 2


class _Variable(Protocol):
    """A variable of Keras 3."""

    value: tf.Variable


class _Variables(Protocol):
    """What has variables, of Keras's or TensorFlow's kind: a model, an optimizer."""

    variables: Sequence[_Variable]

    def build(self, shapes_or_variables: object) -> None: ...


class _Model(_Variables, Protocol):
    """A model of Keras 3 or tf_keras, as far as it is asked for anything here."""

    optimizer: _Variables
    trainable_variables: Sequence[object]
    distribute_strategy: tf.distribute.Strategy
    built: bool
    stop_training: object


class _EpochEnds:
    """Told to Keras as ``stop_training``, this ends an epoch, and not the training."""


_EPOCH_ENDS = _EpochEnds()


class Resume(Hooks):
    """Keeps the model and the position of the next batch in one checkpoint, and restores both.

    >>> resume = loader.Resume("checkpoints", every=500)
    >>> train = loader.load("data/photos", "train", batch_size=256, epochs=None, start=resume.progress)
    >>> model.fit(
    ...     train,
    ...     epochs=90,
    ...     initial_epoch=resume.progress.epoch,
    ...     steps_per_epoch=resume.progress.steps_per_epoch,
    ...     callbacks=[resume],
    ... )

    Run again after a crash, this goes on with the very batch that would have come next, in the epoch that was
    under way, which is the shorter for it. Weights, seeds of layers, and the optimizer's state are what they
    were when the checkpoint was written; metrics and other callbacks start anew, so that the logs of that
    epoch tell of its rest. A checkpoint is written every so many steps, and after each epoch's validation;
    what callbacks that stand before this one change at an epoch's end is in it.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int | None = None) -> None:
        """Read the position, if ``folder`` has one.

        Args:
            folder: for the checkpoints of one run, which nothing else uses; made if there is none.
            every: how many steps to take between checkpoints within an epoch; None for none there.

        Raises:
            InputError: the checkpoint that ``folder`` names last is not there.
            OptionsError: ``every`` is less than 1.
        """
        if every is not None:
            check_batch_size("every", every)
        self._folder = os.fspath(folder)
        self._every = every
        self._checkpoint: tf.train.CheckpointManager | None = None
        self._batches = self._since = 0
        self.progress = Progress()
        self._latest = tf.train.latest_checkpoint(self._folder)
        if self._latest is not None:
            tf.train.Checkpoint(progress=self.progress).restore(self._latest).expect_partial()
        elif tf.io.gfile.exists(os.path.join(self._folder, "checkpoint")):
            raise InputError(
                f"{self._folder}/checkpoint names a checkpoint that is not there; put it back, or use "
                "another folder to begin anew"
            )

    # as Keras's callback

    def on_train_begin(self, logs: object = None) -> None:
        """Restore the model, once."""
        model, params = cast("_Model", self.model), cast("Mapping[str, int]", self.params)
        steps, epochs = self.progress.steps_per_epoch, self.progress.epochs
        if self._checkpoint is None:
            self._restore(model)
        if not self.progress.is_at_its_begin:
            raise OptionsError(
                "steps were taken since load(start=resume.progress), whose dataset begins anew in this fit; "
                "call load() again for it"
            )
        if params["steps"] != steps:
            raise OptionsError(
                f"fit takes {params['steps']} steps an epoch, but the epochs of the dataset have {steps}; "
                "use fit(steps_per_epoch=resume.progress.steps_per_epoch)"
            )
        if epochs is not None and params["epochs"] > epochs:
            raise OptionsError(
                f"fit(epochs={params['epochs']}) goes on behind the end of load(epochs={epochs}); use "
                "load(epochs=None)"
            )
        at_once = getattr(model, "steps_per_execution", 1)
        if (steps - self.progress.step) % at_once or steps % at_once:
            raise OptionsError(
                f"steps_per_execution={at_once} does not divide the {steps} steps of an epoch, or the "
                f"{steps - self.progress.step} that are left of this one; compile with one that does"
            )
        self._since = 0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """See that Keras counts epochs as the position does."""
        if epoch != self.progress.epoch:
            raise OptionsError(
                f"fit begins with epoch {epoch}, but the run is in epoch {self.progress.epoch}; use "
                "fit(initial_epoch=resume.progress.epoch)"
            )
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Count the step, and save if it is time to."""
        model, steps = cast("_Model", self.model), batch + 1 - self._batches
        self._batches = batch + 1
        self._since += steps
        self.progress.advance(steps)
        if self.progress.step == 0:
            # the checkpoint waits for the epoch's end
            if self._batches < self.progress.steps_per_epoch and not model.stop_training:
                model.stop_training = _EPOCH_ENDS
        elif self._every is not None and self._since >= self._every:
            self._save()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Save, unless the epoch was broken off."""
        model = cast("_Model", self.model)
        if model.stop_training is _EPOCH_ENDS:
            model.stop_training = False
        if self.progress.step == 0:
            self._save()

    def _save(self) -> None:
        self._since = 0
        cast("tf.train.CheckpointManager", self._checkpoint).save()

    def _restore(self, model: _Model) -> None:
        _check_model(model)
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        # Keras 3 has TensorFlow's variables within its own. By objects, the seeds of layers would be missed.
        model_variables, optimizer_variables = (
            [each if isinstance(each, tf.Variable) else each.value for each in owner.variables]
            for owner in (model, model.optimizer)
        )
        checkpoint = tf.train.Checkpoint(
            progress=self.progress, model=model_variables, optimizer=optimizer_variables
        )
        if self._latest is not None:
            try:
                checkpoint.restore(self._latest).assert_consumed()
            except (AssertionError, ValueError, tf.errors.OpError) as error:
                raise OptionsError(
                    f"{self._latest} is not a checkpoint of this model and optimizer; make them as the run "
                    f"had them, or use another folder to begin anew: {error}"
                ) from error
        self._checkpoint = tf.train.CheckpointManager(checkpoint, self._folder, max_to_keep=KEPT)


def _check_model(model: _Model) -> None:
    """Raise unless all that a checkpoint is to hold is there.

    Raises:
        OptionsError: it is not.
    """
    if has_several_hosts(model.distribute_strategy):
        raise OptionsError(
            "Resume is for one host; on several keep loader.Progress() in a tf.train.Checkpoint of your own"
        )
    if not model.built or not model.variables:
        raise OptionsError(
            "the model has no weights yet that could be restored; give it an Input, or call "
            "model.build(input_shape), before fit"
        )
    if not hasattr(model.optimizer, "build"):
        raise OptionsError(
            f"{type(model.optimizer).__name__} has no build(), so that its state cannot be restored before "
            "the first step; use an optimizer that is not a legacy one"
        )
