"""Commit a build: place its files, replace the manifest, write the views, and remove the build area."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tfshards.prep.building.inputs_file import RecordedInputs, inputs_content
from tfshards.prep.building.output import discard_others, locked, remove_staged
from tfshards.prep.building.output_state import OutputState, Wanted, inspect_output, up_to_date
from tfshards.prep.planning.plan import plan_id_of
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.views.table import foreign_views, refresh_views, view_notes, with_views
from tfshards.prep.writing.area import BuildArea, Reject
from tfshards.prep.writing.shard_names import data_files, with_build_id
from tfshards.schemas import BuildError, InputError, Manifest, TfshardsError, read_manifest
from tfshards.schemas.build_area import AREA_NAME, areas, foreign, has_record, make_folder
from tfshards.schemas.errors import IncompleteError
from tfshards.schemas.files import sync_directory
from tfshards.schemas.generations import generation_path, kept_manifests
from tfshards.schemas.json_reader import load_json
from tfshards.schemas.manifest_file import write_manifest
from tfshards.schemas.names import MANIFEST_NAME, inputs_name, rejects_name
from tfshards.schemas.storage import AnyPath, RemotePath, any_path, link_file
from tfshards.schemas.storage.untrusted import REJECTS, read_whole

# The fields of a line in the rejects file, see docs/format.md.
_FIELDS = ("key", "reason", "detail", "size")


def identified(draft: Manifest) -> Manifest:
    """Return the manifest of finished shards with the build id instead of the plan id, also in paths."""
    build_id = draft.content_id()
    splits = {
        name: replace(
            split,
            shards=tuple(replace(one, path=with_build_id(one.path, build_id)) for one in split.shards),
        )
        for name, split in draft.splits.items()
    }
    return replace(draft, build_id=build_id, splits=splits)


def commit(
    manifest: Manifest,
    rejects: Sequence[Reject],
    inputs: RecordedInputs | None,
    area: BuildArea,
    state: OutputState,
) -> Manifest:
    """Make the build the dataset, and return its manifest with the digests of its views.

    The commit is complete when the manifest is renamed, or put into a store. Before that, all files that it
    names are durable, and so are their names; afterwards only the views are missing. ``state`` is the output
    before the build.

    Raises:
        InputError: a file of the dataset has the name of a file that tfshards did not write.
        ChangedError, FileExistsError: another process has written the manifest in a store.
        IncompleteError: the build is the dataset, but a view cannot be written.
    """
    manifest = with_views(manifest)
    others: dict[str, bytes] = {}
    if inputs is not None:
        others[inputs_name(manifest.build_id)] = inputs_content(inputs)
    if rejects:
        others[rejects_name(manifest.build_id)] = rejects_text(rejects)
    # without a shard of this build, nothing would read its inputs
    others = {path: content for path, content in others.items() if path in data_files(manifest)}
    _check_free(manifest, state)
    area.place(manifest, others)
    replace_manifest(manifest, state, area.unfinished_path(""))
    return manifest


def replace_manifest(manifest: Manifest, state: OutputState, staging: AnyPath | None = None) -> None:
    """Commit a manifest, keep the one that it replaces, and complete the dataset.

    All files of the manifest are durable, except the views. ``staging`` is a folder for unfinished files;
    by default one is made.
    """
    folder, old = state.folder, state.manifest
    _check_free(manifest, state)
    is_kept = old is not None and old.build_id != manifest.build_id
    if old is not None and is_kept:
        _keep(old, folder)
    write_manifest(manifest, folder, state.version, staging)
    complete(manifest, folder)
    if old is not None and is_kept:
        report_line(
            f"kept build {old.build_id}, the previous generation: 'tfshards restore {folder} {old.build_id}' "
            f"makes it the dataset again, 'tfshards prune {folder}' removes it"
        )


def _keep(old: Manifest, folder: AnyPath) -> None:
    """Keep the manifest of the dataset as an earlier generation."""
    kept = folder / generation_path(old.build_id)
    if not isinstance(folder, Path):
        # not a copy of what is there, which another build may have replaced
        kept.write_bytes(old.to_text().encode("ascii"))
        return
    make_folder(folder, generation_path(old.build_id))
    if not kept.exists():
        # otherwise it was kept by a commit that did not come to its end
        link_file(folder / MANIFEST_NAME, kept)
    sync_directory(kept.parent)


def _check_free(manifest: Manifest, state: OutputState) -> None:
    """Raise InputError if a file would be replaced that tfshards did not write."""
    folder, old = state.folder, state.manifest
    known = [*kept_manifests(folder), *([old] if old else [])]
    for path in foreign_views(manifest, folder, known):
        raise foreign(folder / path)
    kept = folder / generation_path(old.build_id) if old else None
    if kept and kept.exists() and old not in known[:-1]:
        raise foreign(kept)


def complete(manifest: Manifest, folder: AnyPath, *, warns: bool = True) -> None:
    """Write the views of a committed dataset that are missing, and remove the build area of its build.

    In a store, other areas may be in use; on a disk, ``discard_others`` removes them. A file that cannot be
    written or removed raises IncompleteError. ``warns`` is false where an earlier call has reported the same.
    """
    try:
        _complete(manifest, folder)
    except (InputError, OSError) as error:
        why = str(error)
        if isinstance(error, OSError):
            why = f"{error.filename2 or error.filename or folder} could not be written: {error.strerror}"
        raise IncompleteError(
            "committed-incomplete", folder=folder, build_id=manifest.build_id, why=why
        ) from error
    if warns:
        report_warning(*view_notes(manifest, folder))


def _complete(manifest: Manifest, folder: AnyPath) -> None:
    earlier = kept_manifests(folder)
    refresh_views(manifest, folder, earlier)
    if isinstance(folder, RemotePath):
        current = read_manifest(folder)
        if current != manifest:
            # another build has committed meanwhile; its views may have been replaced
            refresh_views(current, folder, [*earlier, manifest])
    if any(one.build_id == manifest.build_id for one in earlier):
        # a generation that was restored, or built again
        (folder / generation_path(manifest.build_id)).unlink(missing_ok=True)
    # before the area, without which a step of WriteShards that is repeated looks for them
    remove_staged(folder)
    plan_id = plan_id_of(manifest.name, manifest.schema, manifest.options, manifest.inputs_digest)
    for root in areas(folder):
        area = BuildArea(folder, root.name)
        placed = area.placed()
        is_of_build = placed and placed.build_id == manifest.build_id
        # another run in a store may have left something in the area of this plan
        if is_of_build or root.name == plan_id or not has_record(root):
            # of a build with the same plan whose inputs had other content; in a store it may be running
            for path in area.placed_paths() if isinstance(folder, Path) else ():
                (folder / path).unlink(missing_ok=True)
            area.remove()
    # Changes after the last sync may be in any state. That these are removals of no importance does not help
    # where e2fsck (1.47.0) replays fast commits of ext4: it then lost the dataset.
    sync_directory(folder)


def confirmed(state: OutputState, wanted: Wanted, *, is_compared: bool) -> Manifest:
    """Complete a dataset that already is the wanted build, and return its manifest; see ``up_to_date``."""
    assert state.manifest is not None
    discard_others(state, wanted.plan_id, wanted.options)
    complete(state.manifest, state.folder)
    report_line(up_to_date(state.folder, is_compared=is_compared))
    return state.manifest


def complete_left(dataset: str | os.PathLike[str]) -> None:
    """Complete a dataset whose commit came to an end, but not what follows it; do nothing if that fails."""
    folder = any_path(dataset)
    if isinstance(folder, Path) and not (folder / AREA_NAME).is_dir():
        return
    with suppress(TfshardsError, OSError), locked(folder):
        manifest = read_manifest(folder)
        placed = [BuildArea(folder, root.name).placed() for root in areas(folder)]
        if any(one and one.build_id == manifest.build_id for one in placed):
            complete(manifest, folder, warns=False)
            report_line(f"completed {folder}: build {manifest.build_id} was committed before")


def read_rejects(path: AnyPath) -> list[Reject]:
    """Return the inputs that a rejects file lists, or raise InputError if it is not one."""
    try:
        lines = read_whole(path, REJECTS).decode("ascii").splitlines()
        return [Reject(*(load_json(line)[name] for name in _FIELDS)) for line in lines]
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("rejects-invalid", path=path, error=error) from None


def rejects_text(rejects: Sequence[Reject]) -> bytes:
    """Return the content of a rejects file: one JSON object for each input, sorted by key."""
    lines = (json.dumps(dict(zip(_FIELDS, reject, strict=True))) for reject in sorted(rejects))
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def unless_committed(
    write: Callable[[], Manifest], state: OutputState, area: BuildArea, wanted: Wanted | None
) -> Manifest:
    """Return what ``write`` returns or, if another run has committed the same build meanwhile, its manifest.

    A build writes no committed file with other bytes and removes none, so that whatever it did before it
    failed, the dataset of the other one is complete. ``wanted`` is the build, if its manifest can be
    recognized.

    Raises:
        BuildError: another build was committed meanwhile; or what ``write`` raised.
    """
    try:
        return write()
    except IncompleteError:
        raise
    except (BuildError, OSError) as failure:
        if not isinstance(state.folder, RemotePath):
            raise
        now = inspect_output(state.folder)
        if now.version == state.version or now.manifest is None:
            if why := area.stop_reason():
                # what failed may only be a consequence of it
                raise BuildError("build-failed", text=why) from failure
            raise
        if wanted and wanted.is_in(now.manifest):
            # what this run has written since the other one removed it
            area.remove()
            report_line(f"{state.folder}: another run of the same build has committed it meanwhile")
            return now.manifest
        raise BuildError("build-overtaken", folder=state.folder, build_id=now.manifest.build_id) from failure
