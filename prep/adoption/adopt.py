"""Write a manifest for existing TFRecord files, which are read once and stay as they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tfshards.prep.adoption.features import Records, Seen, infer
from tfshards.prep.adoption.files import ChosenFiles, choose_files
from tfshards.prep.building.commit import check_readable
from tfshards.prep.building.state import OutputState, difference, inspect_output
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import Log, Meter, report_line, report_warning, takes_log, to_stderr
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.frames import RecordError
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.sources.classes import ClassNames, given_class_names
from tfshards.prep.sources.staging_folder import has_record_of, record_text, remove_staged, staged_folder
from tfshards.prep.writing.build_folder import foreign
from tfshards.schemas import (
    BuildError,
    FormatError,
    InputError,
    Manifest,
    OptionsError,
    Problem,
    Schema,
    Shard,
    Split,
    Totals,
)
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.index import keys_bytes, keys_path, labels_bytes, labels_path
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import is_manifest
from tfshards.schemas.names import MANIFEST_NAME, RECORD_NAME, name_fault
from tfshards.schemas.storage import AnyPath, ChangedError, any_path
from tfshards.schemas.storage.any_path import absolute_name
from tfshards.schemas.storage.locking import locked
from tfshards.schemas.storage.untrusted import LISTS, read_whole
from tfshards.schemas.storage.verbs import delete, each, exists, new_folder, put, replace_if, sync, version

SOURCE = "adopt"


class Scanned(NamedTuple):
    """One file: its entry in the manifest without labels and keys, its index by path, and its records."""

    shard: Shard
    companions: Mapping[str, bytes]
    records: Records

    def values(self, name: str) -> Seen:
        """Return what its records hold of a feature; an empty file has no features."""
        return self.records.features.get(name, Seen())

    def described(self, schema: Schema) -> tuple[Shard, dict[str, bytes]]:
        """Return its entry in the manifest, and the content of its companions by path."""
        shard, companions = self.shard, {**self.companions}
        if schema.label:
            data = companions[labels_path(shard.path)] = labels_bytes(self.values(schema.label.name).labels)
            shard = replace(shard, labels_digest=bytes_digest(data))
        if schema.key:
            data = companions[keys_path(shard.path)] = keys_bytes(self.values("key").keys)
            shard = replace(shard, keys_digest=bytes_digest(data))
        return shard, companions


@takes_log
def adopt(
    root: str | os.PathLike[str],
    *,
    name: str | None = None,
    splits: Mapping[str, str] | None = None,
    label: str | None = None,
    class_names: ClassNames = None,
    overwrite: bool = False,
    log: Log = to_stderr,
) -> Manifest:
    """Write a manifest for the TFRecord files in the folder ``root``, and return it.

    Reads and checks every record, then writes the manifest and, in a folder ``index`` next to the files, the
    index, the labels and the keys of each. The TFRecord files are not changed.

    Args:
        root: the folder of the files, or its URL.
        name: the dataset's name; by default the name of the folder.
        splits: for each split, the pattern that the paths of its files match (``*`` also matches ``/``);
            by default derived from the paths. Files that match no pattern are skipped.
        label: the feature whose integers are classes; by default the one named ``label`` or ``class``.
        class_names: file of the class names in label order, one per line, or a dataset that has them, or the
            names.
        overwrite: replace an existing manifest of other files, records or options.
        log: receives status lines.

    Raises:
        OptionsError: an option is not allowed.
        InputError: the files do not form a dataset, or the folder already is one.
        FormatError: files or records are damaged, or are not ``tf.train.Example``; it lists every problem.
        BuildError: in an object store, another process has written a manifest meanwhile.
    """
    class_names = given_class_names(class_names)
    for code, names in (("split-name", splits or {}), ("dataset-name", [name] if name is not None else [])):
        for fault in filter(None, map(name_fault, names)):
            raise OptionsError(code, fault=fault)
    folder = any_path(root)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError("adopt-not-a-folder", folder=folder, what=what)
    named = name or absolute_name(folder)
    if reason := name_fault(named):
        raise InputError("adopt-folder-name", fault=reason)
    with locked(folder) as note:
        report_warning(*filter(None, [note]))
        remove_staged(folder)
        state = inspect_output(folder)
        _check_replaceable(state, overwrite=overwrite)
        chosen = choose_files(folder, splits or {})
        for index in chosen.indexes:
            if exists(folder / index) and not has_record_of(folder / index, "index"):
                raise foreign(folder / index)
        files = _scan_all(folder, chosen, label)
        schema = infer(folder, [one.records for one in files.values()], label, class_names)
        options: dict[str, Json] = {"source": SOURCE, "splits": dict(splits or {}), "label": label}
        manifest, companions = _manifest(named, chosen, files, schema, options)
        if state.manifest and state.manifest != manifest and not overwrite:
            what = difference(state.manifest, options).replace("inputs", "files, records or class names")
            raise InputError("adopt-differs", folder=folder, what=what)
        _write(state, manifest, companions, chosen)
    return manifest


def _check_replaceable(state: OutputState, *, overwrite: bool) -> None:
    """Raise FormatError or InputError unless the folder has no manifest, or one that may be replaced."""
    folder, pointer = state.folder, state.folder / MANIFEST_NAME
    if pointer.is_symlink():
        raise InputError("output-linked", name=pointer)
    if state.fault and not (overwrite and is_manifest(pointer)):
        raise state.fault
    if state.manifest and not state.is_adopted:
        # its manifest holds what records do not, such as class names and the number of rejected inputs
        raise InputError("adopt-is-dataset", folder=folder, build_id=state.manifest.build_id)
    if state.version is None and state.folders:
        raise InputError("adopt-builds", folder=folder, build=state.folders[-1].name)


def _scan_all(folder: AnyPath, chosen: ChosenFiles, label: str | None) -> dict[str, Scanned]:
    """Return what each file holds; threads read one file each."""

    def scan(path: str, tick: Tick) -> Scanned | Problem:
        records = Records()

        def look(number: int, offset: int, data: bytes) -> None:
            tick(0)
            try:
                records.look(f"record {number} at byte {offset} of {path}", data, label)
            except ValueError as error:
                raise RecordError(folder / path, number, offset, str(error)) from None

        try:
            scanned = Scanned(*scan_shard(folder, path, chosen.compression, look), records)
        except RecordError as error:
            return Problem(path, f"record {error.record} at byte {error.offset}: {error.fault}")
        tick(scanned.shard.num_bytes)
        return scanned

    with Meter("adopt", sum((folder / path).stat().st_size for path in chosen.paths)) as meter:
        found = in_threads(scan, chosen.paths, meter.add)
    if problems := [one for one in found if isinstance(one, Problem)]:
        raise FormatError(f"{folder} cannot be adopted, nothing was written", problems)
    files = {one.shard.path: one for one in found if isinstance(one, Scanned)}
    if not any(one.shard.num_examples for one in files.values()):
        raise InputError("adopt-no-records", folder=folder)
    return files


def _manifest(
    name: str, chosen: ChosenFiles, files: Mapping[str, Scanned], schema: Schema, options: dict[str, Json]
) -> tuple[Manifest, dict[str, bytes]]:
    """Return the manifest, and the content of the companions of all files, by path."""
    splits, companions = dict[str, Split](), dict[str, bytes]()
    for split, paths in chosen.splits.items():
        shards = []
        for path in paths:
            shard, found = files[path].described(schema)
            shards.append(shard)
            companions |= found
        label = schema.label
        labels = [np.array(files[path].values(label.name).labels) for path in paths] if label else []
        counts = label_counts(np.concatenate(labels) if label else None, schema)
        splits[split] = Split(tuple(shards), counts)
    number = sum(split.num_examples for split in splits.values())
    totals = Totals(number, number)
    manifest = Manifest(name, "", "", schema, splits, totals, options, compression=chosen.compression)
    return replace(manifest, build_id=manifest.content_id()), companions


def _write(
    state: OutputState, manifest: Manifest, companions: Mapping[str, bytes], chosen: ChosenFiles
) -> None:
    """Write companions, into folders that show that tfshards made them, and then the manifest.

    If a companion of the old dataset changes, such as labels, the old manifest is removed first, since it
    would name new files. A call that is killed then leaves a folder that is yet to be adopted.
    """
    folder, pointer, replaced = state.folder, state.folder / MANIFEST_NAME, state.version
    text = manifest.to_text().encode("ascii")
    check_readable(text, pointer)
    is_same = each(folder, lambda path: _content(folder / path) == companions[path], companions)
    changed = [path for path, same in zip(companions, is_same, strict=True) if not same]
    named = {*state.manifest.data_paths} if state.manifest else set[str]()
    # also what a killed call has left
    named |= {companion(path) for path in chosen.paths for companion in (labels_path, keys_path)}
    stale = sorted((named & chosen.companions) - companions.keys())
    if state.manifest == manifest and not (changed or stale):
        report_line(f"{folder} is up to date")
        return
    with staged_folder(folder) as work:
        if replaced and state.manifest != manifest and (changed or stale):
            if version(pointer) != replaced:
                raise _overtaken(folder)
            delete(folder, [MANIFEST_NAME])
            sync(folder)
            replaced = None
        for number, index in enumerate(chosen.indexes):
            if not exists(folder / index):
                with new_folder(folder / index, work / f"index-{number}") as made:
                    put(made / RECORD_NAME, record_text("index", {}), made)
        delete(folder, stale)
        each(folder, lambda path: put(folder / path, companions[path], work), changed)
        sync(*(folder / index for index in chosen.indexes))
        try:
            replace_if(pointer, text, replaced, work)
        except (FileExistsError, ChangedError):
            raise _overtaken(folder) from None
        sync(folder)


def _overtaken(folder: AnyPath) -> BuildError:
    return BuildError("adopt-overtaken", folder=folder, manifest_name=MANIFEST_NAME)


def _content(path: AnyPath) -> bytes | None:
    with suppress(FileNotFoundError):
        return read_whole(path, LISTS)
    return None
