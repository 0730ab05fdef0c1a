"""Override process-wide settings while any thread is inside a region, and restore them afterwards."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple


class Setting(NamedTuple):
    """An attribute of a module, and its value inside the region."""

    module: object
    name: str
    value: object


@dataclass
class Overrides:
    """A region of code for any number of threads, without warnings and with overridden settings.

    ``warnings.catch_warnings`` alone is not thread-safe: threads restore each other's filters and leave them
    changed.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _num_inside: int = 0
    _others: ExitStack = field(default_factory=ExitStack)

    def enter(self, settings: Sequence[Setting]) -> None:
        """Enter the region; if two threads set an integer, the larger value applies."""
        with self._lock:
            if self._num_inside == 0:
                self._others.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                for module, name, value in settings:
                    self._others.callback(setattr, module, name, getattr(module, name))
                    setattr(module, name, value)
            for module, name, value in settings:
                if isinstance(value, int) and value > getattr(module, name):
                    setattr(module, name, value)
            self._num_inside += 1

    def leave(self) -> None:
        """Leave the region; the last thread to leave restores the settings."""
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0:
                self._others.close()


@dataclass(frozen=True)
class Inside:
    """A context manager that enters a region; a class, since a generator takes three times as long."""

    overrides: Overrides
    settings: Sequence[Setting]

    def __enter__(self) -> None:
        self.overrides.enter(self.settings)

    def __exit__(self, *_: object) -> None:
        self.overrides.leave()
