"""What the folder of a dataset holds: inspected once, as a value, from which a build decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tfshards.prep.building.made import made_of
from tfshards.prep.engines.work import Tick, in_threads
from tfshards.prep.imaging.formats import VERSIONS
from tfshards.prep.progress.lines import Meter
from tfshards.prep.records.dataset_files import digest_problems, file_problems
from tfshards.prep.sources.staging_folder import staged_folders
from tfshards.prep.writing.build_folder import BuildFolder, build_folders, foreign
from tfshards.schemas import FormatError, InputError, Manifest, Problem, read_manifest
from tfshards.schemas.errors import listed
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import is_manifest
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, RemoteStatus
from tfshards.schemas.storage.locking import LOCK_NAME

_SHOWN = 5
# Recorded options that have another name than the parameter that gives them.
_PARAMETERS = {"columns": "roles"}
# What is recorded with the options, but follows from the inputs, the release or another option.
_NOT_OPTIONS = (*VERSIONS, "appended", "made_by", "of", "origin", "quality", "source")


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

    @cached_property
    def generations(self) -> dict[BuildFolder, Manifest | None]:
        """The complete builds with their manifests, of which the dataset has a copy; None if damaged."""
        found = {build: build.manifest() for build in self.folders if build.is_complete}
        return {**found, BuildFolder(self.folder, self.current): self.manifest} if self.manifest else found

    def builds_of(self, plan_id: str) -> list[BuildFolder]:
        """Return the folders of builds of a plan, of which each further one had inputs with other content."""
        return [each for each in self.folders if plan_of(each.name) == plan_id]

    @cached_property
    def _named(self) -> frozenset[str]:
        """The folders with files that generations name."""
        manifests = filter(None, self.generations.values())
        return frozenset(plain_folder(path) for each in manifests for path in each.data_paths)

    def is_unfinished(self, build: BuildFolder) -> bool:
        """Return whether a build is not finished; what ``prune`` has left of one is needed by later ones."""
        return build not in self.generations and build.name not in self._named

    def new_folder(self, plan_id: str) -> BuildFolder:
        """Return the folder for a build of a plan: an unfinished one, or else the next one."""
        builds = self.builds_of(plan_id)
        if unfinished := [build for build in builds if self.is_unfinished(build)]:
            return unfinished[0]
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
        raise InputError(f"{folder}: {error.strerror}") from error


def _inspect(folder: AnyPath) -> OutputState:
    if not folder.is_dir():
        # In a store, another build may have made it a folder since the line above.
        return OutputState(folder, is_file=folder.is_taken() and not folder.is_dir())
    folders = tuple(build_folders(folder))
    ours = {MANIFEST_NAME, LOCK_NAME, *(each.name for each in (*folders, *staged_folders(folder)))}
    other = next((path.name for path in folder.iterdir() if path.name not in ours), "")
    pointer, fault, manifest = folder / MANIFEST_NAME, None, None
    replaced = pointer.version()
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
        raise InputError(f"{folder} is a file; the last argument, dataset=, must be a folder or a new name")
    if state.other and not (state.manifest or state.fault or state.folders):
        raise InputError(
            f"{folder} holds files but no dataset, such as {state.other!r}; choose an empty folder or a new "
            "name",
            code="foreign-file",
        )
    if state.fault and not is_manifest(folder / MANIFEST_NAME):
        raise foreign(folder / MANIFEST_NAME)


class Wanted(NamedTuple):
    """The build that is to be in an output, as far as an output shows whether it holds it.

    Attributes:
        name: name of the dataset.
        plan_id: id of the plan, which names the folder of the build.
        options: what the manifest records of how it is made.
    """

    name: str
    plan_id: str
    options: Mapping[str, Json]

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
        others = [build.name for build in state.generations if plan_of(build.name) != wanted.plan_id]
        if others and not overwrite:
            # they may hold what was appended, or lack what was removed
            raise InputError(
                f"{folder} has no dataset.json that shows which of its generations is the dataset "
                f"({listed(others, _SHOWN)}); make one of them the dataset with 'tfshards restore', or give "
                "overwrite=True to build it anew from the source"
            )
        return
    if state.is_adopted:
        # they stay as they are, and there may be no other copy
        raise InputError(f"{folder} has records of another program; use another output", code="foreign-file")
    if overwrite or wanted.is_in(manifest):
        return
    name = "" if manifest.name == wanted.name else f"another name ({manifest.name!r}) and "
    differing = f"with {name}{differences(manifest.options, wanted.options)}"
    raise InputError(
        f"{folder} holds a dataset {differing}; give overwrite=True to replace it, or choose another output",
        code="dataset-differs",
    )


def damage_of(folder: AnyPath, manifest: Manifest, *, is_compared: bool) -> list[Problem]:
    """Return the files of a dataset that are missing or have other bytes.

    They are compared if ``is_compared``, if any file is missing, or if a shard has another size.
    """
    are_missing = folder.each(lambda path: not (folder / path).exists(), manifest.data_paths)
    if not (is_compared or any(are_missing) or file_problems(manifest, folder)):
        return []

    def compare(item: tuple[Mapping[str, str], int], tick: Tick) -> list[Problem]:
        digests, num_bytes = item
        found = digest_problems(folder, digests)
        tick(num_bytes)
        return found

    items = [(shard.digests, shard.num_bytes) for shard in manifest.shards] + [(manifest.other_digests, 0)]
    with Meter("compare", sum(num_bytes for _, num_bytes in items)) as meter:
        return [problem for found in in_threads(compare, items, meter.add) for problem in found]


def differences(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    """Return how the options of two builds differ, such as ``other options (seed=)``; else the inputs do."""
    if before.get("source") != after.get("source"):
        # each kind has options of its own
        return f"another kind of source ({before.get('source')!r})"
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    options = [f"{_PARAMETERS.get(name, name)}=" for name in changed if name not in _NOT_OPTIONS]
    if options:
        return f"other options ({', '.join(options)})"
    releases = [name for name in changed if name in VERSIONS]
    return f"another release of {releases[0]}" if releases else "other inputs"
