"""The states in which a power cut may leave a file system, derived from the system calls of a process.

The model is that of ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014):

- Data of a file that was not synced since it was written: what was synced before, a part of what was written,
  zeros in its place, or all of it.
- A change of a directory (a new name, a link, a removed name, a rename) is durable when that directory was
  synced afterwards. Until then it is there or not, whatever happened to other changes. Syncing a file does
  not make its name durable. A rename is one change: never half of it is there.
- A change of an entry that was made earlier never replaces one that was made later.

``record`` runs a program under strace; ``states`` enumerates the states after each of its calls.
"""

import hashlib
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CALLS = (
    "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,truncate,ftruncate,fallocate,rename,renameat,"
    "renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fdatasync,sync_file_range,"
    "copy_file_range,sendfile,symlink,symlinkat"
)
_LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)")
_UNFINISHED = re.compile(r"^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+)")
_TEXT = r"(?:\\x[0-9a-f]{2})*"
_ARGUMENT = re.compile(rf'"(?P<text>{_TEXT})"|(?P<fd>\d+|AT_FDCWD)<(?P<path>{_TEXT})>')
# A name in a directory and the file or directory that it leads to, or None if it was removed.
_Entry = tuple[int, str, "int | None"]


@dataclass
class _Inode:
    """A file or directory. ``contents`` and ``synced`` hold each content with the number of its call."""

    is_folder: bool
    contents: list[tuple[int, bytes]] = field(default_factory=list)
    synced: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass
class _Change:
    """A change of directories, made by the call ``made_at`` and durable from the call ``synced_at`` on."""

    entries: list[_Entry]
    made_at: int
    synced_at: float = float("inf")


@dataclass
class Trace:
    """What a program did to the files below a folder.

    Attributes:
        num_calls: number of the calls that changed or synced something.
        inodes: all files and directories; the folder has the number 0.
        changes: all changes of directories.
    """

    num_calls: int
    inodes: list[_Inode]
    changes: list[_Change]


State = dict[str, "bytes | None"]


def record(command: Sequence[object], root: Path, log: Path) -> Trace:
    """Run a program that works below ``root``, and return its trace; the model is checked against the disk.

    Raises:
        RuntimeError: the program failed, or the model differs from what it left on the disk.
    """
    start = _Model(root)
    words = ["strace", "-f", "--seccomp-bpf", "-xx", "-y", "-s", "100000000", "-e", f"trace={_CALLS}"]
    done = subprocess.run([*words, "-o", log, *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr[-3000:]}")
    for name, arguments, result in _calls(log):
        start.apply(name, arguments, result)
    trace = start.trace()
    model, disk = _tree(trace, trace.num_calls, trace.changes, {}), on_disk(root)
    if model != disk:
        differing = sorted(path for path in {*model, *disk} if model.get(path, 0) != disk.get(path, 0))
        raise RuntimeError(f"the model differs from the disk in {differing[:5]}")
    return trace


def states(trace: Trace, *, num_random: int, seed: str) -> Iterator[tuple[int, State]]:
    """Yield the states after each call, with the number of calls before the power cut; none twice in a row.

    Of the changes that are not durable, there are: none; all; all but one; only one; and ``num_random``
    random subsets. With none and with all of them, data that were not synced are lost, half written, zeros,
    or complete; in random subsets, by chance for each file.
    """
    chance = random.Random(seed)
    seen: set[bytes] = set()
    for call in range(trace.num_calls + 1):
        durable = [one for one in trace.changes if one.synced_at <= call]
        pending = [one for one in trace.changes if one.made_at <= call < one.synced_at]
        dirty = [number for number, inode in enumerate(trace.inodes) if _is_dirty(inode, call)]
        choices: list[tuple[list[_Change], dict[int, str]]] = [
            (kept, dict.fromkeys(dirty, data))
            for kept in ([], pending)
            for data in ("synced", "half", "zeros", "live")
        ]
        everything = dict.fromkeys(dirty, "live")
        for one in pending:
            choices.append(([other for other in pending if other is not one], everything))
            choices.append(([one], everything))
        for _ in range(num_random if pending or dirty else 0):
            kept = [one for one in pending if chance.random() < 0.5]
            choices.append((kept, {n: chance.choice(["synced", "half", "zeros", "live"]) for n in dirty}))
        for kept, data in choices:
            ordered = sorted([*durable, *kept], key=lambda change: change.made_at)
            tree = _tree(trace, call, ordered, data)
            digest = hashlib.sha256(repr((call == trace.num_calls, sorted(tree.items()))).encode()).digest()
            if digest not in seen:
                seen.add(digest)
                yield call, tree


def write_state(tree: State, root: Path) -> None:
    """Create the files and folders of a state below ``root``."""
    for path, content in sorted(tree.items()):
        if content is None:
            (root / path).mkdir(exist_ok=True)
        else:
            (root / path).write_bytes(content)


def on_disk(root: Path) -> State:
    """Return the files and folders below ``root``."""
    return {
        path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


class _Model:
    """The files below a folder, changed call by call; at its start they are all durable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.inodes = [_Inode(True)]
        self.changes: list[_Change] = []
        self.live: dict[tuple[int, str], int] = {}
        self.call = 0
        for path, content in on_disk(root).items():
            self._new(root / path, content)
        for change in self.changes:
            change.synced_at = 0
        for inode in self.inodes:
            inode.synced = [*inode.contents]

    def trace(self) -> Trace:
        return Trace(self.call, self.inodes, self.changes)

    def apply(self, name: str, arguments: str, result: int) -> None:
        """Apply a system call that did not fail."""
        found = [
            (match["fd"], _decoded(match["text"] if match["fd"] is None else match["path"]))
            for match in _ARGUMENT.finditer(arguments)
        ]
        # what is written may look like a path
        paths = self._paths(found[:1] if "write" in name else found)
        if not any(self._is_below(path) for path in paths):
            return
        self.call += 1
        path = paths[0]
        if name in ("open", "openat", "creat"):
            self._open(paths[-1] if name == "openat" else path, arguments)
        elif name in ("write", "writev", "pwritev", "pwritev2", "pwrite64"):
            data = b"".join(bytes(text.encode("latin-1")) for fd, text in found if fd is None)[:result]
            offset = int(arguments.rpartition(", ")[2]) if name == "pwrite64" else None
            self._write(path, data, offset)
        elif name == "ftruncate":
            size = int(arguments.rpartition(", ")[2])
            self._change_content(path, lambda old: old[:size].ljust(size, b"\0"))
        elif name in ("rename", "renameat", "renameat2"):
            source, target = [one for one in paths if self._is_below(one)][-2:]
            number = self._find(source)
            self._note([(*self._entry(source), None), (*self._entry(target), number)])
        elif name in ("link", "linkat"):
            source, target = paths[-2:]
            self._note([(*self._entry(target), self._find(source))])
        elif name in ("unlink", "unlinkat", "rmdir"):
            self._note([(*self._entry(paths[-1]), None)])
        elif name in ("mkdir", "mkdirat"):
            self._new(paths[-1], None)
        elif name in ("fsync", "fdatasync"):
            self._sync(path)
        else:
            raise RuntimeError(f"the model does not know {name}({arguments[:200]})")

    def _paths(self, found: list[tuple[str | None, str]]) -> list[Path]:
        """Return the paths that a call names, relative ones below the folder before them."""
        paths: list[Path] = []
        base = Path()
        for fd, text in found:
            if fd is None:
                paths.append(base / text)
            else:
                base = Path(text)
                paths.append(base)
        return paths

    def _is_below(self, path: Path) -> bool:
        return path == self.root or self.root in path.parents

    def _find(self, path: Path) -> int:
        number = 0
        for name in path.relative_to(self.root).parts:
            number = self.live[number, name]
        return number

    def _entry(self, path: Path) -> tuple[int, str]:
        return self._find(path.parent), path.name

    def _note(self, entries: list[_Entry]) -> None:
        for folder, name, number in entries:
            self.live.pop((folder, name), None)
            if number is not None:
                self.live[folder, name] = number
        self.changes.append(_Change(entries, self.call))

    def _new(self, path: Path, content: bytes | None) -> None:
        contents = [] if content is None else [(self.call, content)]
        self.inodes.append(_Inode(content is None, contents))
        self._note([(*self._entry(path), len(self.inodes) - 1)])

    def _open(self, path: Path, arguments: str) -> None:
        if not self._is_below(path) or not ("O_CREAT" in arguments or "O_TRUNC" in arguments):
            self.call -= 1
            return
        if self.live.get(self._entry(path)) is None:
            self._new(path, b"")
        elif "O_TRUNC" in arguments:
            self._change_content(path, lambda _: b"")

    def _write(self, path: Path, data: bytes, offset: int | None) -> None:
        if path.name.endswith(" (deleted)"):
            return

        def written(old: bytes) -> bytes:
            # all writers append; otherwise the model would differ from the disk
            start = len(old) if offset is None else offset
            return old[:start].ljust(start, b"\0") + data + old[start + len(data) :]

        self._change_content(path, written)

    def _change_content(self, path: Path, change) -> None:
        contents = self.inodes[self._find(path)].contents
        contents.append((self.call, change(contents[-1][1])))

    def _sync(self, path: Path) -> None:
        number = self._find(path)
        inode = self.inodes[number]
        if not inode.is_folder:
            inode.synced.append((self.call, inode.contents[-1][1]))
        for change in self.changes:
            if any(folder == number for folder, _, _ in change.entries):
                change.synced_at = min(change.synced_at, self.call)


def _calls(log: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the name, the arguments and the result of each call that did not fail."""
    waiting: dict[str, str] = {}
    with log.open(encoding="ascii") as file:
        for line in file:
            if found := _UNFINISHED.match(line):
                waiting[found[1]] = found[3]
                continue
            if found := _RESUMED.match(line):
                call = found[2], waiting.pop(found[1]) + found[3], int(found[4])
            elif found := _LINE.match(line):
                call = found[2], found[3], int(found[4])
            else:
                continue
            if call[2] >= 0:
                yield call


def _decoded(text: str) -> str:
    """Return what strace printed in hex; as paths are ASCII here, each character is a byte."""
    return bytes.fromhex(text.replace("\\x", "")).decode("latin-1")


def _at(versions: list[tuple[int, bytes]], call: int) -> bytes:
    return next((content for made_at, content in reversed(versions) if made_at <= call), b"")


def _is_dirty(inode: _Inode, call: int) -> bool:
    return not inode.is_folder and _at(inode.contents, call) != _at(inode.synced, call)


def _content(inode: _Inode, call: int, data: str) -> bytes:
    live, synced = _at(inode.contents, call), _at(inode.synced, call)
    if data == "synced":
        return synced
    if data == "half":
        return live[: len(live) // 2]
    return live if data == "live" else synced[: len(live)].ljust(len(live), b"\0")


def _tree(trace: Trace, call: int, changes: Sequence[_Change], data: dict[int, str]) -> State:
    """Return the files that are reached after these changes, with these contents of files without a sync."""
    entries: dict[int, dict[str, int]] = {}
    for change in changes:
        if change.made_at <= call:
            for folder, name, number in change.entries:
                entries.setdefault(folder, {}).pop(name, None)
                if number is not None:
                    entries[folder][name] = number
    tree: State = {}
    waiting = [(0, "")]
    while waiting:
        folder, start = waiting.pop()
        for name, number in entries.get(folder, {}).items():
            inode, path = trace.inodes[number], f"{start}{name}"
            tree[path] = None if inode.is_folder else _content(inode, call, data.get(number, "live"))
            if inode.is_folder:
                waiting.append((number, f"{path}/"))
    return tree
