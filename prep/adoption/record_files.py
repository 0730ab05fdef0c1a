"""Which files of a folder are TFRecord files: told by their content, so that no suffix is needed."""

from __future__ import annotations

import gzip
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from tfshards.prep.adoption.split_names import numbering
from tfshards.prep.tfrecord import masked_crc32c
from tfshards.schemas import MANIFEST_NAME, Problem
from tfshards.schemas.names import shard_path_fault

# What a file is: records ("none" and "gzip" as the manifest calls their compression), no byte at all, a gzip
# file that holds none, records compressed with zlib, or something else.
Form = Literal["none", "gzip", "empty", "empty gzip", "zlib", "other"]

_WITH_RECORDS = ("none", "gzip", "zlib")
_HEADER_BYTES = 12
_HEAD_BYTES = 1 << 12
_GZIP_START = b"\x1f\x8b"
_ZLIB_STARTS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
# x.tfrecord, x.tfrecord-00000-of-00008, data_tfrecord-00000-of-00001.gz, x.tfrec, x.tfrecords.gz
_TFRECORD_NAME = re.compile(r"(?:^|[._-])tfrec(?:ords?)?(?:[._-]|$)", re.IGNORECASE)


class FoundFile(NamedTuple):
    """A file of a folder.

    Attributes:
        path: relative to the folder, with ``/`` between the parts.
        form: what it is.
        identity: device and number, by which one file under two names is seen.
        num_bytes: its size.
    """

    path: str
    form: Form
    identity: tuple[int, int]
    num_bytes: int


def list_files(root: Path) -> list[FoundFile]:
    """Return the files in ``root`` and the folders in it, sorted by path.

    Left out: hidden names, links to folders, and what tfshards itself writes beside shards.

    Raises:
        OSError: a folder or a file cannot be read.
    """
    return sorted(_walk(root))


def record_files(files: Sequence[FoundFile]) -> list[FoundFile]:
    """Return the files that hold records, and those that should by their names.

    The latter are named ``*.tfrecord`` or alike, or have a number in one row with a file that holds records.
    """
    rows = {numbering(file.path) for file in files if file.form in _WITH_RECORDS} - {None}
    return [
        file
        for file in files
        if file.form in _WITH_RECORDS or _is_named(file.path) or numbering(file.path) in rows
    ]


def file_faults(files: Sequence[FoundFile], root: Path) -> list[Problem]:
    """Return what keeps ``record_files`` from being shards; empty if nothing does."""
    top = os.path.realpath(root)
    first: dict[tuple[int, int], str] = {}
    problems = []
    for file in files:
        twin = first.setdefault(file.identity, file.path)
        fault = _fault(file, root, top) or (
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
        elif not (_is_beside(path) or path in (MANIFEST_NAME, "labels.txt")):
            try:
                status = entry.stat()
            except FileNotFoundError:
                # a link that leads nowhere
                continue
            form = _form(root / path, status.st_size) if stat.S_ISREG(status.st_mode) else "other"
            yield FoundFile(path, form, (status.st_dev, status.st_ino), status.st_size)


def _is_beside(path: str) -> bool:
    """Whether a file is an index, tfshards' own or another's, or holds the labels of a shard."""
    return path.endswith(".idx") or (path.endswith(".labels") and path.split("/")[-2:-1] == ["index"])


def _form(path: Path, num_bytes: int) -> Form:
    if not num_bytes:
        return "empty"
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if _is_header(head):
        return "none"
    if head.startswith(_GZIP_START):
        try:
            with gzip.open(path) as unpacked:
                start = unpacked.read(_HEADER_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return "other"
        return "gzip" if _is_header(start) else "other" if start else "empty gzip"
    if head.startswith(_ZLIB_STARTS):
        try:
            return "zlib" if _is_header(zlib.decompressobj().decompress(head, _HEADER_BYTES)) else "other"
        except zlib.error:
            return "other"
    return "other"


def _is_header(head: bytes) -> bool:
    """Whether the first bytes of a file are a record's length and a checksum that holds."""
    if len(head) < _HEADER_BYTES:
        return False
    crc: int = struct.unpack_from("<I", head, 8)[0]
    return crc == masked_crc32c(head[:8])


def _is_named(path: str) -> bool:
    return _TFRECORD_NAME.search(path.rpartition("/")[2]) is not None


def _fault(file: FoundFile, root: Path, top: str) -> str | None:
    if file.form == "zlib":
        return "is compressed with zlib, which the format does not have; write it again, plain or with gzip"
    if file.form == "other":
        return (
            "is no TFRecord file, though its name is that of one: the checksum of the first record's length "
            "does not hold; restore it, or say which files to take: --split NAME=GLOB"
        )
    if not os.path.realpath(root / file.path).startswith(os.path.join(top, "")):
        return "is a link that leads out of the folder; put the file itself there, or a hard link"
    fault = shard_path_fault(file.path)
    return f"the path {fault}; rename it" if fault else None
