"""Archives of arrays: their members, and what is refused before a member is unpacked."""

from __future__ import annotations

import io
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

from tfshards.prep.sources.arrays.mapped import file_identity
from tfshards.schemas import InputError, TfshardsError
from tfshards.schemas.compression import CODECS
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.untrusted import open_regular

# Every archive ends with a record of 22 bytes and an optional comment.
_END_BYTES, _END_MAGIC = 22, b"PK\5\6"
_LOCAL_HEADER_BYTES = 30
_ENCRYPTED = 1
_METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}


@dataclass(frozen=True)
class Member:
    """One array in an .npz file, which has a path or a URL."""

    archive: str
    name: str

    def __str__(self) -> str:
        return f"{self.archive}[{self.name}]"


def list_members(path: str) -> list[str]:
    """Return the names of the arrays in an archive, sorted."""
    with _opened(path, path) as archive:
        return sorted(info.filename.removesuffix(".npy") for info in archive.infolist())


@contextmanager
def opened_member(member: Member) -> Iterator[tuple[IO[bytes], zipfile.ZipInfo]]:
    """Yield the file of a member, and what the archive declares of it."""
    with _opened(member.archive, str(member)) as archive:
        info = archive.getinfo(f"{member.name}.npy")
        with archive.open(info) as file:
            yield file, info


@contextmanager
def _opened(path: str, where: str) -> Iterator[zipfile.ZipFile]:
    """Yield an archive, after checking its directory; InputError if it is unsound, or changes meanwhile."""
    try:
        with _open(path) as (file, num_bytes), zipfile.ZipFile(file) as archive:
            if fault := _fault(archive, file, num_bytes):
                raise InputError("npz-fault", path=path, fault=fault)
            yield archive
    except TfshardsError:
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
        return f"is compressed by method {info.compress_type}; write the file with numpy.savez_compressed"
    is_stored = info.compress_type == zipfile.ZIP_STORED
    most = info.compress_size * (1 if is_stored else CODECS["gzip"].max_ratio)
    if info.file_size > most or (is_stored and info.file_size < most):
        held = f"its {info.compress_size} bytes, {_METHODS[info.compress_type]}, cannot hold"
        return f"declares {info.file_size} bytes, which {held}"
    return None
