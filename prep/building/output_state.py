"""Inspect an output folder once, as a value, and decide from it what a build, a commit or pruning does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfshards.prep.imaging.options import VERSIONS
from tfshards.prep.planning.plan import Plan, plan_id_of
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import (
    FormatError,
    InputError,
    Manifest,
    Problem,
    Schema,
    Shard,
    TfshardsError,
    read_manifest,
)
from tfshards.schemas.build_area import AREA_NAME, areas, check_owned, foreign, read_record
from tfshards.schemas.companions import OTHER_BYTES, read_index, read_keys, read_labels
from tfshards.schemas.files import file_digest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import file_problems, is_manifest, manifest_version
from tfshards.schemas.names import MANIFEST_NAME, rejects_name
from tfshards.schemas.storage import AnyPath, RemotePath, RemoteStatus

# What manifests record about the datasets that a dataset was derived from.
_INPUTS = ("origin", "of")
# Recorded options that have another name than the parameter that gives them.
_PARAMETERS = {
    "dropped": "drop",
    "columns": "roles",
}
# What is recorded with the options, but that no parameter gives.
_NOT_PARAMETERS = (*VERSIONS, "quality", "source")


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
        keys = read_keys(folder, shard)[1] if shard.keys_digest else []
        return [*problems, *read_index(folder, shard)[1], *labels, *keys]

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
    # an area for reading keys has no plans (rewriting/scan.py)
    has_begun = (root / "first").is_dir() and any((root / "first").iterdir())
    return UnfinishedBuild(root.name, placed.build_id if placed else "", has_begun, read_record(root)[0])


@dataclass(frozen=True)
class Wanted:
    """The build that is to be in an output; the attributes are as in the manifest that it would have."""

    name: str
    schema: Schema
    options: Mapping[str, Json]
    inputs_digest: str

    @property
    def plan_id(self) -> str:
        """The id of the plan, which names the build area."""
        return plan_id_of(self.name, self.schema, self.options, self.inputs_digest)

    def is_in(self, manifest: Manifest | None) -> bool:
        """Return whether a dataset was built with the same plan, from inputs that may have other content."""
        if manifest is None or not manifest.inputs_digest:
            return False
        plan_id = plan_id_of(manifest.name, manifest.schema, manifest.options, manifest.inputs_digest)
        return plan_id == self.plan_id


def wanted_of(plan: Plan) -> Wanted:
    """Return the build of a plan."""
    return Wanted(plan.name, plan.listing.schema, plan.options, plan.inputs_digest)


def check_usable(state: OutputState) -> None:
    """Raise InputError if the output is a file, holds files but no dataset, or a manifest of another tool."""
    folder = state.folder
    if state.is_file:
        raise InputError("dataset-is-file", folder=folder)
    check_owned(folder)
    if state.is_foreign:
        raise InputError("folder-not-empty", folder=folder, a_file=state.a_file)
    if state.fault and not is_manifest(folder / MANIFEST_NAME):
        raise foreign(folder / MANIFEST_NAME)


def is_up_to_date(
    state: OutputState, wanted: Wanted, *, overwrite: bool, changes: Callable[[], str] = lambda: ""
) -> bool:
    """Return whether the output already holds this build with all of its files, as far as the plan says.

    ``changes`` returns how the inputs differ from those of the dataset, for the message of an error.

    Raises:
        InputError: it holds another dataset, or damaged files of this one, and ``overwrite`` is false; or it
            holds a dataset whose records were written by another program.
        FormatError: its manifest cannot be read, and ``overwrite`` is false.
    """
    folder, manifest = state.folder, state.manifest
    if state.fault and not overwrite:
        raise state.fault
    if manifest is None:
        return False
    if state.is_adopted:
        # they stay as they are, and there may be no other copy
        raise InputError("dataset-not-ours", folder=folder)
    if not wanted.is_in(manifest):
        if overwrite:
            return False
        removed, relabeled = len(manifest.made.removed), manifest.made.num_relabeled
        if removed or relabeled:
            raise InputError("dataset-edited", folder=folder, removed=removed, relabeled=relabeled)
        raise InputError(
            "dataset-differs", folder=folder, distinction=_distinction(manifest, wanted, changes)
        )
    if state.damage and not overwrite:
        raise InputError("dataset-damaged", folder=folder, damage=state.damage[0])
    return not state.damage


def _distinction(manifest: Manifest, wanted: Wanted, changes: Callable[[], str]) -> str:
    """Return how a dataset differs from the build that is wanted, such as ``with other inputs``."""
    causes = [f"another name ({manifest.name!r})"] if manifest.name != wanted.name else []
    kind = manifest.options.get("source")
    if kind != wanted.options.get("source"):
        # each kind has options of its own
        return "with " + " and ".join([*causes, f"another kind of source ({kind!r})"])
    changed = _changed(manifest.options, wanted.options)
    options = [_as_parameter(name) for name in changed if name not in (*_INPUTS, "appended")]
    if options:
        causes.append(f"other options ({', '.join(options)})")
    if "appended" in manifest.options:
        causes.append("appended examples")
    elif manifest.inputs_digest != wanted.inputs_digest or {*_INPUTS} & {*changed}:
        found = changes()
        # with other options, the same inputs may be divided into other splits
        if found or not causes:
            causes.append(f"other inputs ({found})" if found else "other inputs")
    return "with " + " and ".join(causes or ["other features or class names"])


def up_to_date(folder: AnyPath, *, is_compared: bool) -> str:
    """Return the status line about a dataset that is complete; contents are compared, or only sizes."""
    how = "all bytes" if is_compared else "sizes of its files"
    see = "" if is_compared else "; 'tfshards verify' compares contents"
    return f"{folder} is up to date ({how} were compared{see})"


def difference(manifest: Manifest, options: Mapping[str, Json]) -> str:
    """Return ``options`` with the parameters of those that differ from a dataset's, else ``inputs``."""
    changed = _changed(manifest.options, options)
    return f"options ({', '.join(map(_as_parameter, changed))})" if changed else "inputs"


def outlook(state: OutputState, wanted: Wanted) -> list[str]:
    """Return lines about the dataset that a build will find in its output; none if there is no dataset."""
    try:
        is_found = is_up_to_date(state, wanted, overwrite=False)
    except TfshardsError as error:
        # the verb plan, which prints it, has not this flag of build
        return [str(error).replace("overwrite=True", "--overwrite")]
    line = f"{state.folder} already holds this build, unless the content of inputs has changed"
    return [line] if is_found else []


def is_committed(build: UnfinishedBuild, state: OutputState) -> bool:
    """Return whether a build area is left of the dataset, whose process was killed after the commit."""
    return bool(state.manifest and build.placed_id == state.manifest.build_id)


def builds_to_discard(state: OutputState, plan_id: str) -> list[UnfinishedBuild]:
    """Return the unfinished builds that this build of the same output replaces, and the committed one.

    If the manifest cannot be read, nothing is discarded, since the files that it names are not known. Nor is
    anything in an object store, where these builds may be running: ``prune`` removes them.
    """
    if state.fault or isinstance(state.folder, RemotePath):
        return []
    return [build for build in state.unfinished if build.plan_id != plan_id or is_committed(build, state)]


def discard_message(build: UnfinishedBuild, options: Mapping[str, Json]) -> str:
    """Return the status line about a build that is discarded for one with these options."""
    changed = _changed(build.options, options) if build.options else []
    names = f" ({', '.join(map(_as_parameter, changed))})" if changed else ""
    return f"discarding an unfinished build: its inputs or options differ{names}"


def _as_parameter(option: str) -> str:
    """Return the parameter that gives a recorded option, as ``seed=``; the command line shows its flag."""
    return option if option in _NOT_PARAMETERS else f"{_PARAMETERS.get(option, option)}="


def _changed(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    # which follows from it
    return [name for name in changed if name != "quality" or "jpeg_quality" not in changed]
