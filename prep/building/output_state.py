"""Inspect an output folder once, as a value from which builds, commits and pruning decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import FormatError, InputError, Manifest, Problem, Shard, read_manifest
from tfshards.schemas.build_area import AREA_NAME, areas, read_record
from tfshards.schemas.companions import OTHER_BYTES, read_index, read_labels
from tfshards.schemas.files import file_digest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import file_problems, manifest_version
from tfshards.schemas.names import MANIFEST_NAME, rejects_name
from tfshards.schemas.storage import AnyPath, RemoteStatus


@dataclass(frozen=True)
class UnfinishedBuild:
    """The build area of a build that was not committed, or whose process was killed after the commit.

    ``placed_id`` is the build id of the shards that it began to move into the dataset; options may be
    unknown.
    """

    plan_id: str
    placed_id: str
    has_begun: bool
    options: Mapping[str, Json]


@dataclass(frozen=True)
class OutputState:
    """The contents of a folder that is, or will be, a dataset.

    Attributes:
        a_file: name of something in the folder besides build areas; empty if there is nothing.
        manifest: manifest of the committed dataset; None if it does not exist or cannot be read.
        fault: why the manifest cannot be read, if it exists.
        version: in an object store, the version of the manifest, if it exists; the commit replaces only this.
        damage: files in the manifest that are missing or have another size; after ``compare_contents`` also
            those with other bytes.
    """

    folder: AnyPath
    is_file: bool = False
    a_file: str = ""
    manifest: Manifest | None = None
    fault: FormatError | None = None
    version: RemoteStatus | None = None
    damage: tuple[Problem, ...] = ()
    unfinished: tuple[UnfinishedBuild, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether the folder holds files, but neither a dataset nor an unfinished build."""
        return bool(self.a_file) and not (self.manifest or self.fault or self.unfinished)

    @property
    def is_adopted(self) -> bool:
        """Whether the records of the dataset were written by other programs."""
        return bool(self.manifest and self.manifest.made.source == "adopt")


def inspect_output(folder: AnyPath) -> OutputState:
    """Return the state of a folder; a path that does not exist is an empty one."""
    try:
        return _inspect(folder)
    except OSError as error:
        if isinstance(folder, Path):
            raise
        raise InputError("folder-fault", folder=folder, why=error.strerror) from error


def _inspect(folder: AnyPath) -> OutputState:
    if not folder.is_dir():
        # In a store, another build may have made it a folder since the line above.
        is_file = folder.exists() if isinstance(folder, Path) else folder.is_file()
        return OutputState(folder, is_file=is_file)
    a_file = next((path.name for path in folder.iterdir() if path.name != AREA_NAME), "")
    unfinished = tuple(_unfinished(path) for path in areas(folder))
    version, manifest, fault = _manifest(folder)
    return OutputState(
        folder,
        a_file=a_file,
        manifest=manifest,
        fault=fault,
        version=version,
        damage=tuple(file_problems(manifest, folder)) if manifest else (),
        unfinished=unfinished,
    )


def compare_contents(state: OutputState) -> OutputState:
    """Return the state with files whose bytes differ from the manifest as damage; this reads the dataset."""
    manifest, folder = state.manifest, state.folder
    if manifest is None or state.damage:
        return state

    def compare(shard: Shard, tick: Tick) -> list[Problem]:
        has_changed = _has_changed(folder / shard.path, shard.digest, tick)
        problems = [Problem(shard.path, OTHER_BYTES)] if has_changed else []
        labels = read_labels(folder, shard)[1] if shard.labels_digest else []
        return [*problems, *read_index(folder, shard)[1], *labels]

    with Meter("compare", sum(shard.num_bytes for shard in manifest.shards)) as meter:
        damage = [problem for found in in_threads(compare, manifest.shards, meter.add) for problem in found]
    rejects = rejects_name(manifest.build_id)
    if manifest.rejects_digest and _has_changed(folder / rejects, manifest.rejects_digest):
        damage.append(Problem(rejects, OTHER_BYTES))
    return replace(state, damage=tuple(damage))


def _manifest(folder: AnyPath) -> tuple[RemoteStatus | None, Manifest | None, FormatError | None]:
    """Return the version of the manifest in a store, the manifest, and why it cannot be read."""
    version = manifest_version(folder)
    if version is None and not (isinstance(folder, Path) and (folder / MANIFEST_NAME).exists()):
        return None, None, None
    try:
        return version, read_manifest(folder), None
    except FormatError as fault:
        return version, None, fault


def _has_changed(path: AnyPath, digest: str, tick: Tick | None = None) -> bool:
    """Return whether a file has another digest, or cannot be read."""
    try:
        return file_digest(path, tick) != digest
    except OSError:
        return True


def _unfinished(root: AnyPath) -> UnfinishedBuild:
    placed = BuildArea(root.parent.parent, root.name).placed()
    return UnfinishedBuild(
        plan_id=root.name,
        placed_id=placed.build_id if placed else "",
        has_begun=(root / "first").is_dir(),
        options=read_record(root)[0],
    )
