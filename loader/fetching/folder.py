"""The folder of the blocks that one pipeline has fetched, in a cache that several processes share.

    FOLDER/tfshards-cache/blocks/SPLIT/PIPELINE/SHARD@START-END

SPLIT is a hash of the digests of the split's shards. Each pipeline writes and removes only files of its own
folder, on which it holds a lock, so that no process removes what another one reads. It takes hard links of
what other pipelines of the split have fetched. A pipeline that begins takes over the folders of those of its
split that have ended.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tfshards.schemas.storage.locking import lock
from tfshards.schemas.storage.untrusted import LISTS, open_regular, read_whole

_LOCK = ".lock"
# In the folder of all splits; it grows when a pipeline begins or ends.
_CHANGED = ".changed"
_BLOCK = re.compile(r".+@(\d+)-(\d+)")


def block_name(shard: str, start: int, end: int) -> str:
    """Return the file name of the bytes ``[start, end)`` of a shard."""
    return f"{shard.replace('/', '%')}@{start}-{end}"


class BlockFolder:
    """A folder of blocks that belongs to one pipeline, until ``close``.

    The pipelines of a cache divide ``bound`` among themselves: each may have as much as it wants if all do,
    and otherwise an equal part. One that has ended counts as one that wants what it has left, and whatever
    exceeds its part is removed. A pipeline that begins while others run waits for nobody: for the seconds
    until they have seen it, the files of all together may exceed the bound by what they wait to remove.

    Attributes:
        path: the folder.
        found: the sizes of the blocks by name that pipelines which have ended left, and that are not checked.
        share: how many bytes this pipeline may have now.
    """

    def __init__(self, base: Path, split: str, bound: int | None, wanted: int) -> None:
        """Create the folder, and take over what ended pipelines of the split have left."""
        self._base, self._bound, self._wanted = base, bound, wanted
        self.path: Path = base / split / secrets.token_hex(4)
        self.path.mkdir(parents=True)
        # It is locked before others can see that this is the folder of a pipeline.
        locking = self.path / ".locking"
        locking.write_text(str(wanted))
        self._lock: BinaryIO = locking.open("rb")
        lock(self._lock.fileno(), waits=True)
        locking.rename(self.path / _LOCK)
        self._siblings: list[Path] = []
        self._seen = -1
        self.found: dict[str, int] = {}
        self.share: int = wanted
        self.refresh()
        for ended in self._look()[1]:
            self._take_over(ended)
        self._note_change()

    def refresh(self) -> bool:
        """Look for other pipelines if one has begun or ended; return whether ``share`` is another one now."""
        changed = self._num_changes()
        if changed == self._seen:
            return False
        # what has been left before is about to be taken over
        is_first = self._seen < 0
        self._seen, share = changed, self.share
        running, ended = self._look()
        self._siblings = [folder for folder in running if folder.parent == self.path.parent]
        if self._bound is not None:
            left = {} if is_first else ended
            self.share = _share(self._bound, self._wanted, [*running.values(), *left.values()])
            self._trim(self._bound, left, [self._wanted, *running.values()])
        return self.share != share

    def link(self, name: str, num_bytes: int) -> bool:
        """Take a block that another pipeline has; return whether there was one."""
        for other in self._siblings:
            try:
                os.link(other / name, self.path / name)
            except OSError:
                continue
            if (self.path / name).stat().st_size == num_bytes:
                return True
            (self.path / name).unlink()
        return False

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write a block, which then exists as a whole or not at all."""
        path, temporary = self.path / name, self.path / f".{secrets.token_hex(4)}.tmp"
        try:
            # buffered, since a raw file may write a part only, without an error
            with temporary.open("xb") as file:
                file.write(data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def remove(self, name: str) -> None:
        """Remove a block; whoever has opened it can read on."""
        (self.path / name).unlink(missing_ok=True)

    def close(self, kept: Collection[str]) -> None:
        """Leave only the blocks with these names, for later pipelines; without a bound, leave nothing."""
        names = set(kept) if self._bound is not None else set()
        for path in self.path.iterdir():
            if path.name not in names and path.name != _LOCK:
                path.unlink(missing_ok=True)
        if not names:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
        self._note_change()
        if self._bound is not None:
            # perhaps nobody runs who would see that this one has ended
            running, ended = self._look()
            self._trim(self._bound, {self.path: _size_of(self.path), **ended}, running.values())

    def _look(self) -> tuple[dict[Path, int], dict[Path, int]]:
        """Return the other pipelines, those that run by what each wants, ended ones by what they left."""
        running, ended = {}, {}
        for path in sorted(self._base.glob(f"*/*/{_LOCK}")):
            folder = path.parent
            if folder != self.path and _is_locked(folder):
                running[folder] = _wanted_by(folder)
            elif folder != self.path:
                ended[folder] = _size_of(folder)
        return running, ended

    def _take_over(self, folder: Path) -> None:
        """Move the blocks of an ended pipeline here, if they are of this split; remove what is too much."""
        running, ended = self._look()
        same, needed = folder.parent == self.path.parent, sum(running.values()) + sum(ended.values())
        if not same and self._bound is not None and self._wanted + needed <= self._bound:
            return
        with _locked(folder) as is_ended:
            if not is_ended:
                return
            for path in folder.iterdir():
                found = _BLOCK.fullmatch(path.name)
                num_bytes = int(found[2]) - int(found[1]) if found else -1
                is_whole = found is not None and path.stat().st_size == num_bytes
                room = self.share - sum(self.found.values())
                if same and is_whole and path.name not in self.found and num_bytes <= room:
                    path.rename(self.path / path.name)
                    self.found[path.name] = num_bytes
            shutil.rmtree(folder, ignore_errors=True)

    def _trim(self, bound: int, left: Mapping[Path, int], wanted: Iterable[int]) -> None:
        """Remove what ended pipelines have left beyond their parts of ``bound``."""
        running, is_trimmed = list(wanted), False
        for folder, num_bytes in left.items():
            elsewhere = [size for each, size in left.items() if each != folder]
            too_many = num_bytes - _share(bound, num_bytes, [*running, *elsewhere])
            if too_many <= 0:
                continue
            # files of another user stay; a run does not end for that
            with _locked(folder) as is_ended, suppress(OSError):
                for path in folder.iterdir() if is_ended else ():
                    if too_many > 0 and path.name != _LOCK:
                        too_many -= path.stat().st_size
                        path.unlink()
                        is_trimmed = True
        if is_trimmed:
            # while it was locked, the folder seemed to be one of a running pipeline
            self._note_change()

    def _note_change(self) -> None:
        with (self._base / _CHANGED).open("ab") as file:
            file.write(b".")

    def _num_changes(self) -> int:
        try:
            return (self._base / _CHANGED).stat().st_size
        except OSError:
            return 0


def _share(bound: int, wanted: int, others: Sequence[int]) -> int:
    """Return how many bytes of ``bound`` a pipeline gets that wants ``wanted`` and shares it with others."""
    left, count = bound, len(others) + 1
    for each in sorted([wanted, *others]):
        part = min(each, left // count)
        if each >= wanted:
            return part
        left, count = left - part, count - 1
    raise AssertionError


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of an ended pipeline; False if it runs, or another one has the lock or took it over."""
    try:
        file = open_regular(folder / _LOCK)
    except OSError:
        yield False
        return
    with file:
        yield lock(file.fileno()) and (folder / _LOCK).exists()


def _is_locked(folder: Path) -> bool:
    try:
        with open_regular(folder / _LOCK) as file:
            return not lock(file.fileno(), is_shared=True)
    except OSError:
        return False


def _wanted_by(folder: Path) -> int:
    try:
        return int(read_whole(folder / _LOCK, LISTS) or 0)
    except (OSError, ValueError):
        return 0


def _size_of(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in folder.iterdir() if path.name != _LOCK)
    except OSError:
        return 0
