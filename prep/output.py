"""Whether a directory may become the output of a build, and what it holds already."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tfshards.prep.area import AREA_NAME
from tfshards.prep.files import system_fault
from tfshards.prep.options import Options
from tfshards.prep.sources.listing import Source
from tfshards.schemas import (
    MANIFEST_NAME,
    BuildError,
    FormatError,
    InputError,
    Manifest,
    OptionsError,
    file_problems,
    read_manifest,
)
from tfshards.schemas.manifest import name_fault
from tfshards.schemas.reading import Json


def output_folder(out: str | os.PathLike[str]) -> Path:
    """Return ``out`` as a path.

    Raises:
        OptionsError: it is empty, which would be the working directory.
    """
    if not os.fspath(out):
        raise OptionsError("the output's name is empty; name a folder")
    return Path(os.fsdecode(out))


def check_output(out: Path, source: Source) -> None:
    """Raise if ``out`` lies in the source, or holds files but no dataset; see ``check_folder``."""
    check_folder(out, source.location())


def check_folder(out: Path, location: Path | None) -> None:
    """Raise if ``out`` lies in the input at ``location``, or holds files but no dataset.

    Raises:
        OptionsError: the first of these.
        InputError: the second.
    """
    if location is not None:
        inside, root = os.path.realpath(out), os.path.realpath(location)
        if inside == root or inside.startswith(os.path.join(root, "")):
            raise OptionsError(
                f"the output {out} lies inside the input {location}; choose a folder outside of it"
            )
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; the output must be a folder, or a name that is free")
    if (
        out.is_dir()
        and any(out.iterdir())
        and not any((out / name).exists() for name in (MANIFEST_NAME, AREA_NAME))
    ):
        raise InputError(f"{out} holds files but no dataset; choose an empty folder, or a name that is free")


def dataset_name(out: Path, options: Options) -> str:
    """Return the dataset's name: the option's, or the last part of the output's path.

    Raises:
        OptionsError: the last part cannot be a name.
    """
    name = options.name or Path(os.path.abspath(out)).name
    fault = name_fault(name)
    if fault:
        raise OptionsError(f"the output's name {fault}; give another with --name")
    return name


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Make the folder ``out`` with its build area, and lock it; at the end take away what is empty of both.

    Raises:
        InputError: it cannot be written, or as for ``locked``.
        BuildError: the operating system refused something meanwhile, such as room on a disk.
    """
    new_folders = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        (out / AREA_NAME).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_empty(new_folders)
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None
    with locked(out):
        try:
            yield
        except OSError as error:
            raise BuildError(system_fault(out, error)) from error
        finally:
            _remove_empty([out / AREA_NAME, *new_folders])


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep every other build away from the folder ``out``; the lock ends with the process, however that ends.

    Raises:
        InputError: another process builds into it, or its file system has no locks.
    """
    busy = InputError(f"{out}: another build is writing into it; wait until it has ended")
    try:
        descriptor = os.open(out, os.O_RDONLY)
    except FileNotFoundError:
        raise busy from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        except OSError as error:
            raise InputError(f"{out}: cannot be locked: {error.strerror}; choose a local folder") from None
        if not _is_still(out, descriptor):
            # the other one ended just now, and took the folder away since nothing was in it
            raise busy
        yield
    finally:
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def committed(out: Path, build_id: str, options: Mapping[str, Json], *, overwrite: bool) -> Manifest | None:
    """Return the manifest in ``out`` if a build may go on beside it; None if there is none.

    Raises:
        InputError: there is a dataset of another build and ``overwrite`` was not given, or one of this build
            with shards that are damaged, or one whose shards somebody else wrote.
    """
    if not (out / MANIFEST_NAME).exists():
        return None
    try:
        current = read_manifest(out)
    except FormatError:
        if overwrite:
            return None
        raise
    if current.options.get("source") == "adopt":
        # with the next generation its files would go, which may be all that there is of them
        raise InputError(f"{out} holds records that tfshards has not written; choose another output")
    if overwrite:
        return None if current.build_id == build_id and file_problems(current, out) else current
    if current.build_id != build_id:
        what = difference(current, options)
        mended = ", --retry-rejected to take in mended files"
        raise InputError(
            f"{out} holds a dataset of other {what} (build {current.build_id}, this one is {build_id}); give "
            f"--overwrite to replace it{mended if what == 'inputs' and current.totals.rejected else ''}, "
            "or another output"
        )
    problems = file_problems(current, out)
    if problems:
        raise InputError(f"{out} is damaged: {problems[0]}; give --overwrite to build it again")
    return current


def what_is_there(out: Path, build_id: str) -> list[str]:
    """Return what a build of this id will find in ``out``, as lines; none if it holds no dataset."""
    if not (out / MANIFEST_NAME).exists():
        return []
    try:
        current = read_manifest(out)
    except FormatError:
        return [f"{out} holds a dataset that cannot be read: build will need --overwrite"]
    if current.options.get("source") == "adopt":
        return [f"{out} holds records that tfshards has not written: build will need another output"]
    if current.build_id == build_id:
        return [f"{out} holds this very build: there is nothing to do"]
    return [f"{out} holds another build, {current.build_id}: build will need --overwrite"]


def difference(current: Manifest, options: Mapping[str, Json]) -> str:
    """Return whether options, and which, or inputs are other ones than those of a dataset."""
    names = sorted(set(current.options) | set(options))
    changed = [name for name in names if current.options.get(name) != options.get(name)]
    return f"options ({', '.join(changed)})" if changed else "inputs"
