"""Repair a dataset: rebuild what follows from its sound shards and its manifest."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from tfshards.prep.building.made import made_of
from tfshards.prep.progress.lines import Log, report_line, takes_log
from tfshards.prep.records.frames import RecordError
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.sources.staging_folder import remove_staged, unfinished_in
from tfshards.prep.verification.faults import copy_digest, find_faults, folders_of
from tfshards.prep.verification.report import VerificationReport
from tfshards.prep.views.files import view_files
from tfshards.prep.writing.build_folder import BuildFolder, is_owned
from tfshards.schemas import Manifest, read_manifest
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.names import MANIFEST_NAME, RECORD_NAME
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.locking import locked
from tfshards.schemas.storage.untrusted import METADATA, read_whole
from tfshards.schemas.storage.verbs import make_folder, put, sync

# Verbs that write the next generation of a dataset from the last one.
_EDITS = ("append", "remove", "relabel")


@takes_log
def repair(dataset: str | os.PathLike[str], *, log: Log = lambda _: None) -> VerificationReport:
    """Rebuild the damaged files of a dataset that need no inputs, and return a report.

    These are indexes, labels and keys, which follow from their shards if those are sound, and the views and
    the copy of the manifest in the folder of the build. A file is only replaced by one that has its digest in
    the manifest. The report names these files, and the problems that remain with the commands that repair
    them; it is true if the dataset is sound now.

    Args:
        dataset: the dataset's folder, or its URL.
        log: receives a line for each file that is rebuilt.

    Raises:
        InputError: ``dataset`` is not a dataset, or another process is writing to it.
        FormatError: the manifest is damaged: `tfshards restore` or a build with `--overwrite` replaces it.
    """
    folder = any_path(dataset)
    read_manifest(folder)
    with locked(folder):
        remove_staged(folder)
        manifest = read_manifest(folder)
        found = find_faults(dataset).problems
        damaged = {problem.place for problem in found}
        repaired: list[str] = []
        for path, data in _rebuilt(folder, manifest, damaged):
            if _replace(folder, path, data):
                report_line(f"{path}: rebuilt")
                repaired.append(path)
        # what replaced a damaged file had its digest in the manifest
        left = tuple(problem for problem in found if problem.place not in repaired)
        places = {problem.place for problem in left}
        remedies = tuple(_remedies(os.fspath(dataset), folder, manifest, places))
    return VerificationReport(os.fspath(dataset), left, tuple(repaired), remedies)


def _rebuilt(folder: AnyPath, manifest: Manifest, damaged: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield those damaged files whose content is known, by path."""

    def known(files: Mapping[str, bytes], digests: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        for path, data in files.items():
            if path in damaged and bytes_digest(data) == digests.get(path):
                yield path, data

    for shard in manifest.shards:
        if shard.path not in damaged and {*shard.companion_digests} & {*damaged}:
            try:
                _, companions = scan_shard(folder, shard.path, manifest.compression, schema=manifest.schema)
            except RecordError:
                # it has the bytes that were written; verify --deep names the record
                continue
            yield from known(companions, shard.companion_digests)
    views = {f"{manifest.folder}/{name}": data for name, data in view_files(manifest).items()}
    yield from known(views, manifest.views)
    copy = {f"{manifest.folder}/{MANIFEST_NAME}": read_whole(folder / MANIFEST_NAME, METADATA)}
    yield from known(copy, copy_digest(folder, manifest))


def _replace(dataset: AnyPath, path: str, data: bytes) -> bool:
    """Write a file in place of a damaged one; return False in a folder that tfshards did not make."""
    target, build = dataset / path, BuildFolder(dataset, path.partition("/")[0])
    if target.parent.is_symlink():
        return False
    if not is_owned(build.root) and not (target.parent / RECORD_NAME).is_file():
        return False
    make_folder(target.parent)
    with unfinished_in(dataset) as unfinished:
        put(target, data, unfinished)
        sync(target.parent)
    return True


def _remedies(name: str, dataset: AnyPath, manifest: Manifest, left: Collection[str]) -> Iterator[str]:
    """Yield how to repair damaged files, a line for each folder of a build that holds some."""
    paths = [
        *manifest.data_paths,
        *(f"{build.name}/{RECORD_NAME}" for build in folders_of(dataset, manifest)),
    ]
    folders = {path.partition("/")[0] for path in paths if path in left}
    if folders and not manifest.folder:
        yield "copy the damaged TFRecord files from where they came from, and repeat 'tfshards adopt'"
        return
    for folder in sorted(folders):
        build = BuildFolder(dataset, folder)
        if not is_owned(build.root):
            yield f"{folder}: its {RECORD_NAME} is missing or damaged; copy the folder from a backup"
            continue
        back = "" if folder == manifest.folder else f", then 'tfshards restore {name} {manifest.folder}'"
        yield f"{folder}: {_command(name, build.manifest())}{back}"


def _command(name: str, written: Manifest | None) -> str:
    """Return what writes the damaged files of a build again, and makes it the dataset."""
    verb = made_of(written).made_by if written else ""
    if verb in _EDITS:
        return (
            f"make the generation before it the dataset ('tfshards generations {name}' lists them, 'tfshards "
            f"restore'), and repeat the '{verb}' that wrote it"
        )
    command = {"reshard": "tfshards reshard", "merge": "tfshards merge"}.get(
        verb, f"tfshards build {verb}".strip()
    )
    return f"'{command} … {name} --overwrite' with the same inputs and options repairs it"
