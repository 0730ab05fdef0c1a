"""Export a dataset to the format of another tool: each shard becomes one part, written in parallel.

exported/photos/.export.json       the first file: what is exported, since nothing else is written here
exported/photos/.staged-1f0c…/     only while parts are written: files that have no name yet
exported/photos/data/….parquet     a part gets its name when it is complete, and is kept from then on
exported/photos/labels.txt         the class names
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import accumulate
from typing import Literal

from tfshards.prep.building.output import existing_folder
from tfshards.prep.building.write import run_work
from tfshards.prep.engines.table import EngineName, Work, find_run
from tfshards.prep.exporting.format import Format, Part
from tfshards.prep.exporting.parquet import Parquet
from tfshards.prep.exporting.webdataset import WebDataset
from tfshards.prep.progress.lines import (
    Log,
    WorkProgress,
    Written,
    report_line,
    report_warning,
    takes_log,
    to_stderr,
)
from tfshards.prep.records.dataset_files import check_outside_datasets
from tfshards.prep.records.values import selected
from tfshards.prep.sources.staging_folder import remove_staged, staged_folder, staged_folders
from tfshards.prep.views.files import LABELS_NAME, labels_text
from tfshards.schemas import FormatError, InputError, Manifest, OptionsError, Schema, read_manifest
from tfshards.schemas.coordinates import coordinates_of
from tfshards.schemas.errors import check_strings, counted, size
from tfshards.schemas.json_reader import Json, as_json, load_json
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.locking import LOCK_NAME, locked
from tfshards.schemas.storage.untrusted import LISTS, read_whole
from tfshards.schemas.storage.verbs import put, sync

# in the order of the help
FORMATS: Mapping[str, type[Format]] = {each.name: each for each in (WebDataset, Parquet)}
RECORD_NAME = ".export.json"


@dataclass(frozen=True, repr=False)
class Export:
    """A finished export.

    Attributes:
        directory: where it is.
        to: its format.
        num_examples: number of examples.
        files: paths of all files, relative to ``directory``, and their sizes in bytes.
        num_kept: number of parts that an earlier run had written.
        num_parts: number of all parts.
    """

    directory: str
    to: str
    num_examples: int
    files: Mapping[str, int]
    num_kept: int
    num_parts: int

    def __repr__(self) -> str:
        """Return the text that ``tfshards export`` prints."""
        files = f"{counted(len(self.files), 'file')}, {size(sum(self.files.values()))}"
        kept = f", {counted(self.num_kept, 'part')} of an earlier run" if self.num_kept else ""
        return f"{self.to}: {counted(self.num_examples, 'example')}, {files} in {self.directory}{kept}"

    def to_json(self) -> dict[str, Json]:
        """Return the attributes as JSON values."""
        found: dict[str, Json] = as_json(self)
        return found


@takes_log
def export(
    dataset: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    to: Literal["webdataset", "parquet"],
    select: Sequence[str] | None = None,
    as_bytes: Sequence[str] = (),
    engine: EngineName | None = None,
    beam_args: Sequence[str] = (),
    log: Log = to_stderr,
) -> Export:
    """Export a dataset to the format of another tool.

    Each shard becomes one part, and an engine writes several at the same time. The file of a part gets its
    name when it is complete. A killed export resumes when it is called again with the same arguments: it
    keeps the parts that exist, and ends with the same bytes.

    Byte strings are exported as text. One that is not UTF-8 ends the export, unless ``as_bytes`` names its
    feature. Class names are also in ``labels.txt``, in label order.

    Args:
        dataset: folder of the dataset, or its URL.
        directory: a new or empty local directory, or the one of an unfinished export to resume.
        to: format of the files.
        select: names of the features to export; by default all.
        as_bytes: names of features whose byte strings are not text.
        engine: engine that writes the parts, as for ``build``; its workers must see ``directory``.
        beam_args: Apache Beam's pipeline options, as for ``build``.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        FormatError: the format cannot hold a feature of the dataset; the error lists all of them.
        InputError: ``dataset`` is not a dataset, ``directory`` holds something else, the records differ
            from the manifest, or a byte string is not text.
        RecordError: a record is damaged.
        BuildError: a worker failed; the same call resumes.
    """
    run = find_run(engine, beam_args)
    if to not in FORMATS:
        raise OptionsError("export-format-unknown", to=to, names=[*FORMATS])
    root, folder = any_path(dataset), local_path(directory)
    manifest = read_manifest(root)
    features = selected(manifest.schema, select)
    has_labels = any(feature.is_label for feature in features)
    schema = Schema(features, manifest.schema.class_names if has_labels else ())
    check_strings("as_bytes", as_bytes)
    texts = [feature.name for feature in features if feature.is_text]
    for name in as_bytes:
        if name not in texts:
            raise OptionsError("as-bytes-unknown", name=name, names=texts)
    chosen = FORMATS[to](
        root=root,
        directory=folder,
        manifest=replace(manifest, splits={}),
        schema=schema,
        binary=frozenset(as_bytes),
    )
    if problems := chosen.problems(manifest.splits):
        raise FormatError(
            f"to={to!r} cannot hold all of {root}; name the features to export with select=, or choose "
            "another format",
            problems,
        )
    for name, found in coordinates_of(features).items():
        typed = shlex.quote(f"{name}={found}")
        report_line(f"{name!r} refers to the exported image: --roles {typed} builds it again")
    check_outside_datasets(folder, "name a folder for the export")
    parts = [*_parts(manifest, chosen)]
    with existing_folder(folder), locked(folder) as note:
        report_warning(*filter(None, [note]))
        _claim(chosen)
        files = [*(part.path for part in parts), *([LABELS_NAME] if schema.class_names else [])]
        folders = {(folder / path).parent for path in files} | {folder}
        missing = [part for part in parts if not (folder / part.path).exists()]
        if missing or not (folder / files[-1]).exists():
            with staged_folder(folder) as work:
                _write(replace(chosen, work=folder / work.name), missing, run)
                # before the record of the staged files is removed
                sync(*folders)
        else:
            report_line(f"{folder} holds this export already")
            # what a killed run has named
            sync(*folders)
        sizes = {path: (folder / path).stat().st_size for path in files}
    return Export(str(folder), to, manifest.num_examples, sizes, len(parts) - len(missing), len(parts))


def _claim(chosen: Format) -> None:
    """Make an empty directory that of this export, or check that it is."""
    record: dict[str, Json] = {
        "to": chosen.name,
        "release": version(chosen.package) if chosen.package else "",
        "name": chosen.manifest.name,
        "build_id": chosen.manifest.build_id,
        "schema": chosen.schema.to_json(),
        "as_bytes": [*sorted(chosen.binary)],
    }
    directory, path = chosen.directory, chosen.directory / RECORD_NAME
    if not path.is_file():
        if {*os.listdir(directory)} - {LOCK_NAME, *(each.name for each in staged_folders(directory))}:
            raise InputError("export-not-empty", directory=directory)
        with staged_folder(directory) as work:
            put(path, json.dumps(record, indent=1).encode("ascii"), work)
            sync(directory)
    found: Json = None
    with suppress(ValueError):
        found = load_json(read_whole(path, LISTS))
    held = found if isinstance(found, dict) else {}
    if names := [name for name, value in record.items() if held.get(name) != value]:
        raise InputError("export-other", directory=directory, names=names)
    remove_staged(directory)


def _write(chosen: Format, parts: Sequence[Part], run: Callable[[Work], None]) -> None:
    """Write parts, and the class names."""
    folder, whole = chosen.directory, _written(parts)
    progress = WorkProgress("export", whole.num_examples)
    work = Work(
        replace(chosen, reporter=progress.reporter).write_part,
        parts,
        progress,
        size=whole,
        folder=chosen.work,
        sources=(chosen.root,),
        measure=lambda: _written([part for part in parts if (folder / part.path).exists()]),
    )
    run_work(run, work, folder)
    if chosen.schema.class_names:
        put(folder / LABELS_NAME, labels_text(chosen.schema.class_names).encode("utf-8"), chosen.work)


def _parts(manifest: Manifest, chosen: Format) -> Iterator[Part]:
    for name, split in manifest.splits.items():
        firsts = accumulate((shard.num_examples for shard in split.shards), initial=0)
        for number, (shard, first) in enumerate(zip(split.shards, firsts, strict=False)):
            yield Part(chosen.path(name, number, len(split.shards)), shard, first)


def _written(parts: Sequence[Part]) -> Written:
    shards = [part.shard for part in parts]
    return Written(sum(each.num_examples for each in shards), sum(each.record_bytes for each in shards))
