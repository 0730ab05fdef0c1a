"""What workers in other processes need; each of them checks it before its first item."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.schemas import BuildError, TfshardsError
from tfshards.schemas.files import write_atomically
from tfshards.schemas.storage import AnyPath, RemotePath

_TOKEN_NAME = "token"
_EVERYWHERE = "mount it on every worker under the same path"
_CREDENTIALS = "give every worker the credentials, and the address if it is not the usual one, of the store"


@dataclass(frozen=True)
class Requirements:
    """What a worker needs to write the same bytes as any other."""

    # of each program and package on which the bytes, or the pickled task, depend
    versions: Mapping[str, str]
    # A folder of the build area that every worker sees, or can reach, and the content of a file in it, which
    # another folder with the same path does not have.
    folder: AnyPath
    token: str
    # folders and files of the inputs, each with the name of anything in the folder
    sources: tuple[tuple[AnyPath, str], ...]
    # of the main process, if a path is relative
    working_folder: str

    @staticmethod
    def of(folder: AnyPath, token: str, sources: Iterable[AnyPath]) -> Requirements:
        """Return the requirements of a build by this process, after writing the token into the folder."""
        write_atomically(folder / _TOKEN_NAME, token.encode("ascii"))
        named = tuple((source, _any_entry(source)) for source in sources)
        paths = [folder, *(source for source, _ in named)]
        is_relative = any(isinstance(path, Path) and not path.is_absolute() for path in paths)
        return Requirements(own_versions(), folder, token, named, os.getcwd() if is_relative else "")

    def check(self) -> None:
        """Raise BuildError if this process does not meet the requirements."""
        check_versions(self.versions)
        if fault := self._fault():
            raise BuildError("worker-unfit", node=platform.node(), fault=fault)

    def _fault(self) -> str:
        if self.working_folder and os.getcwd() != self.working_folder:
            return "runs in another folder; give the paths of source and dataset as absolute paths"
        reach = _EVERYWHERE if isinstance(self.folder, Path) else _CREDENTIALS
        try:
            token = (self.folder / _TOKEN_NAME).read_text("ascii")
        except (OSError, TfshardsError) as error:
            return f"cannot read the build area {self.folder} ({_why(error)}); {reach}"
        if token != self.token:
            return f"sees another folder at {self.folder}; {_EVERYWHERE}"
        return next(filter(None, (_source_fault(*named) for named in self.sources)), "")


def _source_fault(source: AnyPath, entry: str) -> str:
    if isinstance(source, RemotePath):
        try:
            is_there = source.exists()
        except (OSError, TfshardsError) as error:
            return f"cannot read the source {source} ({_why(error)}); {_CREDENTIALS}"
        return "" if is_there else f"does not find the source {source}; {_CREDENTIALS}"
    if not os.access(source, os.R_OK):
        return f"cannot read the source {source}; {_EVERYWHERE}"
    if entry and not os.path.lexists(source / entry):
        return f"sees another folder at {source}; {_EVERYWHERE}"
    return ""


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def check_versions(needed: Mapping[str, str]) -> None:
    """Raise BuildError if this process has other versions than the main process (see ``own_versions``)."""
    own = own_versions()
    for name, number in needed.items():
        if own.get(name) != number:
            listed = ", ".join(f"{each} {version}" for each, version in needed.items())
            fault = (
                f"has {name} {own.get(name, 'not at all')}, but the command runs with {number}; give "
                f"every worker the same versions: {listed}"
            )
            raise BuildError("worker-unfit", node=platform.node(), fault=fault)


def _any_entry(folder: AnyPath) -> str:
    if not isinstance(folder, Path) or not folder.is_dir():
        return ""
    # only one, since a folder may have millions of them
    with os.scandir(folder) as entries:
        return next((entry.name for entry in entries), "")


def own_versions() -> dict[str, str]:
    """Return the version of each program and package on which the bytes of a dataset depend."""
    try:
        own = version("tfshards")
    except PackageNotFoundError:
        own = "without metadata"
    # pickled code of one minor version of Python does not run on another
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"Python": python, "tfshards": own, **decoder_versions()}
