"""Export a dataset to the format of another tool: in parallel, resumable, and read back before it counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tfshards.prep.exporting.format import PIECES, Format, WrittenFile, WrittenPart
from tfshards.prep.exporting.request import ExportPart, ExportRequest, NotTextError, make_request
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.exporting.write_parts import (
    Journal,
    Target,
    fingerprint,
    is_unchanged,
    read_journal,
    write_part,
    written_file,
)
from tfshards.prep.progress.lines import Log, Meter, report_line, takes_log, to_stderr
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.schemas import FormatError, InputError, OptionsError, read_manifest
from tfshards.schemas.coordinates import coordinates_of
from tfshards.schemas.errors import counted
from tfshards.schemas.files import local_path, require_space, write_blocks_atomically
from tfshards.schemas.json_reader import Json, as_json
from tfshards.schemas.locks import lock
from tfshards.schemas.manifest_file import check_outside_datasets
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import any_path


@dataclass(frozen=True, repr=False)
class Export:
    """A finished export.

    Attributes:
        directory: where it is.
        to: its format.
        num_examples: number of examples.
        files: paths of all files, relative to ``directory``, and their sizes in bytes.
        num_kept: number of parts that an earlier run had written, and that were only verified.
        num_parts: number of all parts.
    """

    directory: str
    to: str
    num_examples: int
    files: Mapping[str, int]
    num_kept: int
    num_parts: int

    def __repr__(self) -> str:
        """Return the text that ``tfshards export`` prints."""
        files = f"{counted(len(self.files), 'file')}, {size(sum(self.files.values()))}"
        kept = f", {counted(self.num_kept, 'part')} of an earlier run" if self.num_kept else ""
        return (
            f"{self.to}: {counted(self.num_examples, 'example')}, {files} in {self.directory}{kept}; every "
            "value was read back"
        )

    def to_json(self) -> dict[str, Json]:
        """Return the attributes as JSON values."""
        found: dict[str, Json] = as_json(self)
        return found


@takes_log
def export(
    dataset: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    to: str,
    select: Sequence[str] | None = None,
    log: Log = to_stderr,
) -> Export:
    """Export a dataset to the format of another tool.

    Each shard becomes one part, and threads write several at the same time. A part is read back and compared,
    value for value, with the records; then its files get their names. A killed export resumes when it is
    called again with the same arguments, keeps the parts whose digests still match, and ends with the same
    bytes. A finished export that is exported again is verified, and damaged files are written again.

    Args:
        dataset: folder of the dataset, or its URL.
        directory: a new or empty local directory, or the one of an unfinished export to resume.
        to: ``"array_record"``, ``"webdataset"``, ``"parquet"`` or ``"folder"``.
        select: names of the features to export; by default all.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        FormatError: the format cannot hold a feature of the dataset; the error lists all of them.
        InputError: ``dataset`` is not a dataset, ``directory`` holds something else, the package of the
            format is not installed, or the records differ from the manifest.
        RecordError: a record is damaged.
    """
    if to not in FORMATS:
        raise OptionsError("export-format-unknown", to=to, names=[*FORMATS])
    package = FORMATS[to].package
    if package and find_spec(package) is None:
        raise InputError("export-extra-missing", to=to, package=package)
    request = make_request(any_path(dataset), read_manifest(dataset), select)
    for name, found in coordinates_of(request.manifest).items():
        if name in request.schema.names:
            flag = "boxes" if found.are_boxes else "keypoints"
            report_line(f"{name!r} refers to the exported image: --{flag} {name}={found} builds it again")
    return _export(request, local_path(directory), FORMATS[to])


def _export(request: ExportRequest, directory: Path, chosen: Format) -> Export:
    check_outside_datasets(directory, "name a folder for the export")
    directory.mkdir(parents=True, exist_ok=True)
    # what must be equal for an export to be the same: another one is not mixed with it
    identity: Json = {
        "to": chosen.name,
        "name": request.manifest.name,
        "build_id": request.manifest.build_id,
        "schema": request.schema.to_json(),
    }
    with _locked(directory):
        while True:
            journal = read_journal(directory, identity)
            request = replace(request, binary=request.binary | journal.binary)
            if problems := chosen.problems(request):
                raise FormatError(
                    f"to={chosen.name!r} cannot hold all of {request.root}; name the features to export with "
                    "select=, or choose another format",
                    problems,
                )
            try:
                return _write(request, Target(directory, chosen, {}, threading.Lock()), journal)
            except NotTextError as error:
                (name,) = error.args
                report_line(f"some values of {name!r} are not UTF-8; all of them are stored as bytes")
                request = replace(request, binary=request.binary | {name})


def _write(request: ExportRequest, target: Target, journal: Journal) -> Export:
    """Write the parts that are missing or damaged, then the other files, then the commit."""
    parts, directory, chosen = request.parts, target.directory, target.format
    marks = [fingerprint(request, part, chosen) for part in parts]

    def is_finished(part: ExportPart, tick: Tick) -> bool:
        tick(0)
        mark, files = journal.parts.get(part.number, ("", ()))
        found = mark == marks[part.number] and all(is_unchanged(directory, file) for file in files)
        tick(2 * part.shard.record_bytes if found else 0)
        return found

    # reading back counts like writing
    with Meter("export", 2 * sum(part.shard.record_bytes for part in parts)) as meter:
        are_finished = in_threads(is_finished, parts, meter.add)
        kept = [
            WrittenPart(part, journal.parts[part.number][1])
            for part, is_kept in zip(parts, are_finished, strict=True)
            if is_kept
        ]
        missing = [part for part, is_kept in zip(parts, are_finished, strict=True) if not is_kept]
        if (
            not missing
            and journal.files is not None
            and all(is_unchanged(directory, file) for file in journal.files)
        ):
            report_line(f"{directory} holds this export already, and its files are unchanged")
            return _result(request, target, kept, journal.files, len(kept))
        if journal.parts:
            report_line(f"keeping {counted(len(kept), 'part')} of an earlier run, writing {len(missing):,}")
        require_space(directory, sum(part.shard.record_bytes for part in missing), "the export")
        for part in missing:
            for file in journal.parts.get(part.number, ("", ()))[1]:
                (directory / file.path).unlink(missing_ok=True)
        target.owners.update({file.path: found.part.number for found in kept for file in found.files})
        journal = replace(
            journal,
            binary=request.binary,
            parts={found.part.number: journal.parts[found.part.number] for found in kept},
            files=None,
        )
        journal.write(directory)
        made = in_threads(partial(write_part, target, request), missing, meter.add)
    written = sorted([*kept, *made], key=lambda found: found.part.number)
    files = []
    for path, blocks in chosen.finish(request, written, directory).items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        write_blocks_atomically(directory / path, blocks)
        files.append(written_file(directory, directory / path))
    known = {found.part.number: (marks[found.part.number], found.files) for found in written}
    replace(journal, parts=known, files=tuple(files)).write(directory)
    return _result(request, target, written, files, len(kept))


def _result(
    request: ExportRequest,
    target: Target,
    written: Sequence[WrittenPart],
    finished: Sequence[WrittenFile],
    num_kept: int,
) -> Export:
    files = [*(file for found in written for file in found.files), *finished]
    return Export(
        str(target.directory),
        target.format.name,
        request.manifest.num_examples,
        {file.path: file.num_bytes for file in files if not file.path.startswith(PIECES)},
        num_kept,
        len(written),
    )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the directory, or raise InputError if another process writes to it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if not lock(descriptor):
            raise InputError("export-running", directory=directory)
        yield
    finally:
        os.close(descriptor)
