"""Where commands write: a folder of this machine, or a bucket, with the files in which a command begins."""

import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import obstore.store

from .commands import POINTER, Command, Files, run, words
from .steps import Moment, Steps, in_store, on_disk

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
        if self.command.prunes:
            # it depends on the moment which files of earlier generations are left
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
