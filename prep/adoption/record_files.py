"""Find the TFRecord files of a folder by their content, and choose those that become shards."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tfshards.prep.adoption.split_names import missing_shards, numbering, splits_by_glob, splits_by_name
from tfshards.prep.adoption.tfds import tfds_folders
from tfshards.prep.progress.lines import Log, as_warning
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
# compressed with gzip, records compressed with zlib, or something else.
Form = Literal["none", "gzip", "empty", "empty gzip", "zlib", "other"]

_WITH_RECORDS = ("none", "gzip", "zlib")
_HEAD_BYTES = 1 << 12
_GZIP_START = b"\x1f\x8b"
_ZLIB_STARTS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
# x.tfrecord, x.tfrecord-00000-of-00008, data_tfrecord-00000-of-00001.gz, x.tfrec, x.tfrecords.gz
_TFRECORD_NAME = re.compile(r"(?:^|[._-])tfrec(?:ords?)?(?:[._-]|$)", re.IGNORECASE)


class FoundFile(NamedTuple):
    """A file of a folder.

    Attributes:
        path: path relative to the folder, with ``/`` between the parts.
        form: what the file holds.
        identity: device and inode, equal for two names of one file.
        num_bytes: its size.
    """

    path: str
    form: Form
    identity: tuple[int, int]
    num_bytes: int


def list_files(root: AnyPath) -> list[FoundFile]:
    """Return the files in ``root`` and the folders in it, sorted by path.

    Hidden names, links to folders, and files that tfshards writes in addition to shards are skipped.

    Raises:
        OSError: a folder or a file cannot be read.
    """
    return sorted(_walk(root) if isinstance(root, Path) else _listed(root))


def record_files(files: Sequence[FoundFile]) -> list[FoundFile]:
    """Return the files that hold records, and those that should by their names.

    The latter are named ``*.tfrecord`` or similar, or are numbered together with a file that holds records.
    """
    rows = {numbering(file.path) for file in files if file.form in _WITH_RECORDS} - {None}
    return [
        file
        for file in files
        if file.form in _WITH_RECORDS or _is_named(file.path) or numbering(file.path) in rows
    ]


def file_faults(files: Sequence[FoundFile], root: AnyPath) -> list[Problem]:
    """Return why ``files`` cannot be shards; empty if all can."""
    first: dict[tuple[int, int], str] = {}
    problems = []
    for file in files:
        twin = first.setdefault(file.identity, file.path)
        fault = _fault(file, root) or (
            f"is the same file as {twin}; its examples would be in the dataset twice"
            if twin != file.path
            else None
        )
        if fault:
            problems.append(Problem(file.path, fault))
    return problems


def _walk(root: Path, folder: str = "") -> Iterator[FoundFile]:
    for entry in os.scandir(root / folder):
        path = f"{folder}{entry.name}"
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, f"{path}/")
        elif not (_is_companion(path) or path in (MANIFEST_NAME, "labels.txt")):
            try:
                status = entry.stat()
            except FileNotFoundError:
                # a broken link
                continue
            form = _form(root / path, status.st_size) if stat.S_ISREG(status.st_mode) else "other"
            yield FoundFile(path, form, (status.st_dev, status.st_ino), status.st_size)


def _listed(root: RemotePath) -> Iterator[FoundFile]:
    """Yield the objects below ``root``; the first bytes of many are requested at the same time."""
    found = []
    for path, status in root.walk():
        name = path.relative_to(root).as_posix()
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        if not (is_hidden or _is_companion(name) or name in (MANIFEST_NAME, "labels.txt")):
            found.append((name, status.st_size, in_background(_form, path, status.st_size)))
    for number, (name, num_bytes, form) in enumerate(found):
        # a key has one name, unlike a file
        yield FoundFile(name, form.result(), (0, number), num_bytes)


def _is_companion(path: str) -> bool:
    """Return whether a file is an index, of tfshards or of another tool, or holds the labels of a shard."""
    return path.endswith(".idx") or (path.endswith(".labels") and path.split("/")[-2:-1] == ["index"])


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
    if head.startswith(_ZLIB_STARTS):
        try:
            return "zlib" if _is_header(zlib.decompressobj().decompress(head, HEADER_BYTES)) else "other"
        except zlib.error:
            return "other"
    return "other"


def _is_header(head: bytes) -> bool:
    """Return whether the first bytes of a file are a record's length and a checksum that matches."""
    return len(head) >= HEADER_BYTES and parse_header(head[:HEADER_BYTES]) is not None


def _is_named(path: str) -> bool:
    return _TFRECORD_NAME.search(path.rpartition("/")[2]) is not None


def _fault(file: FoundFile, root: AnyPath) -> str | None:
    if file.form == "zlib":
        return "is compressed with zlib, which is not supported; rewrite it uncompressed or with gzip"
    if file.form == "other":
        return (
            "is not a TFRecord file, despite its name: the checksum of the first record's length "
            "does not match; restore it, or choose the files with splits="
        )
    if isinstance(root, Path) and not _is_inside(root / file.path, root):
        return "is a link to a file outside the folder; replace it with the file itself or a hard link"
    fault = shard_path_fault(file.path)
    return f"the path {fault}; rename it" if fault else None


def _is_inside(path: Path, root: Path) -> bool:
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(root), ""))


# Number of skipped files that are named.
_SHOWN = 3


@dataclass(frozen=True)
class ChosenFiles:
    """Files that become shards.

    Attributes:
        splits: the paths of the files of each split, in order.
        compression: the compression of all files.
        num_bytes: the size of all files together.
    """

    splits: Mapping[str, tuple[str, ...]]
    compression: Compression
    num_bytes: int

    @property
    def paths(self) -> list[str]:
        """The paths of all splits."""
        return [path for paths in self.splits.values() for path in paths]


def choose_files(root: AnyPath, globs: Mapping[str, str], *, allow_missing: bool, log: Log) -> ChosenFiles:
    """Return the files in ``root`` that become shards.

    Args:
        root: the folder.
        globs: the pattern of each split's paths; empty to derive the splits from the paths.
        allow_missing: whether files may be missing according to the numbers of the others.
        log: called with a line about files that are skipped.

    Raises:
        InputError: there are none, their splits are ambiguous, or some are missing.
        FormatError: files cannot be shards; it lists every problem.
    """
    files = list_files(root)
    candidates = {file.path: file for file in record_files(files)}
    if not candidates:
        raise InputError("adopt-no-files", root=root, num_files=len(files))
    splits = (
        splits_by_glob(list(candidates), globs)
        if globs
        else splits_by_name(list(candidates), tfds_folders(root, candidates))
    )
    chosen = [candidates[path] for found in splits.values() for path in found]
    problems = file_faults(sorted(chosen), root)
    if problems:
        raise FormatError(f"{root} cannot be adopted, nothing was written", problems)
    _check_numbers(root, [file.path for file in chosen], candidates, allow_missing=allow_missing, log=log)
    compression = _compression(chosen)
    empty = {file.path for file in chosen if file.form == "empty gzip"}
    for path in sorted(empty):
        log(as_warning(f"{path} holds no records and is skipped"))
    left = {name: tuple(path for path in found if path not in empty) for name, found in splits.items()}
    taken = {file.path for file in chosen}
    # metadata of TensorFlow Datasets, which is read where it helps
    others = [file.path for file in files if file.path not in taken and not is_reserved(file.path)]
    if others:
        log(f"{counted(len(others), 'other file')} skipped: {listed(others, _SHOWN)}")
    return ChosenFiles(
        {name: paths for name, paths in left.items() if paths},
        compression,
        sum(file.num_bytes for file in chosen),
    )


def _check_numbers(
    root: AnyPath,
    paths: list[str],
    present: Collection[str],
    *,
    allow_missing: bool,
    log: Log,
) -> None:
    number, names = missing_shards(paths, present)
    if not number:
        return
    more = f" and {number - len(names):,} more" if number > len(names) else ""
    message = f"{counted(number, 'file')} missing in a numbered series: {', '.join(names)}{more}"
    if not allow_missing:
        raise InputError("adopt-files-missing", root=root, message=message)
    log(as_warning(message))


def _compression(files: list[FoundFile]) -> Compression:
    """Return the compression of all files that hold records.

    Raises:
        InputError: some are compressed and some are not.
    """
    gzip = [file.path for file in files if file.form == "gzip"]
    plain = [file.path for file in files if file.form == "none"]
    if gzip and plain:
        raise InputError(
            "adopt-compressions-mixed", num_gzip=len(gzip), gzip=gzip[0], num_plain=len(plain), plain=plain[0]
        )
    return "gzip" if gzip else "none"
