"""``Resume``: a Keras callback that saves and restores model and position together."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from keras.backend import backend
from keras.callbacks import Callback

from tfshards.loader.options.position import Counter, Position
from tfshards.loader.options.validation import check_least
from tfshards.loader.options.worker import usual_worker
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.storage import AnyPath, any_path

# A power cut may damage the newest file; the one before it can then be restored.
KEPT = 2
# number, and the start of the file's SHA-256: HDF5 has no checksums
_FILE = re.compile(r"(\d+)-([0-9a-f]{16})\.weights\.h5")
# the dataset in the file that holds the JSON values of _saved
_STATE = "tfshards"
# The value of ``stop_training`` that ends the epoch but not the training.
_EPOCH_ENDS = object()


class Resume(Callback):  # type: ignore[misc]
    """Save the model and the position of the next batch in one file, and restore both.

    >>> resume = loader.Resume("checkpoints", every=500)
    >>> train = loader.load("data/photos", "train", batch_size=256, epochs=None, start=resume.progress)
    >>> model.fit(
    ...     train,
    ...     epochs=90,
    ...     initial_epoch=resume.progress.epoch,
    ...     steps_per_epoch=resume.progress.steps_per_epoch,
    ...     callbacks=[resume],
    ... )

    After a crash, the same program resumes with the batch that follows the last save and runs only the
    remaining steps of the interrupted epoch. Keras may run on any backend; on those other than TensorFlow,
    ``iter(loader.batches(...))`` takes the place of ``load``. The file is one of ``model.save_weights``, with
    the optimizer's state, to which the position and the states of random generators are added; metrics and
    other callbacks start from scratch, so the logs of that epoch cover only its remaining steps. A model that
    was compiled with another optimizer than the saved one keeps it, with a warning that names the difference.

    A file is saved every ``every`` steps and after the validation of each epoch; the latter includes the
    changes that callbacks listed before this one make at the end of an epoch. It appears as a whole, flushed
    to disk; the newest two are kept. If the newest is damaged, the run resumes from the one before it, with a
    warning.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int | None = None) -> None:
        """Read the position from the newest file in ``folder``, if there is one.

        Args:
            folder: folder, or URL in a bucket, for the files of this run only; created if it is missing.
            every: number of steps between saves within an epoch; None to save only after epochs.

        Raises:
            InputError: ``folder`` has saved files, but none that can be read.
            OptionsError: ``every`` is less than 1.
        """
        super().__init__()
        self._folder = any_path(folder, "folder").normalized()
        if every is not None:
            check_least("every", every, 1)
        self._every, self._batches, self._since = every, 0, 0
        self._number, self._path, self._saved = _newest(self._folder)
        self.progress: Counter = Counter(Position.from_json(self._saved["position"]) if self._saved else None)
        self._torch_states: list[str] = []
        # the optimizer of the last fit, and its options as it was compiled
        self._optimizer: object = None
        self._compiled: Mapping[str, Any] = {}

    def on_train_begin(self, logs: object = None) -> None:
        """Restore the model, once, and check that the steps and epochs of ``fit`` match the position.

        Raises:
            OptionsError: the model, the steps or the epochs of ``fit`` do not match the position.
        """
        steps = self.progress.steps_per_epoch
        self._restore()
        if not self.progress.is_at_start:
            raise OptionsError(
                "steps were taken after load(start=resume.progress), but fit would read the dataset from "
                "its beginning; call load() again before fit"
            )
        if self.params["steps"] != steps:
            raise OptionsError(
                f"fit takes {self.params['steps']} steps per epoch, but an epoch of the dataset has {steps}; "
                "use fit(steps_per_epoch=resume.progress.steps_per_epoch)"
            )
        at_once = getattr(self.model, "steps_per_execution", 1)
        if (steps - self.progress.step) % at_once or steps % at_once:
            raise OptionsError(
                f"steps_per_execution={at_once} must divide both the {steps} steps of an epoch and the "
                f"{steps - self.progress.step} steps left in this one; pass a divisor of both to compile()"
            )
        self._since = 0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Check that Keras starts at the epoch of the position.

        Raises:
            OptionsError: it does not.
        """
        if epoch != self.progress.epoch:
            raise OptionsError(
                f"fit starts at epoch {epoch}, but the run is in epoch {self.progress.epoch}; use "
                "fit(initial_epoch=resume.progress.epoch)"
            )
        self._batches = 0

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        """Restore PyTorch's generators, from which Keras has drawn when it began to read."""
        _set_torch_states(self._torch_states)
        self._torch_states = []

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Count the steps taken, and save if there were ``every`` since the last save."""
        steps = batch + 1 - self._batches
        self._batches = batch + 1
        self._since += steps
        self._saved = None
        self.progress.advance(steps)
        if self.progress.step == 0:
            # on_epoch_end saves, after validation
            if self._batches < self.progress.steps_per_epoch and not self.model.stop_training:
                self.model.stop_training = _EPOCH_ENDS
        elif self._every is not None and self._since >= self._every:
            self._save()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Save, unless training stopped within the epoch."""
        if self.model.stop_training is _EPOCH_ENDS:
            self.model.stop_training = False
        if self.progress.step == 0:
            self._save()

    def _save(self) -> None:
        self._since = 0
        for folder in self._folder.folders_to_make()[::-1]:
            folder.make_folder()
        with tempfile.TemporaryDirectory() as scratch:
            # what a killed process leaves is overwritten
            new = Path(scratch if self._folder.is_far else str(self._folder), "new.weights.h5")
            self.model.save_weights(new)
            with h5py.File(new, "a") as file:
                file[_STATE] = json.dumps(
                    {
                        "position": self.progress.position.to_json(),
                        "optimizer": self._compiled,
                        "seeds": [seed.numpy().tolist() for seed in _seeds(self.model)],
                        "torch": _torch_states(),
                    }
                )
            self._number += 1
            (self._folder / f"{self._number}-{_digest(any_path(new))}.weights.h5").take(new)
        self._folder.delete_files([name for _, name in _files(self._folder)[KEPT:]])

    def _restore(self) -> None:
        model, saved = self.model, self._saved
        _check_model(model)
        strategy = getattr(model, "distribute_strategy", None)
        with strategy.scope() if strategy else nullcontext():
            model.optimizer.build(model.trainable_variables)
        if model.optimizer is not self._optimizer:
            self._optimizer, self._compiled = model.optimizer, _options_of(model.optimizer)
        if saved is None:
            return
        is_same = saved["optimizer"] == self._compiled
        if not is_same and self.params["epochs"] > self.progress.epoch:
            was, now = saved["optimizer"], self._compiled
            differences = [
                f"{name} was {was.get(name)!r}, now it is {now.get(name)!r}"
                for name in {**was, **now}
                if was.get(name) != now.get(name)
            ]
            text = (
                f"{self._path} was saved with another optimizer ({', '.join(differences)}): only the weights "
                "are restored; to resume exactly, compile the model as it was"
            )
            warnings.warn(text, stacklevel=2)
        with self._path.local_copy() as path, warnings.catch_warnings():
            warnings.filterwarnings("error", "Skipping variable loading")
            optimizer = model.optimizer
            try:
                if not is_same:
                    # Keras loads what is an attribute
                    model.optimizer = None
                model.load_weights(path)
            except (ValueError, KeyError, UserWarning) as error:
                raise OptionsError(
                    f"{self._path} does not match this model and optimizer; create them as in that run, or "
                    f"use a different folder to start from scratch: {error}"
                ) from error
            finally:
                model.optimizer = optimizer
        for seed, value in zip(_seeds(model), saved["seeds"], strict=True):
            seed.assign(np.array(value, seed.numpy().dtype))
        self._torch_states = saved["torch"]


def _files(folder: AnyPath) -> list[tuple[int, str]]:
    """Return number and name of each saved file, the newest first."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    matches = map(_FILE.fullmatch, names)
    return sorted(((int(match[1]), match[0]) for match in matches if match), reverse=True)


def _newest(folder: AnyPath) -> tuple[int, AnyPath, Any]:
    """Return number, path and state of the newest file that can be read; 0 and None if there is none yet.

    Damaged files are named in a warning.
    """
    faults, files = [], _files(folder)
    for _, name in files:
        path = folder / name
        try:
            if _digest(path) != name.partition("-")[2].partition(".")[0]:
                raise ValueError("its content is not what was saved")
            with path.open_regular() as file, h5py.File(file) as opened:
                state = json.loads(opened[_STATE][()])
        except (OSError, ValueError, KeyError) as error:
            faults.append(f"{path} is damaged ({error})")
            continue
        if faults:
            # at the line that creates Resume
            text = f"{', '.join(faults)}; training resumes from {path}, which is sound"
            warnings.warn(text, stacklevel=3)
        return files[0][0], path, state
    if faults:
        raise InputError(
            f"{folder} has no file that can be read: {', '.join(faults)}; restore one from a backup, or use "
            "a different folder to start from scratch",
            code="checkpoints-unreadable",
        )
    return 0, folder, None


def _digest(path: AnyPath) -> str:
    return path.digest().partition(":")[2][:16]


def _seeds(model: Any) -> list[Any]:  # noqa: ANN401
    """Return the states of the generators of a model's layers, which Keras does not save."""
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def _options_of(optimizer: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the class and the options of an optimizer, as JSON values."""
    options = {"optimizer": type(optimizer).__name__, **optimizer.get_config()}
    # its name counts the optimizers of the process; values are numbers of NumPy, or objects of the user's
    del options["name"]
    plain: dict[str, Any] = json.loads(
        json.dumps(options, default=lambda each: each.item() if hasattr(each, "item") else str(type(each)))
    )
    return plain


def _torch_states() -> list[str]:
    """Return the states of PyTorch's generators, if Keras runs on it: Dropout without a seed uses them."""
    if backend() != "torch":
        return []
    torch = sys.modules["torch"]
    states = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    return [state.numpy().tobytes().hex() for state in states]


def _set_torch_states(states: list[str]) -> None:
    if states and backend() == "torch":
        torch = sys.modules["torch"]
        of_cpu, *of_gpus = (torch.tensor([*bytes.fromhex(state)], dtype=torch.uint8) for state in states)
        torch.set_rng_state(of_cpu)
        torch.cuda.set_rng_state_all(of_gpus[: torch.cuda.device_count()])


def _check_model(model: Any) -> None:  # noqa: ANN401
    """Raise OptionsError unless the model has everything that is saved, in this process."""
    is_one_of_several = usual_worker().count > 1
    if strategy := getattr(model, "distribute_strategy", None):
        # of TensorFlow, which is imported then
        hosts = sys.modules["tensorflow"].distribute
        is_one_of_several |= isinstance(strategy, (hosts.MultiWorkerMirroredStrategy, hosts.TPUStrategy))
    if is_one_of_several:
        raise OptionsError("Resume works on one host; on several, save loader.Progress() in a checkpoint")
    if not model.built or not model.variables:
        raise OptionsError("the model has no weights yet; call model.build(input_shape) before fit")
