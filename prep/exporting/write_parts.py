"""Write the parts of an export, so that a killed one resumes: the journal, and one part.

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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import cast

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
from tfshards.prep.writing.area import PHASES, BuildArea, ShardId
from tfshards.prep.writing.running import Running, stopping
from tfshards.schemas import BuildError, InputError, Shard
from tfshards.schemas.build_area import make_folder
from tfshards.schemas.files import read_once, sync_directory, write_atomically
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import RECORD, read_whole

JOURNAL = f"{STATE}/journal.jsonl"
# Raised when what is written changes for the same records, so that unfinished exports start over.
_LAYOUT = 2
# Examples between two reports of progress.
_EXAMPLES = 256


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
        make_folder(directory, JOURNAL)
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
    request, directory = task.request, Path(str(task.area.out))
    folder = Path(str(task.area.new_path(f"part-{part.number:05d}")))
    folder.mkdir()
    FORMATS[task.to].write(request, part, folder, _reported(task, part, read_examples(request, part)))
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = tuple(written_file(folder, path) for path in paths)
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for each in files:
        path = directory / each.path
        make_folder(directory, each.path)
        os.replace(folder / each.path, path)
    for parent in {(directory / each.path).parent for each in files}:
        sync_directory(parent)
    shutil.rmtree(folder)
    return files


def _reported(
    task: ExportTask, part: ExportPart, examples: Iterable[ExportedExample]
) -> Iterator[ExportedExample]:
    """Yield the examples and report them; raise BuildError if the export has stopped meanwhile."""
    running, num_examples = Running(task.area), 0
    share = part.shard.record_bytes // max(1, part.shard.num_examples)
    for example in examples:
        if num_examples == _EXAMPLES:
            task.reporter.report(num_examples, num_examples * share)
            num_examples = 0
        if not num_examples:
            running.check_often()
        yield example
        num_examples += 1
    task.reporter.report(num_examples, num_examples * share)


def written_file(folder: Path, path: Path) -> WrittenFile:
    """Return the description of a file in a folder."""
    num_bytes, digest, _ = read_once(path)
    return WrittenFile(path.relative_to(folder).as_posix(), num_bytes, digest)
