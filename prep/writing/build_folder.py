"""The folder of one build in a dataset: what makes it one of tfshards, its files, and its unfinished work.

    photos/3f9a2c1b/build.json        the first file: it shows that tfshards made the folder
    photos/3f9a2c1b/photos-train.tfrecord-00000-of-00064, index/…, rejected.jsonl, labels.txt, …
    photos/3f9a2c1b/dataset.json      the last file: the build never changes any more
    photos/3f9a2c1b/work/             only while shards are written: of each the plan and, when it is
                                      finished, a record; what was rejected; files that have no name yet

A build that was killed leaves only such files, and resumes from ``work``. Names alone prove nothing, since
users have folders with names of hex digits as well: a folder belongs to tfshards if its record says so.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from tfshards.prep.progress.lines import Amount
from tfshards.prep.progress.threads import num_jobs
from tfshards.prep.sources.staging_folder import (
    has_record_of,
    record_text,
    staged_name,
    unfinished_in,
)
from tfshards.schemas import FormatError, InputError, Manifest, Shard
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.manifest import read_manifest_file
from tfshards.schemas.names import FOLDER_PATTERN, MANIFEST_NAME, RECORD_NAME, WORK_NAME
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.reader import NUM_REQUESTS
from tfshards.schemas.storage.stored import LISTS, Sink

_BUILD = re.compile(FOLDER_PATTERN)
_REJECTS = "rejected.json"
# The files of a build, by their paths in its folder.
_FILES = re.compile(
    r"[^/]+\.tfrecord-\d{5,}-of-\d{5,}|index/[^/]+\.tfrecord-\d{5,}-of-\d{5,}\.(idx|keys|labels)"
    r"|rejected\.jsonl|removed\.txt|dataset\.json|dataset_info\.json|features\.json|[^/]*labels\.txt"
)
# The files of its work, of which the last have no name yet, or show workers that they share the folder.
_WORK_FILES = re.compile(r"[^/]+-\d{5,}\.(plan|done)|rejected\.jsonl?|[^/]+[.-][0-9a-f]{16}")


class ShardId(NamedTuple):
    """One shard of a dataset."""

    split: str
    shard_index: int


class Reject(NamedTuple):
    """A rejected input, as in the file ``rejected.jsonl``; the size is that of its ``Row``."""

    key: str
    reason: str
    detail: str
    size: int


class ShardPlan(NamedTuple):
    """What is to be in a shard.

    Attributes:
        shard: the shard.
        text: JSON that determines its bytes, except for changes of inputs whose stamps stay the same.
        size: its examples, and about as many bytes as these have in the source.
    """

    shard: ShardId
    text: bytes
    size: Amount


def plan_digest(text: bytes) -> str:
    """Return the digest of the text of a plan."""
    return hashlib.sha256(text).hexdigest()


@dataclass(frozen=True)
class FinishedShard:
    """The record of a written shard.

    Attributes:
        shard: its entry in the manifest.
        plan: digest of the plan from which it was written.
        left: digest of the plan of what is in it, without the rejected rows.
        rejected: the planned rows that are not in it, in plan order.
        conversions: number of images by kind of conversion.
        converted_keys: by kind of conversion, the key of the first image that was converted.
        contents: digest of the content of each row, see ``Piece``; if duplicates are searched.
        marks: ETag of the shard and of each companion in a store, by path; see ``marks_of``.
    """

    shard: Shard
    plan: str
    left: str
    rejected: tuple[Reject, ...] = ()
    conversions: Mapping[str, int] = field(default_factory=dict)
    converted_keys: Mapping[str, str] = field(default_factory=dict)
    contents: tuple[str, ...] = ()
    marks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildFolder:
    """The folder ``name`` of a build in the folder ``dataset`` of a dataset.

    ``elsewhere`` is the name of a folder for its work, while a complete build is repaired.
    """

    dataset: AnyPath
    name: str
    elsewhere: str = ""

    @property
    def root(self) -> AnyPath:
        """The folder."""
        return self.dataset / self.name

    @property
    def work(self) -> AnyPath:
        """The folder for what is needed only while shards are written."""
        return self.dataset / self.elsewhere if self.elsewhere else self.root / WORK_NAME

    def create(self, options: Mapping[str, Json], stamps: str = "") -> None:
        """Create the folder with its record, or take over one that a killed build has left.

        On a disk the folder appears together with its record. ``stamps`` is a hash of the stamps of all
        inputs, from which a later build sees whether they may have changed.

        Raises:
            InputError: there is something of this name that tfshards did not make.
        """
        text, record = record_text(self.name, options, stamps), self.root / RECORD_NAME
        if not self.root.is_taken():
            with self.root.new_folder(self.dataset / staged_name(secrets.token_hex(4))) as made:
                (made / RECORD_NAME).put(text, made)
        elif not is_owned(self.root):
            raise foreign(self.root)
        elif record.read_whole(LISTS) != text:
            self._check_links()
            with unfinished_in(self.dataset) as unfinished:
                record.put(text, unfinished)
                self.root.sync()

    def _check_links(self) -> None:
        """Raise InputError if a folder in it is a link, which may lead out of the dataset."""
        for folder in (self.root / "index", self.root / WORK_NAME):
            if folder.is_symlink():
                raise linked(folder)

    def open(self) -> None:
        """Create the folders for the files of the build and for its work."""
        self._check_links()
        for folder in (self.root / "index", self.work):
            folder.make_folder()

    def record(self) -> tuple[dict[str, Json], str]:
        """Return the options and the stamps that ``create`` has recorded; empty if they are damaged."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = load_json((self.root / RECORD_NAME).read_whole(LISTS))
            return dict(record["options"]), str(record["stamps"])
        return {}, ""

    def manifest(self) -> Manifest | None:
        """Return the manifest of the build; None if it is not complete, or the manifest is damaged."""
        with suppress(OSError, FormatError):
            return read_manifest_file(self.root / MANIFEST_NAME)
        return None

    @property
    def is_complete(self) -> bool:
        """Whether the build is a generation of the dataset: its work is removed after the commit.

        Its last file, the manifest, may be damaged.
        """
        return (self.root / MANIFEST_NAME).is_file() and not self.work_names()

    # Plans and records of shards.

    def note_path(self, shard: ShardId, suffix: str) -> AnyPath:
        """Return the path of the plan of a shard (``plan``), or of its record when finished (``done``)."""
        return self.work / f"{shard.split}-{shard.shard_index:05d}.{suffix}"

    def write_plan(self, plan: ShardPlan) -> None:
        """Write the plan of a shard."""
        self.note_path(plan.shard, "plan").write_bytes(plan.text)

    def read_plan(self, shard: ShardId) -> bytes:
        """Return the text of the plan of a shard."""
        return self.note_path(shard, "plan").read_whole(LISTS)

    def write_finished(self, shard: ShardId, done: FinishedShard) -> None:
        """Record that a shard is finished."""
        self.note_path(shard, "done").put(json.dumps(asdict(done)).encode("ascii"), self.work)

    def read_finished(self, shard: ShardId) -> FinishedShard | None:
        """Return the record of a shard; None if it is not finished, or the record is damaged."""
        try:
            document = load_json(self.note_path(shard, "done").read_whole(LISTS))
            rejected = tuple(Reject(*item) for item in document.pop("rejected"))
            written, contents = Shard(**document.pop("shard")), tuple(document.pop("contents"))
            return FinishedShard(written, rejected=rejected, contents=contents, **document)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def recorded(self, shards: Iterable[ShardId]) -> list[ShardId]:
        """Return the shards that have a record, without reading it."""
        with suppress(FileNotFoundError):
            names = {path.name for path in self.work.iterdir()}
            return [shard for shard in shards if self.note_path(shard, "done").name in names]
        return []

    def finished(self, shards: Iterable[ShardId]) -> dict[ShardId, FinishedShard]:
        """Return the records of the shards that are finished."""
        recorded = self.recorded(shards)
        found = self.root.each(lambda shard: (shard, self.read_finished(shard)), recorded)
        return {shard: done for shard, done in found if done}

    def forget(self, shards: Iterable[ShardId]) -> None:
        """Remove the records of shards that are to be written again."""
        self.root.each(lambda shard: self.note_path(shard, "done").unlink(), self.recorded(shards))

    def write_rejects(self, inputs: str, rejects: Iterable[Reject]) -> None:
        """Record what is left out of the final plans; ``inputs`` stands for the state of all inputs."""
        (self.work / _REJECTS).put(json.dumps([inputs, [*rejects]]).encode("ascii"), self.work)

    def read_rejects(self, inputs: str) -> list[Reject] | None:
        """Return what ``write_rejects`` has recorded for inputs in this state; None if it has not."""
        with suppress(FileNotFoundError, ValueError, TypeError):
            recorded, rejects = load_json((self.work / _REJECTS).read_whole(LISTS))
            return [Reject(*item) for item in rejects] if recorded == inputs else None
        return None

    # Files of the dataset.

    def new_file(self, name: str) -> Sink:
        """Return a file of the build, which gets its name when it is finished."""
        return (self.root / name).new_file(self.work)

    def put_all(self, files: Mapping[str, bytes]) -> None:
        """Write small files of the build, each atomically."""
        self.root.each(lambda name: (self.root / name).put(files[name], self.work), files)

    def marks_of(self, shard: Shard) -> dict[str, str]:
        """Return the ETags of a written shard and its companions by path; none on a disk."""
        found = self.dataset.each(lambda name: (name, (self.dataset / name).version()), shard.files)
        return {name: status.e_tag for name, status in found if status and status.e_tag}

    def intact(self, done: Iterable[FinishedShard]) -> list[bool]:
        """Return of each finished shard whether it and its companions are still as they were written."""

        def check(one: FinishedShard) -> bool:
            with suppress(OSError):
                return all(
                    (self.dataset / path).is_as_written(digest, one.marks.get(path, ""))
                    for path, digest in one.shard.digests.items()
                )
            return False

        with ThreadPoolExecutor(NUM_REQUESTS if self.root.is_far else num_jobs()) as pool:
            return [*pool.map(check, done)]

    def names(self) -> list[str]:
        """Return the paths of the files in the folder that have names as a build gives them."""
        return sorted(filter(_FILES.fullmatch, self.root.sizes_below()))

    def work_names(self) -> list[str]:
        """Return the paths of the files that are needed only while shards are written."""
        work = self.root / WORK_NAME
        names = [] if work.is_symlink() else work.sizes_below()
        return [f"{WORK_NAME}/{name}" for name in names if _WORK_FILES.fullmatch(name)]

    def remove_work(self) -> None:
        """Remove what was needed only while shards were written."""
        self.root.delete_files(self.work_names())
        with suppress(OSError):
            # only an empty folder is removed
            self.work.rmdir()

    def remove(self, kept: Collection[str] = ()) -> dict[str, int]:
        """Remove the files of the build, except those ``kept``; return the sizes of these files by path.

        Files of other names stay. Then the folder stays, too, with its record, so that a later build of this
        plan can use it.
        """
        sizes = self.root.sizes_below()
        names = [name for name in self.names() if name not in kept]
        work = self.work_names()
        # at last, so that what a power failure brings back is known to be of tfshards
        last = [] if {*sizes} - {RECORD_NAME, *names, *work} else [RECORD_NAME]
        removed = {name: sizes[name] for name in [*names, *last, *work] if name in sizes}
        if not removed:
            return removed
        self.remove_work()
        self.root.delete_files(names)
        self.root.sync(*["index"] * (self.root / "index").is_dir())
        with suppress(OSError):
            # only an empty folder is removed
            (self.root / "index").rmdir()
        if last and [path.name for path in self.root.iterdir()] == last:
            # or a power failure brings back a folder next to no record
            self.root.sync()
            # at once, since a folder without its record would not be known to be of tfshards
            self.root.moved(self.dataset / staged_name(secrets.token_hex(4))).delete_tree(RECORD_NAME)
        return removed


def is_owned(folder: AnyPath) -> bool:
    """Return whether tfshards made the folder of a build, according to the record in it."""
    return _BUILD.fullmatch(folder.name) is not None and has_record_of(folder, folder.name)


def linked(path: AnyPath) -> InputError:
    """Return the error for a file or folder of a dataset that is a link, which may lead out of it."""
    return InputError(
        f"{path} is a symbolic link, through which files elsewhere would be written; replace it with its "
        "target, or choose another output"
    )


def foreign(path: AnyPath) -> InputError:
    """Return the error for a file or folder that tfshards would have to replace, but did not write."""
    return InputError(
        f"{path} was not written by tfshards and is kept; move it away, or choose another output",
        code="foreign-file",
    )


def build_folders(dataset: AnyPath) -> list[BuildFolder]:
    """Return the folders of builds in a dataset, by name; those that tfshards did not make are left out."""
    if not dataset.is_dir():
        return []
    names = sorted(path.name for path in dataset.iterdir() if _BUILD.fullmatch(path.name))
    return [BuildFolder(dataset, name) for name in names if is_owned(dataset / name)]
