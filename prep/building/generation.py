"""Make an earlier generation of a dataset the dataset again."""

from __future__ import annotations

import os

from tfshards.prep.building.commit import complete, replace_manifest
from tfshards.prep.building.output import claimed, output_folder
from tfshards.prep.progress.lines import Log, to_stderr
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import InputError, Manifest
from tfshards.schemas.build_area import create
from tfshards.schemas.errors import listed
from tfshards.schemas.generations import kept_manifests
from tfshards.schemas.manifest_file import file_problems

_SHOWN = 5


def restore(dataset: str | os.PathLike[str], build_id: str, *, log: Log = to_stderr) -> Manifest:
    """Make an earlier generation of a dataset the dataset again, and return its manifest.

    Its files are those that it had: only the manifest is replaced, as by a commit, and the views. The
    generation that was the dataset is kept in its turn.

    Args:
        dataset: folder of the dataset, or its URL.
        build_id: build id of the generation; see ``generations``.
        log: receives status lines.

    Raises:
        InputError: there is no such generation, or a shard of it is missing; or the folder cannot be locked.
        IncompleteError: the generation is the dataset, but a view cannot be written.
    """
    folder = output_folder(dataset)
    with claimed(folder) as state:
        if state.manifest and state.manifest.build_id == build_id:
            complete(state.manifest, folder, log)
            log(f"{folder}: build {build_id} is the dataset already")
            return state.manifest
        kept = {manifest.build_id: manifest for manifest in kept_manifests(folder)}
        if build_id not in kept:
            has = f"it has {listed([*kept], _SHOWN)}" if kept else "it has none"
            raise InputError("generation-unknown", folder=folder, build_id=build_id, has=has)
        manifest = kept[build_id]
        problems = file_problems(manifest, folder)
        if problems:
            raise InputError("generation-damaged", build_id=build_id, folder=folder, problems=problems[0])
        # from which the next command completes it after a crash
        area = BuildArea(folder, build_id)
        create(area.root)
        area.announce(manifest)
        replace_manifest(manifest, state, log, area.root)
        return manifest
