"""Write a manifest for existing TFRecord files, which are read once and stay as they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from tfshards.prep.adoption.manifest import SOURCE, AdoptOptions, Scanned, adopted_manifest
from tfshards.prep.adoption.record_files import ChosenFiles, choose_files
from tfshards.prep.adoption.seen import FeatureRoles, Findings
from tfshards.prep.building.output import locked, remove_staged
from tfshards.prep.building.output_state import difference
from tfshards.prep.progress.lines import Log, Meter, report_line, report_warning, takes_log, to_stderr
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.frames import RecordError, read_frames
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.views.table import LABELS_NAME, foreign_views, labels_files, refresh_views, view_problems
from tfshards.prep.writing.shard_names import data_files
from tfshards.schemas import BuildError, FormatError, InputError, Manifest, read_manifest
from tfshards.schemas.build_area import foreign, write_files
from tfshards.schemas.compression import Compression
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.manifest_file import is_manifest, manifest_version, write_manifest
from tfshards.schemas.names import MANIFEST_NAME
from tfshards.schemas.storage import AnyPath, ChangedError, RemoteStatus, any_path
from tfshards.schemas.storage.untrusted import INDEX, read_whole


@takes_log
def adopt(
    root: str | os.PathLike[str],
    options: AdoptOptions | None = None,
    *,
    overwrite: bool = False,
    log: Log = to_stderr,
) -> Manifest:
    """Write a manifest for the TFRecord files in the folder ``root``, and return it.

    Reads and checks every record, then writes the manifest, the indexes, the labels and keys of the shards if
    the records have these, and ``labels.txt`` if classes have names. The TFRecord files are not
    changed. If all of the other files exist already, nothing is written.

    Args:
        root: the folder of the files, or its URL.
        options: options that complete or replace what is derived from the files.
        overwrite: replace an existing manifest of other files, records or options.
        log: receives status lines.

    Raises:
        OptionsError: an option is not allowed.
        InputError: the files do not form a dataset, or the folder already is one.
        FormatError: files or records are damaged, or are not ``tf.train.Example``; it lists every problem.
        BuildError: in an object store, another process has written a manifest meanwhile.
    """
    options = options or AdoptOptions()
    folder = any_path(root)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError("adopt-not-a-folder", folder=folder, what=what)
    with locked(folder):
        remove_staged(folder)
        replaced = manifest_version(folder)
        current = _current(folder, overwrite=overwrite)
        chosen = choose_files(folder, options.splits, allow_missing=options.allow_missing)
        scanned = _scan_all(folder, chosen, options.roles)
        manifest = adopted_manifest(folder, chosen, scanned, options)
        if current and not overwrite and replace(current, views={}) != manifest:
            what = difference(current, manifest.options).replace("inputs", "files, records or class names")
            raise InputError("adopt-differs", folder=folder, what=what)
        known = [current] if current else []
        views = {path: bytes_digest(content) for path, content in labels_files(manifest).items()}
        # without a manifest, a file of the name is not known to be one of tfshards
        is_foreign = (folder / LABELS_NAME).exists()
        if current:
            is_foreign = bool(foreign_views(replace(manifest, views=views), folder, known))
        if views and is_foreign:
            report_warning(f"{folder / LABELS_NAME} stays as it is; the class names are in {MANIFEST_NAME}")
            views = {}
        manifest = replace(manifest, views=views)
        companions = {
            path: content
            for one in scanned.values()
            for path, content in one.companions(manifest.schema).items()
        }
        try:
            is_new = _write(folder, manifest, companions, current, replaced)
        except (FileExistsError, ChangedError):
            raise BuildError("adopt-overtaken", folder=folder, manifest_name=MANIFEST_NAME) from None
        if not is_new:
            report_line(f"{folder} is up to date")
    return manifest


def _write(
    root: AnyPath,
    manifest: Manifest,
    companions: Mapping[str, bytes],
    current: Manifest | None,
    replaced: RemoteStatus | None,
) -> bool:
    """Write those files of the dataset that do not exist yet; return whether any was written."""
    known = [current] if current else []
    found = {path: _content(root / path) for path in companions}
    changed = {path: content for path, content in companions.items() if found[path] != content}
    ours = {path for held in known for path in data_files(held)}
    for path in changed:
        if path not in ours and found[path] is not None:
            raise foreign(root / path)
    write_files(root, changed)
    is_new = not current or current.to_text() != manifest.to_text()
    if is_new:
        write_manifest(manifest, root, replaced)
    is_new = is_new or bool(changed or view_problems(manifest, root, known))
    refresh_views(manifest, root, known)
    for path in {path for held in known for shard in held.shards for path in shard.companion_digests}:
        if path not in companions:
            (root / path).unlink(missing_ok=True)
    return is_new


def _content(path: AnyPath) -> bytes | None:
    with suppress(FileNotFoundError):
        return read_whole(path, INDEX)
    return None


def _current(folder: AnyPath, *, overwrite: bool) -> Manifest | None:
    if not (folder / MANIFEST_NAME).exists():
        return None
    try:
        current = read_manifest(folder)
    except FormatError:
        if overwrite and is_manifest(folder / MANIFEST_NAME):
            return None
        raise
    if current.options.get("source") != SOURCE:
        # its manifest holds what records do not, such as class names and the number of rejected inputs
        raise InputError("adopt-is-dataset", folder=folder, build_id=current.build_id)
    return current


def _scan_all(folder: AnyPath, chosen: ChosenFiles, roles: FeatureRoles) -> dict[str, Scanned]:
    """Return what each file holds; threads read one file each."""

    def scan(path: str, tick: Tick) -> Scanned:
        scanned = _scan(folder, path, chosen.compression, roles, tick)
        tick((folder / path).stat().st_size)
        return scanned

    with Meter("adopt", chosen.num_bytes) as meter:
        scanned = in_threads(scan, chosen.paths, meter.add)
    if problems := [problem for one in scanned for problem in one.found.all_problems()]:
        raise FormatError(f"{folder} cannot be adopted, nothing was written", problems)
    return dict(zip(chosen.paths, scanned, strict=True))


def _scan(folder: AnyPath, path: str, compression: Compression, roles: FeatureRoles, tick: Tick) -> Scanned:
    found = Findings(roles)

    def look(number: int, offset: int, data: bytes) -> None:
        tick(0)
        found.look(path, number, offset, data)

    with suppress(RecordError):
        return Scanned(*scan_shard(folder, path, compression, look), found)
    # not while the error is handled, which keeps the record in memory
    found = Findings(roles)
    for frame in read_frames(folder / path, compression):
        if frame.data is not None and frame.fault is None:
            found.look(path, frame.number, frame.offset, frame.data)
        else:
            found.note(path, f"record {frame.number} at byte {frame.offset}: {frame.fault}")
    return Scanned(None, {}, found)
