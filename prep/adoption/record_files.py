"""Find the TFRecord files of a folder by their content, not by their suffix."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tfshards.prep.adoption.split_names import numbering
from tfshards.prep.records.frames import parse_header
from tfshards.schemas import Problem
from tfshards.schemas.index import HEADER_BYTES
from tfshards.schemas.names import MANIFEST_NAME, shard_path_fault
from tfshards.schemas.storage import AnyPath, RemotePath, read_range
from tfshards.schemas.storage.reading import in_background
from tfshards.schemas.storage.untrusted import GZIP_ERRORS, open_unpacked

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
        except GZIP_ERRORS:
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
