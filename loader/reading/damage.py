"""What happens to a damaged record: an error that names it, or padding in its place."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from tfshards.loader.reading.frames import REMEDY, Frames
from tfshards.schemas import FormatError, InputError
from tfshards.schemas.index import IntArray as Ints

# Used instead of an example's number for a row that only pads a batch.
PADDING = -2

Records = TypeVar("Records")
_LOG = logging.getLogger(__name__)


class Damage:
    """The damaged records of a split, as far as they were met. Any number of threads may read."""

    def __init__(self, frames: Frames, *, is_skipped: bool) -> None:
        """Prepare to read; without ``is_skipped`` damage is an error."""
        self._frames, self._is_skipped = frames, is_skipped
        self._is_damaged = np.zeros(len(frames) if is_skipped else 0, np.bool_)
        self._first_sound = 0
        self._lock = threading.Lock()

    def without(self, numbers: Ints) -> Ints:
        """Return the numbers with ``PADDING`` for records that are known to be damaged."""
        if not self._is_damaged.any():
            return numbers
        return np.where(self._is_damaged[np.maximum(numbers, 0)] & (numbers >= 0), PADDING, numbers)

    def read(self, numbers: Ints, read: Callable[[Ints], Records]) -> tuple[Ints, Records]:
        """Return what ``read`` returns for some examples, and their numbers, ``PADDING`` for damaged ones.

        For padding the first sound example of the split is read.

        Raises:
            FormatError: a record is damaged and not skipped; the error names it.
            InputError: no record of the split is sound.
        """
        while True:
            numbers = self.without(numbers)
            is_real = numbers >= 0
            try:
                return numbers, read(numbers if is_real.all() else np.where(is_real, numbers, self._sound()))
            except FormatError:
                if not self._is_skipped or not self._note(numbers[is_real]):
                    raise

    def _note(self, numbers: Ints) -> int:
        """Return how many of these records are damaged; they are skipped from now on."""
        found = numbers[~self._frames.is_sound(numbers)]
        with self._lock:
            new = found[~self._is_damaged[found]]
            self._is_damaged[new] = True
        if len(new):
            first = self._frames.place(int(new[0]))
            more = f", and {len(new) - 1} more" if len(new) > 1 else ""
            root = self._frames.root
            _LOG.warning("%s: skipped a damaged record: %s%s; %s", root, first, more, REMEDY)
        return len(found)

    def _sound(self) -> int:
        """Return the number of the first example that can be read; without skipping, of the first one."""
        with self._lock:
            while self._is_skipped and not self._frames.is_sound(np.array([self._first_sound])).all():
                self._first_sound += 1
                if self._first_sound == len(self._frames):
                    raise InputError(
                        f"{self._frames.root}: all {len(self._frames)} records of the split are damaged; "
                        f"{REMEDY}",
                        code="shard-damaged",
                    )
            return self._first_sound
