"""Export a dataset to the format of another tool: in parallel, and resumable."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tfshards.prep.building.output import remove_staged
from tfshards.prep.building.planned_build import run_work
from tfshards.prep.engines.table import EngineName, Work, find_run
from tfshards.prep.exporting.format import Format
from tfshards.prep.exporting.request import ExportPart, ExportRequest, NotTextError, make_request
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.exporting.write_parts import (
    ExportTask,
    Journal,
    fingerprint,
    is_unchanged,
    not_text_path,
    read_journal,
    release_of,
    write_part,
    write_plan,
    written_file,
)
from tfshards.prep.progress.lines import (
    Log,
    Meter,
    WorkProgress,
    Written,
    report_line,
    takes_log,
    to_stderr,
)
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.writing.area import PHASES, BuildArea, ShardId
from tfshards.schemas import FormatError, InputError, OptionsError, read_manifest
from tfshards.schemas.build_area import write_files
from tfshards.schemas.coordinates import coordinates_of
from tfshards.schemas.errors import counted
from tfshards.schemas.files import bytes_digest, local_path, require_space, sync_directory
from tfshards.schemas.json_reader import Json, as_json
from tfshards.schemas.locks import lock
from tfshards.schemas.manifest_file import check_outside_datasets
from tfshards.schemas.names import ID_DIGITS
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.untrusted import RECORD, read_whole


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
        return f"{self.to}: {counted(self.num_examples, 'example')}, {files} in {self.directory}{kept}"

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
    engine: EngineName | None = None,
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Export:
    """Export a dataset to the format of another tool.

    Each shard becomes one part, and an engine writes several at the same time. The file of a part gets its
    name when it is complete. A killed export resumes when it is called again with the same arguments, keeps
    the parts whose digests still match, and ends with the same bytes. A finished export that is exported
    again is verified, and damaged files are written again.

    Args:
        dataset: folder of the dataset, or its URL.
        directory: a new or empty local directory, or the one of an unfinished export to resume.
        to: ``"webdataset"`` or ``"parquet"``.
        select: names of the features to export; by default all.
        engine: engine that writes the parts, as for ``build``; its workers must see ``directory``.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        FormatError: the format cannot hold a feature of the dataset; the error lists all of them.
        InputError: ``dataset`` is not a dataset, ``directory`` holds something else, or the records differ
            from the manifest.
        RecordError: a record is damaged.
        BuildError: a worker of Apache Beam failed; the same call resumes.
    """
    run = find_run(engine, beam_args)
    if to not in FORMATS:
        raise OptionsError("export-format-unknown", to=to, names=[*FORMATS])
    request = make_request(any_path(dataset), read_manifest(dataset), select)
    for name, found in coordinates_of(request.schema.features).items():
        typed = shlex.quote(f"{name}={found}")
        report_line(f"{name!r} refers to the exported image: --column {typed} builds it again")
    return _export(request, local_path(directory), FORMATS[to], run)


def _export(request: ExportRequest, directory: Path, chosen: Format, run: Callable[[Work], None]) -> Export:
    check_outside_datasets(directory, "name a folder for the export")
    created = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in reversed(created):
        # otherwise a power failure may lose the whole export after its end
        sync_directory(path.parent)
    # what must be equal for an export to be the same: another one is not mixed with it
    identity: Json = {
        "to": chosen.name,
        "name": request.manifest.name,
        "build_id": request.manifest.build_id,
        "schema": request.schema.to_json(),
    }
    area_id = bytes_digest(json.dumps(identity).encode("ascii")).partition(":")[2][:ID_DIGITS]
    with _locked(directory):
        remove_staged(directory)
        while True:
            area = BuildArea(directory, area_id)
            journal = read_journal(directory, identity, area)
            request = replace(request, binary=request.binary | journal.binary)
            if problems := chosen.problems(request):
                raise FormatError(
                    f"to={chosen.name!r} cannot hold all of {request.root}; name the features to export with "
                    "select=, or choose another format",
                    problems,
                )
            try:
                return _write(request, area, chosen, journal, run)
            except NotTextError as error:
                (name,) = error.args
                report_line(f"some values of {name!r} are not UTF-8; all of them are stored as bytes")
                request = replace(request, binary=request.binary | {name})


def _write(
    request: ExportRequest, area: BuildArea, chosen: Format, journal: Journal, run: Callable[[Work], None]
) -> Export:
    """Write the parts that are missing or damaged, then the other files, then the commit."""
    parts, directory = request.parts, Path(str(area.out))
    marks = [fingerprint(request, part, chosen) for part in parts]
    known = [part for part in parts if journal.parts.get(part.number, ("", ()))[0] == marks[part.number]]

    def is_finished(part: ExportPart, tick: Tick) -> bool:
        tick(0)
        found = all(is_unchanged(directory, file) for file in journal.parts[part.number][1])
        tick(part.shard.record_bytes)
        return found

    with Meter("verify", sum(part.shard.record_bytes for part in known)) as meter:
        are_finished = in_threads(is_finished, known, meter.add)
    kept = [part for part, is_kept in zip(known, are_finished, strict=True) if is_kept]
    intact = {part.number for part in kept}
    missing = [part for part in parts if part.number not in intact]
    if (
        not missing
        and journal.files is not None
        and all(is_unchanged(directory, file) for file in journal.files)
    ):
        area.remove()
        report_line(f"{directory} holds this export already, and its files are unchanged")
        return _result(request, directory, chosen, journal, len(kept))
    if kept:
        report_line(f"keeping {counted(len(kept), 'part')} of an earlier run, writing {len(missing):,}")
    require_space(directory, sum(part.shard.record_bytes for part in missing), "the export")
    for part in missing:
        for file in journal.parts.get(part.number, ("", ()))[1]:
            (directory / file.path).unlink(missing_ok=True)
    journal = replace(
        journal,
        binary=request.binary,
        parts={number: journal.parts[number] for number in intact},
        files=None,
    )
    journal.write(directory)
    if missing:
        _write_parts(request, area, chosen, missing, run)
    journal = read_journal(directory, journal.identity, area)
    others = chosen.finish(request)
    write_files(directory, others)
    files = tuple(written_file(directory, directory / path) for path in others)
    journal = replace(journal, binary=request.binary, files=files)
    journal.write(directory)
    area.remove()
    return _result(request, directory, chosen, journal, len(kept))


def _write_parts(
    request: ExportRequest,
    area: BuildArea,
    chosen: Format,
    parts: Sequence[ExportPart],
    run: Callable[[Work], None],
) -> None:
    """Write the files of some parts; raise NotTextError if a feature has to be stored as bytes."""
    area.open()
    area.forget(PHASES[0], [part.id for part in parts])
    for part in parts:
        write_plan(area, part)

    def measure(items: Collection[ShardId]) -> Written:
        shards = [part.shard for part in parts if part.id in items]
        return Written(
            sum(shard.num_examples for shard in shards), sum(shard.record_bytes for shard in shards)
        )

    items = [part.id for part in parts]
    whole = measure({*items})
    progress = WorkProgress("export", whole.num_examples)
    task = ExportTask(
        area=area,
        # all that grows with the dataset is in the plan files
        request=replace(request, manifest=replace(request.manifest, splits={}, options={})),
        to=chosen.name,
        release=release_of(chosen),
        reporter=progress.reporter,
    )
    work = Work(
        partial(write_part, task),
        items,
        progress,
        stop=area.stop,
        size=whole,
        area=area,
        sources=(request.root,),
        measure=lambda: measure({*area.recorded(PHASES[0], items)}),
    )
    try:
        run_work(run, work)
    except Exception:
        with suppress(FileNotFoundError):
            raise NotTextError(read_whole(not_text_path(area), RECORD).decode()) from None
        raise


def _result(
    request: ExportRequest, directory: Path, chosen: Format, journal: Journal, num_kept: int
) -> Export:
    files = [*(file for _, of in journal.parts.values() for file in of), *(journal.files or ())]
    return Export(
        str(directory),
        chosen.name,
        request.manifest.num_examples,
        {file.path: file.num_bytes for file in files},
        num_kept,
        len(journal.parts),
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
