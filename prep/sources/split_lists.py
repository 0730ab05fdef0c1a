"""Lists of files, such as ``train.txt``, that give the splits of a source."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Collection, Mapping

from tfshards.prep.sources.fetching import read_paths
from tfshards.prep.sources.keys import in_any_form, to_text
from tfshards.schemas import InputError
from tfshards.schemas.errors import counted
from tfshards.schemas.storage import AnyPath


def read_split_lists(
    lists: Mapping[str, str], folder: AnyPath, keys: Collection[bytes]
) -> tuple[dict[bytes, str], str]:
    """Return the split of each of the files ``keys`` that lists name, and a digest of the lists.

    The paths of the lists are relative to ``folder``.
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
                raise InputError(
                    f"{path}: names {to_text(found)!r}, which is already in the list of the split "
                    f"{split_of[found]!r}; leave it in one line of one list"
                )
            else:
                split_of[found] = split
        if missing or not lines:
            first = to_text(missing[0])[:100] if missing else ""
            raise InputError(
                f"{path}: {len(missing):,} of its {counted(len(lines), 'line')} name no file of the source, "
                f"such as {first!r}; correct the paths, which are relative to the source or to the folder "
                "of the list, or leave out the lines; labels need a table"
            )
    return split_of, content.hexdigest()
