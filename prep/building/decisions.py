"""Decide what a build does with the contents of its output: pure functions of ``OutputState``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tfshards.prep.building.output_state import OutputState, UnfinishedBuild, build_of
from tfshards.schemas import InputError, Manifest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import MANIFEST_NAME


def check_usable(state: OutputState, *, overwrite: bool = False) -> None:
    """Raise InputError if the output is a file, or holds files but no dataset.

    Shards without their manifest are allowed with ``overwrite``.
    """
    if state.is_file:
        raise InputError(f"{state.folder} is a file; the output must be a folder or a new name")
    if state.is_foreign and state.has_only_ours:
        if overwrite:
            return
        raise InputError(
            f"{state.folder} holds the shards of a dataset without their {MANIFEST_NAME}; give "
            "overwrite=True to replace them, or choose an empty folder or a new name"
        )
    if state.is_foreign:
        raise InputError(f"{state.folder} holds files but no dataset; choose an empty folder or a new name")


def is_up_to_date(state: OutputState, build_id: str, options: Mapping[str, Json], *, overwrite: bool) -> bool:
    """Return whether the output already holds this build with all of its files.

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
        # a later build would remove them, and there may be no other copy
        raise InputError(f"{folder} holds records that tfshards did not write; choose another output")
    if manifest.build_id != build_id:
        if overwrite:
            return False
        raise InputError(
            f"{folder} holds a dataset with other {difference(manifest, options)} (build "
            f"{manifest.build_id}, this one is {build_id}); give overwrite=True to replace it, or "
            "choose another output"
        )
    if state.damage and not overwrite:
        raise InputError(f"{folder} is damaged: {state.damage[0]}; give overwrite=True to rebuild it")
    return not state.damage


def up_to_date(folder: Path, *, is_compared: bool) -> str:
    """Return the status line about a dataset for which there is nothing to do.

    Args:
        folder: folder of the dataset.
        is_compared: whether the contents of its files were compared, and not only their sizes.
    """
    how = "all bytes" if is_compared else "sizes"
    see = "" if is_compared else "; 'tfshards verify' compares contents"
    return f"{folder} is up to date ({how} were compared{see})"


def difference(manifest: Manifest, options: Mapping[str, Json]) -> str:
    """Return ``options`` with the names of those that differ from a dataset's, else ``inputs``."""
    changed = _changed(manifest.options, options)
    return f"options ({', '.join(changed)})" if changed else "inputs"


def outlook(state: OutputState, build_id: str) -> list[str]:
    """Return lines about the dataset that a build will find in its output; none if there is no dataset."""
    if state.fault:
        return [f"{state.folder} holds a dataset that cannot be read: build must overwrite it"]
    if state.is_foreign and state.has_only_ours:
        return [f"{state.folder} holds shards without their {MANIFEST_NAME}: build must overwrite them"]
    if state.manifest is None:
        return []
    if state.is_adopted:
        return [f"{state.folder} holds records that tfshards did not write: build requires another output"]
    if state.manifest.build_id == build_id:
        return [f"{state.folder} already holds this build: there is nothing to do"]
    return [f"{state.folder} holds another build, {state.manifest.build_id}: build must overwrite it"]


def builds_to_discard(state: OutputState, build_id: str) -> list[UnfinishedBuild]:
    """Return the unfinished builds that this build of the same output replaces.

    If the manifest cannot be read, nothing is discarded, since the files that it names are not known.
    """
    return [] if state.fault else [build for build in state.unfinished if build.build_id != build_id]


def files_to_remove(state: OutputState, build_id: str) -> list[Path]:
    """Return the files that a build removes before it writes.

    These are the files of the builds that it discards and, unless the dataset is this build, those of the
    generation before the dataset. The dataset itself stays until the next build.
    """
    if state.fault:
        return []
    committed = state.manifest.build_id if state.manifest else ""
    discarded = {build.build_id for build in builds_to_discard(state, build_id)} - {committed}
    is_committed = committed == build_id
    return [
        path
        for path in state.unnamed
        if build_of(path) in discarded or not (is_committed or build_of(path) == build_id)
    ]


def unneeded_files(state: OutputState) -> list[Path]:
    """Return the files that the dataset does not need; without a dataset, those of the unfinished builds."""
    unfinished = {build.build_id for build in state.unfinished}
    unneeded = [path for path in state.unnamed if state.manifest or build_of(path) in unfinished]
    return [*unneeded, *state.temporary]


def discard_message(build: UnfinishedBuild, options: Mapping[str, Json]) -> str:
    """Return the status line about a build that is discarded for one with these options."""
    changed = _changed(build.options, options) if build.options else []
    names = f" ({', '.join(changed)})" if changed else ""
    return f"discarding unfinished build {build.build_id}: its inputs or options differ{names}"


def _changed(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
