"""Commit a build: write the rejects file, the manifest and the views, and remove the build area."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace

from tfshards.prep.building.output_state import OutputState, temporary_files
from tfshards.prep.planning.plan import plan_id_of
from tfshards.prep.progress.lines import Log, as_warning
from tfshards.prep.views.table import write_views
from tfshards.prep.writing.area import AREA_NAME, BuildArea, Reject
from tfshards.prep.writing.remote_area import remove_area
from tfshards.prep.writing.shard_names import with_build_id
from tfshards.schemas import InputError, Manifest, read_manifest
from tfshards.schemas.files import sync_directory, write_atomically
from tfshards.schemas.manifest_file import write_manifest
from tfshards.schemas.names import rejects_name
from tfshards.schemas.storage import AnyPath, RemotePath

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


def commit(manifest: Manifest, rejects: Sequence[Reject], area: BuildArea, state: OutputState) -> None:
    """Make the build the dataset; the commit is complete when the manifest is renamed, or put into a store.

    Args:
        manifest: the manifest.
        rejects: the rejected inputs.
        area: the build area.
        state: the output before the build, whose manifest is replaced.

    Raises:
        ChangedError: another process has replaced the manifest in a store.
        FileExistsError: another process has written a manifest to a store.
    """
    area.place(manifest.build_id, manifest.shards)
    # if the manifest survives a power failure, the names of shards and indexes must survive as well
    sync_directory(area.out / "index")
    if rejects:
        write_atomically(area.out / rejects_name(manifest.build_id), rejects_text(rejects))
    write_manifest(manifest, area.out, state.version)


def complete(manifest: Manifest, folder: AnyPath, log: Log) -> None:
    """Remove temporary files, write the views of a committed dataset, and remove build areas.

    In a store, only the area of the committed build is removed: others may be in use.
    """
    # before the views, which remove folders that are empty
    for path in temporary_files(folder):
        path.unlink()
    for warning in write_views(manifest, folder):
        log(as_warning(warning))
    if isinstance(folder, RemotePath):
        current = read_manifest(folder)
        if current != manifest:
            # another build has committed meanwhile; its views may have been replaced
            write_views(current, folder)
        _remove_areas(manifest, folder)
        return
    for area in (folder / AREA_NAME).glob("????????"):
        # a name that the next build removes without a word, if this process is killed
        area.rename(area.with_name(f"staged-{area.name}"))
    shutil.rmtree(folder / AREA_NAME, ignore_errors=True)


def _remove_areas(manifest: Manifest, folder: RemotePath) -> None:
    """Remove the area of a committed build, of which another run may have left something as well."""
    plan_id = plan_id_of(manifest.name, manifest.schema, manifest.options, manifest.inputs_digest)
    for area in sorted((folder / AREA_NAME).iterdir()):
        # that of appended examples is only known by what it has placed
        if area.name == plan_id or BuildArea(folder, area.name).placed_id() == manifest.build_id:
            remove_area(area)


def read_rejects(path: AnyPath) -> list[Reject]:
    """Return the inputs that a rejects file lists.

    Raises:
        InputError: the file cannot be read, or is not a rejects file.
    """
    try:
        lines = path.read_bytes().decode("ascii").splitlines()
        return [Reject(*(json.loads(line)[name] for name in _FIELDS)) for line in lines]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not a list of rejected inputs: {error!r}") from None


def rejects_text(rejects: Sequence[Reject]) -> bytes:
    """Return the content of a rejects file: one JSON object for each input, sorted by key."""
    lines = (json.dumps(dict(zip(_FIELDS, reject, strict=True))) for reject in sorted(rejects))
    return "".join(f"{line}\n" for line in lines).encode("ascii")
