"""What workers in other processes need; each of them checks it before its first item."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.schemas import BuildError
from tfshards.schemas.files import write_atomically

_TOKEN_NAME = "token"
_ARRIVAL_PREFIX = "worker-"


@dataclass(frozen=True)
class Requirements:
    """What a worker needs to write the same bytes as any other.

    Attributes:
        versions: version of each program and package on which the bytes, or the pickled task, depend.
        folder: folder of the build area that every worker sees; it holds the token.
        token: content of the token file; another folder with the same path does not have it.
        source: folder or file of the inputs, if there is one.
        entry: name of a file or folder in the source, if that is a folder that is not empty.
        working_folder: working folder of the main process if a path is relative, or else nothing.
    """

    versions: Mapping[str, str]
    folder: Path
    token: str
    source: Path | None
    entry: str
    working_folder: str

    @staticmethod
    def of(folder: Path, token: str, source: Path | None) -> Requirements:
        """Return the requirements of a build by this process, after writing the token into the folder."""
        write_atomically(folder / _TOKEN_NAME, token.encode("ascii"))
        is_relative = not all(path.is_absolute() for path in (folder, source) if path is not None)
        entry = _any_entry(source) if source is not None and source.is_dir() else ""
        return Requirements(own_versions(), folder, token, source, entry, os.getcwd() if is_relative else "")

    def check(self) -> None:
        """Record in the folder that a worker has arrived.

        Raises:
            BuildError: this process does not meet the requirements.
        """
        fault = self._fault()
        if fault:
            raise BuildError(f"a worker on {platform.node()} {fault}")

    def _fault(self) -> str:
        fault = _version_fault(self.versions)
        if fault:
            return fault
        if self.working_folder and os.getcwd() != self.working_folder:
            return "runs in another folder; give the paths of source and dataset as absolute paths"
        everywhere = "mount it on every worker under the same path"
        try:
            token = (self.folder / _TOKEN_NAME).read_text("ascii")
        except OSError as error:
            return f"cannot read the build area {self.folder} ({error.strerror}); {everywhere}"
        if token != self.token:
            return f"sees another folder at {self.folder}; {everywhere}"
        if self.source is not None and not os.access(self.source, os.R_OK):
            return f"cannot read the source {self.source}; {everywhere}"
        if self.source is not None and self.entry and not os.path.lexists(self.source / self.entry):
            return f"sees another folder at {self.source}; {everywhere}"
        try:
            (self.folder / f"{_ARRIVAL_PREFIX}{platform.node()}-{os.getpid()}").touch()
        except OSError as error:
            return f"cannot write to the build area {self.folder} ({error.strerror}); give it the rights to"
        return ""


def has_arrived(folder: Path) -> bool:
    """Return whether any worker has met the requirements of the build whose token is in this folder."""
    return any(folder.glob(f"{_ARRIVAL_PREFIX}*"))


def check_versions(needed: Mapping[str, str]) -> None:
    """Raise BuildError if this process has other versions than the main process (see ``own_versions``)."""
    fault = _version_fault(needed)
    if fault:
        raise BuildError(f"a worker on {platform.node()} {fault}")


def _version_fault(needed: Mapping[str, str]) -> str:
    own = own_versions()
    for name, number in needed.items():
        if own.get(name) != number:
            return (
                f"has {name} {own.get(name, 'not at all')}, but the command runs with {number}; give "
                f"every worker the same versions: {_listed(needed)}"
            )
    return ""


def _any_entry(folder: Path) -> str:
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


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())
