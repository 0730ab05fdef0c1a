"""``Resume``: a Keras callback that saves and restores model and position together."""

from __future__ import annotations

import os
import re
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

import tensorflow as tf

from tfshards.loader.options.validation import check_least
from tfshards.loader.training.keras_hooks import Hooks
from tfshards.loader.training.progress import Progress
from tfshards.loader.training.strategies import has_several_hosts
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import check_path
from tfshards.schemas.storage.verbs import sync

if TYPE_CHECKING:
    from collections.abc import Mapping

_STATE = "checkpoint"
# A power cut may damage the last checkpoint; the previous one can then be restored.
KEPT = 2
_FILE = re.compile(r"ckpt-(\d+)\.(?:index|data-\d+-of-\d+)")


def newest_readable(folder: str) -> str | None:
    """Return the prefix of the newest checkpoint that can be read; None if there is none yet.

    Each tensor is read and compared with its checksum. Damaged checkpoints are named in a warning.
    """
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    numbers = {int(match[1]) for name in names if (match := _FILE.fullmatch(name))}
    found = [f"ckpt-{number}" for number in sorted(numbers, reverse=True)]
    faults: dict[str, str] = {}
    named = _named_by_state(folder) if _STATE in names else None
    if named is not None:
        found = [named, *(name for name in found if name != named)]
    elif _STATE in names:
        faults[os.path.join(folder, _STATE)] = "is empty or damaged"
    for name in found:
        prefix = os.path.join(folder, name)
        fault = _fault(prefix)
        if not fault:
            if faults:
                _warn(f"{_faults_text(faults)}; training resumes from {prefix}, which is sound")
            return prefix
        faults |= fault
    if not faults:
        return None
    if _STATE not in names and numbers == {1}:
        _warn(f"{_faults_text(faults)}: the first checkpoint was not finished; training starts from scratch")
        return None
    raise InputError("checkpoints-unreadable", folder=folder, faults=_faults_text(faults))


def _named_by_state(folder: str) -> str | None:
    """Return the name of the newest checkpoint according to ``checkpoint``; None if that is damaged."""
    try:
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:
        return None
    return os.path.basename(state.model_checkpoint_path) if state else None


def _fault(prefix: str) -> dict[str, str]:
    """Return the fault of a checkpoint by its damaged file; nothing if it is sound."""
    path = f"{prefix}.index"
    try:
        reader = tf.compat.v1.train.NewCheckpointReader(prefix)
        path = f"{prefix}.data-00000-of-00001"
        for name in reader.get_variable_to_dtype_map():
            reader.get_tensor(name)
    # of truncated data TensorFlow raises IndexError
    except (tf.errors.OpError, IndexError) as error:
        if not tf.io.gfile.exists(path):
            return {path: "is missing"}
        return {path: f"is damaged ({(str(error).splitlines() or [''])[0]})"}
    return {}


def _faults_text(faults: dict[str, str]) -> str:
    return ", ".join(f"{path} {fault}" for path, fault in faults.items())


def _warn(text: str) -> None:
    # at the line that creates Resume
    warnings.warn(text, stacklevel=4)


# The value of ``stop_training`` that ends the epoch but not the training.
_EPOCH_ENDS = object()


class Resume(Hooks):
    """Save the model and the position of the next batch in one checkpoint, and restore both.

    >>> resume = loader.Resume("checkpoints", every=500)
    >>> train = loader.load("data/photos", "train", batch_size=256, epochs=None, start=resume.progress)
    >>> model.fit(
    ...     train,
    ...     epochs=90,
    ...     initial_epoch=resume.progress.epoch,
    ...     steps_per_epoch=resume.progress.steps_per_epoch,
    ...     callbacks=[resume],
    ... )

    After a crash, the same program resumes with the batch that follows the last checkpoint and runs only the
    remaining steps of the interrupted epoch. Weights, layer seeds and the optimizer's state come from the
    checkpoint; metrics and other callbacks start from scratch, so the logs of that epoch cover only its
    remaining steps. A checkpoint is saved every ``every`` steps and after the validation of each epoch; the
    latter includes the changes that callbacks listed before this one make at the end of an epoch. Each is
    flushed to disk: if a power cut damages the newest one, the run resumes from the one before it, with a
    warning. Keras may run on TensorFlow or on JAX.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int | None = None) -> None:
        """Read the position from the last checkpoint in ``folder``, if there is one.

        Args:
            folder: folder for the checkpoints of this run only; created if it is missing.
            every: number of steps between checkpoints within an epoch; None to save only after epochs.

        Raises:
            InputError: ``folder`` has checkpoints, but none that can be read.
            OptionsError: ``every`` is less than 1, or Keras runs on another backend.
        """
        _check_backend()
        check_path("folder", folder)
        if every is not None:
            check_least("every", every, 1)
        self._folder = os.fspath(folder)
        self._every = every
        self._checkpoint: tf.train.CheckpointManager | None = None
        self._batches = self._since = 0
        self.progress: Progress = Progress()
        # a variable of a backend other than TensorFlow, and the copy that checkpoints hold
        self._copies: list[tuple[tf.keras.Variable, tf.Variable]] = []
        self._latest = newest_readable(self._folder)
        if self._latest is not None:
            tf.train.Checkpoint(progress=self.progress).restore(self._latest).expect_partial()

    # as Keras's callback

    def on_train_begin(self, logs: object = None) -> None:
        """Restore the model, once, and check that the steps and epochs of ``fit`` match the position.

        Raises:
            OptionsError: the model, the steps or the epochs of ``fit`` do not match the position.
        """
        model, params = cast("tf.keras.Model", self.model), cast("Mapping[str, int]", self.params)
        steps, epochs = self.progress.steps_per_epoch, self.progress.epochs
        if self._checkpoint is None:
            self._restore(model)
        if not self.progress.is_at_start:
            raise OptionsError("resume-steps-taken")
        if params["steps"] != steps:
            raise OptionsError("resume-steps-per-epoch", params=params["steps"], steps=steps)
        if epochs is not None and params["epochs"] > epochs:
            raise OptionsError("resume-epochs", params=params["epochs"], epochs=epochs)
        at_once = getattr(model, "steps_per_execution", 1)
        if (steps - self.progress.step) % at_once or steps % at_once:
            raise OptionsError(
                "resume-steps-per-execution", at_once=at_once, steps=steps, steps2=steps - self.progress.step
            )
        self._since = 0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Check that Keras starts at the epoch of the position.

        Raises:
            OptionsError: it does not.
        """
        if epoch != self.progress.epoch:
            raise OptionsError("resume-initial-epoch", epoch=epoch, epoch2=self.progress.epoch)
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Count the steps taken, and save if there were ``every`` since the last checkpoint."""
        model, steps = cast("tf.keras.Model", self.model), batch + 1 - self._batches
        self._batches = batch + 1
        self._since += steps
        self.progress.advance(steps)
        if self.progress.step == 0:
            # on_epoch_end saves, after validation
            if self._batches < self.progress.steps_per_epoch and not model.stop_training:
                model.stop_training = _EPOCH_ENDS
        elif self._every is not None and self._since >= self._every:
            self._save()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Save, unless training stopped within the epoch."""
        model = cast("tf.keras.Model", self.model)
        if model.stop_training is _EPOCH_ENDS:
            model.stop_training = False
        if self.progress.step == 0:
            self._save()

    def _save(self) -> None:
        self._since = 0
        if hasattr(self.model, "jax_state_sync"):
            # within an epoch the variables of JAX are not in the model
            self.model.jax_state_sync()
        for variable, copy in self._copies:
            copy.assign(variable.numpy())
        prefix = Path(cast("tf.train.CheckpointManager", self._checkpoint).save())
        folder = prefix.parent
        # A power cut can then damage only a later checkpoint. Object stores have nothing to flush.
        if folder.is_dir():
            for path in (*folder.glob(f"{prefix.name}.*"), folder / _STATE):
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            sync(folder)

    def _restore(self, model: tf.keras.Model) -> None:
        _check_model(model)
        strategy = getattr(model, "distribute_strategy", None)
        with strategy.scope() if strategy else nullcontext():
            model.optimizer.build(model.trainable_variables)
        # Keras 3 wraps TensorFlow's variables; a checkpoint of the objects would miss the layer seeds.
        model_variables, optimizer_variables = (
            [self._variable_of(each) for each in owner.variables] for owner in (model, model.optimizer)
        )
        checkpoint = tf.train.Checkpoint(
            progress=self.progress, model=model_variables, optimizer=optimizer_variables
        )
        if self._latest is not None:
            try:
                checkpoint.restore(self._latest).assert_consumed()
            except (AssertionError, ValueError, tf.errors.OpError) as error:
                raise OptionsError("resume-model", latest=self._latest, error=error) from error
            for variable, copy in self._copies:
                variable.assign(copy.numpy())
        state = os.path.join(self._folder, _STATE)
        if tf.io.gfile.exists(state) and _named_by_state(self._folder) is None:
            # TensorFlow would refuse a damaged file
            tf.io.gfile.remove(state)
        self._checkpoint = tf.train.CheckpointManager(checkpoint, self._folder, max_to_keep=KEPT)

    def _variable_of(self, variable: tf.keras.Variable) -> tf.Variable:
        """Return the variable of TensorFlow that a checkpoint saves for a variable of Keras."""
        if isinstance(variable, tf.Variable):
            return variable
        if isinstance(variable.value, tf.Variable):
            return variable.value
        with tf.device("CPU"):
            copy = tf.Variable(variable.numpy(), trainable=False)
        self._copies.append((variable, copy))
        return copy


def _check_backend() -> None:
    """Raise OptionsError if Keras runs on a backend whose models cannot be resumed exactly."""
    # TensorFlow imports Keras 3, unless TF_USE_LEGACY_KERAS replaces it
    keras = sys.modules.get("keras")
    backend = keras.backend.backend() if keras else "tensorflow"
    if backend not in ("tensorflow", "jax"):
        raise OptionsError("resume-backend", backend=backend)


def _check_model(model: tf.keras.Model) -> None:
    """Raise unless the model has everything that a checkpoint saves."""
    strategy = getattr(model, "distribute_strategy", None)
    is_one_of_several = hasattr(model, "jax_state_sync") and sys.modules["jax"].process_count() > 1
    if is_one_of_several or (strategy and has_several_hosts(strategy)):
        raise OptionsError("resume-hosts")
    if not model.built or not model.variables:
        raise OptionsError("resume-no-weights")
    if not hasattr(model.optimizer, "build"):
        raise OptionsError("resume-optimizer", kind=type(model.optimizer).__name__)
