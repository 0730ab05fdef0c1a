"""Export to ArrayRecord: the records as they are, with random access, for Grain and TensorFlow Datasets.

Format: https://github.com/google/array_record, written by its package, which has wheels for Linux and macOS,
with one record per group, as TFDS and Grain want it. A record is the ``tf.train.Example`` of the dataset,
byte for byte where all features are exported. ``dataset_info.json`` and ``features.json`` describe them,
so that ``tfds.builder_from_directory(DIR).as_data_source()`` reads examples; where
TFDS cannot, they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfshards.prep.exporting.format import Contents, Format, WrittenPart
from tfshards.prep.exporting.request import ExportedExample, ExportPart, ExportRequest
from tfshards.prep.records.example import Values, as_encoded, example_encoder
from tfshards.prep.views.table import labels_text
from tfshards.prep.views.tfds import INFO_NAME, tfds_files
from tfshards.schemas.example import decode_example

# Records that are read together when a part is verified.
_READ_RECORDS = 64


def _write(
    request: ExportRequest, part: ExportPart, folder: Path, examples: Iterable[ExportedExample]
) -> None:
    from array_record.python import array_record_module

    is_whole = request.schema.features == request.manifest.schema.features
    encode = example_encoder(request.schema)
    writer = array_record_module.ArrayRecordWriter(str(folder / _file_name(request, part)), "group_size:1")
    try:
        for example in examples:
            if is_whole:
                writer.write(example.data)
            else:
                values = [example.values[name] for name in request.schema.names]
                writer.write(b"".join(encode(values)))
    finally:
        writer.close()


def _read(request: ExportRequest, part: ExportPart, folder: Path) -> Iterator[Mapping[str, Values]]:
    from array_record.python import array_record_module

    reader = array_record_module.ArrayRecordReader(str(folder / _file_name(request, part)))
    try:
        count = reader.num_records()
        for start in range(0, count, _READ_RECORDS):
            for data in reader.read(start, min(start + _READ_RECORDS, count)):
                values = decode_example(data)
                yield {f.name: as_encoded(f, values[f.name]) for f in request.schema.features}
    finally:
        reader.close()


def _finish(request: ExportRequest, written: Sequence[WrittenPart], _: Path) -> Contents:
    names = request.schema.class_names
    labels = {"labels.txt": [labels_text(names).encode("utf-8")]} if names else {}
    splits = {
        name: replace(
            split,
            shards=tuple(
                replace(part.part.shard, path=_file_name(request, part.part, "tfrecord"))
                for part in written
                if part.part.split == name
            ),
        )
        for name, split in request.manifest.splits.items()
    }
    manifest = replace(request.manifest, schema=request.schema, splits=splits, compression="none")
    view = dict(tfds_files(manifest))
    if view:
        view[INFO_NAME] = view[INFO_NAME].replace(
            b'"fileFormat": "tfrecord"', b'"fileFormat": "array_record"'
        )
    return {**labels, **{path: [content] for path, content in view.items()}}


def _file_name(request: ExportRequest, part: ExportPart, suffix: str = "array_record") -> str:
    return f"{request.manifest.name}-{part.split}.{suffix}-{part.name}"


ARRAY_RECORD = Format(
    "array_record",
    "ArrayRecord files for Grain and TensorFlow Datasets",
    lambda _: [],
    _write,
    _read,
    _finish,
    "array_record",
)
