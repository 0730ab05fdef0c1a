"""The tree of files below a folder, on a disk or in an object store."""

from __future__ import annotations

import os

from tfshards.prep.sources.remote_tree import RemoteTree
from tfshards.prep.sources.tree import LocalTree, Tree
from tfshards.schemas.storage import RemotePath, any_path


def tree_of(folder: str | bytes | os.PathLike[str], *, follow_links: bool) -> Tree:
    """Return the tree of files below a folder; for ``follow_links`` see ``LocalTree``."""
    root = any_path(os.fsdecode(folder))
    if isinstance(root, RemotePath):
        return RemoteTree(root)
    return LocalTree(os.path.realpath(os.fsencode(folder)), follow_links=follow_links)
