"""Paths from text: of a disk, or the URLs of a store."""

from __future__ import annotations

import os
import re
from typing import TypeAlias

from tfshards.schemas.errors import OptionsError, check_path
from tfshards.schemas.storage.local import LocalPath
from tfshards.schemas.storage.remote import RemotePath
from tfshards.schemas.storage.stores import SCHEMES, require_obstore

# A path of a disk or of a store; ``any_path`` makes it from text.
AnyPath: TypeAlias = LocalPath | RemotePath

# A URL, of which pathlib keeps one slash, or a known scheme; a single letter is a drive.
_URL = re.compile(rf"({'|'.join(SCHEMES)}|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):(/*)", re.IGNORECASE)


def check_expanded(path: str) -> None:
    """Raise OptionsError if a path starts with the ``~`` of a home folder, which a shell has not expanded."""
    expanded = os.path.expanduser(path)
    if path.startswith("~") and expanded != path:
        raise OptionsError(
            f"{path} starts with ~, which the shell did not expand, since it is in quotes or follows =; "
            f"give {expanded}, or ./{path} if ~ is the beginning of a name"
        )


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
        return LocalPath(os.getcwd(), text) if text.startswith("./~") else LocalPath(text)
    scheme = url[1].lower()
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise OptionsError(
            f"{url[0]}... is a URL of an unknown kind; only {known} and local paths, without "
            "file://, are supported: copy the files there, or to a local disk"
        )
    bucket, _, key = text[url.end() :].partition("/")
    key = key.removesuffix("/")
    # a pathlib.Path has one slash, and neither empty parts nor a slash at its end
    has_slashes = isinstance(given, os.PathLike) or url[2] == "//"
    is_plain = not key or not {"", ".", ".."} & {*key.split("/")}
    if not has_slashes or not bucket or not is_plain or ":" in bucket or "@" in bucket:
        # a password is not printed
        shown = f"{scheme}://..." if "@" in text or ":" in bucket else text
        raise OptionsError(
            f"{shown} is not a URL of a file or folder; write {scheme}://BUCKET/FOLDER, without empty "
            "parts, . or ..; credentials and the address of a server belong in the environment "
            "(docs/buckets.md)"
        )
    require_obstore()
    return RemotePath(scheme, bucket, key)


def local_path(path: str | bytes | os.PathLike[str]) -> LocalPath:
    """Return the path that ``any_path`` returns, or raise OptionsError if it is in a store."""
    found = any_path(path)
    if isinstance(found, RemotePath):
        raise OptionsError(
            f"{found} is a URL, but only local paths are supported; copy the files to a local disk, or mount "
            "their storage"
        )
    return found
