"""Files of tables and of images for tests, and the records of the datasets that are built from them."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

from tests.pictures import image_file
from tfshards.prep.records.frames import read_in_order
from tfshards.schemas import read_manifest
from tfshards.schemas.example import decode_example
from tfshards.schemas.storage import any_path

# Hugging Face's type of images
IMAGES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def encoded(number: int, kind: str = "PNG", mode: str = "RGB") -> bytes:
    """Return an image of 8 x 6 pixels."""
    pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 4), np.uint8)
    return image_file(Image.fromarray(pixels).convert(mode), kind)


def write_text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(os.fsencode(line) + b"\n" for line in lines))
    return path


def write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    return write_text(path, *map(json.dumps, rows))


def write_parquet(path: Path, columns: object, features: object = None) -> Path:
    """Write a table; ``features`` is metadata as Hugging Face's datasets write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pa.parquet.write_table(table, path)
    return path


def examples(out: Path, split: str | None = None) -> dict[str, dict[str, list[object]]]:
    """Return the examples of a dataset, or of a split, by key in sorted order, without TensorFlow."""
    manifest = read_manifest(out)
    shards = manifest.shards if split is None else manifest.splits[split].shards
    found = [
        decode_example(each.require_data(out))
        for shard in shards
        for each in read_in_order(any_path(out) / shard.path, "none")
    ]
    by_key = {os.fsdecode(values["key"][0]): values for values in found}
    assert len(by_key) == len(found)
    return dict(sorted(by_key.items()))
