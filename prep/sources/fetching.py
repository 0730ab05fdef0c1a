"""Read the files and objects of users: inside of their source, unchanged since listed, or as text."""

from __future__ import annotations

import codecs
import errno
import os

from tfshards.schemas import InputError
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.local import read_most
from tfshards.schemas.storage.reader import NUM_REQUESTS, stamp_of
from tfshards.schemas.storage.stored import LISTS, Limit

# Requests for files of examples that are ahead, so that no connection idles while results are used.
FILES_AHEAD = 2 * NUM_REQUESTS


def read_as_listed(path: bytes | AnyPath, size: int, stamp: int) -> bytes:
    """Return the bytes of a file or an object.

    Raises:
        InputError: it cannot be read, or has changed since it was listed with ``size`` and ``stamp``.
    """
    try:
        status, data = read_most(path, size) if isinstance(path, bytes) else path.get(size)
    except OSError as error:
        raise unreadable(path, error) from None
    if (status.st_size, stamp_of(status)) != (size, stamp) or data is None:
        raise changed(path)
    return data


def changed(path: AnyPath | bytes) -> InputError:
    """Return the error for an input that was replaced since it was listed."""
    shown = os.fsdecode(path) if isinstance(path, bytes) else path
    return InputError(f"{shown}: changed after the build listed it; build again", code="file-changed")


def unreadable(path: AnyPath | bytes | str, error: OSError) -> InputError:
    """Return the error for an input that cannot be read."""
    shown = os.fsdecode(path) if isinstance(path, bytes) else path
    # the connection to the store failed, or the store itself
    may_pass = "://" in str(shown) and error.errno not in (errno.ENOENT, errno.EACCES)
    remedy = "; run the same command again to resume" if may_pass else ""
    return InputError(f"{shown}: cannot be read: {error.strerror or error}{remedy}", code="unreadable")


# Text files that people write: UTF-8 with or without a byte order mark; an error names other encodings.
_LOOKED_AT = 64


def read_file(path: AnyPath | str | os.PathLike[str], limit: Limit = LISTS) -> bytes:
    """Return the content of a file, or raise InputError if it cannot be read, or is larger than allowed."""
    try:
        return any_path(path).read_whole(limit)
    except OSError as error:
        raise unreadable(str(path), error) from None


def read_text(path: AnyPath | str | os.PathLike[str], limit: Limit = LISTS) -> str:
    """Return the text of a file, or raise InputError if it cannot be read, or is not UTF-8."""
    data = read_file(path, limit)
    try:
        return decoded(data)
    except ValueError as error:
        raise InputError(f"{path} {error}") from None


def read_paths(path: AnyPath) -> bytes:
    """Return the text of a file of paths, which need not be UTF-8, without a byte order mark."""
    data = read_file(path)
    try:
        return without_mark(data)
    except ValueError as error:
        raise InputError(f"{path} {error}") from None


def decoded(data: bytes) -> str:
    """Return the text in the content of a file, or raise ValueError if it is not UTF-8."""
    try:
        return without_mark(data).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None


def without_mark(start: bytes) -> bytes:
    """Return UTF-8 without its byte order mark, or raise ValueError if it evidently is another encoding."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start[:_LOOKED_AT]:
        raise ValueError("is UTF-16, UTF-32 or binary; save it as UTF-8")
    return start.removeprefix(codecs.BOM_UTF8)


class Boundary:
    """The folder that all files of a source are in, with links followed, unless the user allows others.

    Whoever wrote the annotations of a source may name any path; a file elsewhere is neither read nor quoted.
    """

    def __init__(self, folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> None:
        """Set the folder; with ``follow_links`` files may be outside it."""
        self._folder = os.fsencode(folder)
        self._below = os.path.join(os.path.realpath(self._folder), b"")
        self._follow_links = follow_links
        # by folder
        self._real_folders: dict[bytes, bytes] = {}

    def check(self, path: str | bytes | os.PathLike[str], given: str | None = None) -> bytes:
        """Return the path of a file, which need not exist, relative to the folder, with links followed.

        Raises:
            InputError: the file may not be read; ``given`` is how its path was written.
        """
        real = self._real(os.fsencode(path))
        if not (self._follow_links or os.path.join(real, b"").startswith(self._below)):
            raise outside(self._folder, os.fsdecode(path) if given is None else given)
        is_below = real.startswith(self._below)
        return real[len(self._below) :] if is_below else os.path.relpath(real, self._below)

    def _real(self, path: bytes) -> bytes:
        if b"\0" in path:
            # it cannot exist
            return self._below
        # not normpath: after a link, ".." is the folder that holds the target of the link
        folder, name = os.path.split(path)
        if name in (b"", b".", b"..") or os.path.islink(path):
            return os.path.realpath(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        return os.path.join(self._real_folders[folder], name)


def outside(folder: bytes, given: str) -> InputError:
    """Return the error for a path that leaves a folder."""
    return InputError(
        f"{given!r} is outside {os.fsdecode(folder)}; give the folder that holds all files with root=, or "
        "allow this with follow_links=True",
        code="outside-folder",
    )
