"""``any_path``: a local path or a URL as a value with the methods of a path; and what names of both mean."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from pathlib import Path

from tfshards.schemas.errors import OptionsError, check_path
from tfshards.schemas.storage.remote_path import AnyPath, RemotePath
from tfshards.schemas.storage.stores import SCHEMES, require_obstore

# A URL, of which pathlib keeps one slash, or a known scheme; a single letter is a drive.
_URL = re.compile(rf"({'|'.join(SCHEMES)}|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):(/*)", re.IGNORECASE)
# greedy, since a password may contain @
_USER = re.compile(r"^([^:/]*:/*)[^/]*@")


def is_remote(path: object) -> bool:
    """Return whether a path is a URL, of any scheme."""
    if isinstance(path, RemotePath):
        return True
    return isinstance(path, (str, bytes, os.PathLike)) and _URL.match(os.fsdecode(path)) is not None


def on_disk(path: AnyPath) -> Path | None:
    """Return the path of what can be mapped into memory, opened in place or linked; None for objects."""
    return path if isinstance(path, Path) else None


def in_store(path: AnyPath) -> RemotePath | None:
    """Return the path of objects, which are listed with their status; None for files on disks."""
    return path if isinstance(path, RemotePath) else None


def is_absolute(text: str) -> bool:
    """Return whether the text of a path means the same in every folder: it is absolute, or a URL."""
    return os.path.isabs(text) or is_remote(text)


def absolute(path: AnyPath) -> AnyPath:
    """Return a path with the names of all folders above it, without following links."""
    return Path(os.path.abspath(path)) if isinstance(path, Path) else path


def absolute_name(folder: AnyPath) -> str:
    """Return the name of a folder, which may be the current one, or a whole bucket."""
    return absolute(folder).name


def real_name(path: AnyPath) -> str:
    """Return the text of an absolute path, with links followed, or of a URL."""
    return os.path.realpath(path) if isinstance(path, Path) else str(path)


def is_inside(path: AnyPath, folder: AnyPath) -> bool:
    """Return whether a path is a folder or below it, also by links."""
    inside, real = real_name(path), real_name(folder)
    return inside == real or inside.startswith(os.path.join(real, ""))


def matching(pattern: AnyPath, folder: AnyPath, compiled: Callable[[str], re.Pattern[str]]) -> list[AnyPath]:
    """Return the files below a folder whose paths match a pattern, in which ``**`` matches across folders.

    ``compiled`` returns the regular expression for keys of objects.
    """
    if isinstance(pattern, RemotePath) and isinstance(folder, RemotePath):
        matches = compiled(pattern.key).fullmatch
        return [path for path, _ in folder.walk() if matches(path.key)]
    return [Path(each) for each in glob.glob(str(pattern), recursive=True)]


def check_expanded(path: str) -> None:
    """Raise OptionsError if a path starts with the ``~`` of a home folder, which a shell has not expanded."""
    expanded = os.path.expanduser(path)
    if path.startswith("~") and expanded != path:
        raise OptionsError(
            f"{path} starts with ~, which the shell did not expand, since it is in quotes or follows =; "
            f"give {expanded}, or ./{path} if ~ is the beginning of a name"
        )


def local_path(path: str | bytes | os.PathLike[str]) -> Path:
    """Return ``path``, or raise OptionsError if it is a URL, whose scheme would name a local folder."""
    check_path("path", path)
    text = os.fsdecode(path)
    if is_remote(path):
        raise OptionsError(
            f"{_without_user(text)} is a URL, but only local paths, without file://, are supported; copy "
            "the files to a local disk, or mount their storage"
        )
    check_expanded(text)
    return Path(text)


def any_path(given: str | bytes | os.PathLike[str] | RemotePath, name: str = "path") -> AnyPath:
    """Return a local path, or the ``RemotePath`` of a URL such as ``s3://BUCKET/KEY``.

    Raises:
        OptionsError: it is a URL of another scheme, or is not of this form, or the extra ``remote`` is not
            installed; or it starts with the ``~`` of a home folder. ``name`` is that of the parameter.
    """
    if isinstance(given, RemotePath):
        return given
    check_path(name, given)
    text = os.fsdecode(given)
    url = _URL.match(text)
    if not url:
        check_expanded(text)
        # a pathlib.Path drops the "./" that says that ~ begins a name
        return Path.cwd() / text if text.startswith("./~") else Path(text)
    scheme = url[1].lower()
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise OptionsError(
            f"{_without_user(text)} is a URL of an unknown kind; only {known} and local paths, without "
            "file://, are supported: copy the files there, or to a local disk"
        )
    bucket, _, key = text[url.end() :].partition("/")
    key = key.removesuffix("/")
    # a pathlib.Path has one slash, and neither empty parts nor a slash at its end
    has_slashes = isinstance(given, os.PathLike) or url[2] == "//"
    is_plain = not key or not {"", ".", ".."} & {*key.split("/")}
    if not has_slashes or not bucket or not is_plain or ":" in bucket or "@" in bucket:
        # a password is not printed
        port = bucket.partition(":")[2]
        shown = f"{scheme}://..." if "@" in text or not (port or "0").isdecimal() else text
        raise OptionsError(
            f"{shown} is not a URL of a file or folder; write {scheme}://BUCKET/FOLDER, without empty "
            "parts, . or ..; credentials and the address of a server belong in the environment "
            "(docs/buckets.md)"
        )
    require_obstore()
    return RemotePath(scheme, bucket, key)


def _without_user(url: str) -> str:
    """Return a URL without the user and the password before its host."""
    return _USER.sub(r"\1", url)
