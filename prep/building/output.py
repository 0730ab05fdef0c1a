"""The folder of a dataset that is written: its path, its name, its lock, and the staged source in it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from tfshards.prep.building.state import OutputState, check_usable, inspect_output, system_fault
from tfshards.prep.planning.options import Options
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.sources.base import Reader, Source
from tfshards.prep.sources.staging_folder import remove_staged, staged_folder
from tfshards.prep.writing.build_folder import BuildFolder, linked
from tfshards.schemas import BuildError, InputError, OptionsError
from tfshards.schemas.names import MANIFEST_NAME, name_fault
from tfshards.schemas.storage import AnyPath, LocalPath, any_path

_COPY_BYTES = 8 << 20


def output_folder(dataset: str | os.PathLike[str] | AnyPath, *inputs: AnyPath | None) -> AnyPath:
    """Return the folder of a dataset as a path, which may be a URL.

    Raises:
        OptionsError: the path is empty, which would be the working directory, is a URL of a store that is not
            supported, or is inside one of the inputs that the dataset is made from.
    """
    if dataset in ("", b""):
        raise OptionsError("the path of the output is empty; name a folder")
    folder = any_path(dataset, "dataset")
    for location in inputs:
        if location is not None and folder.is_inside(location):
            raise OptionsError(f"the output {folder} is inside the input {location}; choose another folder")
    return folder


def dataset_name(folder: AnyPath, options: Options) -> str:
    """Return the dataset's name: ``options.name``, or the last part of the output's path."""
    name = options.name or folder.normalized().name
    if fault := name_fault(name):
        raise OptionsError(f"the output's name {fault}; give another with name=")
    return name


@contextmanager
def claimed(folder: AnyPath, staged: str = "") -> Iterator[OutputState]:
    """Create and lock the folder of a dataset, and yield its state; at the end remove it if it is empty.

    What killed processes have left there is removed, except the folder ``staged``, which is in use.
    Object stores have no locks: see ``commit.overtaken`` for two builds at the same time.

    Raises:
        InputError: the folder cannot be written, is a file, holds files that are not a dataset, or is locked.
        BuildError: an operation of the file system failed, for example because the disk is full.
    """
    with existing_folder(folder), folder.locked() as note:
        if note:
            report_warning(note)
        pointer = folder / MANIFEST_NAME
        if pointer.is_symlink():
            raise linked(pointer)
        try:
            state = inspect_output(folder)
            check_usable(state)
            # those of a later run stay, which has removed the one of this run
            if not staged or (folder / staged).is_dir():
                remove_staged(folder, kept=staged)
            if state.current:
                # of a process that was killed after the commit
                BuildFolder(folder, state.current).remove_work()
            yield state
        except OSError as error:
            raise BuildError(system_fault(folder, error)) from error


@contextmanager
def existing_folder(folder: AnyPath) -> Iterator[None]:
    """Create a folder with those that hold it; at the end remove those of them that are empty."""
    with ExitStack() as stack:
        try:
            created = folder.folders_to_make()
            # from the innermost
            for path in created[::-1]:
                stack.callback(_remove_empty, path)
            folder.mkdir(parents=True, exist_ok=True)
            # otherwise a power failure may lose the whole dataset after its commit
            for path in created[::-1]:
                path.parent.sync()
        except OSError as error:
            check_usable(inspect_output(folder))
            raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
        yield


def _remove_empty(folder: AnyPath) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def staged(
    source: Source, folder: AnyPath, group_by: str | None, *, on_workers: bool = False
) -> Iterator[Reader]:
    """Yield a reader of the source; what it copies into the folder of the dataset is removed at the end.

    If the output is in an object store, they are on a disk of this machine, since they are read in place;
    ``on_workers``, which may be other machines, they are copied into the store.

    Raises:
        InputError: workers cannot read what was copied from this source.
    """
    with ExitStack() as stack:
        if not folder.is_far:
            try:
                staging = LocalPath(str(stack.enter_context(staged_folder(folder))))
            except OSError as error:
                raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
            yield source.stage(staging, group_by=group_by)
            return
        local = LocalPath(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfshards-")))
        reader = source.stage(local, group_by=group_by)
        # of images nothing is copied, and a build that is killed cannot remove the folder
        with suppress(OSError):
            local.rmdir()
        if on_workers and local.exists():
            reader = _uploaded(reader, local, stack.enter_context(staged_folder(folder)))
        yield reader


def _uploaded(reader: Reader, local: Path, area: AnyPath) -> Reader:
    """Return a reader of staged files, after copying them from this machine into a folder of a store."""
    # needs Arrow, which a folder of images does not
    from tfshards.prep.sources.staged_reader import StagedReader

    if not isinstance(reader, StagedReader):
        raise InputError(
            f"workers on other machines cannot read the copies of this source in {local}; build into a "
            "folder that all of them mount, or without beam_args"
        )
    files = {path.name: path for path in local.iterdir()} | dict(reader.in_place())
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            (area / name).write(iter(partial(file.read, _COPY_BYTES), b""), area)
    return reader.moved(area)
