"""Arrays in .npz archives: checked before anything is unpacked, and copied into files that can be mapped.

Archive format: APPNOTE.TXT of PKWARE, read by ``zipfile``. What NumPy writes is far less than that: members
that are stored or deflated, one behind the other. All else is refused.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from tfshards.prep.sources.columns import FileColumn, file_identity
from tfshards.prep.sources.npy_header import Header, read_header
from tfshards.schemas import InputError

_COPY_BYTES = 1 << 20
# The 22 bytes that every archive ends with, before its comment.
_END_BYTES, _END_MAGIC = 22, b"PK\5\6"
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 1
# zlib.net/zlib_tech.html: 1032 to 1 is the most that deflate reaches.
_MAX_DEFLATE_RATIO = 1032
_METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
_OTHER_METHODS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}


@dataclass(frozen=True)
class Member:
    """One array in an .npz file."""

    archive: str
    name: str


def list_members(path: str) -> list[str]:
    """Return the names of the arrays in an archive, sorted.

    Raises:
        InputError: it cannot be read, or holds anything but sound .npy members.
    """
    with _opened(path, path) as (archive, _):
        return sorted(info.filename.removesuffix(".npy") for info in archive.infolist())


def copied_bytes(member: Member) -> int:
    """Return how many bytes the copy of a member takes at most.

    Raises:
        InputError: the archive cannot be read, or is unsound.
    """
    with _opened(member.archive, _place(member)) as (archive, _):
        return archive.getinfo(f"{member.name}.npy").file_size


def stage_member(member: Member, target: Path, *, copies: bool) -> tuple[Header, FileColumn]:
    """Return the header of a member, and the column of its data in ``target``.

    Args:
        member: the array.
        target: the file to write.
        copies: whether to copy the data if the array has more than one axis.

    Raises:
        InputError: the member cannot be read, is no array, is damaged, or is not as long as declared.
    """
    place = _place(member)
    with _opened(member.archive, place) as (archive, identity):
        info = archive.getinfo(f"{member.name}.npy")
        with archive.open(info) as file:
            header = read_header(file, place, info.file_size)
            copied = copies or len(header.shape) == 1
            if copied:
                _copy(file, target, header.num_bytes)
    path = str(target) if copied else ""
    return header, FileColumn(path, 0, header.dtype.str, header.shape, header.fortran, identity)


def _place(member: Member) -> str:
    return f"{member.archive}[{member.name}]"


@contextmanager
def _opened(path: str, place: str) -> Iterator[tuple[zipfile.ZipFile, str]]:
    """Give the archive, once its directory is found sound, and its identity; tell every error in a line."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            with zipfile.ZipFile(file) as archive:
                fault = _fault(archive, file, status.st_size)
                if fault:
                    raise InputError(f"{path}: {fault}")
                yield archive, file_identity(status)
            if file_identity(os.fstat(file.fileno())) != file_identity(status):
                raise InputError(f"{path}: changed while it was read; run the command again")
    except InputError:
        raise
    except Exception as error:  # zipfile and its decompressors raise almost anything for damaged bytes
        raise InputError(f"{place}: cannot be read: {error}") from None


def _fault(archive: zipfile.ZipFile, file: BinaryIO, num_bytes: int) -> str | None:
    """Return what is wrong with an archive by its directory alone, or None."""
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    if not infos:
        return "it has no members"
    # zipfile looks for the end further ahead, and shifts all by what stands before the archive
    file.seek(max(0, num_bytes - _END_BYTES - len(archive.comment)))
    end = file.read(_END_BYTES)
    if not end.startswith(_END_MAGIC) or struct.unpack("<H", end[-2:])[0] != len(archive.comment):
        return "bytes follow the end of the archive; it is damaged, or two files in one"
    if infos[0].header_offset != 0:
        return f"{infos[0].header_offset} bytes stand before the archive; it is damaged, or two files in one"
    ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
    times = Counter(info.filename for info in infos)
    for info, end_offset in zip(infos, ends, strict=True):
        fault = f"stands {times[info.filename]} times" if times[info.filename] > 1 else _member_fault(info)
        least = _LOCAL_HEADER_BYTES + len(info.filename) + info.compress_size
        if not fault and info.header_offset + least > end_offset:
            fault = "overlaps what follows it; the archive is damaged"
        if fault:
            return f"the member {info.orig_filename!r} {fault}"
    return None


def _member_fault(info: zipfile.ZipInfo) -> str | None:
    name = info.orig_filename
    if name != info.filename or "\\" in name or {"", ".", ".."} & set(name.removesuffix("/").split("/")):
        return "has a path for a name; rename it to a plain NAME.npy"
    if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
        return "is a folder or a link; an .npz holds arrays only"
    if not name.endswith(".npy") or name == ".npy":
        return "is no array; every member must be a NAME.npy"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted; unpack the archive and give its .npy files"
    if info.compress_type not in _METHODS:
        # their decoders take memory as the data like it
        method = _OTHER_METHODS.get(info.compress_type, f"method {info.compress_type}")
        allowed = " and ".join(_METHODS.values())
        return f"is compressed by {method}; {allowed} ones are read: save it with numpy.savez_compressed"
    is_stored = info.compress_type == zipfile.ZIP_STORED
    most = info.compress_size * (1 if is_stored else _MAX_DEFLATE_RATIO)
    if info.file_size > most or (is_stored and info.file_size < most):
        held = f"its {info.compress_size} bytes, {_METHODS[info.compress_type]}, cannot hold"
        return f"declares {info.file_size} bytes, which {held}"
    return None


def _copy(source: IO[bytes], target: Path, size: int) -> None:
    """Copy exactly ``size`` bytes; zipfile compares the checksum when the last one is read."""
    with target.open("wb") as file:
        while size:
            block = source.read(min(size, _COPY_BYTES))
            if not block:
                raise EOFError("ends before its header says")
            try:
                file.write(block)
            except OSError as error:
                raise InputError(f"{target}: cannot be written: {error.strerror}") from None
            size -= len(block)
    source.read(1)
