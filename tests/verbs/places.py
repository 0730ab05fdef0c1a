"""Where a dataset is, and what runs its verbs: a folder or a bucket, this machine or an engine of Beam."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.storage.conftest import Bucket


@dataclass
class Disk:
    """A folder; ``options`` choose the engine of each verb."""

    home: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    is_remote = False

    def path(self, name: str) -> str:
        """Return the path of a dataset, as a verb takes it."""
        return str(self.home / name)

    def files(self, name: str) -> dict[str, bytes]:
        """Return the content of all files of a dataset's folder, by their paths in it."""
        root = self.home / name
        return {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    def write(self, name: str, path: str, content: bytes | None) -> None:
        """Write a file as a new one, or remove it."""
        file = self.home / name / path
        # shards may be hard links
        file.unlink(missing_ok=True)
        if content is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def move(self, name: str, new: str) -> None:
        """Rename a dataset."""
        (self.home / name).rename(self.home / new)

    def remove(self, name: str) -> None:
        """Remove a dataset."""
        shutil.rmtree(self.home / name)

    def identity(self, name: str, path: str) -> object:
        """Return what changes when a file is written again."""
        status = (self.home / name / path).stat()
        return status.st_ino, status.st_mtime_ns


@dataclass
class Objects:
    """A folder in a bucket."""

    bucket: Bucket
    prefix: str
    options: Mapping[str, Any] = field(default_factory=dict)
    is_remote = True

    def path(self, name: str) -> str:
        """Return the URL of a dataset."""
        return f"{self.bucket.url}/{self.prefix}/{name}"

    def files(self, name: str) -> dict[str, bytes]:
        """Return the content of all objects of a dataset, by their paths in it."""
        store, root = self.bucket.store(), f"{self.prefix}/{name}/"
        paths = sorted(meta["path"] for batch in store.list(root) for meta in batch)
        return {path.removeprefix(root): bytes(store.get(path).bytes()) for path in paths}

    def write(self, name: str, path: str, content: bytes | None) -> None:
        """Put an object, or delete it."""
        key = f"{self.prefix}/{name}/{path}"
        if content is None:
            self.bucket.store().delete(key)
        else:
            self.bucket.store().put(key, content)

    def move(self, name: str, new: str) -> None:
        """Copy a dataset, and remove the old one."""
        for path, content in self.files(name).items():
            self.write(new, path, content)
        self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a dataset."""
        for path in self.files(name):
            self.write(name, path, None)

    def identity(self, name: str, path: str) -> object:
        """Return what changes when an object is written again."""
        return self.bucket.store().head(f"{self.prefix}/{name}/{path}")["last_modified"]


Place = Disk | Objects
