"""Inspect an output folder once, as a value from which builds, commits and pruning decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfshards.prep.progress.meter import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.views.tfds import PARTS_NAME
from tfshards.prep.writing.area import AREA_NAME, BuildArea
from tfshards.prep.writing.shard_names import build_of
from tfshards.schemas import FormatError, InputError, Manifest, Problem, Shard, read_manifest
from tfshards.schemas.companions import OTHER_BYTES, read_index, read_labels
from tfshards.schemas.files import file_digest, write_atomically
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import file_problems, manifest_version
from tfshards.schemas.names import MANIFEST_NAME, inputs_name, is_reserved, rejects_name
from tfshards.schemas.storage import AnyPath, RemoteStatus

_NOTE_NAME = "build.json"
_PLAN_ID = re.compile("[0-9a-f]{8}")
# Names of temporary files that a killed process leaves (schemas/files.py).
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


@dataclass(frozen=True)
class UnfinishedBuild:
    """The build area of a build that was not committed.

    Attributes:
        plan_id: id of the plan.
        placed_id: build id of the shards that it began to move into the dataset; empty if it did not.
        has_begun: whether it has begun to write shards.
        options: options of the build; empty if they are not recorded, or cannot be read.
    """

    plan_id: str
    placed_id: str
    has_begun: bool
    options: Mapping[str, Json]


@dataclass(frozen=True)
class OutputState:
    """The contents of a folder that is, or will be, a dataset.

    Attributes:
        folder: the path, which need not exist.
        is_file: whether the path is a file.
        has_files: whether the folder holds anything.
        has_area: whether there are build areas.
        has_only_ours: whether every file has the name of a file that tfshards writes, and some are shards.
        manifest: manifest of the committed dataset; None if it does not exist or cannot be read.
        fault: why the manifest cannot be read; None if it can be read or does not exist.
        version: in an object store, the version of the manifest, if it exists; the commit replaces only this.
        damage: files in the manifest that are missing or have another size; after ``compare_contents`` also
            those with other bytes.
        unfinished: the builds that were not committed, sorted by id.
        unnamed: files of builds that the manifest does not name. A shard comes before its index, since a file
            is recognized as a shard only by its index.
        temporary: temporary files that killed processes left.
    """

    folder: AnyPath
    is_file: bool = False
    has_files: bool = False
    has_area: bool = False
    has_only_ours: bool = False
    manifest: Manifest | None = None
    fault: FormatError | None = None
    version: RemoteStatus | None = None
    damage: tuple[Problem, ...] = ()
    unfinished: tuple[UnfinishedBuild, ...] = ()
    unnamed: tuple[AnyPath, ...] = ()
    temporary: tuple[AnyPath, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether the folder holds files, but neither a dataset nor an unfinished build."""
        return self.has_files and not (self.manifest or self.fault or self.has_area)

    @property
    def is_adopted(self) -> bool:
        """Whether the records of the dataset were written by other programs."""
        return bool(self.manifest and self.manifest.options.get("source") == "adopt")


def inspect_output(folder: AnyPath) -> OutputState:
    """Return the state of a folder; a path that does not exist is an empty one.

    Raises:
        InputError: the object store that holds it cannot be read.
    """
    try:
        return _inspect(folder)
    except OSError as error:
        if isinstance(folder, Path):
            raise
        raise InputError(f"{folder}: {error.strerror}") from error


def _inspect(folder: AnyPath) -> OutputState:
    if not folder.is_dir():
        # In a store, another build may have made it a folder since the line above.
        is_file = folder.exists() if isinstance(folder, Path) else folder.is_file()
        return OutputState(folder, is_file=is_file)
    top = _listed(folder)
    found = _Files(folder, top, _listed(folder / "index") if folder / "index" in top else [])
    area = folder / AREA_NAME
    areas = [path for path in _listed(area) if _PLAN_ID.fullmatch(path.name)] if area in top else []
    # After the files: in a store, where another build may commit now, a file that the manifest does not name
    # was not named before either.
    version, manifest, fault = _manifest(folder)
    return OutputState(
        folder,
        has_files=bool(top),
        has_area=area in top,
        has_only_ours=found.are_ours(),
        manifest=manifest,
        fault=fault,
        version=version,
        damage=tuple(file_problems(manifest, folder)) if manifest else (),
        unfinished=tuple(_unfinished(path) for path in areas),
        unnamed=tuple(found.unnamed(manifest)),
        temporary=tuple(temporary_files(folder)),
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


def note_build(area: AnyPath, options: Mapping[str, Json]) -> None:
    """Write the options of a build into its build area; a build that discards it reports them."""
    path = area / _NOTE_NAME
    if not path.is_file():
        area.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"options": dict(options)}).encode("ascii"))


@dataclass(frozen=True)
class _Files:
    """The files in the folder of a dataset and in its folder of indexes, sorted."""

    folder: AnyPath
    top: list[AnyPath]
    index: list[AnyPath]

    def unnamed(self, manifest: Manifest | None) -> Iterator[AnyPath]:
        """Yield the files of builds that a manifest does not name, each shard before its index and labels."""
        named = {rejects_name(manifest.build_id)} if manifest else set()
        for shard in manifest.shards if manifest else ():
            named |= {*shard.files, inputs_name(build_of(shard.path))}
        indexes = {path.name for path in self.index}
        for path, name in [(path, path.name) for path in self.top] + [
            (path, f"index/{path.name}") for path in self.index
        ]:
            is_ours = name != path.name or path.suffix in (".jsonl", ".npz") or f"{name}.idx" in indexes
            if build_of(path.name) and is_ours and name not in named:
                yield path

    def are_ours(self) -> bool:
        """Return whether there are shards, and otherwise only files with names of tfshards."""
        top = [path for path in self.top if path.name not in ("index", AREA_NAME)]
        has_shards = any(".tfrecord-" in path.name and build_of(path.name) for path in top)
        return has_shards and all(
            build_of(path.name) or is_reserved(path.name) or _TEMPORARY.fullmatch(path.name)
            for path in (*top, *self.index)
        )


def temporary_files(folder: AnyPath) -> list[AnyPath]:
    """Return the temporary files that killed processes left in a dataset or one of its folders."""
    if not isinstance(folder, Path):
        return []
    folders = (folder, folder / "index", *_listed(folder / PARTS_NAME))
    return [path for each in folders for path in _listed(each) if _TEMPORARY.fullmatch(path.name)]


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


def _unfinished(area: AnyPath) -> UnfinishedBuild:
    try:
        options = json.loads((area / _NOTE_NAME).read_bytes())["options"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        options = {}
    return UnfinishedBuild(
        plan_id=area.name,
        placed_id=BuildArea(area.parent.parent, area.name).placed_id(),
        has_begun=(area / "first").is_dir(),
        options=options if isinstance(options, dict) else {},
    )


def _listed(folder: AnyPath) -> list[AnyPath]:
    found: Iterable[AnyPath] = folder.iterdir() if folder.is_dir() else ()
    return sorted(found, key=lambda path: path.name)
