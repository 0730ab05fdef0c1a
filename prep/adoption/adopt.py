"""Write a manifest for existing TFRecord files, which are read once and stay as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tfshards.prep.adoption.features import ELSE, Kind, Records, infer, kind_of, labels_of, values_of
from tfshards.prep.adoption.files import ChosenFiles, choose_files
from tfshards.prep.building.commit import check_readable
from tfshards.prep.building.state import difference
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import Log, Meter, report_line, report_warning, takes_log, to_stderr
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.frames import RecordError, read_records
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.staging_folder import has_record_of, record_text, remove_staged, staged_folder
from tfshards.prep.writing.build_folder import build_folders, foreign
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
    read_manifest,
)
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.index import index_path, keys_bytes, keys_path, labels_bytes, labels_path
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest_file import is_manifest
from tfshards.schemas.names import MANIFEST_NAME, RECORD_NAME, id_of, name_fault
from tfshards.schemas.storage import AnyPath, ChangedError, RemoteStatus, any_path
from tfshards.schemas.storage.any_path import absolute_name
from tfshards.schemas.storage.locking import locked
from tfshards.schemas.storage.untrusted import INDEX, read_whole
from tfshards.schemas.storage.verbs import delete, each, exists, new_folder, put, replace_if, sync, version

SOURCE = "adopt"


class Scanned(NamedTuple):
    """One file: its entry in the manifest without labels and keys, its index by path, and its records."""

    shard: Shard
    companions: Mapping[str, bytes]
    records: Records


@takes_log
def adopt(
    root: str | os.PathLike[str],
    *,
    name: str | None = None,
    splits: Mapping[str, str] | None = None,
    label: str | None = None,
    class_names: Sequence[str] | None = None,
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
        class_names: the names of the classes in label order.
        overwrite: replace an existing manifest of other files, records or options.
        log: receives status lines.

    Raises:
        OptionsError: an option is not allowed.
        InputError: the files do not form a dataset, or the folder already is one.
        FormatError: files or records are damaged, or are not ``tf.train.Example``; it lists every problem.
        BuildError: in an object store, another process has written a manifest meanwhile.
    """
    check_class_names(class_names)
    for code, names in (("split-name", splits or {}), ("dataset-name", [name] if name is not None else [])):
        for fault in filter(None, map(name_fault, names)):
            raise OptionsError(code, fault=fault)
    folder = any_path(root)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError("adopt-not-a-folder", folder=folder, what=what)
    with locked(folder) as note:
        report_warning(*filter(None, [note]))
        remove_staged(folder)
        replaced = version(folder / MANIFEST_NAME)
        current = _current(folder, overwrite=overwrite)
        chosen = choose_files(folder, splits or {})
        indexes = _index_folders(folder, chosen)
        files = _scan_all(folder, chosen, label)
        schema = _schema(folder, chosen, files, label, class_names)
        options: dict[str, Json] = {"source": SOURCE, "splits": dict(splits or {}), "label": label}
        manifest, companions = _manifest(name or _name(folder), chosen, files, schema, options)
        if current and not overwrite and current != manifest:
            what = difference(current, manifest.options).replace("inputs", "files, records or class names")
            raise InputError("adopt-differs", folder=folder, what=what)
        is_same = each(folder, lambda path: _content(folder / path) == companions[path], companions)
        changed = {path: companions[path] for path, same in zip(companions, is_same, strict=True) if not same}
        if current == manifest and not changed:
            report_line(f"{folder} is up to date")
        else:
            _write(folder, manifest, changed, indexes, replaced)
        old = current.shards if current else ()
        delete(folder, [path for shard in old for path in shard.companion_digests if path not in companions])
    return manifest


def _current(folder: AnyPath, *, overwrite: bool) -> Manifest | None:
    """Return the manifest that an earlier call has written; raise InputError if a build has written one."""
    pointer = folder / MANIFEST_NAME
    if pointer.is_symlink():
        raise InputError("output-linked", name=pointer)
    if not pointer.exists():
        if builds := build_folders(folder):
            raise InputError("adopt-builds", folder=folder, build=builds[-1].name)
        return None
    try:
        current = read_manifest(folder)
    except FormatError:
        if overwrite and is_manifest(pointer):
            return None
        raise
    if current.options.get("source") != SOURCE:
        # its manifest holds what records do not, such as class names and the number of rejected inputs
        raise InputError("adopt-is-dataset", folder=folder, build_id=current.build_id)
    return current


def _index_folders(folder: AnyPath, chosen: ChosenFiles) -> list[AnyPath]:
    """Return the folders of indexes; raise InputError if one exists that tfshards did not make."""
    found = [folder / path for path in sorted({index_path(path).rpartition("/")[0] for path in chosen.paths})]
    for path in found:
        if exists(path) and not has_record_of(path, path.name):
            raise foreign(path)
    return found


def _scan_all(folder: AnyPath, chosen: ChosenFiles, label: str | None) -> dict[str, Scanned]:
    """Return what each file holds; threads read one file each."""

    def scan(path: str, tick: Tick) -> Scanned | Problem:
        records = Records()

        def look(number: int, offset: int, data: bytes) -> None:
            tick(0)
            try:
                records.look(data, label)
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
    files = {path: one for path, one in zip(chosen.paths, found, strict=True) if isinstance(one, Scanned)}
    if not any(one.shard.num_examples for one in files.values()):
        raise InputError("adopt-no-records", folder=folder)
    return files


def _schema(
    folder: AnyPath,
    chosen: ChosenFiles,
    files: Mapping[str, Scanned],
    label: str | None,
    class_names: Sequence[str] | None,
) -> Schema:
    """Return the schema of all records, or raise InputError with what contradicts one."""

    def find(name: str, is_wanted: Callable[[Kind | None], bool]) -> str:
        for path in chosen.paths:
            for number, (offset, data) in enumerate(read_records(folder / path, chosen.compression)):
                found = values_of(data).get(name)
                if is_wanted(found and kind_of(*found)):
                    return f"record {number} at byte {offset} of {path}"
        return "no record"

    records = [one.records for one in files.values()]
    features, problems = infer(records, label, find)
    of_label = next((feature for feature in features if feature.kind == "label"), None)
    if class_names is not None and of_label is None:
        problems.append(Problem("class_names=", "no feature is a label; name it with label="))
    if class_names is not None and of_label is not None and of_label.shape == ():
        # of lists, only verify can find a contradiction; -1 means no class
        labels, number = labels_of(records, of_label.name), len(class_names)
        for value in labels[(labels < -1) | (labels >= number)][:1]:
            fault = f"has the value {value}, but there are {number} class names, 0 to {number - 1}"
            problems.append(Problem(f"feature {of_label.name!r}", fault))
    if problems:
        raise InputError("adopt-faults", *(f"  {problem}" for problem in problems), ELSE, folder=folder)
    return Schema(features, tuple(class_names or ()))


def _manifest(
    name: str, chosen: ChosenFiles, files: Mapping[str, Scanned], schema: Schema, options: dict[str, Json]
) -> tuple[Manifest, dict[str, bytes]]:
    """Return the manifest, and the content of the companions of all files, by path."""
    shards, companions = dict[str, Shard](), dict[str, bytes]()
    for path, one in files.items():
        labels = labels_bytes(labels_of([one.records], schema.label.name)) if schema.label else None
        keys = keys_bytes(one.records.keys) if schema.key else None
        optional = {labels_path(path): labels, keys_path(path): keys}
        companions |= {
            **one.companions,
            **{path: data for path, data in optional.items() if data is not None},
        }
        digests = ["" if data is None else bytes_digest(data) for data in (labels, keys)]
        shards[path] = replace(one.shard, labels_digest=digests[0], keys_digest=digests[1])
    splits = {}
    for split, paths in chosen.splits.items():
        records = [files[path].records for path in paths]
        counts = label_counts(labels_of(records, schema.label.name) if schema.label else None, schema)
        splits[split] = Split(tuple(shards[path] for path in paths), counts)
    held = {split: [[each.path, each.digest] for each in found.shards] for split, found in splits.items()}
    number = sum(split.num_examples for split in splits.values())
    manifest = Manifest(
        name=name,
        build_id=id_of(json.dumps([schema.to_json(), held])),
        folder="",
        schema=schema,
        splits=splits,
        totals=Totals(number, number),
        options=options,
        compression=chosen.compression,
    )
    return manifest, companions


def _write(
    folder: AnyPath,
    manifest: Manifest,
    companions: Mapping[str, bytes],
    indexes: Sequence[AnyPath],
    replaced: RemoteStatus | None,
) -> None:
    """Write companions, into folders that show that tfshards made them, and then the manifest."""
    pointer, text = folder / MANIFEST_NAME, manifest.to_text().encode("ascii")
    check_readable(text, pointer)
    with staged_folder(folder) as work:
        for number, index in enumerate(indexes):
            if not exists(index):
                with new_folder(index, work / f"index-{number}") as made:
                    put(made / RECORD_NAME, record_text(index.name, {}), made)
        each(folder, lambda path: put(folder / path, companions[path], work), companions)
        sync(*indexes)
        try:
            replace_if(pointer, text, replaced, work)
        except (FileExistsError, ChangedError):
            raise BuildError("adopt-overtaken", folder=folder, manifest_name=MANIFEST_NAME) from None
        sync(folder)


def _name(folder: AnyPath) -> str:
    name = absolute_name(folder)
    if fault := name_fault(name):
        raise InputError("adopt-folder-name", fault=fault)
    return name


def _content(path: AnyPath) -> bytes | None:
    with suppress(FileNotFoundError):
        return read_whole(path, INDEX)
    return None
