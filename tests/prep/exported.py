"""Datasets written record by record, as docs/format.md describes: every kind of feature, hostile records."""

import gzip
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import google_crc32c
import numpy as np

from tests.format_reader import LISTS, companion, number_of, read_features
from tests.pictures import image_file
from tfshards.schemas import Feature, Manifest, Schema, Shard, Split, Totals

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
BUILD_ID = "0123abcd"


def encoded(number: int, name: str, channels: int = 3) -> bytes:
    """Return an encoded image whose pixels and sides depend on its number."""
    shape = (4 + number % 3, 5, channels) if channels > 1 else (4 + number % 3, 5)
    pixels = np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)
    return image_file(pixels, name)


def example(number: int) -> dict[str, object]:
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


def _varint(number: int) -> bytes:
    number %= 2**64
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _list(feature: Feature, value: object) -> bytes:
    if feature.kind == "raw" and not isinstance(value, bytes):
        value = np.asarray(value).tobytes()
    if LISTS[feature.kind] == "bytes_list":
        values = [value] if isinstance(value, bytes) else np.asarray(value, object).ravel().tolist()
        return _field(1, b"".join(_field(1, each) for each in values))
    if LISTS[feature.kind] == "float_list":
        return _field(2, _field(1, np.asarray(value).astype("<f4").tobytes()))
    return _field(3, _field(1, b"".join(map(_varint, map(int, np.ravel(value))))))


def record(schema: Schema, values: Mapping[str, object]) -> bytes:
    """Return the bytes of an example, whose values need not fit the schema."""
    entries = []
    for feature in sorted(schema.features, key=lambda each: each.name.encode()):
        items = _list(feature, values[feature.name])
        entries.append(_field(1, _field(1, feature.name.encode()) + _field(2, items)))
    return _field(1, b"".join(entries))


def _crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def frame(data: bytes) -> bytes:
    """Return a record with its length and checksums."""
    head = struct.pack("<Q", len(data))
    return b"".join([head, struct.pack("<I", _crc(head)), data, struct.pack("<I", _crc(data))])


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _shard(root: Path, path: str, records: Sequence[bytes], labels, keys, compression: str) -> Shard:
    frames, lines, offset, numbers = [frame(data) for data in records], [], 0, 0
    for each in frames:
        lines.append(f"{offset} {len(each)}\n")
        offset += len(each)
        numbers += number_of(len(each) - 16, int.from_bytes(each[-4:], "little"))
    data = b"".join(frames)
    if compression == "gzip":
        # several members, as builds write them
        starts = range(0, len(frames), 3)
        data = b"".join(gzip.compress(b"".join(frames[n : n + 3]), mtime=0) for n in starts)
    files = {path: data, companion(path, "idx"): "".join(lines).encode()}
    if labels is not None:
        files[companion(path, "labels")] = struct.pack(f"<{len(labels)}q", *labels)
    if keys is not None:
        files[companion(path, "keys")] = b"\0".join(keys)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    digests = {name: _digest(content) for name, content in files.items()}
    facts = (f"{numbers % 2**64:016x}", data[-8:].hex())
    optional = [digests.get(companion(path, name), "") for name in ("labels", "keys")]
    firsts = digests[path], digests[companion(path, "idx")]
    return Shard(path, len(records), len(data), offset, *firsts, *facts, *optional)


def _key(data: bytes) -> bytes:
    """Return the key of a record, which need not be one."""
    try:
        ((name, (key,)),) = [read_features(data)["key"]]
    except (KeyError, TypeError, ValueError, IndexError, struct.error):
        return b""
    return key if name == "bytes_list" else b""


def write_records(
    root, schema, splits: Mapping[str, Sequence[Sequence[bytes]]], labels=None, label_counts=None, **fields
) -> Manifest:
    """Write a dataset of given shards, each a list of records; return its manifest.

    Args:
        labels: the labels of each shard of each split, by default 0 for each record.
        label_counts: what the manifest counts of each split, by default nothing.
        fields: further fields of the manifest.
    """
    made = {}
    for name, shards in splits.items():
        written = []
        for index, records in enumerate(shards):
            path = f"{BUILD_ID}/every-{name}.tfrecord-{index:05d}-of-{len(shards):05d}"
            numbers = labels[name][index] if labels else [0] * len(records)
            labels_of_shard = numbers if schema.label else None
            keys = [_key(data) for data in records] if schema.key else None
            compression = fields.get("compression", "none")
            written.append(_shard(root, path, records, labels_of_shard, keys, compression))
        made[name] = Split(tuple(written), (label_counts or {}).get(name, {}))
    number = sum(split.num_examples for split in made.values())
    totals = Totals(entries=number, accepted=number)
    manifest = Manifest("every", BUILD_ID, BUILD_ID, schema, made, totals, **fields)
    record = {"format": "tfshards build, version 1", "folder": BUILD_ID, "stamps": "", "options": {}}
    (root / BUILD_ID / "build.json").write_text(json.dumps(record), encoding="ascii")
    write_manifest(root, manifest)
    return manifest


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Write a manifest that may be wrong, and its copy in the folder of the build."""
    for folder in (root, root / manifest.folder):
        (folder / "dataset.json").write_text(manifest.to_text(), encoding="ascii")


def write_dataset(root, schema, splits: Mapping[str, Sequence[Sequence[Mapping]]], **fields) -> Manifest:
    """Write a dataset of given shards, each a list of examples; return its manifest."""

    def of_each(function):
        return {name: [[*map(function, shard)] for shard in shards] for name, shards in splits.items()}

    records = of_each(lambda values: record(schema, values))
    labels = of_each(lambda values: values[schema.label.name] if schema.label else 0)
    return write_records(root, schema, records, labels, **fields)


def write_everything(root: Path) -> list[dict[str, object]]:
    """Write 7 training examples in 3 shards and 2 validation examples; return the former."""
    train = [example(number) for number in range(7)]
    val = [example(number) for number in (7, 8)]
    write_dataset(root, EVERYTHING, {"train": [train[:3], train[3:5], train[5:]], "val": [val]})
    return train
