"""Inspect an output folder once, as a value from which builds, commits and pruning decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfshards.prep.progress.meter import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.views.tfds import PARTS_NAME
from tfshards.prep.writing.area import AREA_NAME, BuildArea
from tfshards.prep.writing.shard_names import build_of
from tfshards.schemas import FormatError, Manifest, Problem, Shard, read_manifest
from tfshards.schemas.companions import OTHER_BYTES, read_index, read_labels
from tfshards.schemas.files import file_digest, write_atomically
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import file_problems
from tfshards.schemas.names import MANIFEST_NAME, inputs_name, is_reserved, rejects_name

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
        damage: files in the manifest that are missing or have another size; after ``compare_contents`` also
            those with other bytes.
        unfinished: the builds that were not committed, sorted by id.
        unnamed: files of builds that the manifest does not name. A shard comes before its index, since a file
            is recognized as a shard only by its index.
        temporary: temporary files that killed processes left.
    """

    folder: Path
    is_file: bool = False
    has_files: bool = False
    has_area: bool = False
    has_only_ours: bool = False
    manifest: Manifest | None = None
    fault: FormatError | None = None
    damage: tuple[Problem, ...] = ()
    unfinished: tuple[UnfinishedBuild, ...] = ()
    unnamed: tuple[Path, ...] = ()
    temporary: tuple[Path, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether the folder holds files, but neither a dataset nor an unfinished build."""
        return self.has_files and not (self.manifest or self.fault or self.has_area)

    @property
    def is_adopted(self) -> bool:
        """Whether the records of the dataset were written by other programs."""
        return bool(self.manifest and self.manifest.options.get("source") == "adopt")


def inspect_output(folder: Path) -> OutputState:
    """Return the state of a folder; a path that does not exist is an empty one."""
    if not folder.is_dir():
        return OutputState(folder, is_file=folder.exists())
    manifest, fault = _manifest(folder)
    area = folder / AREA_NAME
    return OutputState(
        folder,
        has_files=any(folder.iterdir()),
        has_area=area.exists(),
        has_only_ours=_has_only_ours(folder),
        manifest=manifest,
        fault=fault,
        damage=tuple(file_problems(manifest, folder)) if manifest else (),
        unfinished=tuple(_unfinished(path) for path in _listed(area) if _PLAN_ID.fullmatch(path.name)),
        unnamed=tuple(unnamed_files(folder, manifest)),
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


def note_build(area: Path, options: Mapping[str, Json]) -> None:
    """Write the options of a build into its build area; a build that discards it reports them."""
    path = area / _NOTE_NAME
    if not path.exists():
        area.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"options": dict(options)}).encode("ascii"))


def unnamed_files(folder: Path, manifest: Manifest | None) -> Iterator[Path]:
    """Yield the files of builds that the manifest does not name, each shard before its index and labels."""
    named = {rejects_name(manifest.build_id)} if manifest else set()
    for shard in manifest.shards if manifest else ():
        named |= {*shard.files, inputs_name(build_of(shard.path))}
    indexes = {path.name for path in _listed(folder / "index")}
    for path in (*_listed(folder), *_listed(folder / "index")):
        is_ours = path.parent != folder or path.suffix in (".jsonl", ".npz") or f"{path.name}.idx" in indexes
        if build_of(path.name) and is_ours and path.relative_to(folder).as_posix() not in named:
            yield path


def temporary_files(folder: Path) -> list[Path]:
    """Return the temporary files that killed processes left in a dataset or one of its folders."""
    folders = (folder, folder / "index", *_listed(folder / PARTS_NAME))
    return [path for each in folders for path in _listed(each) if _TEMPORARY.fullmatch(path.name)]


def _manifest(folder: Path) -> tuple[Manifest | None, FormatError | None]:
    if not (folder / MANIFEST_NAME).exists():
        return None, None
    try:
        return read_manifest(folder), None
    except FormatError as fault:
        return None, fault


def _has_only_ours(folder: Path) -> bool:
    """Return whether there are shards, and otherwise only files whose names tfshards gives to its files."""
    top = [path for path in _listed(folder) if path.name not in ("index", AREA_NAME)]
    files = [*top, *_listed(folder / "index")]
    has_shards = any(".tfrecord-" in path.name and build_of(path.name) for path in top)
    return has_shards and all(
        build_of(path.name) or is_reserved(path.name) or _TEMPORARY.fullmatch(path.name) for path in files
    )


def _has_changed(path: Path, digest: str, tick: Tick | None = None) -> bool:
    """Return whether a file has another digest, or cannot be read."""
    try:
        return file_digest(path, tick) != digest
    except OSError:
        return True


def _unfinished(area: Path) -> UnfinishedBuild:
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


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
