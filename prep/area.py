"""The build area: the files under the output in which a build keeps its plan and what it has finished.

``OUT/.build/<build id>/`` holds, for the first layout and, where inputs were rejected, for the final one:
``first/train-00000.plan`` (the rows, as JSON) and ``first/train-00000.done`` (what became of it). A build
that was killed finds them again; a committed one leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tfshards.prep.sources.listing import Row
from tfshards.schemas import Shard
from tfshards.schemas.atomic import write_atomically

AREA_NAME = ".build"

Layout = Literal["first", "final"]


class ShardId(NamedTuple):
    """One shard of a dataset."""

    split: str
    shard_index: int


class Reject(NamedTuple):
    """One rejected input, as it stands in ``rejected-*.jsonl``; size and stamp are those of its ``Row``."""

    key: str
    reason: str
    detail: str
    size: int
    stamp: int


@dataclass(frozen=True)
class Done:
    """What became of one shard of a layout.

    Attributes:
        shard: the file that was written.
        rows_digest: of the rows that stand in it, see ``rows_digest``.
        rejected: the rows that do not, in plan order.
        conversions: what was done to the images in it, and to how many.
        contents: the digest of each row's content, if duplicates are looked for (see ``duplicates``).
    """

    shard: Shard
    rows_digest: str
    rejected: tuple[Reject, ...] = ()
    conversions: Mapping[str, int] = field(default_factory=dict)
    contents: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildArea:
    """The build area of one build.

    Attributes:
        out: the dataset's directory.
        build_id: of the build.
        attempt: tells this attempt's unfinished files and its stop from those of an earlier one, of which a
            worker process may live on for a second or two after its main process was killed.
    """

    out: Path
    build_id: str
    attempt: str = ""

    @property
    def root(self) -> Path:
        """The area's folder."""
        return self.out / AREA_NAME / self.build_id

    @property
    def stop_path(self) -> Path:
        """The file that makes every worker end; it says why."""
        return self.root / f"stop{self.attempt}"

    def open(self) -> None:
        """Make the folders, and take away what an attempt that ended left unfinished."""
        for left in self.root.glob("unfinished*"):
            shutil.rmtree(left, ignore_errors=True)
        for left in self.root.glob("stop*"):
            left.unlink()
        for folder in (self.root / "first", self.root / "final", self.unfinished_path("")):
            folder.mkdir(parents=True, exist_ok=True)

    def write_plan(self, layout: Layout, shard: ShardId, rows: Sequence[Row]) -> str:
        """Write the rows of one shard, in order, and return their digest."""
        text = _plan_text(rows)
        self._path(layout, shard, "plan").write_bytes(text)
        return hashlib.sha256(text).hexdigest()

    def read_plan(self, layout: Layout, shard: ShardId) -> tuple[list[Row], str]:
        """Return the rows of one shard and their digest."""
        text = self._path(layout, shard, "plan").read_bytes()
        return list(map(Row._make, json.loads(text))), hashlib.sha256(text).hexdigest()

    def unfinished_path(self, name: str) -> Path:
        """Return where the file ``name`` grows before it is renamed."""
        return self.root / f"unfinished{self.attempt}" / name

    def link(self, source: Path, target: str) -> None:
        """Make ``target``, relative to the output, another name of a file, or a copy of it, in one step."""
        unfinished = self.unfinished_path(target.replace("/", "-"))
        try:
            os.link(source, unfinished)
        except OSError:
            # such as a file system without hard links
            with suppress(FileNotFoundError):
                unfinished.unlink()
            shutil.copyfile(source, unfinished)
            with unfinished.open("rb") as copy:
                os.fsync(copy.fileno())
        unfinished.replace(self.out / target)

    def link_shard(self, root: Path, old: Shard, new: Shard) -> None:
        """Make ``new`` another name of the shard ``old`` in ``root``, and so of the files beside it."""
        # a shard without its index would not be known as a build's, should it be left behind
        for source, target in zip((*old.beside, old.path), (*new.beside, new.path), strict=True):
            self.link(root / source, target)

    def write_done(self, layout: Layout, shard: ShardId, done: Done) -> None:
        """Keep what became of one shard."""
        write_atomically(self._path(layout, shard, "done"), json.dumps(asdict(done)).encode("ascii"))

    def read_done(self, layout: Layout, shard: ShardId) -> Done | None:
        """Return what became of one shard, or None if it was not finished, or the note of it is damaged."""
        try:
            document = json.loads(self._path(layout, shard, "done").read_bytes())
            rejected = tuple(Reject(*item) for item in document.pop("rejected"))
            written, contents = Shard(**document.pop("shard")), tuple(document.pop("contents"))
            return Done(written, rejected=rejected, contents=contents, **document)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def stop(self, why: str) -> None:
        """Make every worker of the build end; the first reason is kept."""
        # a full disk has room for the file, but not for the reason
        with suppress(OSError), self.stop_path.open("x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(why)

    def remove(self) -> None:
        """Take away the area, and the folder of areas if it was the last."""
        shutil.rmtree(self.root, ignore_errors=True)
        for left in other_areas(self.out, self.build_id):
            shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(self.out / AREA_NAME, ignore_errors=True)

    def _path(self, layout: Layout, shard: ShardId, suffix: str) -> Path:
        return self.root / layout / f"{shard.split}-{shard.shard_index:05d}.{suffix}"


def other_areas(out: Path, build_id: str) -> Iterator[Path]:
    """Yield the areas of other builds into ``out`` that were not committed."""
    parent = out / AREA_NAME
    if parent.is_dir():
        yield from sorted(path for path in parent.iterdir() if path.name != build_id)


def rows_digest(rows: Sequence[Row]) -> str:
    """Return the SHA-256, in hex, of the rows as a plan file holds them."""
    return hashlib.sha256(_plan_text(rows)).hexdigest()


def _plan_text(rows: Sequence[Row]) -> bytes:
    return json.dumps(rows, separators=(",", ":")).encode("ascii")
