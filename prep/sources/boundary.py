"""The rule for paths that annotations, lists and tables name: they stay in the folder that the user gave."""

from __future__ import annotations

import os

from tfshards.schemas import InputError


class Boundary:
    """The folder that all files of a source are in, with links followed, unless the user allows others.

    Whoever wrote the annotations of a source may name any path; a file elsewhere is neither read nor quoted.
    """

    def __init__(self, folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> None:
        """Set the folder; with ``follow_links`` files may be outside it."""
        self._folder = os.fsencode(folder)
        self._below = os.path.join(os.path.realpath(self._folder), b"")
        self._follow_links = follow_links
        # by folder
        self._real_folders: dict[bytes, bytes] = {}

    def holds(self, path: str | bytes | os.PathLike[str]) -> bool:
        """Return whether a file, which need not exist, may be read."""
        return self._allows(self._real(os.fsencode(path)))

    def check(self, path: str | bytes | os.PathLike[str], given: str | None = None) -> bytes:
        """Return the path of a file relative to the folder, with links followed.

        Raises:
            InputError: the file may not be read; ``given`` is how its path was written.
        """
        real = self._real(os.fsencode(path))
        if not self._allows(real):
            raise outside(self._folder, os.fsdecode(path) if given is None else given)
        is_below = real.startswith(self._below)
        return real[len(self._below) :] if is_below else os.path.relpath(real, self._below)

    def _allows(self, real: bytes) -> bool:
        return self._follow_links or os.path.join(real, b"").startswith(self._below)

    def _real(self, path: bytes) -> bytes:
        if b"\0" in path:
            # it cannot exist
            return self._below
        # not normpath: after a link, ".." is the folder that holds the target of the link
        folder, name = os.path.split(path)
        if name in (b"", b".", b"..") or os.path.islink(path):
            return os.path.realpath(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        return os.path.join(self._real_folders[folder], name)


def outside(folder: bytes, given: str) -> InputError:
    """Return the error for a path that leaves a folder."""
    return InputError(
        f"{given!r} is outside {os.fsdecode(folder)}; give the folder that holds all files with root=, or "
        "allow this with follow_links=True",
        code="outside-folder",
    )
