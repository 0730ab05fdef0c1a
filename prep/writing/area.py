"""The build area: files in the output folder that hold the plan and the finished shards of a build.

``DATASET/.build/<plan id>/`` holds for the first layout, and for the final one if inputs were rejected:
``first/train-00000.plan`` (the rows, as JSON) and ``first/train-00000.done`` (the finished shard, as JSON).
``shards/`` holds the shards, with the plan id in their names; the build id, a hash of what was written, is
known only when all are finished. An interrupted build resumes from these files; a committed one removes them.

An object store has no locks and no renaming: there, a shard appears in ``shards/`` when its upload ends, and
is copied to its place in the dataset by the store. Two builds with one plan may therefore run at the same
time: they write the same bytes, and the later one ends the earlier one.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from tfshards.prep.sources.base import Columns, Row
from tfshards.prep.writing.remote_area import (
    begin_attempt,
    check_unchanged,
    copy_into_place,
    e_tags_of,
    reason_to_stop,
    remove_area,
    stop_attempt,
)
from tfshards.prep.writing.shard_names import (
    build_of,
    data_files,
    digest_of,
    named_files,
    plan_text,
    rows_of,
    stamps_of,
    with_build_id,
)
from tfshards.schemas import BuildError, FormatError, Manifest, Shard
from tfshards.schemas.build_area import (
    AREA_NAME,
    RECORD_NAME,
    areas,
    create,
    foreign,
    is_owned,
    make_folder,
    read_record,
    remove,
    write_record,
)
from tfshards.schemas.files import file_digest, file_sizes, sync_directory, write_atomically
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.manifest import parse_manifest
from tfshards.schemas.storage import AnyPath, RemotePath, in_flight, link_file
from tfshards.schemas.storage.untrusted import RECORD, read_whole

Item = TypeVar("Item")
Result = TypeVar("Result")

_STOP_PREFIX = "stop"

# A build first writes every planned example; the final layouts leave out rejects and duplicates.
Phase = Literal["first", "final"]
PHASES: tuple[Phase, ...] = ("first", "final")


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
        rows_digest: digest of its rows, see the function ``rows_digest``.
        rejected: the planned rows that are not in it, in plan order.
        converted_keys: by kind of conversion, the key of the first image that was converted.
        contents: digest of the content of each row, if duplicates are searched (building/rejects.py).
        e_tags: in an object store, the ETag of the shard, its index and its labels by path.
    """

    shard: Shard
    rows_digest: str
    rejected: tuple[Reject, ...] = ()
    conversions: Mapping[str, int] = field(default_factory=dict)
    converted_keys: Mapping[str, str] = field(default_factory=dict)
    contents: tuple[str, ...] = ()
    e_tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildArea:
    """The build area of the build of a plan in the folder ``out`` of a dataset.

    ``attempt`` is a part of the names of unfinished files and of the stop file. It differs from that of an
    earlier attempt, whose worker processes may run for a second after its main process was killed.
    """

    out: AnyPath
    plan_id: str
    options: Mapping[str, Json] = field(default_factory=dict, compare=False)
    attempt: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def is_remote(self) -> bool:
        """Whether the area is in an object store."""
        return isinstance(self.out, RemotePath)

    @property
    def root(self) -> AnyPath:
        """The folder of this build's area."""
        return self.out / AREA_NAME / self.plan_id

    @property
    def shards(self) -> AnyPath:
        """The folder of the finished shards, in which paths are as in the dataset."""
        return self.root / "shards"

    @property
    def job_path(self) -> AnyPath:
        """The file that names the running job of this build (engines/job.py)."""
        return self.root / "job"

    @property
    def stop_path(self) -> AnyPath:
        """The file that makes every worker stop; it holds the reason.

        In a store it is empty as long as the attempt may run, so that workers stop as well if it is gone.
        """
        return self.root / f"{_STOP_PREFIX}{self.attempt}"

    def open(self) -> None:
        """Create the area, stop the workers of earlier attempts, and remove their unfinished files."""
        create(self.root, self.options)
        if isinstance(self.root, RemotePath) and isinstance(self.stop_path, RemotePath):
            begin_attempt(self.root, self.stop_path, f"{_STOP_PREFIX}*")
            return
        own = self.unfinished_path("")
        for left in self.root.glob("unfinished*"):
            if left != own:
                # If its main process was killed, a cluster may still run its tasks.
                replace(self, attempt=left.name.removeprefix("unfinished")).stop("a later run has begun")
            shutil.rmtree(str(left), ignore_errors=True)
        for folder in ("first", "final", f"{self.shards.name}/index", self.unfinished_path("").name):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self._take_back()

    @contextmanager
    def attempt_at_shard(self) -> Iterator[BuildArea]:
        """Yield the area for an attempt at one shard, whose failure does not stop other attempts.

        A later run stops it, as it stops other attempts. If the attempt fails, its files stay in the area.

        Raises:
            BuildError: the area was removed, or a later run has begun.
        """
        own = replace(self, attempt=secrets.token_hex(4))
        unfinished = own.unfinished_path("")
        if isinstance(own.stop_path, RemotePath):
            if self.stop_reason() is not None:
                raise BuildError("staging-gone", root=self.root)
            own.stop_path.write_bytes(b"")
        try:
            unfinished.mkdir()
        except FileNotFoundError:
            raise BuildError("staging-gone", root=self.root) from None
        yield own
        shutil.rmtree(str(unfinished), ignore_errors=True)
        if isinstance(own.stop_path, RemotePath):
            own.stop_path.unlink()
            if not is_owned(self.root):
                # the build was committed in the meantime, and nothing else would remove what this has written
                self.remove()

    def write_plan(self, phase: Phase, shard: ShardId, planned: Columns) -> str:
        """Write the rows of a shard, in order, and return their digest, which does not cover the stamps."""
        plan = plan_text(planned)
        self.note_path(phase, shard, "plan").write_bytes(plan)
        return digest_of(plan)

    def write_plans(self, phase: Phase, plans: Iterable[tuple[ShardId, Columns]]) -> dict[ShardId, str]:
        """Write the rows of many shards, and return the digest of each, as ``write_plan`` does."""
        return dict(self.each(lambda plan: (plan[0], self.write_plan(phase, *plan)), plans))

    def _plan(self, phase: Phase, shard: ShardId) -> bytes:
        return read_whole(self.note_path(phase, shard, "plan"), RECORD)

    def read_plan(self, phase: Phase, shard: ShardId) -> tuple[list[Row], str]:
        """Return the rows of a shard and their digest."""
        plan = self._plan(phase, shard)
        return rows_of(plan), digest_of(plan)

    def plan_digests(self, phase: Phase, shards: Iterable[ShardId]) -> dict[ShardId, str]:
        """Return the digest of the rows of each shard."""
        return dict(self.each(lambda shard: (shard, digest_of(self._plan(phase, shard))), shards))

    def stamps(self, phase: Phase, shards: Iterable[ShardId]) -> dict[ShardId, IntArray | None]:
        """Return the stamps of the rows of each shard; None if its plan file is missing or damaged."""

        def read(shard: ShardId) -> tuple[ShardId, IntArray | None]:
            with suppress(FileNotFoundError):
                return shard, stamps_of(self._plan(phase, shard))
            return shard, None

        return dict(self.each(read, shards))

    def unfinished_path(self, name: str) -> AnyPath:
        """Return the path to which the file ``name`` is written before it is renamed."""
        return self.root / f"unfinished{self.attempt}" / name

    def new_path(self, path: str) -> AnyPath:
        """Return where to write a file of the dataset, which ``publish`` moves to ``path`` if that differs.

        Attempts at the same file do not disturb each other: on a disk each has a name of its own; in a store
        a file appears when it is complete, and all attempts write the same bytes.
        """
        if isinstance(self.out, RemotePath):
            return self.shards / path
        return self.unfinished_path(f"{Path(path).name}.{secrets.token_hex(16)}")

    def publish(self, written: AnyPath, path: str) -> None:
        """Make a file that was written to ``new_path(path)`` a file of the area."""
        if isinstance(written, Path):
            written.replace(str(self.shards / path))

    def _write(self, path: str, data: bytes) -> None:
        written = self.new_path(path)
        if isinstance(written, Path):
            with written.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        else:
            written.write_bytes(data)
        self.publish(written, path)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write files of the dataset, such as an index, each atomically."""
        self.each(lambda path: self._write(path, files[path]), files)

    def link_shard(self, root: AnyPath, old: Shard, new: Shard) -> None:
        """Make the shard ``old`` in ``root``, its index and its labels hard links, or copies, as ``new``."""
        for source, target in zip(old.files, new.files, strict=True):
            unfinished = self.new_path(target)
            link_file(root / source, unfinished)
            self.publish(unfinished, target)

    def place(self, manifest: Manifest, others: Mapping[str, bytes]) -> None:
        """Move the finished shards to their paths in the dataset, which contain the build id.

        A shard with another id in its path is in the dataset already. In a store they are copied, so that a
        run that is killed here finds them in the area again. At the end the names of all files are durable.
        ``others`` holds the content of further files of this build, by path in the dataset.

        Raises:
            InputError: a path leads to a file that tfshards did not write.
        """
        names = {path: with_build_id(path, self.plan_id) for path in self._own_paths(manifest)}
        names = {path: name for path, name in names.items() if path in others or ".tfrecord-" in path}
        self.write_all({names[path]: content for path, content in others.items()})
        self._check_free(names)
        self.announce(manifest)
        if isinstance(self.out, RemotePath) and isinstance(self.shards, RemotePath):
            copy_into_place(self.shards, self.out, names)
            digests = {names[one.path]: one.digest for one in manifest.shards if one.path in names}
            paths: list[AnyPath] = [path for of in PHASES for path in (self.root / of).glob("*.done")]
            records = [*filter(None, self.each(_read_record, paths))]
            check_unchanged(self.shards, [(one.shard, one.e_tags) for one in records], digests)
            return
        assert isinstance(self.out, Path)
        for path, name in names.items():
            make_folder(self.out, path)
            os.replace(str(self.shards / name), str(self.out / path))
        for folder in sorted({(self.out / path).parent for path in names}):
            sync_directory(folder)

    def announce(self, manifest: Manifest | None) -> None:
        """Record the manifest that names what the build moves into the dataset from now on, or None."""
        write_record(self.root, self.options, manifest.to_text() if manifest else "")

    def placed(self) -> Manifest | None:
        """Return the manifest of the dataset into which the build began to move shards, or None."""
        _, text = read_record(self.root)
        with suppress(FormatError):
            return parse_manifest(text, str(self.root)) if text else None
        return None

    def placed_paths(self) -> list[str]:
        """Return the paths to which the build may have moved files, and that no manifest names."""
        placed = self.placed()
        if placed is None:
            return []
        named = named_files(self.out)
        return [path for path in self._own_paths(placed) if path not in named]

    def remove(self) -> None:
        """Remove the area, and at last its record, which shows whether the build was committed."""
        if isinstance(self.root, RemotePath):
            remove_area(self.root, RECORD_NAME)
        elif isinstance(self.root, Path):
            remove(self.root)

    def _own_paths(self, manifest: Manifest) -> list[str]:
        """Return the paths of the files of a manifest that this build writes."""
        return [path for path in data_files(manifest) if build_of(path) == manifest.build_id]

    def _check_free(self, names: Mapping[str, str]) -> None:
        """Raise InputError if a file would be replaced that no manifest and no build of this dataset names.

        Files of the same content may be there, such as those of a dataset whose manifest is damaged.
        """
        if isinstance(self.out, Path):
            present = [path for path in names if os.path.lexists(self.out / path)]
        else:
            found = file_sizes(self.out, names)
            present = [path for path, size in found.items() if not isinstance(size, FileNotFoundError)]
        if not present:
            return
        # after the listing: another run of this build in a store writes its record before it copies a shard
        named = named_files(self.out)
        for root in areas(self.out):
            placed = replace(self, plan_id=root.name).placed()
            named |= {*data_files(placed)} if placed else set()
        for path in present:
            if path not in named and not _is_same(self.out / path, self.shards / names[path]):
                raise foreign(self.out / path)

    def _take_back(self) -> None:
        """Move the files that a killed build had placed back into the area."""
        assert isinstance(self.out, Path)
        if self.placed() is None:
            return
        for path in self.placed_paths():
            with suppress(FileNotFoundError):
                (self.out / path).replace(str(self.shards / with_build_id(path, self.plan_id)))
        self.announce(None)

    def write_finished(self, phase: Phase, shard: ShardId, done: FinishedShard) -> None:
        """Record that a shard is finished."""
        write_atomically(self.note_path(phase, shard, "done"), json.dumps(asdict(done)).encode("ascii"))

    def read_finished(self, phase: Phase, shard: ShardId) -> FinishedShard | None:
        """Return a finished shard; None if it is not finished, or its record is damaged."""
        return _read_record(self.note_path(phase, shard, "done"))

    def finished(self, phase: Phase, shards: Iterable[ShardId]) -> dict[ShardId, FinishedShard]:
        """Return the records of the shards that are finished."""
        recorded = self.recorded(phase, shards)
        found = self.each(lambda shard: (shard, self.read_finished(phase, shard)), recorded)
        return {shard: done for shard, done in found if done}

    def forget(self, phase: Phase, shards: Iterable[ShardId]) -> None:
        """Make the build write finished shards again."""
        self.each(lambda shard: self.note_path(phase, shard, "done").unlink(), self.recorded(phase, shards))

    def recorded(self, phase: Phase, shards: Iterable[ShardId]) -> list[ShardId]:
        """Return the shards that have a record, without reading it."""
        with suppress(FileNotFoundError):
            names = {path.name for path in (self.root / phase).iterdir()}
            return [shard for shard in shards if self.note_path(phase, shard, "done").name in names]
        return []

    def e_tags(self, shard: Shard) -> dict[str, str]:
        """Return the ETags of an uploaded shard, its index and its labels; nothing on a disk."""
        return e_tags_of(self.shards, shard) if isinstance(self.shards, RemotePath) else {}

    def stop(self, why: str) -> None:
        """Make every worker of the build stop; if this is called again, the first reason is kept."""
        if isinstance(self.stop_path, RemotePath):
            stop_attempt(self.stop_path, why)
            return
        # a full disk may have room for the file, but not for the reason
        with suppress(OSError), self.stop_path.open("x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(why)

    def stop_reason(self) -> str | None:
        """Return why the workers of the build must stop, which may be empty, or None."""
        if isinstance(self.stop_path, RemotePath):
            return reason_to_stop(self.stop_path)
        with suppress(FileNotFoundError):
            return read_whole(self.stop_path, RECORD).decode("utf-8", "surrogateescape")
        return None

    def each(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the result of a call for each item; to a store, many requests are made at the same time."""
        return [*(map(call, items) if isinstance(self.out, Path) else in_flight(call, items))]

    def note_path(self, phase: Phase, shard: ShardId, suffix: str) -> AnyPath:
        """Return the path of the plan of a shard (``plan``), or of its record when finished (``done``)."""
        return self.root / phase / f"{shard.split}-{shard.shard_index:05d}.{suffix}"


def _is_same(path: AnyPath, other: AnyPath) -> bool:
    """Return whether two files have the same content."""
    with suppress(OSError):
        return file_digest(path) == file_digest(other)
    return False


def _read_record(path: AnyPath) -> FinishedShard | None:
    try:
        document = load_json(read_whole(path, RECORD))
        rejected = tuple(Reject(*item) for item in document.pop("rejected"))
        written, contents = Shard(**document.pop("shard")), tuple(document.pop("contents"))
        return FinishedShard(written, rejected=rejected, contents=contents, **document)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
