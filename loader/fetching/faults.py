"""What could not be fetched, and which records are damaged, for the message when the order reaches them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from tfshards.loader.integrity.files import REMOTE_REMEDY
from tfshards.loader.records.explain import REMEDY
from tfshards.loader.records.shards import Shards
from tfshards.schemas.storage import AnyPath, ChangedError, RemotePath


class Faults:
    """The faults of the shards of a split."""

    def __init__(self, shards: Shards) -> None:
        self._ends = np.cumsum(shards.sizes)
        self._lock = threading.Lock()
        self._damage: dict[int, dict[int, int]] = {}
        self._failures: dict[int, OSError] = {}

    def note_damage(self, shard: int, record: int, offset: int) -> None:
        """Note that a record is damaged, which starts at a byte of its shard."""
        with self._lock:
            self._damage.setdefault(shard, {})[record] = offset

    def note_failure(self, shard: int, error: OSError) -> None:
        """Note that a piece of a shard could not be fetched."""
        with self._lock:
            self._failures[shard] = error

    def explain(self, number: int, paths: Sequence[AnyPath]) -> str:
        """Return the message about the first fault at the example ``number`` or after it, in its shard."""
        shard = int(np.searchsorted(self._ends, number, side="right"))
        record = number - int(self._ends[shard - 1] if shard else 0)
        subject = f"shard {paths[shard]}"
        with self._lock:
            damage, failure = dict(self._damage.get(shard, {})), self._failures.get(shard)
        if damage:
            first = min((each for each in damage if each >= record), default=max(damage))
            what_to_do = f"; {REMOTE_REMEDY}" if isinstance(paths[shard], RemotePath) else REMEDY
            return f"{subject} is damaged at record {first}, offset {damage[first]}{what_to_do}"
        if isinstance(failure, ChangedError):
            return (
                f"{subject} was changed after it was opened: it {failure.strerror}; load the dataset again, "
                "since the rest may not belong to what was read"
            )
        if failure is not None:
            # a file of the cache, or the shard itself
            where = str(failure.filename or paths[shard])
            why = f"{failure.strerror or failure}"
            if where != str(paths[shard]):
                why = f"{where}: {why}"
            return (
                f"{subject} cannot be read: {why}; once that is fixed, the "
                "run can be resumed from its position"
            )
        return (
            f"{subject}: its blocks in the cache were removed or damaged while they were read; load the "
            "dataset again"
        )
