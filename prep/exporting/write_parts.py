"""Write the parts of an export, so that a killed one resumes: state on disk, verification, commit."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tfshards.prep.exporting.format import PIECES, STATE, Format, WrittenFile, WrittenPart
from tfshards.prep.exporting.request import ExportedExample, ExportPart, ExportRequest, read_examples
from tfshards.prep.progress.threads import Tick
from tfshards.prep.records.example import Values, example_encoder
from tfshards.schemas import InputError
from tfshards.schemas.files import read_once, sync_directory, write_atomically
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


# Raised when what is written changes for the same records, so that unfinished exports start over.
_LAYOUT = 1
# Up to this number of files each is flushed by itself; for more, one flush of all file systems is faster.
_SYNCED_FILES = 16


class Target(NamedTuple):
    """Where an export is written.

    Attributes:
        directory: the directory of the export.
        format: its format.
        known: the files of earlier parts by number, with the fingerprint of their part.
        owners: the number of the part that has written a path, of all parts that are finished.
        lock: guards ``owners``.
    """

    directory: Path
    format: Format
    known: Known
    owners: dict[str, int]
    lock: threading.Lock


def fingerprint(request: ExportRequest, part: ExportPart, chosen: Format) -> str:
    """Return a hash of all that the files of a part depend on."""
    content: Json = [
        _LAYOUT,
        chosen.name,
        chosen.version(),
        request.manifest.name,
        dict(request.schema.to_json()),
        list[Json](sorted(request.binary)),
        [part.split, part.index, part.count, part.first, part.shard.examples_digest, part.shard.digest],
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()


def is_finished(target: Target, request: ExportRequest, part: ExportPart, *, with_pieces: bool) -> bool:
    """Return whether the files of a part were written earlier and are unchanged, by size and digest.

    Pieces do not count if the files that follow from them are there, ``with_pieces=False``.
    """
    mark, files = target.known.get(part.number, ("", ()))
    if mark != fingerprint(request, part, target.format):
        return False
    return all(is_unchanged(target.directory, file) for file in files if with_pieces or not is_piece(file))


def is_unchanged(directory: Path, file: WrittenFile) -> bool:
    """Return whether a file has the size and the digest that were recorded."""
    path = directory / file.path
    try:
        return path.stat().st_size == file.num_bytes and read_once(path)[1] == file.digest
    except OSError:
        return False


def write_part(target: Target, request: ExportRequest, part: ExportPart, tick: Tick) -> WrittenPart:
    """Write the files of one part.

    Raises:
        RecordError: a record of the dataset is damaged.
        InputError: a file that was read back differs from the records, or belongs to another part as well.
        NotTextError: a byte string is not UTF-8.
        OSError: a file cannot be written.
    """
    _remove_earlier(target, part)
    folder = target.directory / STATE / f"part-{part.number:05d}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = _Digested(request, part, tick)
    target.format.write(request, part, folder, source)
    files = _describe(folder)
    _compare(target.format.read(request, part, folder), request, source, part, tick)
    _sync([folder / file.path for file in files])
    with target.lock:
        for file in files:
            owner = target.owners.setdefault(file.path, part.number)
            if owner != part.number:
                raise InputError("export-same-path", path=file.path)
    for file in files:
        path = target.directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / file.path, path)
    for parent in {(target.directory / file.path).parent for file in files}:
        sync_directory(parent)
    shutil.rmtree(folder)
    write_state(target.directory, part.number, fingerprint(request, part, target.format), files)
    return WrittenPart(part, files)


class _Digested:
    """The examples of a part, and after an iteration a digest of their values."""

    def __init__(self, request: ExportRequest, part: ExportPart, tick: Tick) -> None:
        self._arguments = request, part, tick
        self._digest = _ValuesDigest(request)

    def __iter__(self) -> Iterator[ExportedExample]:
        self._digest = _ValuesDigest(self._arguments[0])
        for example in read_examples(*self._arguments):
            self._digest.add(example.values)
            yield example

    @property
    def value(self) -> tuple[int, str]:
        """The number of examples, and the digest of their values."""
        return self._digest.value


class _ValuesDigest:
    """A digest of the values of examples in order, which does not depend on how they are stored."""

    def __init__(self, request: ExportRequest) -> None:
        self._names = request.schema.names
        self._encode = example_encoder(request.schema)
        self._digest = hashlib.sha256()
        self._count = 0

    def add(self, values: Mapping[str, Values]) -> None:
        parts = self._encode([values[name] for name in self._names])
        self._digest.update(sum(map(len, parts)).to_bytes(8, "little"))
        for part in parts:
            self._digest.update(part)
        self._count += 1

    @property
    def value(self) -> tuple[int, str]:
        return self._count, self._digest.hexdigest()


def _compare(
    found: Iterator[Mapping[str, Values]],
    request: ExportRequest,
    source: _Digested,
    part: ExportPart,
    tick: Tick,
) -> None:
    """Raise InputError unless the values that were read back equal the records."""
    digest = _ValuesDigest(request)
    share = (part.shard.record_bytes // part.shard.num_examples) if part.shard.num_examples else 0
    for values in found:
        digest.add(values)
        tick(share)
    if digest.value != source.value:
        raise InputError("export-differs", part=part.name, split=part.split)


def _describe(folder: Path) -> tuple[WrittenFile, ...]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = []
    for path in paths:
        num_bytes, digest, _ = read_once(path)
        files.append(WrittenFile(path.relative_to(folder).as_posix(), num_bytes, digest))
    return tuple(files)


def _sync(paths: Sequence[Path]) -> None:
    if len(paths) > _SYNCED_FILES:
        os.sync()
        return
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _remove_earlier(target: Target, part: ExportPart) -> None:
    """Remove the files of a part that are written again, first of all its state file."""
    forget(target.directory, part.number)
    for file in target.known.get(part.number, ("", ()))[1]:
        (target.directory / file.path).unlink(missing_ok=True)
