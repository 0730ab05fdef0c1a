"""Copy arrays from .npz archives and from object stores into files that can be mapped."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from tfshards.prep.sources.arrays.mapped import MappedFile, file_identity, mapped_fields, read_header
from tfshards.prep.sources.fetching import stamp_of, unreadable
from tfshards.schemas import InputError
from tfshards.schemas.compression import CODECS
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.remote_path import RemotePath
from tfshards.schemas.storage.untrusted import open_regular

_COPY_BYTES = 1 << 20


def copied_object_bytes(url: str) -> int:
    """Return the size of the copy of an object.

    Raises:
        InputError: there is no such object.
    """
    try:
        return any_path(url).stat().st_size
    except OSError as error:
        raise unreadable(url, error) from None


def stage_object(path: RemotePath, target: Path, *, preview: bool) -> dict[tuple[str, ...], MappedFile]:
    """Copy an array to ``target``; return it with the name ``()``, or its fields by their names.

    Args:
        path: the .npy file.
        target: the file to write.
        preview: copy only an array with one axis.

    Raises:
        InputError: the object cannot be read, is not an array, or is replaced while it is read.
    """
    try:
        raw = path.reader()
        with io.BufferedReader(raw) as file:
            size = raw.status.st_size
            header = read_header(file, str(path), size)
            is_copied = not preview or len(header.shape) == 1
            file.seek(0)
            if is_copied:
                copy_blocks(file, target)
            else:
                # a sparse file of the right size, because only the layout of the fields is read
                target.write_bytes(file.read(header.offset))
                os.truncate(target, size)
    except OSError as error:
        raise unreadable(path, error) from None
    identity = f"{size} bytes at {stamp_of(raw.status)}"
    fields = mapped_fields(str(target), header, "", identity=identity, is_copy=True)
    if is_copied:
        return fields
    target.unlink()
    return {names: replace(array, path="") for names, array in fields.items()}


def copy_blocks(source: IO[bytes], target: Path) -> None:
    """Copy a file in blocks.

    Raises:
        InputError: the copy cannot be written.
    """
    with target.open("wb") as file:
        for block in iter(partial(source.read, _COPY_BYTES), b""):
            try:
                file.write(block)
            except OSError as error:
                raise InputError("copy-unwritable", target=target, why=error.strerror) from None


# Every archive ends with a record of 22 bytes and an optional comment.
_END_BYTES, _END_MAGIC = 22, b"PK\5\6"
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 1
_METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
_OTHER_METHODS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}


@dataclass(frozen=True)
class Member:
    """One array in an .npz file.

    Attributes:
        archive: path or URL of the .npz file.
        name: name of the array.
    """

    archive: str
    name: str


def list_members(path: str) -> list[str]:
    """Return the names of the arrays in an archive, sorted.

    Raises:
        InputError: the archive cannot be read, or is unsound.
    """
    with _opened(path, path) as archive:
        return sorted(info.filename.removesuffix(".npy") for info in archive.infolist())


def copied_bytes(member: Member) -> int:
    """Return the size of the copy of a member.

    Raises:
        InputError: the archive cannot be read, or is unsound.
    """
    with _opened(member.archive, _where(member)) as archive:
        return archive.getinfo(f"{member.name}.npy").file_size


def stage_member(member: Member, target: Path, *, preview: bool) -> dict[tuple[str, ...], MappedFile]:
    """Copy a member to ``target``; return it with the name ``()``, or its fields by their names.

    Args:
        member: the array.
        target: the .npy file to write.
        preview: copy only arrays with one axis.

    Raises:
        InputError: the member cannot be read, is not an array, is damaged, or has another size than declared.
    """
    where = _where(member)
    with _opened(member.archive, where) as archive:
        info = archive.getinfo(f"{member.name}.npy")
        with archive.open(info) as file:
            header = read_header(file, where, info.file_size)
        is_copied = not preview or len(header.shape) == 1
        with archive.open(info) as file:
            if is_copied:
                copy_blocks(file, target)
            else:
                # a sparse file of the right size, because only the layout of the fields is read
                target.write_bytes(file.read(header.offset))
                os.truncate(target, info.file_size)
        if target.stat().st_size != info.file_size:
            raise EOFError("is shorter than its header declares")
    fields = mapped_fields(str(target), header, f"CRC-32 {info.CRC:08x}")
    if is_copied:
        return fields
    target.unlink()
    return {names: replace(array, path="") for names, array in fields.items()}


def _where(member: Member) -> str:
    return f"{member.archive}[{member.name}]"


@contextmanager
def _opened(path: str, where: str) -> Iterator[zipfile.ZipFile]:
    """Yield an archive, after checking its directory.

    Raises:
        InputError: the archive cannot be read, is unsound, or changes while it is open.
    """
    try:
        with _open(path) as (file, num_bytes), zipfile.ZipFile(file) as archive:
            fault = _fault(archive, file, num_bytes)
            if fault:
                raise InputError("npz-fault", path=path, fault=fault)
            yield archive
    except InputError:
        raise
    except Exception as error:  # zipfile and its decompressors raise almost anything for damaged bytes
        raise InputError(
            "npz-unreadable", where=where, getattr=getattr(error, "strerror", None) or error
        ) from None


@contextmanager
def _open(path: str) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file and its size, and see that it is not replaced meanwhile."""
    given = any_path(path)
    if not isinstance(given, Path):
        # all that is read is of one version
        raw = given.reader()
        with io.BufferedReader(raw) as file:
            yield file, raw.status.st_size
        return
    with open_regular(given) as file:
        status = os.fstat(file.fileno())
        yield file, status.st_size
        if file_identity(os.fstat(file.fileno())) != file_identity(status):
            raise InputError("changed-while-read", path=path)


def _fault(archive: zipfile.ZipFile, file: BinaryIO, num_bytes: int) -> str | None:
    """Return the fault of the directory of an archive, or None."""
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    if not infos:
        return "has no members"
    # zipfile also accepts bytes after the last record, and bytes before the archive
    file.seek(max(0, num_bytes - _END_BYTES - len(archive.comment)))
    end = file.read(_END_BYTES)
    if not end.startswith(_END_MAGIC) or struct.unpack("<H", end[-2:])[0] != len(archive.comment):
        return "bytes follow the end of the archive; it is damaged, or two files in one"
    if infos[0].header_offset != 0:
        return f"{infos[0].header_offset} bytes precede the archive; it is damaged, or two files in one"
    ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
    times = Counter(info.filename for info in infos)
    for info, end_offset in zip(infos, ends, strict=True):
        fault = f"occurs {times[info.filename]} times" if times[info.filename] > 1 else _member_fault(info)
        least = _LOCAL_HEADER_BYTES + len(info.filename) + info.compress_size
        if not fault and info.header_offset + least > end_offset:
            fault = "overlaps the next one; the archive is damaged"
        if fault:
            return f"the member {info.orig_filename!r} {fault}"
    return None


def _member_fault(info: zipfile.ZipInfo) -> str | None:
    name = info.orig_filename
    if name != info.filename or "\\" in name or {"", ".", ".."} & set(name.removesuffix("/").split("/")):
        return "has a path as its name; rename it to a plain NAME.npy"
    if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16):
        return "is a folder or a link; an .npz file holds arrays only"
    if not name.endswith(".npy") or name == ".npy":
        return "is not an array; every member must be a NAME.npy"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted; unpack the archive and use its .npy files"
    if info.compress_type not in _METHODS:
        # other decompressors allocate as much memory as the data demands
        method = _OTHER_METHODS.get(info.compress_type, f"method {info.compress_type}")
        allowed = " and ".join(_METHODS.values())
        return (
            f"is compressed by {method}, but only {allowed} members can be read; use numpy.savez_compressed"
        )
    is_stored = info.compress_type == zipfile.ZIP_STORED
    most = info.compress_size * (1 if is_stored else CODECS["gzip"].max_ratio)
    if info.file_size > most or (is_stored and info.file_size < most):
        held = f"its {info.compress_size} bytes, {_METHODS[info.compress_type]}, cannot hold"
        return f"declares {info.file_size} bytes, which {held}"
    return None
