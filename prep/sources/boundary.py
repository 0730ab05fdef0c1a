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
        self._real_folder = os.path.realpath(self._folder)
        self._follow_links = follow_links
        # whether the folders of files are inside
        self._known: dict[bytes, bool] = {}

    def holds(self, path: str | bytes | os.PathLike[str]) -> bool:
        """Return whether a file, which need not exist, may be read; a path with NUL cannot exist."""
        full = os.fsencode(path)
        if self._follow_links or b"\0" in full:
            return True
        # not normpath: after a link, ".." is the folder that holds the target of the link
        folder, name = os.path.split(full)
        if folder not in self._known:
            self._known[folder] = self._is_inside(folder)
        is_plain = self._known[folder] and name != b".." and not os.path.islink(full)
        return is_plain or self._is_inside(full)

    def check(self, path: str | bytes | os.PathLike[str], given: str | None = None) -> None:
        """Raise InputError unless a file may be read; ``given`` is how its path was written."""
        if not self.holds(path):
            raise outside(self._folder, os.fsdecode(path) if given is None else given)

    def _is_inside(self, path: bytes) -> bool:
        return os.path.join(os.path.realpath(path), b"").startswith(os.path.join(self._real_folder, b""))


def outside(folder: bytes, given: str) -> InputError:
    """Return the error for a path that leaves a folder."""
    return InputError("outside", given=given, folder=os.fsdecode(folder))
