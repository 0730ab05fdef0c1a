"""Where commands write, the files in which they begin, and what they may leave when they end too early."""

import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import obstore.store

from tests.crash.commands import POINTER, Command, Files, run, words
from tests.crash.steps import Moment, Steps, in_store, on_disk
from tests.format_reader import read_dataset


def examples(files: Files, folder: str, pointer: bytes) -> dict[str, list[dict[str, object]]]:
    """Return the examples of each split that a pointer names, which may be an earlier one of its folder.

    Raises:
        ValueError, KeyError: a file is damaged, or missing.
    """
    inside = {path.removeprefix(f"{folder}/"): data for path, data in files.items()}
    splits = read_dataset(inside, pointer, are_encoded=True)
    return {
        name: [{n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in each.items()} for each in split]
        for name, split in splits.items()
    }


def judge(command: Command, files: Files, old: Files, new: Files) -> str:
    """Return ``"old"`` or ``"new"``, whichever a reader finds now.

    Args:
        command: the command that has ended too early.
        files: the files that it left, by path.
        old: those in which it began.
        new: those that it leaves undisturbed.

    Raises:
        AssertionError: a reader finds neither, or something was changed that is not the command's.
        ValueError: the dataset cannot be read.
    """
    inside = f"{command.out}/"
    for path, data in old.items():
        if not path.startswith(inside) or "mine" in path:
            assert files.get(path) == data, f"{path} was changed"
    if command.makes == "repair":
        for path, data in new.items():
            assert files.get(path) in (old.get(path), data), f"{path} is neither old nor new"
        return "old"
    if command.makes == "files":
        for path, data in new.items():
            is_journal = any(name.startswith(".") for name in path.split("/"))
            assert is_journal or files.get(path, data) == data, f"{path} is not complete"
        return "old"
    pointer = f"{inside}{POINTER}"
    found = files.get(pointer)
    assert found in (old.get(pointer), new[pointer]), f"{pointer} is neither old nor new"
    if found is not None:
        assert examples(files, command.out, found) == examples(
            new if found == new[pointer] else old, command.out, found
        )
    if pointer in old and not command.prunes:
        # programs that began earlier read the old dataset to its end
        examples(files, command.out, old[pointer])
    return "new" if found == new[pointer] and found != old.get(pointer) else "old"


FOREIGN = {"mine.txt": b"mine", "index/mine.idx": b"0 16\n", "deadbeef/mine.json": b"{}"}


class Place:
    """A folder that holds datasets; each method that starts again leaves only what it is given."""

    out: str | Path

    def files(self) -> dict[str, bytes]:
        """Return the contents by path; also empty folders, where there are folders."""
        raise NotImplementedError

    def start(self, files: Files) -> None:
        """Hold these files and no others."""
        raise NotImplementedError

    def steps(self, end: Moment | None = None) -> AbstractContextManager[Steps]:
        """Watch the steps of a command, and end it at one."""
        raise NotImplementedError


@dataclass
class Folder(Place):
    """A folder of this machine."""

    out: Path

    def files(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.out).as_posix(): path.read_bytes() if path.is_file() else b"a folder"
            for path in sorted(self.out.rglob("*"))
        }

    def start(self, files: Files) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        for path, data in files.items():
            if data == b"a folder":
                (self.out / path).mkdir(parents=True, exist_ok=True)
            else:
                (self.out / path).parent.mkdir(parents=True, exist_ok=True)
                (self.out / path).write_bytes(data)

    def steps(self, end: Moment | None = None) -> AbstractContextManager[Steps]:
        return on_disk(self.out, end)

    def identities(self) -> dict[bytes, set[int]]:
        """Return the inodes of the files of each content."""
        found: dict[bytes, set[int]] = {}
        for path in self.out.rglob("*"):
            if path.is_file():
                found.setdefault(path.read_bytes(), set()).add(path.stat().st_ino)
        return found


@dataclass
class Bucket(Place):
    """A bucket, in which each start has a folder of its own."""

    url: str
    number: int = 0

    @property
    def out(self) -> str:  # type: ignore[override]
        return f"{self.url}/{self.number}"

    def files(self) -> dict[str, bytes]:
        store = obstore.store.from_url(self.url)
        return {
            one["path"].partition("/")[2]: bytes(store.get(one["path"]).bytes())
            for some in store.list(str(self.number))
            for one in some
        }

    def start(self, files: Files) -> None:
        self.number += 1
        store = obstore.store.from_url(self.url)
        for path, data in files.items():
            if data != b"a folder":
                store.put(f"{self.number}/{path}", data)

    def steps(self, end: Moment | None = None) -> AbstractContextManager[Steps]:
        return in_store(end)


@dataclass
class Case:
    """A command with the files in which it begins, and those that it leaves undisturbed.

    Attributes:
        moments: when to end it, so that it leaves different files.
    """

    command: Command
    place: Place
    inputs: Path
    first: str = ""
    old: Files = field(default_factory=dict)
    new: Files = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)

    def run(self, line: str) -> None:
        """Run a command line, which must end with exit status 0."""
        status, printed = run(self.words(line))
        assert status == 0, f"{line}: exit status {status}\n{printed}"

    def words(self, line: str) -> list[str]:
        return words(line, self.inputs, self.place.out, self.first)

    @cached_property
    def thens(self) -> dict[str, Files]:
        """What the other command line leaves after the old files and after the new ones, by that word."""
        found = {}
        for name, start in (("old", self.old), ("new", self.new)):
            self.place.start(start)
            found[name] = self.then()
        return found

    def then(self) -> Files:
        """Run the other command line, and return what it leaves."""
        self.run(self.command.then)
        # it depends on the moment what is left of earlier generations and of unfinished builds
        self.run(f"prune OUT/{self.command.out}")
        return self.place.files()


def undisturbed(command: Command, place: Place, inputs: Path, local: Folder | None = None) -> Case:
    """Run a command and what belongs to it without an end, and return what is expected.

    ``local`` is a folder for the commands before it, if they need not run in ``place`` itself.
    """
    case = Case(command, local or place, inputs)
    case.place.start({"mine.txt": b"mine"})
    for line in command.before:
        case.run(line)
        if not case.first:
            case.first = json.loads(case.place.files()[f"data/{POINTER}"])["folder"]
    case.old = {"mine.txt": b"mine", **command.change(case.place.files())}
    if f"{command.out}/{POINTER}" in case.old:
        case.old.update({f"{command.out}/{path}": data for path, data in FOREIGN.items()})
    case.place = place
    place.start(case.old)
    # folders, too, where there are folders
    case.old = place.files()
    with place.steps() as steps:
        case.run(command.line)
    case.new, case.moments = place.files(), steps.moments
    return case


def chosen(case: Case, most: int, row: int) -> Iterator[Moment]:
    """Yield about ``most`` moments, evenly, and all those at which more than others may go wrong.

    These are around the replacement of a pointer, where a file that stays is written under its name, and the
    last one.
    """
    stride = max(1, -(-len(case.moments) // most))
    for number, moment in enumerate(case.moments):
        near = case.moments[max(0, number - 1) : number + 1]
        is_pointer = any(one.what.endswith(POINTER) for one in near)
        is_in_place = moment.torn and moment.what.partition(" ")[2] in case.new
        is_last = number == len(case.moments) - 1
        if number % stride == row % stride or is_pointer or is_in_place or is_last:
            yield moment
