"""Datasets with features of every kind, written record by record, for the tests of exports."""

from pathlib import Path

import numpy as np

from tests.pictures import image_file
from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.records.shard_file import ShardFile, frames_of
from tfshards.schemas import Feature, Manifest, Schema, Split, Totals
from tfshards.schemas.manifest_file import write_manifest

# All that every format holds.
FEATURES = (
    Feature("image", "image", "uint8", (None, None, 3)),
    Feature("label", "label", "int64"),
    Feature("key", "bytes", "bytes"),
    Feature("mask", "mask", "uint8", (None, None, 1)),
    Feature("caption", "bytes", "bytes"),
    Feature("words", "bytes", "bytes", (None,)),
    Feature("boxes", "float", "float32", (None, 4)),
    Feature("tags", "label", "int64", (None,)),
    Feature("half", "float", "float16", (3,)),
    Feature("flag", "int", "bool"),
    Feature("flags", "int", "bool", (2,)),
    Feature("small", "int", "int8"),
    Feature("grid", "raw", "uint16", (2, 3)),
    Feature("big", "raw", "uint64"),
    Feature("doubles", "raw", "float64", (2,)),
    Feature("none", "raw", "int32", (2, 0)),
)
CLASSES = ("cat", "dog und Ähnliches")
EVERYTHING = Schema(FEATURES, CLASSES)
FORMATS = ("JPEG", "PNG", "WEBP")


def encoded(number: int, name: str, channels: int = 3) -> bytes:
    """Return an encoded image whose pixels and sides depend on its number."""
    shape = (4 + number % 3, 5, channels) if channels > 1 else (4 + number % 3, 5)
    pixels = np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)
    return image_file(pixels, name)


def example(number: int) -> dict[str, Values]:
    """Return the values of ``EVERYTHING`` in one example; all floats are finite."""
    rows = number % 3
    return {
        "image": encoded(number, FORMATS[number % 3]),
        "label": (number % 3) - 1,
        "key": f"photos/ä {number}.jpeg".encode(),
        "mask": encoded(number, "PNG", channels=1),
        "caption": ("", "zwölf\nLines", "plain")[number % 3].encode(),
        "words": [b"", "größer".encode()][:rows],
        "boxes": [-0.0, 0.1, 2.5, float(number)] * rows,
        "tags": [1, 0, 1][:rows],
        "half": [0.5, -0.0, float(number)],
        "flag": number % 2,
        "flags": [number % 2, 1],
        "small": -number,
        "grid": np.arange(number, number + 6, dtype="<u2").tobytes(),
        "big": np.uint64(2**64 - 1 - number).tobytes(),
        "doubles": np.array([0.1, number], "<f8").tobytes(),
        "none": b"",
    }


def write_dataset(root, schema, splits) -> Manifest:
    """Write a dataset of given shards, each a list of examples, and its manifest; return that."""
    encode = example_encoder(schema)
    (root / "index").mkdir(parents=True)
    made = {}
    for name, shards in splits.items():
        written = []
        for index, examples in enumerate(shards):
            path = f"every-{name}-3f9a2c1b.tfrecord-{index:05d}-of-{len(shards):05d}"
            records = [encode([values[each] for each in schema.names]) for values in examples]
            label = schema.label
            with ShardFile(root / path, label is not None) as file:
                file.append(frames_of(records, "none"), [v[label.name] for v in examples] if label else ())
                shard, companions = file.describe(path)
            for companion, content in companions.items():
                (root / companion).write_bytes(content)
            written.append(shard)
        made[name] = Split(tuple(written))
    number = sum(split.num_examples for split in made.values())
    manifest = Manifest("every", "3f9a2c1b", schema, made, Totals(entries=number, accepted=number))
    write_manifest(manifest, root)
    return manifest


def write_everything(root: Path) -> list[dict[str, Values]]:
    """Write 7 training examples in 3 shards and 2 validation examples; return the former."""
    train = [example(number) for number in range(7)]
    val = [example(number) for number in (7, 8)]
    write_dataset(root, EVERYTHING, {"train": [train[:3], train[3:5], train[5:]], "val": [val]})
    return train
