"""Lists of files, such as ``train.txt``, that give the splits of a source."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfshards.prep.sources.keys import in_any_form, to_text
from tfshards.prep.sources.text_files import read_paths
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import counted
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.any_path import is_absolute

# The reason of what is in none of the lists, as manifests count it.
UNLISTED = "in no split list"


def check_split_list(given: object) -> None:
    """Raise OptionsError unless ``given`` maps names of splits to relative paths."""
    pairs: list[tuple[object, object]] = [*given.items()] if isinstance(given, Mapping) else [(given, "")]
    for split, path in pairs:
        is_text = isinstance(split, str) and isinstance(path, str) and bool(path)
        # manifests record no absolute paths
        if not is_text or name_fault(str(split)) or is_absolute(str(path)):
            raise OptionsError("split-list-form", text=f"{split}={path}")


@dataclass(frozen=True)
class SplitLists:
    """The split of each key that lists name."""

    split_of: Mapping[bytes, str]
    digest: str

    def unlisted(self, keys: Collection[bytes]) -> tuple[set[bytes], list[str]]:
        """Return the keys that no list names, and a warning that counts them."""
        left = {key for key in keys if key not in self.split_of}
        shown = f"{counted(len(left), 'file')} {UNLISTED}, such as {to_text(min(left))!r}" if left else ""
        return left, [f"{shown}: left out"] if left else []

    def splits(self, keys: Sequence[bytes]) -> dict[str, IntArray]:
        """Return the numbers of the keys of each split, all of which are listed."""
        splits = np.array([self.split_of[key] for key in keys], object)
        names = [name for name in dict.fromkeys(self.split_of.values()) if (splits == name).any()]
        return {name: np.flatnonzero(splits == name) for name in names}


def read_split_lists(lists: Mapping[str, str], folder: AnyPath, keys: Collection[bytes]) -> SplitLists:
    """Return the splits that lists, whose paths are relative to ``folder``, give the files ``keys``.

    Paths in a list are relative to the source or to the folder of the list, and need no suffix if only one
    file has this name.
    """
    known: dict[bytes, bytes | None] = {}
    for key in keys:
        stem = os.path.splitext(key)[0]
        known[stem] = None if stem in known else key
    known.update({key: key for key in keys})
    split_of: dict[bytes, str] = {}
    content = hashlib.sha256()
    for split, name in lists.items():
        path = folder / name
        data = read_paths(path)
        content.update(data)
        folder_of_list = os.fsencode(posixpath.dirname(name))
        lines = [line for line in map(bytes.strip, data.splitlines()) if line]
        missing: list[bytes] = []
        for line in lines:
            written = line.lstrip(b"/").replace(b"\\", b"/")
            candidates = map(os.path.normpath, (written, os.path.join(folder_of_list, written)))
            found = next(filter(None, (in_any_form(each, known.get) for each in candidates)), None)
            if found is None:
                missing.append(line)
            elif found in split_of:
                raise InputError("split-list-repeated", path=path, key=to_text(found), split=split_of[found])
            else:
                split_of[found] = split
        if missing or not lines:
            first = to_text(missing[0])[:100] if missing else ""
            raise InputError(
                "split-list-missing", path=path, num_missing=len(missing), count=len(lines), first=first
            )
    return SplitLists(split_of, content.hexdigest())
