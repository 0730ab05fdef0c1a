"""The output folder of a build: its path, its name, its lock, and the staged source in it."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tfshards.prep.building.output_state import (
    OutputState,
    Wanted,
    builds_to_discard,
    check_usable,
    compare_contents,
    discard_message,
    inspect_output,
    is_committed,
)
from tfshards.prep.planning.options import Options
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.base import MovableReader, Reader, Source
from tfshards.prep.views.tfds import PARTS_NAME
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import BuildError, InputError, OptionsError
from tfshards.schemas.build_area import AREA_NAME, create, staged_folder, staged_folders
from tfshards.schemas.errors import counted
from tfshards.schemas.files import sync_directory, system_fault
from tfshards.schemas.json_reader import Json
from tfshards.schemas.locks import lock
from tfshards.schemas.names import GENERATIONS_NAME, MANIFEST_NAME, name_fault
from tfshards.schemas.option import check_path
from tfshards.schemas.storage import AnyPath, RemotePath, any_path, write_new

_COPY_BYTES = 8 << 20
# the time that a command needs to look at the lock, and more
_LOOK_SECONDS = 0.05
# What a dataset consists of in addition to its shards.
_NOT_LINKS = (AREA_NAME, MANIFEST_NAME, GENERATIONS_NAME, "index", PARTS_NAME)


def output_folder(dataset: str | os.PathLike[str] | AnyPath, *inputs: AnyPath | None) -> AnyPath:
    """Return the folder of a dataset as a path, which may be a URL.

    Raises:
        OptionsError: the path is empty, which would be the working directory, is a URL of a store that is not
            supported, or is inside one of the inputs that the dataset is made from.
    """
    if not isinstance(dataset, RemotePath):
        check_path("dataset", dataset)
        if not os.fspath(dataset):
            raise OptionsError("output-empty")
    folder = any_path(dataset)
    for location in inputs:
        if location is not None and _is_inside(folder, location):
            raise OptionsError("output-in-input", folder=folder, location=location)
    return folder


def _is_inside(folder: AnyPath, root: AnyPath) -> bool:
    if isinstance(folder, RemotePath) or isinstance(root, RemotePath):
        return root in (folder, *folder.parents)
    inside, real_root = os.path.realpath(folder), os.path.realpath(root)
    return inside == real_root or inside.startswith(os.path.join(real_root, ""))


def dataset_name(folder: AnyPath, options: Options) -> str:
    """Return the dataset's name: ``options.name``, or the last part of the output's path."""
    last = Path(os.path.abspath(folder)).name if isinstance(folder, Path) else folder.name or folder.bucket
    name = options.name or last
    if fault := name_fault(name):
        raise OptionsError("output-name", fault=fault)
    return name


@contextmanager
def claimed(folder: AnyPath) -> Iterator[OutputState]:
    """Create and lock an output folder, and yield its state; at the end remove the folder if it is empty.

    Object stores have no locks: see ``unless_committed`` for two builds at the same time.

    Raises:
        InputError: the folder cannot be written, is a file, holds files that are not a dataset, or cannot be
            locked (see ``locked``).
        BuildError: an operation of the file system failed, for example because the disk is full.
    """
    created: list[Path] = []
    if isinstance(folder, Path):
        created = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in reversed(created):
                # otherwise a power failure may lose the whole dataset after its commit
                sync_directory(path.parent)
        except OSError as error:
            _remove_empty(created)
            check_usable(inspect_output(folder))
            raise InputError("output-unwritable", folder=folder, why=error.strerror) from None
        created.insert(0, folder / AREA_NAME)
    with locked(folder):
        try:
            state = inspect_output(folder)
            check_usable(state)
            if isinstance(folder, Path):
                _make_area(folder)
            yield state
        except OSError as error:
            raise BuildError("build-failed", text=system_fault(folder, error)) from error
        finally:
            _remove_empty(created)


def _make_area(folder: Path) -> None:
    try:
        (folder / AREA_NAME).mkdir(exist_ok=True)
        sync_directory(folder)
    except OSError as error:
        raise InputError("output-unwritable", folder=folder, why=error.strerror) from None


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def locked(folder: AnyPath) -> Iterator[None]:
    """Lock a dataset against other builds; the lock ends with the process, even if that is killed.

    Object stores have no locks.

    Raises:
        InputError: another build is writing to the folder, its file system does not support locks, or what
            belongs to a dataset is a symbolic link, which may lead out of the folder.
    """
    if isinstance(folder, RemotePath):
        yield
        return
    busy = InputError("build-running", folder=folder)
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        raise busy from None
    try:
        try:
            if not lock(descriptor):
                # a command that looks whether a build runs holds the lock for an instant
                time.sleep(_LOOK_SECONDS)
                if not lock(descriptor):
                    raise busy
        except OSError as error:
            raise InputError("output-unlockable", folder=folder, why=error.strerror) from None
        if not _is_still(folder, descriptor):
            # the other build has just ended and removed the folder, which was empty
            raise busy
        for name in _NOT_LINKS:
            if (folder / name).is_symlink():
                raise InputError("output-linked", name=folder / name)
        yield
    finally:
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def read_damage(state: OutputState, wanted: Wanted) -> OutputState:
    """Return the state of an output after reading the files of this build, if it is the dataset there."""
    if not wanted.is_in(state.manifest):
        return state
    state = compare_contents(state)
    if state.damage:
        more = f", and {counted(len(state.damage) - 1, 'other problem')}" if len(state.damage) > 1 else ""
        report_line(f"rebuilding {state.folder}, which is damaged: {state.damage[0]}{more}")
    return state


@contextmanager
def staged(
    source: Source, folder: AnyPath, group_by: str | None, *, on_workers: bool = False
) -> Iterator[Reader]:
    """Yield a reader of the source; its files in the build area are removed at the end.

    If the output is in an object store, they are on a disk of this machine, since they are read in place;
    ``on_workers``, which may be other machines, they are copied into the build area.

    Raises:
        InputError: workers cannot read what was copied from this source.
    """
    if isinstance(folder, RemotePath):
        with tempfile.TemporaryDirectory(prefix="tfshards-") as local:
            reader = source.stage(Path(local), group_by=group_by)
            # of images nothing is copied, and a build that is killed cannot remove the folder
            with suppress(OSError):
                Path(local).rmdir()
            if on_workers and os.path.exists(local):
                remove_staged(folder)
                reader = _uploaded(reader, Path(local), folder / AREA_NAME / f"staged-{secrets.token_hex(4)}")
            yield reader
        remove_staged(folder)
        return
    assert isinstance(folder, Path)
    remove_staged(folder)
    with staged_folder(folder) as staging:
        yield source.stage(staging, group_by=group_by)


def _uploaded(reader: Reader, local: Path, area: RemotePath) -> Reader:
    """Return a reader of staged files, after copying them from this machine into a folder of a store."""
    if not isinstance(reader, MovableReader):
        raise InputError(
            f"workers on other machines cannot read the copies of this source in {local} || build into a "
            "folder that all of them mount, or with engine='local'"
        )
    create(area)
    files = {path.name: path for path in local.iterdir()} | dict(reader.in_place())
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            write_new(area / name, iter(partial(file.read, _COPY_BYTES), b""))
    return reader.moved(area)


def remove_staged(folder: AnyPath, but: str = "") -> None:
    """Remove the files of killed builds; because of the lock, no other build is running.

    In a store, which has no locks, a pipeline that still runs fails without them.
    """
    for path in staged_folders(folder):
        if path.name != but:
            BuildArea(folder, path.name).remove()
    if isinstance(folder, Path):
        _remove_empty([folder / AREA_NAME])


def discard_others(state: OutputState, plan_id: str, options: Mapping[str, Json]) -> None:
    """Remove the unfinished builds that this one replaces, and what they have moved into the dataset."""
    for build in builds_to_discard(state, plan_id):
        area = BuildArea(state.folder, build.plan_id)
        if build.has_begun and not is_committed(build, state):
            report_line(discard_message(build, options))
        # Engines need extras, which verbs that only read do not.
        from tfshards.prep.engines.table import cancel_lost_job

        cancel_lost_job(area.job_path)
        for path in area.placed_paths():
            (state.folder / path).unlink(missing_ok=True)
        area.remove()
