"""Let a command end at one of its steps: the calls that change names on a disk, or objects in a store.

On disks an audit hook of Python sees these calls, whoever makes them; the calls of a store's client are
wrapped. From its last step on, everything that would change something raises ``Crash``, so that what the
command does to clean up has no effect either, as when its process was killed.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import obstore
import obstore.store
import pytest

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_NAMES = ("os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


class Crash(BaseException):
    """The process ends here."""


class Moment(NamedTuple):
    """When a command ends: before a step or, if ``torn``, when a file is empty that the step opens."""

    number: int
    torn: bool
    what: str


@dataclass
class Steps:
    """Counts the steps of a command below a folder, and ends it at one of them.

    Attributes:
        root: the folder; for a store, steps are all calls of its client.
        end: where to end it; None to count.
        fault: an error of this step, after which the command goes on, instead of the end.
        meanwhile: called before each step.
        moments: the moments before which files were in different states.
    """

    root: str
    end: Moment | None = None
    fault: OSError | None = None
    moments: list[Moment] = field(default_factory=list)
    number: int = 0
    is_dead: bool = False
    meanwhile: Callable[[str], None] = lambda what: None
    _before: object = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def step(self, what: str, create: Callable[[], object] | None = None) -> None:
        """Note that something will change next; ``create`` makes the file empty that the step opens."""
        with self._lock:
            if self.is_dead:
                raise Crash(what)
            self.meanwhile(what)
            number, self.number = self.number, self.number + 1
            if self.end is None:
                self._note(number, what, creates=create is not None)
            elif number == self.end.number:
                if self.fault:
                    raise self.fault
                self.is_dead = True
                if self.end.torn and create:
                    create()
                raise Crash(what)

    def _note(self, number: int, what: str, *, creates: bool) -> None:
        now = _listed(self.root) if os.path.isabs(self.root) else number
        if now != self._before:
            self.moments.append(Moment(number, False, what))
            self._before = now
        if creates:
            self.moments.append(Moment(number, True, what))


def _listed(root: str) -> list[tuple[str, int, int]]:
    """Return the names below a folder, with what changes if they lead to other files."""
    found = []
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            found.append((path, status.st_ino, 0 if name in names else status.st_size))
    return sorted(found)


_active: list[Steps] = []
# whether this thread itself makes a file
_own = threading.local()


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _active or (event != "open" and event not in _NAMES) or getattr(_own, "is_creating", False):
        return
    steps = _active[-1]
    create = None
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int) or not isinstance(flags, int) or not flags & _WRITES:
            return
        paths = [_absolute(path, -1)]
    elif event in ("os.rename", "os.link"):
        paths = [_absolute(arguments[0], arguments[2]), _absolute(arguments[1], arguments[3])]
    elif event == "os.symlink":
        paths = [_absolute(arguments[1], arguments[2])]
    else:
        paths = [_absolute(arguments[0], -1 if event == "os.truncate" else arguments[-1])]
    below = [path for path in paths if path.startswith(steps.root)]
    if not below:
        return
    if event == "open" and (arguments[2] & os.O_TRUNC or not os.path.lexists(below[0])):

        def create() -> None:
            _own.is_creating = True
            Path(below[0]).write_bytes(b"")
            _own.is_creating = False

    steps.step(" ".join([event, *(path.removeprefix(steps.root) for path in paths)]), create)


def _absolute(path: object, folder: object) -> str:
    text = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0:
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    return os.path.abspath(text)


_installed: list[bool] = []


@contextmanager
def on_disk(root: Path, end: Moment | None = None, fault: OSError | None = None) -> Iterator[Steps]:
    """Yield the steps of what runs in the block, below a folder of this machine.

    What was not synced is not lost here, so that nothing has to wait for the disk.
    """
    if not _installed:
        # a hook cannot be removed
        sys.addaudithook(_hook)
        _installed.append(True)
    steps = Steps(f"{root}{os.sep}", end, fault)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        _active.append(steps)
        try:
            yield steps
        finally:
            _active.clear()


_CHANGES = ("put", "put_async", "delete", "delete_async", "copy", "copy_async", "rename", "rename_async")


@contextmanager
def in_store(end: Moment | None = None) -> Iterator[Steps]:
    """Yield the steps of what runs in the block in object stores, where many may be under way at once."""
    steps = Steps("", end)

    def watched(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def watch(*arguments: object, **options: object) -> object:
            # the first argument is the store
            steps.step(f"{name} {arguments[1]}")
            return call(*arguments, **options)

        return watch

    open_writer = obstore.open_writer

    def opened(store: object, key: str, **options: object) -> "_Writer":
        return _Writer(steps, key, open_writer(store, key, **options))

    methods = obstore.store.ObjectStoreMethods
    with pytest.MonkeyPatch.context() as patch:
        for name in _CHANGES:
            if hasattr(methods, name):
                patch.setattr(methods, name, watched(name, getattr(methods, name)))
        patch.setattr(obstore, "open_writer", opened)
        yield steps


class _Writer:
    """An upload, which becomes an object when it is closed."""

    def __init__(self, steps: Steps, key: str, writer: object) -> None:
        self._steps, self._key, self._writer = steps, key, writer

    def write(self, data: bytes) -> int:
        return self._writer.write(data)

    def close(self) -> None:
        self._steps.step(f"upload {self._key}")
        self._writer.close()

    def __exit__(self, *error: object) -> None:
        # an upload that is given up never becomes an object
        self._writer.__exit__(*error)
