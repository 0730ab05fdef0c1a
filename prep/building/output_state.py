"""What an output folder holds, inspected once, as a value on which builds, commits and pruning decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import FormatError, Manifest, Problem, read_manifest
from tfshards.schemas.files import write_atomically
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import file_problems
from tfshards.schemas.names import MANIFEST_NAME

_NOTE_NAME = "build.json"
_BUILD_ID = re.compile("[0-9a-f]{8}")
# Shards, their indexes and labels, and rejects files carry the id of their build.
_OF_BUILD = re.compile(
    r"(?:.+-([0-9a-f]{8})\.tfrecord-\d{5,}-of-\d{5,}(?:\.idx|\.labels)?|rejected-([0-9a-f]{8})\.jsonl)"
)
# What a killed process leaves of a file that it was writing (schemas.atomic).
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


@dataclass(frozen=True)
class UnfinishedBuild:
    """The build area of a build that has not ended.

    Attributes:
        build_id: of the build.
        has_begun: whether it has begun to write shards.
        options: of the build; empty if they are not noted, or cannot be read.
    """

    build_id: str
    has_begun: bool
    options: Mapping[str, Json]


@dataclass(frozen=True)
class OutputState:
    """What a folder holds that is, or is to become, a dataset.

    Attributes:
        folder: the path, which may not exist.
        is_file: whether the path is a file.
        has_files: whether the folder holds anything.
        has_area: whether there are build areas.
        manifest: of the committed dataset; None if there is none, or it cannot be read.
        fault: why the manifest cannot be read; None if it can, or there is none.
        damage: files that the manifest names and that are missing or of another size.
        unfinished: the builds that have not ended, by id.
        unnamed: files of builds that the manifest does not name. A shard comes before its index, since a file
            is known as a shard only by its index.
        temporary: what killed processes left of files that they were writing.
    """

    folder: Path
    is_file: bool = False
    has_files: bool = False
    has_area: bool = False
    manifest: Manifest | None = None
    fault: FormatError | None = None
    damage: tuple[Problem, ...] = ()
    unfinished: tuple[UnfinishedBuild, ...] = ()
    unnamed: tuple[Path, ...] = ()
    temporary: tuple[Path, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether the folder holds files, but neither a dataset nor a build."""
        return self.has_files and not (self.manifest or self.fault or self.has_area)

    @property
    def is_adopted(self) -> bool:
        """Whether the records of the dataset were written by other programs."""
        return bool(self.manifest and self.manifest.options.get("source") == "adopt")


def inspect_output(folder: Path) -> OutputState:
    """Return what a folder holds; a path that does not exist holds nothing."""
    if not folder.is_dir():
        return OutputState(folder, is_file=folder.exists())
    manifest, fault = _manifest(folder)
    area = folder / AREA_NAME
    return OutputState(
        folder,
        has_files=any(folder.iterdir()),
        has_area=area.exists(),
        manifest=manifest,
        fault=fault,
        damage=tuple(file_problems(manifest, folder)) if manifest else (),
        unfinished=tuple(_unfinished(path) for path in _listed(area) if _BUILD_ID.fullmatch(path.name)),
        unnamed=tuple(unnamed_files(folder, manifest)),
        temporary=tuple(temporary_files(folder)),
    )


def note_build(area: Path, options: Mapping[str, Json]) -> None:
    """Write the options of a build into its build area, for the message of a build that discards it."""
    path = area / _NOTE_NAME
    if not path.exists():
        area.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"options": dict(options)}).encode("ascii"))


def unnamed_files(folder: Path, manifest: Manifest | None) -> Iterator[Path]:
    """Yield the files of builds that the manifest does not name, each shard before its index and labels."""
    named = {f"rejected-{manifest.build_id}.jsonl"} if manifest else set()
    for shard in manifest.shards if manifest else ():
        named |= {shard.path, *shard.companion_digests}
    indexes = {path.name for path in _listed(folder / "index")}
    for path in (*_listed(folder), *_listed(folder / "index")):
        is_ours = path.parent != folder or path.suffix == ".jsonl" or f"{path.name}.idx" in indexes
        if build_of(path) and is_ours and path.relative_to(folder).as_posix() not in named:
            yield path


def build_of(path: Path) -> str:
    """Return the build id in the name of a shard, index, labels or rejects file; else an empty string."""
    match = _OF_BUILD.fullmatch(path.name)
    return match[1] or match[2] if match else ""


def temporary_files(folder: Path) -> list[Path]:
    """Return what killed processes left of files that they were writing."""
    return [path for path in _listed(folder) if _TEMPORARY.fullmatch(path.name)]


def _manifest(folder: Path) -> tuple[Manifest | None, FormatError | None]:
    if not (folder / MANIFEST_NAME).exists():
        return None, None
    try:
        return read_manifest(folder), None
    except FormatError as fault:
        return None, fault


def _unfinished(area: Path) -> UnfinishedBuild:
    try:
        options = json.loads((area / _NOTE_NAME).read_bytes())["options"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        options = {}
    return UnfinishedBuild(
        build_id=area.name,
        has_begun=(area / "first").is_dir(),
        options=options if isinstance(options, dict) else {},
    )


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
