"""The batches of ``load`` for ``fit`` of Keras 3 on any backend, without TensorFlow."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import keras

from tfshards.loader import array_batches
from tfshards.loader.arrays.examples import Batch
from tfshards.loader.frameworks.order import check_numeric
from tfshards.loader.options.load_options import LoadOptions, constructor
from tfshards.schemas import OptionsError


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of ``load`` as NumPy arrays, for ``model.fit(batches, epochs=90, shuffle=False)``.

    With ``select=("image", "label")`` a batch is the tuple ``(x, y)``, and ``(x, y, sample_weight)`` with
    weights. Without ``epochs=``, each epoch of ``fit`` is the next epoch of the run. With ``epochs=None``,
    for ``fit(steps_per_epoch=batches.steps_per_epoch)``, and with ``start=``, each ``fit`` begins where the
    run does. Batches are read ahead in threads, so that workers of Keras are not needed.
    """

    @constructor(LoadOptions)
    def __init__(self, options: LoadOptions) -> None:
        """Open the dataset.

        Args:
            {options}

        Raises:
            OptionsError: as for ``batches``, or ``start`` is a ``Progress`` within an epoch, which Keras
                could not end early; and later if features are not numbers, or if Keras shuffles batches.
            InputError: as for ``batches``.
            FormatError: as for ``batches``.
        """
        if options.tracker is not None and options.begin.step:
            raise OptionsError("keras-step", step=options.begin.step)
        super().__init__()
        self._run = array_batches.Batches(options)
        self._iteration = self._next = 0
        self._is_in_epoch = False
        self._ahead: Iterator[Batch] = iter(())
        self._lock = threading.Lock()

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches of an epoch."""
        return self._run.steps_per_epoch

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None if they do not end."""
        return None if self._run.end is None else len(self._run)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._run)

    def __getitem__(self, index: int) -> Batch:
        """Return a batch of the current epoch, or of a run with ``epochs=`` or ``start=``, from its first."""
        if index < 0 or (self.num_batches is not None and index >= self.num_batches):
            raise IndexError(f"batch {index} of {self.num_batches}")
        with self._lock:
            if index != self._next or not index:
                if self._is_in_epoch and index:
                    raise OptionsError("keras-shuffle", index=index, wanted=self._next)
                self._ahead = self._run.iterate(self._iteration, self._run.first + index)
            self._next = index + 1
            return check_numeric(next(self._ahead))

    def on_epoch_begin(self) -> None:
        """Expect the batches in order."""
        self._is_in_epoch = True

    def on_epoch_end(self) -> None:
        """Go on to the next epoch, unless only some batches were used, such as one to build the model."""
        self._is_in_epoch = False
        if self._next == self.num_batches:
            self._iteration += 1
            self._next = 0
