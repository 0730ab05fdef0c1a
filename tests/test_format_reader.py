"""A reader of datasets written only from docs/format.md, and its results for datasets written from that page.

The reader uses the standard library and TensorFlow. It does not import tfshards, so it shows what
other tools can read.
"""

import gzip
import hashlib
import json
import re
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from PIL import Image

from tfshards.prep import ImageFolder, Options, Table, build, verify
from tfshards.schemas import read_manifest

PAGE = Path(__file__).parents[1] / "docs" / "format.md"


# The reader


def read_dataset(root):
    """Return the examples of each split in order, as ``{split: [{feature: array}]}``.

    Arrays have the schema's dtype and shape; byte strings are in arrays of objects, images are decoded.

    Raises:
        ValueError: the dataset violates docs/format.md; the message names the file and the record.
    """
    root = Path(root)
    text = (root / "dataset.json").read_bytes()
    manifest = json.loads(text)
    if manifest["format_version"] > 1:
        raise ValueError(f"format version {manifest['format_version']}: install {manifest['requires']}")
    check_sums(manifest)
    if with_digest(text) != text:
        raise ValueError("dataset.json: the digest differs")
    check_rejects(root, manifest)
    return {
        name: [example for shard in split["shards"] for example in read_shard(root, shard, manifest)]
        for name, split in manifest["splits"].items()
    }


def check_sums(manifest):
    splits, totals = manifest["splits"].values(), manifest["totals"]
    equal = [(totals["entries"], totals["accepted"] + totals["rejected"] + totals["skipped"])]
    equal.append((totals["accepted"], sum(split["num_examples"] for split in splits)))
    for split in splits:
        equal.append((split["num_examples"], sum(shard["num_examples"] for shard in split["shards"])))
        if split["label_counts"]:
            equal.append((split["num_examples"], sum(split["label_counts"].values())))
    for outcome in ("rejected", "skipped"):
        equal.append((totals[outcome], sum(totals["reasons"].get(outcome, {}).values())))
    if any(stated != counted for stated, counted in equal):
        raise ValueError("dataset.json: its counts do not add up")


def with_digest(text):
    """Return the text of a manifest with its digest."""
    start = text.rindex(b'"digest": "sha256:') + len('"digest": "sha256:')
    zeroed = text[:start] + b"0" * 64 + text[start + 64 :]
    return text[:start] + hashlib.sha256(zeroed).hexdigest().encode() + text[start + 64 :]


def digest_of(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def check_rejects(root, manifest):
    path, reasons = root / f"rejected-{manifest['build_id']}.jsonl", {}
    if manifest["totals"]["rejected"] and digest_of(path.read_bytes()) != manifest["rejects_digest"]:
        raise ValueError(f"{path}: the digest differs")
    for line in path.read_text(encoding="ascii").splitlines() if manifest["totals"]["rejected"] else ():
        reject = json.loads(line)
        types = {name: type(value).__name__ for name, value in reject.items()}
        if types != {"key": "str", "reason": "str", "detail": "str", "size": "int"}:
            raise ValueError(f"{path}: {line} is not a reject")
        reasons[reject["reason"]] = reasons.get(reject["reason"], 0) + 1
    if reasons != manifest["totals"]["reasons"].get("rejected", {}):
        raise ValueError(f"{path}: does not hold what totals.reasons.rejected counts")


def read_shard(root, shard, manifest):
    path, index = root / shard["path"], root / Path(shard["path"]).parent / "index"
    data = path.read_bytes()
    if len(data) != shard["num_bytes"]:
        raise ValueError(f"{path}: has {len(data)} bytes instead of {shard['num_bytes']}")
    if data[-8:].hex() != shard["last_bytes"]:
        raise ValueError(f"{path}: ends with other bytes")
    if digest_of(data) != shard["digest"]:
        raise ValueError(f"{path}: the digest differs")
    if manifest["compression"] == "gzip":
        data = gzip.decompress(data)
    if len(data) != shard["record_bytes"]:
        raise ValueError(f"{path}: its records take {len(data)} bytes")
    examples, lines, offset, numbers = [], [], 0, 0
    while offset < len(data):
        place = f"{path}, record {len(examples)}"
        record = read_frame(data, offset, place)
        examples.append(read_example(record, manifest["schema"], place))
        lines.append(f"{offset} {len(record) + 16}\n")
        numbers += number_of(len(record), masked_crc(record))
        offset += len(record) + 16
    if len(examples) != shard["num_examples"]:
        raise ValueError(f"{path}: has {len(examples)} records instead of {shard['num_examples']}")
    if f"{numbers % 2**64:016x}" != shard["examples_digest"]:
        raise ValueError(f"{path}: has other records")
    found = (index / f"{path.name}.idx").read_bytes()
    if found != "".join(lines).encode("ascii") or digest_of(found) != shard["index_digest"]:
        raise ValueError(f"{path}: the index is another's")
    check_labels(index / f"{path.name}.labels", shard, manifest, examples)
    return examples


def check_labels(path, shard, manifest, examples):
    scalars = [f["name"] for f in manifest["schema"]["features"] if (f["kind"], f["shape"]) == ("label", [])]
    if not scalars:
        if shard["labels_digest"] or path.exists():
            raise ValueError(f"{path}: the schema has no label")
        return
    found = path.read_bytes()
    if found != b"".join(struct.pack("<q", int(example[scalars[0]])) for example in examples):
        raise ValueError(f"{path}: holds other labels than the records")
    if digest_of(found) != shard["labels_digest"]:
        raise ValueError(f"{path}: the digest differs")


def number_of(length, checksum):
    """Return the number that a record adds to the examples_digest of its shard."""
    number = (length * 2**32 + checksum + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31


def read_frame(data, offset, place):
    header = data[offset : offset + 12]
    if len(header) < 12:
        raise ValueError(f"{place}: the header is cut")
    length, crc = struct.unpack("<QI", header)
    if crc != masked_crc(header[:8]):
        raise ValueError(f"{place}: the CRC of the length does not hold")
    end = offset + 12 + length
    if end + 4 > len(data):
        raise ValueError(f"{place}: is longer than its file")
    record, (crc,) = data[offset + 12 : end], struct.unpack_from("<I", data, end)
    if crc != masked_crc(record):
        raise ValueError(f"{place}: the CRC of the data does not hold")
    return record


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc_of_byte(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


CRC_TABLE = [crc_of_byte(byte) for byte in range(256)]


def masked_crc(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def read_example(record, schema, place):
    stored = tf.train.Example.FromString(record).features.feature
    values = {}
    for feature in schema["features"]:
        if feature["name"] not in stored:
            raise ValueError(f"{place}: lacks {feature['name']!r}")
        values[feature["name"]] = read_value(
            feature, stored[feature["name"]], f"{place}, {feature['name']!r}"
        )
        if feature["kind"] == "label" and schema["class_names"]:
            label = values[feature["name"]]
            if np.any((label < -1) | (label >= len(schema["class_names"]))):
                raise ValueError(f"{place}: {label} is not a class")
    return values


LISTS = {
    "image": "bytes_list",
    "mask": "bytes_list",
    "label": "int64_list",
    "bytes": "bytes_list",
    "int": "int64_list",
    "float": "float_list",
    "raw": "bytes_list",
}


def read_value(feature, stored, place):
    kind, shape = feature["kind"], feature["shape"]
    if stored.WhichOneof("kind") != LISTS[kind]:
        raise ValueError(f"{place}: is a {stored.WhichOneof('kind')}")
    items = list(getattr(stored, LISTS[kind]).value)
    if shape[:1] == [None] and kind not in ("image", "mask"):
        row = np.prod(shape[1:], dtype=int)
        shape = [len(items) // row, *shape[1:]]
    if len(items) != (1 if kind in ("image", "mask", "raw") else np.prod(shape, dtype=int)):
        raise ValueError(f"{place}: has {len(items)} values")
    if kind in ("image", "mask"):
        dtype = tf.as_dtype(feature["dtype"])
        pixels = tf.io.decode_image(items[0], shape[2] or 0, dtype, expand_animations=False).numpy()
        if any(want not in (None, got) for want, got in zip(shape, pixels.shape, strict=True)):
            raise ValueError(f"{place}: has the shape {pixels.shape}")
        return pixels
    if kind == "bytes":
        value = np.empty(len(items), dtype=object)
        value[:] = items
        return value.reshape(shape)
    dtype = np.dtype(tf.as_dtype(feature["dtype"]).as_numpy_dtype)
    if kind == "raw":
        if len(items[0]) != dtype.itemsize * np.prod(shape, dtype=int):
            raise ValueError(f"{place}: has {len(items[0])} bytes")
        return np.frombuffer(items[0], dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    wide = np.array(items, dtype=np.int64 if LISTS[kind] == "int64_list" else np.float32)
    value = wide.astype(dtype)
    if not np.array_equal(value.astype(wide.dtype), wide, equal_nan=kind == "float"):
        raise ValueError(f"{place}: does not fit {dtype}")
    return value.reshape(shape)


# Tests of the reader; tests/test_contract.py has every dtype and shape


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_images_and_masks_are_read_as_they_were_drawn(tmp_path, compression):
    random, drawn = np.random.default_rng(0), {}
    for number in range(5):
        for name, shape in (("images", (4, 5 + number, 3)), ("masks", (4, 5 + number))):
            pixels = random.integers(0, 255, shape, np.uint8)
            path = tmp_path / "photos" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
            drawn[name, b"images/%d.png" % number] = pixels
    (tmp_path / "photos" / "images" / "without mask.png").write_bytes(b"")
    source, options = (
        ImageFolder(tmp_path / "photos", mask_dir="masks"),
        Options(compression=compression, max_rejected="50%"),
    )
    build(source, tmp_path / "data", shards=2, options=options, log=lambda _: None)
    examples = read_dataset(tmp_path / "data")["train"]
    assert len(examples) == 5
    for example in examples:
        key = example["key"].item()
        assert np.array_equal(example["image"], drawn["images", key])
        assert np.array_equal(example["mask"][:, :, 0], drawn["masks", key])


def test_lists_of_any_length_are_read_as_the_table_has_them(tmp_path):
    rows = {
        "tags": [[1, 2], [], [3]],
        "words": [["a"], [], ["b", "c"]],
        "boxes": [[[1.0, 2.0, 3.0, 4.0]], [], [[5.0, 6.0, 7.0, 8.0]] * 2],
    }
    boxes = pa.array(rows["boxes"], pa.list_(pa.list_(pa.float32(), 4)))
    pq.write_table(pa.table(rows | {"boxes": boxes}), tmp_path / "t.parquet")
    build(Table(tmp_path / "t.parquet"), tmp_path / "data", shards=2, log=lambda _: None)
    for example in read_dataset(tmp_path / "data")["train"]:
        number = int(example["key"].item())
        assert [word.decode() for word in example["words"]] == rows["words"][number]
        assert example["tags"].tolist() == rows["tags"][number]
        assert example["boxes"].tolist() == rows["boxes"][number]


def code_block(language):
    return re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)[1]


def write_the_page_s_example(root):
    """Write the example as the page shows it; return its one shard."""
    (root / "dataset.json").write_text(code_block("json"), encoding="ascii")
    shard = root / read_manifest(root).shards[0].path
    # remarks follow the columns of hex after three or more spaces
    columns = (re.match(r" *((?:[0-9a-f]{2} )+)", line) for line in code_block("hex").splitlines())
    shard.write_bytes(bytes.fromhex("".join(column[1] for column in columns)))
    (root / "index").mkdir()
    (root / "index" / f"{shard.name}.idx").write_text(code_block("text"), encoding="ascii")
    (root / "index" / f"{shard.name}.labels").write_bytes(bytes.fromhex(code_block("labels")))
    return shard


def test_the_example_of_the_page_is_a_dataset(tmp_path):
    shard = write_the_page_s_example(tmp_path)
    assert verify(tmp_path, deep=True)
    [example] = read_dataset(tmp_path)["train"]
    assert example["x"].dtype == np.int16
    assert {n: value.tolist() for n, value in example.items()} == {"x": [1, -2], "label": 1, "key": b"7"}
    # and it equals the file that TensorFlow writes
    [record] = tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()
    assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record


def test_the_check_value_of_the_crc_is_that_of_the_page():
    assert crc32c(b"123456789") == 0xE3069283
