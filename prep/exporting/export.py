"""Export a dataset to the format of another tool: each shard becomes one part, written in parallel.

exported/photos/.export-3f9a2c1b/    made first, named by a hash of what is exported; holds unfinished parts
exported/photos/data/….parquet       a part gets its name when it is complete
exported/photos/labels.txt           the class names, in label order
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from tfshards.prep.building.output import existing_folder
from tfshards.prep.building.write import run_work
from tfshards.prep.engines.work import Work, find_run
from tfshards.prep.exporting import parquet, webdataset
from tfshards.prep.progress.lines import Amount, report_warning
from tfshards.prep.progress.threads import check_working
from tfshards.prep.records.dataset_files import check_outside_datasets
from tfshards.prep.records.frames import RecordError, read_parts
from tfshards.prep.records.shard_file import in_groups
from tfshards.prep.records.values import selected
from tfshards.prep.views.files import LABELS_NAME, labels_text
from tfshards.schemas import (
    FormatError,
    InputError,
    Manifest,
    OptionsError,
    Schema,
    Shard,
    read_manifest,
)
from tfshards.schemas.columns import Columns, UnparsedError, Values, objects
from tfshards.schemas.companions import require_index
from tfshards.schemas.compression import Compression
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.errors import counted, size
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.json_reader import as_json
from tfshards.schemas.names import id_of
from tfshards.schemas.storage import AnyPath, LocalPath, any_path
from tfshards.schemas.storage.locking import LOCK_NAME
from tfshards.schemas.storage.paths import local_path

FormatName = Literal["webdataset", "parquet"]
# each has the paths of its parts, what it cannot hold, and what writes a part
_FORMATS = {"webdataset": webdataset, "parquet": parquet}
# Examples that are held in memory together, also by readers of Parquet.
_GROUP_BYTES = 32 << 20
_UNFINISHED = re.compile(r".+[.-][0-9a-f]{16}")


@dataclass(frozen=True, repr=False)
class Export:
    """A finished export.

    Attributes:
        directory: where it is.
        to: its format.
        num_examples: number of examples.
        files: paths of all files, relative to ``directory``, and their sizes in bytes.
    """

    directory: str
    to: str
    num_examples: int
    files: Mapping[str, int]

    def __repr__(self) -> str:
        """Return the text that ``tfshards export`` prints."""
        files = f"{counted(len(self.files), 'file')}, {size(sum(self.files.values()))}"
        return f"{self.to}: {counted(self.num_examples, 'example')}, {files} in {self.directory}"


def export(
    dataset: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    to: FormatName,
    select: Sequence[str] | None = None,
    beam_args: Sequence[str] = (),
) -> Export:
    """Write the examples of a dataset in the format of another tool.

    Each shard becomes one part, and an engine writes several at the same time. The same call resumes a
    killed export: it keeps the finished parts, and ends with the same bytes. Class names are also in
    ``labels.txt``, in label order.

    Args:
        dataset: folder of the dataset, or its URL.
        directory: a new or empty local folder, or the one of an unfinished export to resume.
        to: format: webdataset (tar files) or parquet (for Hugging Face datasets).
        select: names of the features to export; by default all. Byte strings must be UTF-8.
        beam_args: pipeline options of Apache Beam, as for build; its workers must see the directory.

    Returns:
        An Export, which lists the files.

    Raises:
        OptionsError: an argument is invalid.
        FormatError: the format cannot hold a feature of the dataset, and the error lists all of them; or an
            index is damaged.
        InputError: ``dataset`` is not a dataset, ``directory`` holds something else, the records differ
            from the manifest, or a byte string is not text.
        RecordError: a record is damaged.
        BuildError: a worker failed; the same call resumes.
    """
    run = find_run(beam_args)
    if to not in _FORMATS:
        raise OptionsError(f"to={to!r} must be one of {', '.join(get_args(FormatName))}")
    root, folder = any_path(dataset), local_path(directory)
    manifest = read_manifest(root)
    features = selected(manifest.schema, select)
    has_labels = any(feature.is_label for feature in features)
    schema = Schema(features, manifest.schema.class_names if has_labels else ())
    if problems := _FORMATS[to].problems(schema, manifest.splits):
        raise FormatError(
            f"to={to!r} cannot hold all of {root}; name the features to export with select=, or choose "
            "another format",
            problems,
        )
    check_outside_datasets(folder, "name a folder for the export")
    content = to, manifest.name, manifest.build_id, as_json(schema)
    work = folder / f".export-{id_of(json.dumps(content))}"
    exported = _Exported(root, folder, work, to, schema, manifest.compression)
    parts = [*_parts(manifest, to)]
    with existing_folder(folder), folder.locked() as note:
        report_warning(*filter(None, [note]))
        _claim(folder, work)
        missing = [part for part in parts if not (folder / part.path).exists()]
        if missing:
            shards = [part.shard for part in missing]
            all_missing = Work(
                function=exported.write,
                items=missing,
                label="export",
                size=Amount(sum(s.num_examples for s in shards), sum(s.record_bytes for s in shards)),
                folder=work,
                sources=(root,),
                measure=lambda: sum(p.shard.num_examples for p in missing if (folder / p.path).exists()),
            )
            run_work(run, all_missing, folder)
        if schema.class_names:
            (folder / LABELS_NAME).put(labels_text(schema.class_names).encode("utf-8"), work)
        files = [*(part.path for part in parts), *([LABELS_NAME] if schema.class_names else [])]
        # also what a killed run has named
        folder.sync(*{os.path.dirname(path) for path in files})
        num_bytes = {path: (folder / path).stat().st_size for path in files}
    return Export(str(folder), to, manifest.num_examples, num_bytes)


def _claim(directory: LocalPath, work: LocalPath) -> None:
    """Mark an empty folder as that of this export, or check that it is; remove unfinished files.

    Raises:
        InputError: it holds something else.
    """
    is_own = work.is_dir() and not work.is_symlink()
    if not is_own and {*os.listdir(directory)} - {LOCK_NAME}:
        raise InputError(
            f"{directory} is not empty, and does not hold this export: another one is of another dataset, "
            "or has other options; give a new directory="
        )
    work.make_folder()
    directory.sync()
    for name in filter(_UNFINISHED.fullmatch, os.listdir(work)):
        (work / name).unlink()


class _Part(NamedTuple):
    """A part: its path in the directory, its shard, and the number of its first example in the split."""

    path: str
    shard: Shard
    first: int


def _parts(manifest: Manifest, to: str) -> Iterator[_Part]:
    for name, split in manifest.splits.items():
        firsts = accumulate((shard.num_examples for shard in split.shards), initial=0)
        for number, (shard, first) in enumerate(zip(split.shards, firsts, strict=False)):
            path = _FORMATS[to].path(manifest.name, name, number, len(split.shards))
            yield _Part(path, shard, first)


class _Exported(NamedTuple):
    """What is exported: the dataset, where to, and its features."""

    root: AnyPath
    directory: LocalPath
    work: LocalPath
    to: str
    schema: Schema
    compression: Compression

    def write(self, part: _Part) -> None:
        """Write one part, which gets its name when it is complete."""
        path = self.directory / part.path
        # a runner that starts its job again after a failure repeats every task
        if path.exists():
            return
        unfinished = self.work / f"{path.name}.{secrets.token_hex(8)}"
        _FORMATS[self.to].write(unfinished, self.schema, self._groups(part.shard), part.first)
        unfinished.sync()
        path.parent.make_folder()
        unfinished.replace(path)

    def _groups(self, shard: Shard) -> Iterator[Values]:
        """Yield the examples of a shard in order, and check at the end that the manifest lists them."""
        path, index = self.root / shard.path, require_index(self.root, shard)
        parser, count, footers = Columns(self.schema.features), 0, list[bytes]()

        def records() -> Iterator[bytes]:
            for part in read_parts(path, self.compression, index, np.arange(shard.num_examples)):
                footers.extend(part.footers)
                yield from part.data

        for group in in_groups(records(), len, _GROUP_BYTES):
            try:
                columns = parser.parse_records(group)
            except UnparsedError as error:
                record = count + error.row
                raise RecordError(path, record, int(index.offsets[record]), str(error)) from None
            for feature in self.schema.features:
                if feature.is_text:
                    columns[feature.name] = _texts(feature.name, columns[feature.name], path, count)
            yield columns
            count += len(group)
            check_working(self.work)
        checksums = np.frombuffer(b"".join(footers), "<u4")
        if examples_digest(index.lengths - FRAME_OVERHEAD, checksums) != shard.examples_digest:
            raise InputError(
                f"{path} holds other records than dataset.json lists; 'tfshards verify {self.root} --deep' "
                "lists all damage"
            )


def _texts(name: str, values: npt.NDArray[Any], path: AnyPath, first: int) -> npt.NDArray[Any]:
    """Return byte strings, or lists of them, as text; raise InputError if one is not UTF-8."""
    texts: list[str | list[str]] = []
    for record, value in enumerate(values, first):
        try:
            is_one = isinstance(value, bytes)
            texts.append(value.decode() if is_one else [each.decode() for each in np.ravel(value)])
        except UnicodeDecodeError:
            raise InputError(
                f"{path}: {name!r} of record {record} is not UTF-8; leave it out with select=, in a new "
                "directory="
            ) from None
    return objects(texts)
