"""Write the parts of an export, so that a killed one resumes: the journal, verification, one part.

The journal has one JSON value per line: what is exported, then one line per finished part and, in a finished
export, the files that follow from all parts. Lines are appended; the last one of a killed run may be torn.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, cast

from tfshards.prep.exporting.format import STATE, Format, WrittenFile, WrittenPart
from tfshards.prep.exporting.request import ExportedExample, ExportPart, ExportRequest, read_examples
from tfshards.prep.progress.threads import Tick
from tfshards.prep.records.example import Values, example_encoder
from tfshards.schemas import InputError
from tfshards.schemas.files import read_once, sync_directory, write_atomically
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.storage.untrusted import RECORD, read_whole

JOURNAL = f"{STATE}/journal.jsonl"
# Raised when what is written changes for the same records, so that unfinished exports start over.
_LAYOUT = 2
# Up to this number of files each is flushed by itself; for more, one flush of all file systems is faster.
_SYNCED_FILES = 16


@dataclass(frozen=True)
class Journal:
    """What is known of an export: finished parts with their fingerprints and, at the end, other files."""

    identity: Json
    binary: frozenset[str] = frozenset()
    parts: Mapping[int, tuple[str, tuple[WrittenFile, ...]]] = field(default_factory=dict)
    files: tuple[WrittenFile, ...] | None = None

    def write(self, directory: Path) -> None:
        """Write the journal; with ``files`` this is the commit of the export."""
        lines: list[Json] = [{"export": self.identity, "binary": list[Json](sorted(self.binary))}]
        lines += [_part_entry(number, *part) for number, part in sorted(self.parts.items())]
        if self.files is not None:
            lines.append({"files": [list(file) for file in self.files]})
        (directory / STATE).mkdir(exist_ok=True)
        for left in (directory / STATE).glob(".*.tmp"):
            left.unlink()
        write_atomically(directory / JOURNAL, b"".join(map(_line, lines)))


def read_journal(directory: Path, identity: Json) -> Journal:
    """Return what earlier runs have written to a directory; lines that are damaged do not count."""
    if not (directory / JOURNAL).is_file():
        if any(path.name != STATE for path in directory.iterdir()):
            raise InputError("export-not-empty", directory=directory)
        return Journal(identity)
    first, *others = map(_entry, read_whole(directory / JOURNAL, RECORD).split(b"\n"))
    found = first.get("export")
    if found != identity:
        what = found if isinstance(found, dict) else {}
        raise InputError(
            "export-other",
            directory=directory,
            get=what.get("to"),
            get2=what.get("name"),
            get3=what.get("build_id"),
        )
    parts, finished = {}, None
    for entry in others:
        with suppress(ValueError, TypeError):
            files = _files(entry.get("files"))
            if "part" in entry:
                parts[int(str(entry["part"]))] = str(entry.get("mark")), files
            else:
                finished = files
    binary = first.get("binary")
    names = frozenset(map(str, binary)) if isinstance(binary, list) else frozenset()
    return Journal(identity, names, parts, finished)


def _entry(line: bytes) -> dict[str, Json]:
    with suppress(ValueError):
        found = load_json(line)
        return found if isinstance(found, dict) else {}
    return {}


def _files(value: Json) -> tuple[WrittenFile, ...]:
    files = []
    for path, num_bytes, digest in cast("list[list[Json]]", value):
        if not isinstance(num_bytes, int) or {"", ".."} & set(str(path).split("/")):
            raise ValueError("is not a file in the directory and its number of bytes")
        files.append(WrittenFile(str(path), num_bytes, str(digest)))
    return tuple(files)


def _part_entry(number: int, mark: str, files: Iterable[WrittenFile]) -> Json:
    return {"part": number, "mark": mark, "files": [list(file) for file in files]}


def _line(entry: Json) -> bytes:
    return (json.dumps(entry) + "\n").encode("ascii")


class Target(NamedTuple):
    """Where an export is written; ``owners`` has the part of each path, guarded by ``lock``."""

    directory: Path
    format: Format
    owners: dict[str, int]
    lock: threading.Lock


def fingerprint(request: ExportRequest, part: ExportPart, chosen: Format) -> str:
    """Return a hash of all that the files of a part depend on."""
    content: Json = [
        _LAYOUT,
        chosen.name,
        version(chosen.package) if chosen.package else "",
        request.manifest.name,
        dict(request.schema.to_json()),
        list[Json](sorted(request.binary)),
        [part.split, part.index, part.count, part.first, part.shard.examples_digest, part.shard.digest],
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()


def is_unchanged(directory: Path, file: WrittenFile) -> bool:
    """Return whether a file has the size and the digest that were recorded."""
    path = directory / file.path
    try:
        return path.stat().st_size == file.num_bytes and read_once(path)[1] == file.digest
    except OSError:
        return False


def write_part(target: Target, request: ExportRequest, part: ExportPart, tick: Tick) -> WrittenPart:
    """Write the files of one part."""
    folder = target.directory / STATE / f"part-{part.number:05d}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written, read_back = _ValuesDigest(request), _ValuesDigest(request)
    target.format.write(request, part, folder, _digested(read_examples(request, part, tick), written))
    share = part.shard.record_bytes // max(1, part.shard.num_examples)
    for values in target.format.read(request, part, folder):
        read_back.add(values)
        tick(share)
    if read_back.value != written.value:
        raise InputError("export-differs", part=part.name, split=part.split)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = tuple(written_file(folder, path) for path in paths)
    _sync(paths)
    with target.lock:
        for file in files:
            if target.owners.setdefault(file.path, part.number) != part.number:
                raise InputError("export-same-path", path=file.path)
    for file in files:
        path = target.directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / file.path, path)
    for parent in {(target.directory / file.path).parent for file in files}:
        sync_directory(parent)
    shutil.rmtree(folder)
    line = _line(_part_entry(part.number, fingerprint(request, part, target.format), files))
    with target.lock, (target.directory / JOURNAL).open("ab") as journal:
        journal.write(line)
        journal.flush()
        os.fsync(journal.fileno())
    return WrittenPart(part, files)


class _ValuesDigest:
    """A digest of the values of examples in order, which does not depend on how they are stored."""

    def __init__(self, request: ExportRequest) -> None:
        self._names = request.schema.names
        self._encode = example_encoder(request.schema)
        self._digest = hashlib.sha256()

    def add(self, values: Mapping[str, Values]) -> None:
        parts = self._encode([values[name] for name in self._names])
        self._digest.update(sum(map(len, parts)).to_bytes(8, "little"))
        for part in parts:
            self._digest.update(part)

    @property
    def value(self) -> str:
        return self._digest.hexdigest()


def _digested(examples: Iterable[ExportedExample], digest: _ValuesDigest) -> Iterator[ExportedExample]:
    for example in examples:
        digest.add(example.values)
        yield example


def written_file(folder: Path, path: Path) -> WrittenFile:
    """Return the description of a file in a folder."""
    num_bytes, digest, _ = read_once(path)
    return WrittenFile(path.relative_to(folder).as_posix(), num_bytes, digest)


def _sync(paths: Sequence[Path]) -> None:
    if len(paths) > _SYNCED_FILES:
        os.sync()
        return
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
