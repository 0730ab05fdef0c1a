"""The state of an export on disk: what finished parts have written, and the commit, which lists all files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tfshards.prep.exporting.format import PIECES, STATE, WrittenFile
from tfshards.schemas import InputError
from tfshards.schemas.files import write_atomically
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.storage.untrusted import RECORD, read_whole

# The commit of an export, written last: what was exported, and all of its files.
COMMIT = ".export.json"
# What is exported by a run that has not ended.
_IDENTITY = "export.json"

# The fingerprint and the files of finished parts, by number.
Known: TypeAlias = Mapping[int, tuple[str, tuple[WrittenFile, ...]]]


def read_known(directory: Path, identity: Json) -> Known:
    """Return the parts that earlier runs have written to a directory; damaged states are none.

    Raises:
        InputError: the directory holds something else than this export.
    """
    if (directory / COMMIT).is_file():
        document = _object(directory / COMMIT)
        _check_same(directory, document.get("identity"), identity)
        return _parts(enumerate(_list(document.get("parts"))))
    state = directory / STATE
    if state.is_dir():
        if (state / _IDENTITY).is_file():
            _check_same(directory, _object(state / _IDENTITY).get("identity"), identity)
        return _parts((int(path.stem), _loaded(path)) for path in state.glob("[0-9]*.json"))
    if any(directory.iterdir()):
        raise InputError("export-not-empty", directory=directory)
    return {}


def read_binary(directory: Path) -> frozenset[str]:
    """Return the features that an earlier run of the same export has found not to be UTF-8."""
    path = directory / COMMIT if (directory / COMMIT).is_file() else directory / STATE / _IDENTITY
    found = _object(path).get("binary") if path.is_file() else None
    return (
        frozenset(name for name in found if isinstance(name, str)) if isinstance(found, list) else frozenset()
    )


def start(directory: Path, identity: Json, binary: frozenset[str], kept: Known) -> None:
    """Write what is exported and the states of the parts that are kept, and remove an earlier commit."""
    (directory / STATE).mkdir(exist_ok=True)
    document: Json = {"identity": identity, "binary": list[Json](sorted(binary))}
    write_atomically(directory / STATE / _IDENTITY, _text(document))
    for number, (mark, files) in kept.items():
        write_state(directory, number, mark, files)
    (directory / COMMIT).unlink(missing_ok=True)


def write_state(directory: Path, number: int, mark: str, files: Iterable[WrittenFile]) -> None:
    """Record that a part is finished."""
    state: Json = [mark, [list(file) for file in files]]
    write_atomically(directory / STATE / f"{number:05d}.json", _text(state))


def forget(directory: Path, number: int) -> None:
    """Remove the state of a part before its files are written again."""
    (directory / STATE / f"{number:05d}.json").unlink(missing_ok=True)


def commit(
    directory: Path, identity: Json, binary: frozenset[str], parts: Known, files: Sequence[WrittenFile]
) -> None:
    """Write the commit; after it, nothing of the state is needed."""
    document: Json = {
        "identity": identity,
        "binary": list[Json](sorted(binary)),
        "parts": [[mark, [list(file) for file in some]] for _, (mark, some) in sorted(parts.items())],
        "files": [list(file) for file in files],
    }
    write_atomically(directory / COMMIT, _text(document))


def committed_files(directory: Path) -> tuple[WrittenFile, ...] | None:
    """Return the files of a finished export that follow from all parts; None if it is not finished."""
    if not (directory / COMMIT).is_file():
        return None
    try:
        return _files(_object(directory / COMMIT).get("files"))
    except ValueError:
        return None


def is_piece(file: WrittenFile) -> bool:
    """Return whether a file is only there for ``Format.finish``, and removed after the commit."""
    return file.path.startswith(PIECES)


def _parts(states: Iterable[tuple[int, Json]]) -> Known:
    known = {}
    for number, state in states:
        try:
            mark, files = _list(state)
            known[number] = (str(mark), _files(files))
        except ValueError:
            # the part is written again
            continue
    return known


def _files(value: Json) -> tuple[WrittenFile, ...]:
    files = []
    for item in _list(value):
        path, num_bytes, digest = _list(item)
        if not isinstance(num_bytes, int) or {"", ".."} & set(str(path).split("/")):
            raise ValueError("is not a file in the directory and its number of bytes")
        files.append(WrittenFile(str(path), num_bytes, str(digest)))
    return tuple(files)


def _list(value: Json) -> list[Json]:
    """Return a list; raise ValueError if it is none."""
    if not isinstance(value, list):
        raise ValueError("is not a list")
    return value


def _check_same(directory: Path, found: Json, identity: Json) -> None:
    if found == identity:
        return
    what = found if isinstance(found, dict) else {}
    raise InputError(
        "export-other",
        directory=directory,
        get=what.get("to"),
        get2=what.get("name"),
        get3=what.get("build_id"),
    )


def _object(path: Path) -> dict[str, Json]:
    value = _loaded(path)
    return value if isinstance(value, dict) else {}


def _loaded(path: Path) -> Json:
    try:
        value: Json = load_json(read_whole(path, RECORD))
    except ValueError:
        return None
    return value


def _text(value: Json) -> bytes:
    return (json.dumps(value) + "\n").encode("ascii")
