"""The build area: files in the output folder that hold the plan and the finished shards of a build.

``DATASET/.build/<build id>/`` holds for the first layout, and for the final one if inputs were rejected:
``first/train-00000.plan`` (the rows, as JSON) and ``first/train-00000.done`` (the finished shard, as JSON).
An interrupted build resumes from them; a committed one removes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tfshards.prep.sources.base import Row
from tfshards.schemas import Shard
from tfshards.schemas.files import write_atomically

AREA_NAME = ".build"

# A build first writes every planned example; the final layouts leave out rejects and duplicates.
Phase = Literal["first", "final"]


class ShardId(NamedTuple):
    """One shard of a dataset."""

    split: str
    shard_index: int


class Reject(NamedTuple):
    """A rejected input, as in the file ``rejected-*.jsonl``; size and stamp are those of its ``Row``."""

    key: str
    reason: str
    detail: str
    size: int
    stamp: int


@dataclass(frozen=True)
class FinishedShard:
    """A written shard of a layout.

    Attributes:
        shard: its entry in the manifest.
        rows_digest: digest of its rows, see the function ``rows_digest``.
        rejected: the planned rows that are not in it, in plan order.
        conversions: number of converted images by kind of conversion.
        converted_keys: by kind of conversion, the key of the first image that was converted.
        contents: digest of the content of each row, if duplicates are searched (building/duplicates.py).
    """

    shard: Shard
    rows_digest: str
    rejected: tuple[Reject, ...] = ()
    conversions: Mapping[str, int] = field(default_factory=dict)
    converted_keys: Mapping[str, str] = field(default_factory=dict)
    contents: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildArea:
    """The build area of one build.

    Attributes:
        out: folder of the dataset.
        build_id: id of the build.
        attempt: part of the names of unfinished files and of the stop file. It differs from that of an
            earlier attempt, whose worker processes may run for a second after its main process was killed.
    """

    out: Path
    build_id: str
    attempt: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def root(self) -> Path:
        """The folder of this build's area."""
        return self.out / AREA_NAME / self.build_id

    @property
    def stop_path(self) -> Path:
        """The file that makes every worker stop; it holds the reason."""
        return self.root / f"stop{self.attempt}"

    def open(self) -> None:
        """Create the folders and remove unfinished files of earlier attempts."""
        for left in self.root.glob("unfinished*"):
            shutil.rmtree(left, ignore_errors=True)
        for left in self.root.glob("stop*"):
            left.unlink()
        for folder in (self.root / "first", self.root / "final", self.unfinished_path("")):
            folder.mkdir(parents=True, exist_ok=True)

    def write_plan(self, phase: Phase, shard: ShardId, rows: Sequence[Row]) -> str:
        """Write the rows of a shard, in order, and return their digest."""
        text = _plan_text(rows)
        self._path(phase, shard, "plan").write_bytes(text)
        return hashlib.sha256(text).hexdigest()

    def read_plan(self, phase: Phase, shard: ShardId) -> tuple[list[Row], str]:
        """Return the rows of a shard and their digest."""
        text = self._path(phase, shard, "plan").read_bytes()
        return list(map(Row._make, json.loads(text))), hashlib.sha256(text).hexdigest()

    def unfinished_path(self, name: str) -> Path:
        """Return the path to which the file ``name`` is written before it is renamed."""
        return self.root / f"unfinished{self.attempt}" / name

    def link(self, source: Path, target: str) -> None:
        """Create ``target``, relative to the output, atomically as a hard link to a file, or as a copy."""
        unfinished = self.unfinished_path(target.replace("/", "-"))
        try:
            os.link(source, unfinished)
        except OSError:
            # for example because the file system has no hard links
            with suppress(FileNotFoundError):
                unfinished.unlink()
            shutil.copyfile(source, unfinished)
            with unfinished.open("rb") as copy:
                os.fsync(copy.fileno())
        unfinished.replace(self.out / target)

    def link_shard(self, root: Path, old: Shard, new: Shard) -> None:
        """Link the shard ``old`` in ``root``, with its index and labels, as ``new``."""
        # the shard last: only with its index it is recognized as a shard of a build, and can be removed
        for source, target in zip(
            (*old.companion_digests, old.path), (*new.companion_digests, new.path), strict=True
        ):
            self.link(root / source, target)

    def write_finished(self, phase: Phase, shard: ShardId, done: FinishedShard) -> None:
        """Record that a shard is finished."""
        write_atomically(self._path(phase, shard, "done"), json.dumps(asdict(done)).encode("ascii"))

    def read_finished(self, phase: Phase, shard: ShardId) -> FinishedShard | None:
        """Return a finished shard; None if it is not finished, or its record is damaged."""
        try:
            document = json.loads(self._path(phase, shard, "done").read_bytes())
            rejected = tuple(Reject(*item) for item in document.pop("rejected"))
            written, contents = Shard(**document.pop("shard")), tuple(document.pop("contents"))
            return FinishedShard(written, rejected=rejected, contents=contents, **document)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def stop(self, why: str) -> None:
        """Make every worker of the build stop; if this is called again, the first reason is kept."""
        # a full disk may have room for the file, but not for the reason
        with suppress(OSError), self.stop_path.open("x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(why)

    def remove(self) -> None:
        """Remove the build areas of the output."""
        shutil.rmtree(self.out / AREA_NAME, ignore_errors=True)

    def _path(self, phase: Phase, shard: ShardId, suffix: str) -> Path:
        return self.root / phase / f"{shard.split}-{shard.shard_index:05d}.{suffix}"


def rows_digest(rows: Sequence[Row]) -> str:
    """Return the SHA-256, in hex, of the rows in the form of a plan file."""
    return hashlib.sha256(_plan_text(rows)).hexdigest()


def _plan_text(rows: Sequence[Row]) -> bytes:
    return json.dumps(rows, separators=(",", ":")).encode("ascii")
