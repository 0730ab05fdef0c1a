"""The generations of a dataset: its manifest, and those that it replaced.

``generations/BUILDID.json`` is the manifest of a generation that was replaced. The files that it names stay
until ``prune``, so that the generation can be restored.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from tfshards.schemas.errors import TfshardsError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import Manifest
from tfshards.schemas.manifest_file import file_problems, read_manifest, read_manifest_file
from tfshards.schemas.names import GENERATIONS_NAME, MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, any_path


@dataclass(frozen=True)
class Generation:
    """One generation of a dataset.

    Attributes:
        build_id: its build id, for ``restore``.
        committed_at: UTC time at which its manifest was written; in an object store, that of a replaced
            generation is the time at which it was replaced.
        num_examples: number of its examples.
        made_by: what made it, such as ``images``, ``append`` or ``remove``.
        is_current: whether it is the dataset now.
        num_damaged: number of its shards that are missing or have another size; it can be restored if this
            is 0.
    """

    build_id: str
    committed_at: datetime
    num_examples: int
    made_by: str
    is_current: bool
    num_damaged: int

    def to_json(self) -> dict[str, Json]:
        """Return the attributes as JSON values; the time as in ISO 8601."""
        return {**vars(self), "committed_at": self.committed_at.isoformat()}


def generations(dataset: str | os.PathLike[str]) -> list[Generation]:
    """Return the generations of a dataset: the current one, then the others from the newest to the oldest.

    Args:
        dataset: folder of the dataset, or its URL.

    Raises:
        OptionsError: it is a URL of a store that is not supported.
        InputError: it is not a dataset.
        FormatError: its manifest cannot be read.
    """
    folder = any_path(dataset)
    current = read_manifest(folder)
    kept = [
        _described(folder, manifest, generation_path(manifest.build_id), is_current=False)
        for manifest in kept_manifests(folder)
        if manifest.build_id != current.build_id
    ]
    kept.sort(key=lambda generation: (generation.committed_at, generation.build_id), reverse=True)
    return [_described(folder, current, MANIFEST_NAME, is_current=True), *kept]


def kept_manifests(folder: AnyPath) -> list[Manifest]:
    """Return the manifests of replaced generations, by build id; other files are left out."""
    kept = folder / GENERATIONS_NAME
    if isinstance(kept, Path) and not kept.is_dir():
        return []
    paths: list[AnyPath] = sorted(kept.iterdir(), key=str)
    found = []
    for path in paths:
        with suppress(TfshardsError, OSError):
            manifest = read_manifest_file(path)
            if path.name == f"{manifest.build_id}.json":
                found.append(manifest)
    return found


def generation_path(build_id: str) -> str:
    """Return the path of the manifest of a replaced generation, relative to the dataset."""
    return f"{GENERATIONS_NAME}/{build_id}.json"


def made_by(manifest: Manifest) -> str:
    """Return what made a generation: the kind of source of a build, or the verb that derived it."""
    appended = manifest.options.get("appended")
    if isinstance(appended, list) and appended:
        last = appended[-1]
        if isinstance(last, dict) and last.get("build_id") == manifest.build_id:
            return "append"
    return str(manifest.options.get("source", ""))


def _described(folder: AnyPath, manifest: Manifest, path: str, *, is_current: bool) -> Generation:
    return Generation(
        build_id=manifest.build_id,
        committed_at=datetime.fromtimestamp((folder / path).stat().st_mtime_ns / 1e9, timezone.utc),
        num_examples=manifest.num_examples,
        made_by=made_by(manifest),
        is_current=is_current,
        num_damaged=len(file_problems(manifest, folder)),
    )
