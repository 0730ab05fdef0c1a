"""Write the parts of an export, so that a killed one resumes: the journal, verification, one part.

The journal has one JSON value per line: what is exported, then one line per part that an earlier run finished
and, in a finished export, the files that follow from all parts. While parts are written, the line of each is
in a file of its own in the build area, since workers in other processes write them.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar, cast

from tfshards.prep.exporting.format import STATE, Format, WrittenFile
from tfshards.prep.exporting.request import (
    ExportedExample,
    ExportPart,
    ExportRequest,
    NotTextError,
    read_examples,
)
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.progress.lines import Reporter
from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.writing.area import PHASES, BuildArea, ShardId
from tfshards.prep.writing.running import Running, stopping
from tfshards.schemas import BuildError, InputError, Shard
from tfshards.schemas.files import read_once, sync_directory, write_atomically
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import RECORD, read_whole

Item = TypeVar("Item")

JOURNAL = f"{STATE}/journal.jsonl"
# Raised when what is written changes for the same records, so that unfinished exports start over.
_LAYOUT = 2
# Examples between two reports of progress.
_EXAMPLES = 256
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


def read_journal(directory: Path, identity: Json, area: BuildArea) -> Journal:
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
    for entry in [*others, *finished_parts(area)]:
        with suppress(ValueError, TypeError):
            files = _files(entry.get("files"))
            if "part" in entry:
                parts[int(str(entry["part"]))] = str(entry.get("mark")), files
            else:
                finished = files
    binary = first.get("binary")
    names = frozenset(map(str, binary)) if isinstance(binary, list) else frozenset()
    return Journal(identity, names, parts, finished)


def finished_parts(area: BuildArea) -> list[dict[str, Json]]:
    """Return the lines of the parts that workers have finished, in no order."""
    return [_entry(read_whole(path, RECORD)) for path in (area.root / PHASES[0]).glob("*.done")]


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


@dataclass(frozen=True, kw_only=True)
class ExportTask:
    """What a worker needs to write any part, in addition to its plan file; it is sent to every worker.

    Attributes:
        area: a build area in the directory of the export.
        request: what is exported, without the shards.
        to: name of the format.
        release: release of the format's package, on which the bytes depend, or nothing.
        reporter: receives progress.
    """

    area: BuildArea
    request: ExportRequest
    to: str
    release: str
    reporter: Reporter


def release_of(chosen: Format) -> str:
    """Return the release of a format's package that is installed here, or nothing."""
    return version(chosen.package) if chosen.package else ""


def fingerprint(request: ExportRequest, part: ExportPart, chosen: Format) -> str:
    """Return a hash of all that the files of a part depend on."""
    content: Json = [
        _LAYOUT,
        chosen.name,
        release_of(chosen),
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


def write_plan(area: BuildArea, part: ExportPart) -> None:
    """Write the plan file of a part."""
    area.note_path(PHASES[0], part.id, "plan").write_bytes(json.dumps(asdict(part)).encode("ascii"))


def write_part(task: ExportTask, part_id: ShardId) -> None:
    """Write the files of one part, and record in the build area that it is finished."""
    area, chosen = task.area, FORMATS[task.to]
    done = area.note_path(PHASES[0], part_id, "done")
    with stopping(area, f"{part_id.split} {part_id.shard_index}"):
        if done.exists():
            # a runner that starts its job again after a failure repeats every task
            return
        if (found := release_of(chosen)) != task.release:
            fault = f"has {chosen.package} {found}, but the command runs with {task.release}"
            raise BuildError("worker-unfit", node=platform.node(), fault=fault)
        plan = load_json(read_whole(area.note_path(PHASES[0], part_id, "plan"), RECORD))
        part = ExportPart(**{**plan, "shard": Shard(**plan["shard"])})
        try:
            files = _write_files(task, part)
        except NotTextError as error:
            write_atomically(not_text_path(area), error.args[0].encode())
            raise
        line = _line(_part_entry(part.number, fingerprint(task.request, part, chosen), files))
        write_atomically(done, line)


def not_text_path(area: BuildArea) -> AnyPath:
    """Return the path to which a worker writes the name of a feature that holds other bytes than text."""
    return area.unfinished_path("not-text")


def _write_files(task: ExportTask, part: ExportPart) -> tuple[WrittenFile, ...]:
    request, directory, running = task.request, Path(str(task.area.out)), Running(task.area)
    folder = Path(str(task.area.new_path(f"part-{part.number:05d}")))
    folder.mkdir()
    written, read_back = _ValuesDigest(request), _ValuesDigest(request)
    chosen = FORMATS[task.to]
    chosen.write(request, part, folder, _digested(_watched(read_examples(request, part), running), written))
    num_examples = num_read = 0
    for values in _watched(chosen.read(request, part, folder), running):
        read_back.add(values)
        num_examples += 1
        if num_examples - num_read == _EXAMPLES:
            _report(task, part, num_examples - num_read)
            num_read = num_examples
    _report(task, part, num_examples - num_read)
    if read_back.value != written.value:
        raise InputError("export-differs", part=part.name, split=part.split)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = tuple(written_file(folder, path) for path in paths)
    _sync(paths)
    for file in files:
        path = directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / file.path, path)
    for parent in {(directory / file.path).parent for file in files}:
        sync_directory(parent)
    shutil.rmtree(folder)
    return files


def _watched(items: Iterable[Item], running: Running) -> Iterator[Item]:
    """Yield the items, and raise BuildError if the export has stopped meanwhile."""
    for number, item in enumerate(items):
        if number % _EXAMPLES == 0:
            running.check_often()
        yield item


def _report(task: ExportTask, part: ExportPart, num_examples: int) -> None:
    share = part.shard.record_bytes // max(1, part.shard.num_examples)
    task.reporter.report(num_examples, num_examples * share)


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
