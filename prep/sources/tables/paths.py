"""Paths in a table that differ from the files: without a suffix, with backslashes, or patterns."""

from __future__ import annotations

import glob
import os

import pyarrow as pa

from tfshards.prep.imaging.formats import SUFFIXES
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.tables.assigned_columns import is_template
from tfshards.prep.sources.tables.features import TEXT
from tfshards.prep.sources.tables.images import is_url, leaves
from tfshards.prep.sources.tree import suffix_of
from tfshards.schemas import InputError
from tfshards.schemas.errors import counted, listed


def found_paths(root: bytes, column: str, paths: pa.ChunkedArray) -> tuple[pa.ChunkedArray, list[str]]:
    """Return the paths of the files that exist in a local folder for paths of a column, and lines on them.

    A path without the suffix of an image stands for the only image file with this name and a suffix; a path
    with backslashes, for which there is no file, is read with slashes. A template with ``*`` in its folders
    stands for the only file that it matches.
    """
    is_pattern = is_template(column) and "*" in column
    if is_url(root):
        if is_pattern:
            raise InputError("template-pattern-remote", template=column, root=to_text(root))
        return paths, []
    listings: dict[bytes, dict[bytes, list[str]]] = {}
    written = paths.to_pylist()
    if is_pattern:
        return pa.chunked_array([pa.array(_matched(root, written, column), TEXT)]), []
    found = [_found(root, path, column, listings) for path in written]
    changed = [(path, other) for path, other in zip(written, found, strict=True) if path != other]
    lines = []
    for what, has_backslash in (("with backslashes", True), ("without a suffix", False)):
        if pairs := [pair for pair in changed if (b"\\" in pair[0]) == has_backslash]:
            path, other = map(to_text, pairs[0])
            number = counted(len(pairs), "path")
            lines.append(f"column {column!r}: {number} {what}, such as {path!r} for the file {other!r}")
    return pa.chunked_array([pa.array(found, TEXT)]) if changed else paths, lines


def _found(root: bytes, path: bytes, column: str, listings: dict[bytes, dict[bytes, list[str]]]) -> bytes:
    """Return the path of the file that a path names, or the path itself; folders are listed once."""
    is_written = suffix_of(path) in SUFFIXES and b"\\" not in path
    if is_written or not path or b"\0" in path or is_url(path) or os.path.isfile(os.path.join(root, path)):
        return path
    slashed = path.replace(b"\\", b"/")
    if leaves(root, slashed):
        return path
    if suffix_of(slashed) in SUFFIXES:
        return slashed if os.path.isfile(os.path.join(root, slashed)) else path
    folder, name = os.path.split(slashed)
    if folder not in listings:
        listings[folder] = _files(os.path.join(root, folder))
    fitting = listings[folder].get(name, [])
    if len(fitting) > 1:
        raise InputError("image-path-several", column=column, path=to_text(path), found=listed(fitting, 3))
    return os.path.join(folder, os.fsencode(fitting[0])) if fitting else path


def _matched(root: bytes, paths: list[bytes], column: str) -> list[bytes]:
    """Return the only file that each pattern matches, or the pattern itself; folders are listed once."""
    listings: dict[bytes, dict[bytes, list[bytes]]] = {}
    found = []
    for path in paths:
        pattern, name = os.path.split(path)
        if pattern not in listings:
            listings[pattern] = {}
            for folder in sorted(glob.glob(os.path.join(glob.escape(root), pattern, b""))):
                for each in os.listdir(folder):
                    listings[pattern].setdefault(each, []).append(os.path.relpath(folder + each, root))
        fitting = listings[pattern].get(name, [path])
        if len(fitting) > 1:
            shown = listed([*map(to_text, fitting)], 3)
            raise InputError("template-matches-several", template=column, path=to_text(path), found=shown)
        found.append(fitting[0])
    return found


def _files(folder: bytes) -> dict[bytes, list[str]]:
    """Return the image files in a folder by their names without a suffix."""
    found: dict[bytes, list[str]] = {}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        # the file is missing, which is reported with its row
        return found
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in SUFFIXES:
            found.setdefault(stem, []).append(os.fsdecode(name))
    return found
