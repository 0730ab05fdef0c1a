"""``any_path``: a local path or a URL as a value with the methods of a path."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from tfshards.schemas.errors import OptionsError
from tfshards.schemas.option import check_path
from tfshards.schemas.storage.remote_path import AnyPath, RemotePath
from tfshards.schemas.storage.stores import SCHEMES, require_obstore

# A URL, of which pathlib keeps one slash; a single letter is a drive.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)")
_WITHOUT_SLASHES = re.compile(rf"({'|'.join(SCHEMES)}):", re.IGNORECASE)
# greedy, since a password may contain @
_USER = re.compile(r"^([^:/]*:/*)[^/]*@")


def is_remote(path: object) -> bool:
    """Return whether a path is a URL, of any scheme."""
    if isinstance(path, RemotePath):
        return True
    return isinstance(path, (str, bytes, os.PathLike)) and _URL.match(os.fsdecode(path)) is not None


def is_same(one: AnyPath, other: AnyPath) -> bool:
    """Return whether two paths name the same file or folder, also by links."""
    if isinstance(one, Path) and isinstance(other, Path):
        return os.path.realpath(one) == os.path.realpath(other)
    return one == other


def is_inside(path: AnyPath, folder: AnyPath) -> bool:
    """Return whether a path is a folder or below it, also by links."""
    if isinstance(path, RemotePath) or isinstance(folder, RemotePath):
        return folder in (path, *path.parents)
    inside, real = os.path.realpath(path), os.path.realpath(folder)
    return inside == real or inside.startswith(os.path.join(real, ""))


def name_below(path: AnyPath, folder: AnyPath) -> str:
    """Return the part of a path below a folder that holds it, with slashes."""
    kind = Path if isinstance(path, Path) else PurePosixPath
    return kind(str(path)).relative_to(str(folder)).as_posix()


def without_user(url: str) -> str:
    """Return a URL without the user and the password before its host."""
    return _USER.sub(r"\1", url)


def check_expanded(path: str) -> None:
    """Raise OptionsError if a path starts with the ``~`` of a home folder, which a shell has not expanded."""
    expanded = os.path.expanduser(path)
    if path.startswith("~") and expanded != path:
        raise OptionsError("home-not-expanded", path=path, expanded=expanded)


def any_path(given: str | bytes | os.PathLike[str] | RemotePath) -> AnyPath:
    """Return a local path, or the ``RemotePath`` of a URL such as ``s3://BUCKET/KEY``.

    Raises:
        OptionsError: it is a URL of another scheme, or is not of this form, or the extra ``remote`` is not
            installed; or it starts with the ``~`` of a home folder.
    """
    if isinstance(given, RemotePath):
        return given
    check_path("path", given)
    text = os.fsdecode(given)
    url = _URL.match(text)
    if not url:
        short = _WITHOUT_SLASHES.match(text)
        if short:
            shown = without_user(text)
            raise OptionsError("url-one-slash", shown=shown, short=short[0], shown2=shown[short.end() :])
        check_expanded(text)
        # a pathlib.Path drops the "./" that says that ~ begins a name
        return Path.cwd() / text if text.startswith("./~") else Path(text)
    scheme = url[1].lower()
    if scheme not in SCHEMES:
        raise OptionsError(
            "url-scheme-unknown", text=without_user(text), schemes=[f"{s}://" for s in SCHEMES]
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
        raise OptionsError("url-invalid", shown=shown, scheme=scheme)
    require_obstore()
    return RemotePath(scheme, bucket, key)
