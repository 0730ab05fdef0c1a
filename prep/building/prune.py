"""Earlier generations of a dataset: restore one, or remove all and unfinished builds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.building.commit import complete, replace_manifest
from tfshards.prep.building.output import claimed, locked, output_folder
from tfshards.prep.building.output_state import OutputState, inspect_output, is_committed
from tfshards.prep.progress.lines import Log, report_line, takes_log, to_stderr
from tfshards.prep.writing.area import BuildArea
from tfshards.prep.writing.shard_names import data_files
from tfshards.schemas import InputError, Manifest
from tfshards.schemas.build_area import AREA_NAME, areas, create, remove, staged_folders
from tfshards.schemas.errors import listed
from tfshards.schemas.files import file_sizes, sync_directory
from tfshards.schemas.generations import generation_path, kept_manifests
from tfshards.schemas.manifest_file import file_problems
from tfshards.schemas.names import GENERATIONS_NAME
from tfshards.schemas.storage import AnyPath, RemotePath, any_path, in_flight, name_below
from tfshards.schemas.storage.writing import abort_uploads

_SHOWN = 5


@takes_log
def restore(dataset: str | os.PathLike[str], build_id: str, *, log: Log = to_stderr) -> Manifest:
    """Make an earlier generation of a dataset the dataset again, and return its manifest.

    Its files are those that it had: only the manifest is replaced, as by a commit, and the views. The
    generation that was the dataset is kept in its turn.

    Args:
        dataset: folder of the dataset, or its URL.
        build_id: build id of the generation; see ``generations``.
        log: receives status lines.

    Raises:
        InputError: there is no such generation, or a shard of it is missing; or the folder cannot be locked.
        IncompleteError: the generation is the dataset, but a view cannot be written.
    """
    folder = output_folder(dataset)
    with claimed(folder) as state:
        if state.manifest and state.manifest.build_id == build_id:
            complete(state.manifest, folder)
            report_line(f"{folder}: build {build_id} is the dataset already")
            return state.manifest
        kept = {manifest.build_id: manifest for manifest in kept_manifests(folder)}
        if build_id not in kept:
            has = f"it has {listed([*kept], _SHOWN)}" if kept else "it has none"
            raise InputError("generation-unknown", folder=folder, build_id=build_id, has=has)
        manifest = kept[build_id]
        if problems := file_problems(manifest, folder):
            raise InputError("generation-damaged", build_id=build_id, folder=folder, problems=problems[0])
        # from which the next command completes it after a crash
        area = BuildArea(folder, build_id)
        create(area.root)
        area.announce(manifest)
        replace_manifest(manifest, state, area.root)
        return manifest


@dataclass(frozen=True)
class Pruned:
    """A file that was removed, or all build areas together.

    Attributes:
        path: path relative to the dataset's folder.
        num_bytes: bytes that became free; 0 for a file that has another hard link.
    """

    path: str
    num_bytes: int


def prune(dataset: str | os.PathLike[str], *, dry_run: bool = False) -> list[Pruned]:
    """Remove the files in a dataset's folder that the dataset does not need, and return them.

    These are the generations that the dataset has replaced, which cannot be restored afterwards, and the
    build areas that unfinished builds resume from, with what those builds have moved into the dataset. Only
    files that a manifest or a build area names are removed. Do not prune while training still reads an
    earlier generation.

    In an object store, the parts of uploads that killed builds left are removed as well. There are no locks:
    do not prune while a build of this dataset runs, whose files would be removed.

    Args:
        dataset: folder of a dataset, or of a build that was not committed, or its URL.
        dry_run: only return what would be removed.

    Raises:
        OptionsError: the path is a URL of a store that is not supported.
        InputError: the folder holds neither a dataset nor an unfinished build, or a build is running.
        FormatError: the manifest cannot be read, so that the files of the dataset are not known.
        IncompleteError: a file that the dataset lacks cannot be written.
    """
    folder = any_path(dataset)
    nothing = InputError("nothing-to-prune", folder=folder)
    if isinstance(folder, Path) and not folder.is_dir():
        raise nothing
    with locked(folder):
        state = inspect_output(folder)
        if state.fault:
            raise state.fault
        staged = staged_folders(folder)
        if state.manifest is None and not (state.unfinished or staged):
            raise nothing
        if state.manifest and not dry_run:
            # it compares views with those of the generations that are removed next
            complete(state.manifest, folder, warns=False)
        roots = [*areas(folder), *staged]
        files = _unneeded(state)
        found = [Pruned(name_below(path, folder), num_bytes) for path, num_bytes in files.items()]
        if roots:
            found.append(Pruned(f"{AREA_NAME}/", sum(map(_num_bytes_inside, roots))))
        if not dry_run:
            try:
                _remove(folder, [*files], roots)
            except OSError as error:
                raise InputError("file-fault", filename=error.filename, why=error.strerror) from error
    return found


def _unneeded(state: OutputState) -> dict[AnyPath, int]:
    """Return the bytes of files that the dataset does not need; each manifest follows the files it names."""
    folder, current = state.folder, state.manifest
    needed = {*data_files(current)} if current else set()
    found: dict[str, None] = {}
    for build in state.unfinished:
        if not is_committed(build, state):
            found |= dict.fromkeys(BuildArea(folder, build.plan_id).placed_paths())
    # without a manifest, it is not known which of them the dataset needs
    for manifest in kept_manifests(folder) if current else ():
        found |= dict.fromkeys(path for path in data_files(manifest) if path not in needed)
        found[generation_path(manifest.build_id)] = None
    sizes = file_sizes(folder, found)
    return {
        folder / path: _freed(folder / path, size)
        for path in found
        if not isinstance(size := sizes[path], OSError)
    }


def _remove(folder: AnyPath, files: Sequence[AnyPath], roots: Sequence[AnyPath]) -> None:
    if isinstance(folder, RemotePath):
        [*in_flight(lambda path: path.unlink(), files)]
        for root in roots:
            BuildArea(folder, root.name).remove()
        abort_uploads(folder)
        return
    manifests = [path for path in files if path.parent.name == GENERATIONS_NAME]
    # without its manifest, a file that a power failure brings back would not be known as ours
    for some in ([path for path in files if path not in manifests], manifests):
        for path in some:
            path.unlink()
        for parent in sorted({path.parent for path in some if isinstance(path, Path)}):
            sync_directory(parent)
    # the areas last: after a crash they show which shards were never committed
    for root in roots:
        assert isinstance(root, Path)
        remove(root)
    for name in ("index", GENERATIONS_NAME, AREA_NAME):
        with suppress(OSError):
            # only empty folders are removed
            (folder / name).rmdir()


def _num_bytes_inside(root: AnyPath) -> int:
    """Return the bytes that become free when a folder is removed."""
    if isinstance(root, RemotePath):
        return sum(status.st_size for _, status in root.walk())
    files = [path for path in root.rglob("*") if not path.is_dir()]
    return sum(_freed(path, path.lstat().st_size) for path in files)


def _freed(path: AnyPath, num_bytes: int) -> int:
    """Return the bytes of a file, which become free unless it has another hard link."""
    return 0 if isinstance(path, Path) and path.lstat().st_nlink > 1 else num_bytes
