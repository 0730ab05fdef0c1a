"""A file system in memory, through FUSE, that forgets what was not synced and fails at a chosen call.

Run as a program with the folder to mount on; it reads one JSON object per line from standard input, and
answers each with one. ``{"fail": N, "errno": E}`` makes the N-th change from now on fail; with ``"stays"``
all later writes fail, too, as on a full disk. ``{"cut": "lost"}`` is a power cut: of each file, what was
synced is left, and of each folder the names that it had when it was synced last; with ``"torn"``, the first
half of what was written to files without a sync is left as well. The answer is the number of changes so far.
"""

from __future__ import annotations

import errno
import json
import stat
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import PurePosixPath

import mfusepy


@dataclass
class Node:
    """A file or a folder, with what of it is durable."""

    mode: int
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    mtime: float = field(default_factory=time.time)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


class Disk(mfusepy.Operations):
    """The file system; every method that changes or syncs something is a change."""

    use_ns = False

    def __init__(self) -> None:
        self.root = Node(stat.S_IFDIR | 0o777)
        self.guard = threading.RLock()
        self.num_changes = 0
        self.fail_at, self.error, self.stays = 0, 0, False
        self.open_files: dict[int, Node] = {}
        self.handles = count(1)

    def command(self, line: dict) -> dict:
        """Carry out a line of standard input."""
        with self.guard:
            if "fail" in line:
                self.fail_at = self.num_changes + line["fail"] if line["fail"] else 0
                self.error, self.stays = line.get("errno", errno.EIO), line.get("stays", False)
            if "cut" in line:
                self._forget(self.root, is_torn=line["cut"] == "torn")
                self.fail_at = 0
            return {"changes": self.num_changes}

    def _forget(self, folder: Node, *, is_torn: bool) -> None:
        folder.entries = dict(folder.durable)
        for node in folder.entries.values():
            if node.is_folder:
                self._forget(node, is_torn=is_torn)
            elif bytes(node.data) != node.synced:
                half = bytes(node.data[: len(node.data) // 2])
                node.data = bytearray(half if is_torn and len(half) > len(node.synced) else node.synced)
                node.synced = bytes(node.data)

    def _change(self, kind: str) -> None:
        self.num_changes += 1
        is_full = self.stays and self.num_changes > self.fail_at > 0 and kind in ("write", "create", "mkdir")
        if self.num_changes == self.fail_at or is_full:
            raise mfusepy.FuseOSError(self.error)

    def _find(self, path: str) -> Node:
        node = self.root
        for name in PurePosixPath(path).parts[1:]:
            if name not in node.entries:
                raise mfusepy.FuseOSError(errno.ENOENT)
            node = node.entries[name]
        return node

    def _parent(self, path: str) -> tuple[Node, str]:
        found = PurePosixPath(path)
        return self._find(str(found.parent)), found.name

    def _handle(self, node: Node) -> int:
        handle = next(self.handles)
        self.open_files[handle] = node
        return handle

    # the methods of FUSE; their names are those of the calls

    def getattr(self, path: str, fh: int | None = None) -> dict[str, float]:
        with self.guard:
            node = self.open_files[fh] if fh in self.open_files else self._find(path)
            times = dict.fromkeys(("st_mtime", "st_ctime", "st_atime"), node.mtime)
            return {"st_mode": node.mode, "st_size": len(node.data), "st_nlink": 1, **times}

    def readdir(self, path: str, fh: int) -> list[str]:
        with self.guard:
            return [".", "..", *self._find(path).entries]

    def statfs(self, path: str) -> dict[str, int]:
        size = 1 << 20
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": size, "f_bfree": size, "f_bavail": size}

    def open(self, path: str, flags: int) -> int:
        with self.guard:
            return self._handle(self._find(path))

    def opendir(self, path: str) -> int:
        with self.guard:
            return self._handle(self._find(path))

    def release(self, path: str, fh: int) -> int:
        self.open_files.pop(fh, None)
        return 0

    releasedir = release

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        with self.guard:
            return bytes(self.open_files[fh].data[offset : offset + size])

    def create(self, path: str, mode: int, fi: object = None) -> int:
        with self.guard:
            self._change("create")
            folder, name = self._parent(path)
            folder.entries[name] = node = Node(stat.S_IFREG | mode)
            return self._handle(node)

    def mkdir(self, path: str, mode: int) -> int:
        with self.guard:
            self._change("mkdir")
            folder, name = self._parent(path)
            folder.entries[name] = Node(stat.S_IFDIR | mode)
        return 0

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        with self.guard:
            node = self.open_files[fh]
            try:
                self._change("write")
            except mfusepy.FuseOSError:
                # torn: a part was written before it failed
                node.data[offset:] = data[: len(data) // 2]
                raise
            node.data[len(node.data) :] = bytes(max(0, offset - len(node.data)))
            node.data[offset : offset + len(data)] = data
            node.mtime = time.time()
            return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        with self.guard:
            self._change("write")
            node = self.open_files[fh] if fh in self.open_files else self._find(path)
            node.data[length:] = bytes(max(0, length - len(node.data)))
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        with self.guard:
            node = self.open_files[fh]
            try:
                self._change("fsync")
            except mfusepy.FuseOSError:
                # as Linux does: the pages count as written, and a second fsync does not fail
                node.data = bytearray(node.synced)
                raise
            node.synced = bytes(node.data)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        with self.guard:
            self._change("fsync")
            node = self.open_files[fh]
            node.durable = dict(node.entries)
        return 0

    def flush(self, path: str, fh: int) -> int:
        return 0

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        with self.guard:
            self._change("rename")
            source, source_name = self._parent(old)
            target, target_name = self._parent(new)
            target.entries[target_name] = source.entries.pop(source_name)
        return 0

    def link(self, target: str, source: str) -> int:
        with self.guard:
            self._change("link")
            folder, name = self._parent(target)
            if name in folder.entries:
                raise mfusepy.FuseOSError(errno.EEXIST)
            folder.entries[name] = self._find(source)
        return 0

    def unlink(self, path: str) -> int:
        with self.guard:
            self._change("unlink")
            folder, name = self._parent(path)
            del folder.entries[name]
        return 0

    def rmdir(self, path: str) -> int:
        with self.guard:
            folder, name = self._parent(path)
            if folder.entries[name].entries:
                raise mfusepy.FuseOSError(errno.ENOTEMPTY)
            self._change("unlink")
            del folder.entries[name]
        return 0

    def chmod(self, path: str, mode: int) -> int:
        return 0

    def utimens(self, path: str, times: tuple[float, float] | None = None) -> int:
        self._find(path).mtime = times[1] if times else time.time()
        return 0


def main() -> None:
    disk = Disk()

    def answer() -> None:
        for line in sys.stdin:
            print(json.dumps(disk.command(json.loads(line))), flush=True)

    threading.Thread(target=answer, daemon=True).start()
    options = {"attr_timeout": 0, "entry_timeout": 0}
    mfusepy.FUSE(disk, sys.argv[1], foreground=True, nothreads=True, **options)


if __name__ == "__main__":
    main()
