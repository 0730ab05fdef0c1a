"""Find the TFRecord files of a folder by their content, and choose those that become shards."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tfshards.prep.adoption.split_names import missing_shards, series_of, splits_by_glob, splits_by_name
from tfshards.prep.adoption.tfds import tfds_folders
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.records.frames import parse_header
from tfshards.schemas import FormatError, InputError, Problem
from tfshards.schemas.compression import CODEC_ERRORS, Compression
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.index import HEADER_BYTES
from tfshards.schemas.names import MANIFEST_NAME, is_reserved, shard_path_fault
from tfshards.schemas.storage import AnyPath, RemotePath, read_range
from tfshards.schemas.storage.reader import in_background
from tfshards.schemas.storage.untrusted import open_unpacked

# What a file holds: records ("none" and "gzip" name the compression, as in the manifest), no bytes, no bytes
# compressed with gzip, or something else.
Form = Literal["none", "gzip", "empty", "empty gzip", "other"]

_HEAD_BYTES = 1 << 12
_GZIP_START = b"\x1f\x8b"
# x.tfrecord, x.tfrecord-00000-of-00008, data_tfrecord-00000-of-00001.gz, x.tfrec, x.tfrecords.gz
_TFRECORD_NAME = re.compile(r"(?:^|[._-])tfrec(?:ords?)?(?:[._-]|$)", re.IGNORECASE)


# Number of skipped files that are named.
_SHOWN = 3


class FoundFile(NamedTuple):
    """A file of a folder, whose ``identity`` (device and inode) two names of one file share."""

    path: str
    form: Form
    identity: tuple[int, int]
    num_bytes: int


@dataclass(frozen=True)
class ChosenFiles:
    """Files that become shards: the paths of each split in order, and what all have in common."""

    splits: Mapping[str, tuple[str, ...]]
    compression: Compression
    num_bytes: int

    @property
    def paths(self) -> list[str]:
        """The paths of all splits."""
        return [path for paths in self.splits.values() for path in paths]


def choose_files(root: AnyPath, globs: Mapping[str, str], *, allow_missing: bool) -> ChosenFiles:
    """Return the files in ``root`` and the folders in it that become shards.

    These are the files that hold records, and those that should by their names: ``*.tfrecord`` or similar, or
    numbered together with a file that holds records. Hidden names and links to folders are skipped.
    """
    files = sorted(_walk(root) if isinstance(root, Path) else _objects_below(root))
    held = {file.path for file in files if file.form in ("none", "gzip")}
    rows = {series_of(path) for path in held} - {None}
    candidates = {
        file.path: file
        for file in files
        if file.path in held
        or _TFRECORD_NAME.search(file.path.rpartition("/")[2])
        or series_of(file.path) in rows
    }
    if not candidates:
        raise InputError("adopt-no-files", root=root, num_files=len(files))
    splits = (
        splits_by_glob(list(candidates), globs)
        if globs
        else splits_by_name(list(candidates), tfds_folders(root, candidates))
    )
    chosen = [candidates[path] for found in splits.values() for path in found]
    if problems := [*_faults(sorted(chosen), root)]:
        raise FormatError(f"{root} cannot be adopted, nothing was written", problems)
    number, names = missing_shards([file.path for file in chosen], candidates)
    if number:
        more = f" and {number - len(names):,} more" if number > len(names) else ""
        message = f"{counted(number, 'file')} missing in a numbered series: {', '.join(names)}{more}"
        if not allow_missing:
            raise InputError("adopt-files-missing", root=root, message=message)
        report_warning(message)
    gzip, plain, empty = (
        [file.path for file in chosen if file.form == form] for form in ("gzip", "none", "empty gzip")
    )
    if gzip and plain:
        raise InputError(
            "adopt-compressions-mixed", num_gzip=len(gzip), gzip=gzip[0], num_plain=len(plain), plain=plain[0]
        )
    for path in sorted(empty):
        report_warning(f"{path} holds no records and is skipped")
    left = {name: tuple(path for path in found if path not in empty) for name, found in splits.items()}
    taken = {file.path for file in chosen}
    # metadata of TensorFlow Datasets, which is read where it helps
    others = [file.path for file in files if file.path not in taken and not is_reserved(file.path)]
    if others:
        report_line(f"{counted(len(others), 'other file')} skipped: {listed(others, _SHOWN)}")
    return ChosenFiles(
        {name: paths for name, paths in left.items() if paths},
        "gzip" if gzip else "none",
        sum(file.num_bytes for file in chosen),
    )


def _faults(files: Sequence[FoundFile], root: AnyPath) -> Iterator[Problem]:
    first: dict[tuple[int, int], str] = {}
    inside = os.path.join(os.path.realpath(root), "") if isinstance(root, Path) else ""
    for file in files:
        twin, path_fault = first.setdefault(file.identity, file.path), shard_path_fault(file.path)
        if file.form == "other":
            fault = (
                "is not a TFRecord file, despite its name: the checksum of the first record's length does "
                "not match, plain or decompressed with gzip; restore it, or choose the files with splits="
            )
        elif isinstance(root, Path) and not os.path.realpath(root / file.path).startswith(inside):
            fault = "is a link to a file outside the folder; replace it with the file itself or a hard link"
        elif path_fault:
            fault = f"the path {path_fault}; rename it"
        elif twin != file.path:
            fault = f"is the same file as {twin}; its examples would be in the dataset twice"
        else:
            continue
        yield Problem(file.path, fault)


def _walk(root: Path, folder: str = "") -> Iterator[FoundFile]:
    for entry in os.scandir(root / folder):
        path = f"{folder}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith("."):
                yield from _walk(root, f"{path}/")
        elif _may_be_shard(path):
            try:
                status = entry.stat()
            except FileNotFoundError:
                # a broken link
                continue
            form = _form(root / path, status.st_size) if stat.S_ISREG(status.st_mode) else "other"
            yield FoundFile(path, form, (status.st_dev, status.st_ino), status.st_size)


def _objects_below(root: RemotePath) -> Iterator[FoundFile]:
    """Yield the objects below ``root``; the first bytes of many are requested at the same time."""
    sizes = {path.relative_to(root).as_posix(): status.st_size for path, status in root.walk()}
    found = [
        (name, size, in_background(_form, root / name, size))
        for name, size in sizes.items()
        if _may_be_shard(name)
    ]
    for number, (name, num_bytes, form) in enumerate(found):
        # a key has one name, unlike a file
        yield FoundFile(name, form.result(), (0, number), num_bytes)


def _may_be_shard(path: str) -> bool:
    """Return whether a file is not hidden, an index of any tool, or one that tfshards writes."""
    is_hidden = any(part.startswith(".") for part in path.split("/"))
    is_companion = path.endswith(".idx") or (
        path.endswith((".labels", ".keys")) and path.split("/")[-2:-1] == ["index"]
    )
    return not (is_hidden or is_companion or path in (MANIFEST_NAME, "labels.txt"))


def _form(path: AnyPath, num_bytes: int) -> Form:
    if not num_bytes:
        return "empty"
    head = read_range(path, 0, min(num_bytes, _HEAD_BYTES))
    if _is_header(head):
        return "none"
    if head.startswith(_GZIP_START):
        try:
            unpacked, _ = open_unpacked(path, "gzip")
            with unpacked:
                start = unpacked.read(HEADER_BYTES)
        except CODEC_ERRORS:
            return "other"
        return "gzip" if _is_header(start) else "other" if start else "empty gzip"
    return "other"


def _is_header(head: bytes) -> bool:
    """Return whether the first bytes of a file are a record's length and a checksum that matches."""
    return len(head) >= HEADER_BYTES and parse_header(head[:HEADER_BYTES]) is not None
