"""Count what workers have written, in small files of the build area that the main process reads.

Unlike reports over loopback, they arrive from every machine that writes shards.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from tfshards.prep.progress.lines import Written
from tfshards.prep.writing.area import BuildArea, Phase, ShardId
from tfshards.schemas.storage import AnyPath, RemotePath
from tfshards.schemas.storage.untrusted import RECORD, read_whole

_SUFFIX = ".tally"
_SECONDS = 1.0
# to a store, where every write is a request that costs money and time
REMOTE_SECONDS = 2.0

_Found: TypeAlias = "tuple[ShardId, Written] | None"


class Tally:
    """Counts what an attempt has written of a shard, in a file next to the unfinished shard."""

    def __init__(self, unfinished: AnyPath) -> None:
        """Start at nothing, without a file: most shards of small builds take less than a second."""
        self._path = unfinished.with_name(unfinished.name + _SUFFIX)
        self._written = Written()
        self._seconds = REMOTE_SECONDS if isinstance(unfinished, RemotePath) else _SECONDS
        self._last = time.monotonic()
        self._has_file = False

    def add(self, advance: Written) -> None:
        """Count examples, and write the file about once a second, or every other second to a store."""
        self._written = Written(*map(sum, zip(self._written, advance, strict=True)))
        now = time.monotonic()
        if now - self._last >= self._seconds:
            self._last = now
            self._has_file = True
            text = f"{self._written.num_examples} {self._written.num_bytes}\n"
            # without the file there is only less to show
            with suppress(OSError):
                self._path.write_bytes(text.encode("ascii"))

    def remove(self) -> None:
        """Remove the file."""
        if self._has_file:
            with suppress(OSError):
                self._path.unlink()


@dataclass
class AreaMeter:
    """Measures from the build area what workers have written of some shards.

    Attributes:
        area: the build area.
        phase: the layout that is written.
        shards: by the file name of each shard, its id and its number of planned examples.
    """

    area: BuildArea
    phase: Phase
    shards: Mapping[str, tuple[ShardId, int]]
    _finished: dict[ShardId, Written] = field(default_factory=dict)

    def measure(self) -> Written:
        """Return what is written of finished and of unfinished shards."""
        # before the finished ones, so that a shard that is finished meanwhile is not left out
        tallies = self._tallies()
        planned = {shard: count for shard, count in self.shards.values() if shard not in self._finished}
        for shard, done in self.area.finished(self.phase, planned).items():
            # rejected examples are done, too
            self._finished[shard] = Written(planned[shard], done.shard.num_bytes)
        unfinished = {shard: found for shard, found in tallies.items() if shard not in self._finished}
        every = [*self._finished.values(), *unfinished.values()]
        return Written(sum(one.num_examples for one in every), sum(one.num_bytes for one in every))

    def _tallies(self) -> dict[ShardId, Written]:
        """Return the tally of each shard: if an engine tries one twice, of the attempt that got further."""
        found: dict[ShardId, Written] = {}
        paths: Iterable[AnyPath] = self.area.unfinished_path("").glob(f"*{_SUFFIX}")
        for tally in filter(None, self.area.each(self._read, paths)):
            shard, written = tally
            found[shard] = max(found.get(shard, Written()), written)
        return found

    def _read(self, path: AnyPath) -> _Found:
        # the name of the shard, the id of the attempt, and the suffix
        known = self.shards.get(path.name.removesuffix(_SUFFIX).rpartition(".")[0])
        # another machine may be writing or removing the file
        with suppress(OSError, ValueError):
            text = read_whole(path, RECORD).decode("ascii")
            if known and text.endswith("\n"):
                num_examples, num_bytes = map(int, text.split())
                return known[0], Written(num_examples, num_bytes)
        return None
