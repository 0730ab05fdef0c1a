"""What the folder of a dataset holds: inspected once, as a value, from which a build decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from tfshards.prep.building.made import made_of
from tfshards.prep.imaging.options import VERSIONS
from tfshards.prep.planning.plan import plan_id_of
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.dataset_files import digest_problems, file_problems
from tfshards.prep.sources.staging_folder import staged_folders
from tfshards.prep.writing.build_folder import BuildFolder, build_folders, foreign
from tfshards.schemas import FormatError, InputError, Manifest, Problem, Schema, TfshardsError, read_manifest
from tfshards.schemas.errors import listed
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import is_manifest
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, RemoteStatus
from tfshards.schemas.storage.locking import LOCK_NAME
from tfshards.schemas.storage.verbs import exists, version

_SHOWN = 5
# What manifests record about the datasets that a dataset was derived from.
_INPUTS = ("origin", "of")
# Recorded options that have another name than the parameter that gives them.
_PARAMETERS = {"columns": "roles"}
# What is recorded with the options, but that no parameter gives.
_NOT_PARAMETERS = (*VERSIONS, "appended", "quality", "source")


@dataclass(frozen=True)
class OutputState:
    """The contents of a folder that is, or will be, a dataset.

    Attributes:
        other: name of something in the folder that is not of tfshards; empty if there is nothing.
        manifest: manifest of the dataset; None if it does not exist or cannot be read.
        fault: why the manifest cannot be read, if it exists.
        version: in an object store, the version of the manifest, if it exists; the commit replaces only this.
        folders: the folders of builds.
    """

    folder: AnyPath
    is_file: bool = False
    other: str = ""
    manifest: Manifest | None = None
    fault: FormatError | None = None
    version: RemoteStatus | None = None
    folders: tuple[BuildFolder, ...] = ()

    @property
    def current(self) -> str:
        """Name of the folder of the build that is the dataset; empty if there is none."""
        return self.manifest.folder if self.manifest else ""

    @property
    def is_adopted(self) -> bool:
        """Whether the records of the dataset were written by other programs."""
        return bool(self.manifest and made_of(self.manifest).source == "adopt")

    def builds_of(self, plan_id: str) -> list[BuildFolder]:
        """Return the folders of builds of a plan, of which each further one had inputs with other content."""
        return [each for each in self.folders if plan_of(each.name) == plan_id]

    @cached_property
    def _named(self) -> frozenset[str]:
        """The folders with files that generations name."""
        manifests = [self.manifest, *(build.manifest() for build in self.folders if build.is_committed)]
        return frozenset(plain_folder(path) for each in manifests if each for path in each.data_paths)

    def is_unfinished(self, build: BuildFolder) -> bool:
        """Return whether a build is not finished; what ``prune`` has left of one is needed by later ones."""
        return not build.is_committed and build.name not in self._named

    def new_folder(self, plan_id: str) -> BuildFolder:
        """Return the folder for a build of a plan: an unfinished one, or else the next one."""
        builds = self.builds_of(plan_id)
        for build in builds:
            if self.is_unfinished(build):
                return build
        used = {build.name for build in builds}
        names = (plan_id if number == 1 else f"{plan_id}-{number}" for number in range(1, len(used) + 2))
        return BuildFolder(self.folder, next(name for name in names if name not in used))


def plain_folder(path: str) -> str:
    """Return the folder of a build in the path of a file of a dataset."""
    return path.partition("/")[0]


def plain_name(path: str) -> str:
    """Return the path of a file of a dataset in the folder of its build."""
    return path.partition("/")[2]


def plan_of(folder: str) -> str:
    """Return the id of the plan in the name of a build's folder."""
    return folder.partition("-")[0]


def system_fault(folder: AnyPath, error: OSError) -> str:
    """Return the message for an operating system error that ended a build into ``folder``."""
    # when renaming fails, the target is the path that matters
    named = next((name for name in (error.filename2, error.filename) if isinstance(name, str)), folder)
    why = error.strerror or error
    return f"{named}: {why}; once that is fixed, run the same command to resume"


def inspect_output(folder: AnyPath) -> OutputState:
    """Return the state of a folder; a path that does not exist is an empty one."""
    try:
        return _inspect(folder)
    except OSError as error:
        raise InputError("folder-fault", folder=folder, why=error.strerror) from error


def _inspect(folder: AnyPath) -> OutputState:
    if not folder.is_dir():
        # In a store, another build may have made it a folder since the line above.
        return OutputState(folder, is_file=exists(folder) and not folder.is_dir())
    folders = tuple(build_folders(folder))
    ours = {MANIFEST_NAME, LOCK_NAME, *(each.name for each in (*folders, *staged_folders(folder)))}
    other = next((path.name for path in folder.iterdir() if path.name not in ours), "")
    pointer, fault, manifest = folder / MANIFEST_NAME, None, None
    replaced = version(pointer)
    if replaced is not None:
        try:
            manifest = read_manifest(folder)
        except FormatError as error:
            fault = error
    return OutputState(folder, False, other, manifest, fault, replaced, folders)


def check_usable(state: OutputState) -> None:
    """Raise InputError if the output is a file, holds files but no dataset, or a manifest of another tool."""
    folder = state.folder
    if state.is_file:
        raise InputError("dataset-is-file", folder=folder)
    if state.other and not (state.manifest or state.fault or state.folders):
        raise InputError("folder-not-empty", folder=folder, a_file=state.other)
    if state.fault and not is_manifest(folder / MANIFEST_NAME):
        raise foreign(folder / MANIFEST_NAME)


@dataclass(frozen=True)
class Wanted:
    """The build that is to be in an output, given by what the manifest that it would have holds.

    ``changes`` returns how the inputs differ from those of a dataset, if that is known.
    """

    name: str
    schema: Schema
    options: Mapping[str, Json]
    inputs_digest: str
    changes: Callable[[OutputState], str] = lambda _: ""

    @property
    def plan_id(self) -> str:
        """The id of the plan, which names the folder of the build."""
        return plan_id_of(self.name, self.schema, self.options, self.inputs_digest)

    def is_in(self, manifest: Manifest | None) -> bool:
        """Return whether a dataset was built with the same plan, from inputs that may have other content."""
        return manifest is not None and plan_of(manifest.folder) == self.plan_id


def check_replaceable(state: OutputState, wanted: Wanted, *, overwrite: bool) -> None:
    """Check that a build may replace what is in an output.

    Raises:
        InputError: there is a dataset of another plan, or there are generations of other plans without a
            manifest that says which of them is the dataset, and ``overwrite`` is false; or it holds a dataset
            whose records were written by another program.
        FormatError: its manifest cannot be read, and ``overwrite`` is false.
    """
    folder, manifest = state.folder, state.manifest
    if state.fault and not overwrite:
        raise state.fault
    if manifest is None:
        others = [
            each.name for each in state.folders if each.is_committed and plan_of(each.name) != wanted.plan_id
        ]
        if others and not overwrite:
            # they may hold what was appended, or lack what was removed
            raise InputError("pointer-missing", folder=folder, names=listed(others, _SHOWN))
        return
    if state.is_adopted:
        # they stay as they are, and there may be no other copy
        raise InputError("dataset-not-ours", folder=folder)
    if overwrite or wanted.is_in(manifest):
        return
    removed, relabeled = made_of(manifest).num_removed, made_of(manifest).num_relabeled
    if removed or relabeled:
        raise InputError("dataset-edited", folder=folder, removed=removed, relabeled=relabeled)
    raise InputError("dataset-differs", folder=folder, distinction=_distinction(state, manifest, wanted))


def damage_of(
    folder: AnyPath, manifest: Manifest, *, is_compared: bool, names: Collection[str] | None = None
) -> list[Problem]:
    """Return the files of a dataset that are missing or have other bytes.

    They are compared if ``is_compared``, or if a shard is missing or has another size: all shards, or those
    with these ``names``.
    """
    if not (is_compared or file_problems(manifest, folder)):
        return []

    def compare(item: tuple[Mapping[str, str], int], tick: Tick) -> list[Problem]:
        digests, num_bytes = item
        found = digest_problems(folder, digests)
        tick(num_bytes)
        return found

    items: list[tuple[Mapping[str, str], int]] = [
        (shard.digests, shard.num_bytes)
        for shard in manifest.shards
        if names is None or plain_name(shard.path) in names
    ]
    items.append((manifest.other_digests, 0))
    with Meter("compare", sum(num_bytes for _, num_bytes in items)) as meter:
        return [problem for found in in_threads(compare, items, meter.add) for problem in found]


def outlook(state: OutputState, wanted: Wanted) -> list[str]:
    """Return lines about the dataset that a build will find in its output; none if there is no dataset."""
    try:
        check_replaceable(state, wanted, overwrite=False)
    except TfshardsError as error:
        return [str(error)]
    line = f"{state.folder} already holds this build, unless the content of inputs has changed"
    return [line] if state.manifest else []


def _distinction(state: OutputState, manifest: Manifest, wanted: Wanted) -> str:
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
        found = wanted.changes(state)
        # with other options, the same inputs may be divided into other splits
        if found or not causes:
            causes.append(f"other inputs ({found})" if found else "other inputs")
    return "with " + " and ".join(causes or ["other features or class names"])


def difference(manifest: Manifest, options: Mapping[str, Json]) -> str:
    """Return ``options`` with the parameters of those that differ from a dataset's, else ``inputs``."""
    changed = _changed(manifest.options, options)
    return f"options ({', '.join(map(_as_parameter, changed))})" if changed else "inputs"


def discard_message(build: BuildFolder, options: Mapping[str, Json]) -> str:
    """Return the status line about an unfinished build that is discarded for one with these options."""
    before, _ = build.record()
    changed = _changed(before, options) if before else []
    names = f" ({', '.join(map(_as_parameter, changed))})" if changed else ""
    return f"discarding an unfinished build: its inputs or options differ{names}"


def _as_parameter(option: str) -> str:
    """Return the parameter that gives a recorded option, as ``seed=``; the command line shows its flag."""
    return option if option in _NOT_PARAMETERS else f"{_PARAMETERS.get(option, option)}="


def _changed(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    # the verb is not an option, and the usual quality follows from the other
    implied = {"made_by", "quality"} if "jpeg_quality" in changed else {"made_by"}
    return [name for name in changed if name not in implied]
