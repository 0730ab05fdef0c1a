"""The build area: files in the output folder that hold the plan and the finished shards of a build.

``DATASET/.build/<plan id>/`` holds for the first layout, and for the final one if inputs were rejected:
``first/train-00000.plan`` (the rows, as JSON) and ``first/train-00000.done`` (the finished shard, as JSON).
``shards/`` holds the shards, with the plan id in their names; the build id, a hash of what was written, is
known only when all are finished. An interrupted build resumes from these files; a committed one removes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from tfshards.prep.sources.base import Columns, Row
from tfshards.prep.writing.shard_names import build_of, with_build_id
from tfshards.schemas import Shard
from tfshards.schemas.files import write_atomically
from tfshards.schemas.index import IntArray

AREA_NAME = ".build"
_PLACED_NAME = "placed"

# A build first writes every planned example; the final layouts leave out rejects and duplicates.
Phase = Literal["first", "final"]


class ShardId(NamedTuple):
    """One shard of a dataset."""

    split: str
    shard_index: int


class Reject(NamedTuple):
    """A rejected input, as in the file ``rejected-*.jsonl``; the size is that of its ``Row``."""

    key: str
    reason: str
    detail: str
    size: int


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
        plan_id: id of the plan of the build.
        attempt: part of the names of unfinished files and of the stop file. It differs from that of an
            earlier attempt, whose worker processes may run for a second after its main process was killed.
    """

    out: Path
    plan_id: str
    attempt: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def root(self) -> Path:
        """The folder of this build's area."""
        return self.out / AREA_NAME / self.plan_id

    @property
    def shards(self) -> Path:
        """The folder of the finished shards, in which paths are as in the dataset."""
        return self.root / "shards"

    @property
    def job_path(self) -> Path:
        """The file that names the running job of any build of this dataset (engines/job.py)."""
        return self.out / AREA_NAME / "job"

    @property
    def stop_path(self) -> Path:
        """The file that makes every worker stop; it holds the reason."""
        return self.root / f"stop{self.attempt}"

    def open(self) -> None:
        """Create the folders, stop the workers of earlier attempts, and remove their unfinished files."""
        own = self.unfinished_path("")
        for left in self.root.glob("unfinished*"):
            if left != own:
                # If its main process was killed, a cluster may still run its tasks.
                replace(self, attempt=left.name.removeprefix("unfinished")).stop("a later run has begun")
            shutil.rmtree(left, ignore_errors=True)
        for folder in ("first", "final", f"{self.shards.name}/index", self.unfinished_path("").name):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self._take_back()

    def write_plan(self, phase: Phase, shard: ShardId, planned: Columns) -> str:
        """Write the rows of a shard, in order, and return their digest, which does not cover the stamps."""
        text = _rows_text(planned)
        stamps = json.dumps(planned.stamps).encode("ascii")
        self._path(phase, shard, "plan").write_bytes(text + b"\n" + stamps)
        return hashlib.sha256(text).hexdigest()

    def read_plan(self, phase: Phase, shard: ShardId) -> tuple[list[Row], str]:
        """Return the rows of a shard and their digest."""
        text, stamps = self._path(phase, shard, "plan").read_bytes().split(b"\n")
        keys, labels, sizes = json.loads(text)
        return Columns(keys, labels, sizes, json.loads(stamps)).rows(), hashlib.sha256(text).hexdigest()

    def plan_digest(self, phase: Phase, shard: ShardId) -> str:
        """Return the digest of the rows of a shard, without parsing them."""
        text, _ = self._path(phase, shard, "plan").read_bytes().split(b"\n")
        return hashlib.sha256(text).hexdigest()

    def read_stamps(self, phase: Phase, shard: ShardId) -> IntArray | None:
        """Return the stamps of the rows of a shard; None if its plan file is missing or damaged."""
        try:
            return np.array(
                json.loads(self._path(phase, shard, "plan").read_bytes().split(b"\n")[1]), np.int64
            )
        except (OSError, ValueError, IndexError):
            return None

    def unfinished_path(self, name: str) -> Path:
        """Return the path to which the file ``name`` is written before it is renamed."""
        return self.root / f"unfinished{self.attempt}" / name

    def link(self, source: Path, target: str) -> None:
        """Create ``target``, relative to ``shards``, atomically as a hard link to a file, or as a copy."""
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
        unfinished.replace(self.shards / target)

    def link_shard(self, root: Path, old: Shard, new: Shard) -> None:
        """Link the shard ``old`` in ``root``, with its index and labels, as ``new``."""
        for source, target in zip(old.files, new.files, strict=True):
            self.link(root / source, target)

    def place(self, build_id: str, shards: Sequence[Shard]) -> None:
        """Move the finished shards to their paths in the dataset, which contain the build id.

        A shard with another id in its path is in the dataset already.
        """
        write_atomically(self.root / _PLACED_NAME, build_id.encode("ascii"))
        (self.out / "index").mkdir(exist_ok=True)
        for shard in shards:
            for path in shard.files:
                if build_of(path) == build_id:
                    (self.shards / with_build_id(path, self.plan_id)).replace(self.out / path)

    def placed_id(self) -> str:
        """Return the build id to which a build that was not committed began to move shards, or nothing."""
        with suppress(FileNotFoundError):
            return (self.root / _PLACED_NAME).read_text("utf-8")
        return ""

    def _take_back(self) -> None:
        """Move shards that a killed build had placed back into the area."""
        build_id = self.placed_id()
        for folder in ("", "index") if build_id else ():
            for path in sorted((self.out / folder).glob(f"*-{build_id}.tfrecord-*")):
                path.replace(self.shards / folder / with_build_id(path.name, self.plan_id))
        (self.root / _PLACED_NAME).unlink(missing_ok=True)

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

    def finished_names(self, phase: Phase) -> set[str]:
        """Return the names of the records of finished shards, without reading them."""
        return {name for name in os.listdir(self.root / phase) if name.endswith(".done")}

    def finished_name(self, shard: ShardId) -> str:
        """Return the name of the record of a finished shard."""
        return self._path("first", shard, "done").name

    def forget(self, phase: Phase, shard: ShardId) -> None:
        """Make the build write a finished shard again."""
        self._path(phase, shard, "done").unlink(missing_ok=True)

    def forget_all(self, phase: Phase) -> None:
        """Make the build write all shards of a layout again."""
        for path in (self.root / phase).glob("*.done"):
            path.unlink()

    def stop(self, why: str) -> None:
        """Make every worker of the build stop; if this is called again, the first reason is kept."""
        # a full disk may have room for the file, but not for the reason
        with suppress(OSError), self.stop_path.open("x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(why)

    def _path(self, phase: Phase, shard: ShardId, suffix: str) -> Path:
        return self.root / phase / f"{shard.split}-{shard.shard_index:05d}.{suffix}"


def rows_digest(rows: Sequence[Row]) -> str:
    """Return the SHA-256, in hex, of the rows without their stamps."""
    return hashlib.sha256(_rows_text(Columns.of(rows))).hexdigest()


def _rows_text(rows: Columns) -> bytes:
    return json.dumps([rows.keys, rows.labels, rows.sizes], separators=(",", ":")).encode("ascii")
