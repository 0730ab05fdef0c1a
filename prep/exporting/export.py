"""Export a dataset to the format of another tool: in parallel, resumable, and read back before it counts."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tfshards.prep.exporting.format import STATE, Format, WrittenFile, WrittenPart, require_package
from tfshards.prep.exporting.request import ExportPart, ExportRequest, NotTextError, make_request
from tfshards.prep.exporting.table import FORMATS, IN_PLACE, describe_in_place
from tfshards.prep.exporting.write_parts import (
    Target,
    commit,
    committed_files,
    fingerprint,
    is_finished,
    is_piece,
    is_unchanged,
    read_binary,
    read_known,
    start,
    write_part,
)
from tfshards.prep.progress.lines import Log, Meter, to_stderr
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.schemas import FormatError, InputError, OptionsError, read_manifest
from tfshards.schemas.errors import counted
from tfshards.schemas.files import local_path, read_once, require_space, write_blocks_atomically
from tfshards.schemas.json_reader import Json
from tfshards.schemas.locks import lock
from tfshards.schemas.option import check_strings
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
        num_parts: number of all parts; 0 for a format that is written into the dataset.
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
        if not self.num_parts:
            return f"{self.to}: {', '.join(self.files)} in {self.directory}"
        kept = f", {counted(self.num_kept, 'part')} of an earlier run" if self.num_kept else ""
        return (
            f"{self.to}: {counted(self.num_examples, 'example')}, {files} in {self.directory}{kept}; every "
            "value was read back"
        )

    def to_json(self) -> dict[str, Json]:
        """Return the attributes as JSON values."""
        return {
            "directory": self.directory,
            "to": self.to,
            "num_examples": self.num_examples,
            "files": dict(self.files),
            "num_kept": self.num_kept,
            "num_parts": self.num_parts,
        }


def export(
    dataset: str | os.PathLike[str],
    directory: str | os.PathLike[str] | None = None,
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
        directory: a new or empty local directory, or the one of an unfinished export to resume; None for
            formats that are written into the dataset.
        to: ``"array_record"``, ``"webdataset"``, ``"parquet"`` or ``"folder"``; in the dataset
            ``"croissant"`` or ``"tfmd"``.
        select: names of the features to export; by default all.
        log: called with each status line.

    Raises:
        OptionsError: an argument is invalid.
        FormatError: the format cannot hold a feature of the dataset; the error lists all of them.
        InputError: ``dataset`` is not a dataset, ``directory`` holds something else, a package is missing, or
            the records differ from the manifest.
        RecordError: a record is damaged.
    """
    if select is not None:
        check_strings("select", select)
    if to not in FORMATS and to not in IN_PLACE:
        raise OptionsError("export-format-unknown", to=to, names=[*FORMATS, *IN_PLACE])
    if to in IN_PLACE:
        for name, value in (("directory", directory), ("select", select)):
            if value is not None:
                raise OptionsError("export-in-place", to=to, name=name, found=value)
        files = describe_in_place(dataset, to)
        return Export(str(dataset), to, read_manifest(dataset).num_examples, files, 0, 0)
    if directory is None:
        raise OptionsError("export-directory-missing", to=to)
    request = make_request(any_path(dataset), read_manifest(dataset), select)
    return _export(request, local_path(directory), FORMATS[to], log)


def _export(request: ExportRequest, directory: Path, chosen: Format, log: Log) -> Export:
    require_package(chosen)
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory):
        identity = _identity(request, chosen)
        known = read_known(directory, identity)
        request = replace(request, binary=read_binary(directory))
        while True:
            _check(request, chosen)
            try:
                return _write(request, Target(directory, chosen, known, {}, threading.Lock()), identity, log)
            except NotTextError as error:
                (name,) = error.args
                log(f"some values of {name!r} are not UTF-8; all of them are stored as bytes")
                request = replace(request, binary=request.binary | {name})
                known = read_known(directory, identity)


def _check(request: ExportRequest, chosen: Format) -> None:
    """Raise FormatError if the format cannot hold the dataset."""
    problems = chosen.problems(request)
    if problems:
        raise FormatError(
            f"to={chosen.name!r} cannot hold all of {request.root}; name the features to export with select=,"
            " or choose another format",
            problems,
        )


def _write(request: ExportRequest, target: Target, identity: Json, log: Log) -> Export:
    """Write the parts that are missing or damaged, then the other files, then the commit."""
    parts, directory, chosen = request.parts, target.directory, target.format
    # reading back counts like writing
    num_bytes = 2 * sum(part.shard.record_bytes for part in parts)
    with Meter("export", num_bytes) as meter:
        files = committed_files(directory)
        is_committed = files is not None and all(is_unchanged(directory, file) for file in files)
        find = partial(_is_finished, target, request, with_pieces=not is_committed)
        are_finished = in_threads(find, parts, meter.add)
        if files is not None and is_committed and all(are_finished):
            log(f"{directory} holds this export already, and its files are unchanged")
            written = [WrittenPart(part, target.known[part.number][1]) for part in parts]
            return _result(request, directory, chosen, written, files, len(parts))
        kept = [
            WrittenPart(part, target.known[part.number][1])
            for part, is_kept in zip(parts, are_finished, strict=True)
            if is_kept and not (is_committed and any(map(is_piece, target.known[part.number][1])))
        ]
        numbers = {found.part.number for found in kept}
        missing = [part for part in parts if part.number not in numbers]
        if kept or target.known:
            log(f"keeping {counted(len(kept), 'part')} of an earlier run, writing {len(missing):,}")
        require_space(directory, sum(part.shard.record_bytes for part in missing), "the export")
        target.owners.update({file.path: found.part.number for found in kept for file in found.files})
        start(directory, identity, request.binary, {number: target.known[number] for number in numbers})
        written = [*kept, *in_threads(partial(write_part, target, request), missing, meter.add)]
    written.sort(key=lambda found: found.part.number)
    finished = _finish(request, target, written)
    known = {found.part.number: (fingerprint(request, found.part, chosen), found.files) for found in written}
    commit(directory, identity, request.binary, known, finished)
    shutil.rmtree(directory / STATE)
    return _result(request, directory, chosen, written, finished, len(kept))


def _is_finished(
    target: Target, request: ExportRequest, part: ExportPart, tick: Tick, *, with_pieces: bool
) -> bool:
    tick(0)
    found = is_finished(target, request, part, with_pieces=with_pieces)
    tick(2 * part.shard.record_bytes if found else 0)
    return found


def _finish(request: ExportRequest, target: Target, written: Sequence[WrittenPart]) -> list[WrittenFile]:
    """Write the files that follow from all parts."""
    files = []
    for path, blocks in target.format.finish(request, written, target.directory).items():
        full = target.directory / path
        full.parent.mkdir(parents=True, exist_ok=True)
        write_blocks_atomically(full, blocks)
        num_bytes, digest, _ = read_once(full)
        files.append(WrittenFile(path, num_bytes, digest))
    return files


def _result(
    request: ExportRequest,
    directory: Path,
    chosen: Format,
    written: Sequence[WrittenPart],
    finished: Sequence[WrittenFile],
    num_kept: int,
) -> Export:
    of_parts = (file for found in written for file in found.files if not is_piece(file))
    return Export(
        str(directory),
        chosen.name,
        request.manifest.num_examples,
        {file.path: file.num_bytes for file in (*of_parts, *finished)},
        num_kept,
        len(written),
    )


def _identity(request: ExportRequest, chosen: Format) -> Json:
    """Return what must be equal for an export to be the same: another one is not mixed with it."""
    return {
        "to": chosen.name,
        "name": request.manifest.name,
        "build_id": request.manifest.build_id,
        "schema": request.schema.to_json(),
    }


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
