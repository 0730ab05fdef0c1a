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
import pytest
import tensorflow as tf

from tfshards.prep import verify
from tfshards.schemas import read_manifest
from tfshards.schemas.index import index_path, labels_path, parse_index, parse_labels
from tfshards.schemas.manifest_file import file_problems
from tfshards.schemas.schema import KINDS

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


# A dataset written manually from the same page


def extremes(dtype):
    """Return values of the dtype, shape (2, 3), in which every lost bit shows."""
    numpy_dtype = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    if dtype == "bool":
        return np.array([[True, False, True], [False, False, True]])
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return np.array([[limits.min, limits.max, 0], [1, 2, 100]], dtype=dtype)
    numbers = np.array([[0.1, -0.0, np.inf], [-np.inf, np.nan, 3]], dtype=numpy_dtype)
    return numbers + np.array(1j, numpy_dtype) * 2 if "complex" in dtype else numbers


TENSORS = [
    (kind, dtype)
    for kind, dtypes in {
        "label": ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"],
        "int": ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"],
        "float": ["float16", "bfloat16", "float32"],
        "raw": ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
        + ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"],
    }.items()
    for dtype in dtypes
]
PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def objects(values, shape):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def features_and_values(key):
    """Yield ``(name, kind, dtype, shape, value, stored)`` for each feature of one example."""
    for kind, dtype in TENSORS:
        value = extremes(dtype)
        whole, scalar, empty = value, value[1, 2], value[:, :0]
        for suffix, part in (("", whole), ("_scalar", scalar), ("_empty", empty)):
            part = np.asarray(part)
            # True is stored as 1
            numbers = part.astype(np.int64) if dtype == "bool" else part
            stored = [part.tobytes()] if kind == "raw" else numbers.ravel().tolist()
            yield f"{kind}_{dtype}{suffix}", kind, dtype, list(part.shape), part, stored
    yield "key", "bytes", "bytes", [], objects([key], ()), [key]
    for kind, dtype in TENSORS:
        if kind != "raw":
            # the number of elements is in the key, and differs between examples
            part = extremes(dtype).ravel()[: key[-5] % 4 if key else 0]
            numbers = part.astype(np.int64) if dtype == "bool" else part
            yield f"{kind}_{dtype}_list", kind, dtype, [None], part, numbers.tolist()
    rows = np.arange(4 * (key[-5] % 3 if key else 0)).reshape(-1, 4)
    yield "boxes", "float", "float32", [None, 4], (rows / 2).astype(np.float32), (rows / 2).ravel().tolist()
    yield "pairs", "int", "int8", [None, 2], rows.reshape(-1, 2).astype(np.int8), rows.ravel().tolist()
    letters = [key[:1], b""][: key[-5] % 3 if key else 0]
    yield "letters", "bytes", "bytes", [None], objects(letters, (len(letters),)), letters
    strings = [b"", b"\x00\xff", b"c", b"d"]
    yield "words", "bytes", "bytes", [2, 2], objects(strings, (2, 2)), strings
    gray = PIXELS[:, :, :1]
    encoded = tf.io.encode_png(PIXELS).numpy()
    yield "image", "image", "uint8", [None, None, 3], PIXELS, [encoded]
    yield "fixed", "image", "uint8", [4, 5, None], PIXELS, [encoded]
    repeated = np.repeat(gray, 3, axis=2)
    deep = PIXELS.astype(np.uint16) * 999
    yield "deep", "image", "uint16", [None, None, 3], deep, [tf.io.encode_png(deep).numpy()]
    wide = PIXELS.astype(np.uint16) * 257
    yield "wide", "image", "uint16", [4, 5, 3], wide, [encoded]
    yield "mask", "mask", "uint8", [None, None, 1], gray, [tf.io.encode_png(gray).numpy()]
    yield "objects", "mask", "uint16", [4, 5, 1], deep[:, :, 1:2], [tf.io.encode_png(deep[:, :, 1:2]).numpy()]
    yield "grey", "image", "uint8", [None, None, 3], repeated, [tf.io.encode_png(gray).numpy()]


def serialised(key):
    example = tf.train.Example()
    for name, kind, _, _, _, stored in features_and_values(key):
        # An empty list is set as well.
        values = getattr(example.features.feature[name], LISTS[kind])
        values.SetInParent()
        values.value.extend(stored)
    return example.SerializeToString(deterministic=True)


KEYS = {"train": [[b"a/1.png", b"caf\xe9/2.png"], [b"b/3.png"]], "val": [[b"c/4.png"], []]}


def write_dataset(root, compression="none"):
    """Write the dataset of all kinds and dtypes, whose examples have the keys above."""
    (root / "index").mkdir(parents=True)
    splits = {}
    for split, shards in KEYS.items():
        written = []
        for number, keys in enumerate(shards):
            name = f"all-{split}-00c0ffee.tfrecord-{number:05d}-of-{len(shards):05d}"
            records = [serialised(key) for key in keys]
            with tf.io.TFRecordWriter(str(root / name)) as writer:
                for record in records:
                    writer.write(record)
            lengths = [len(record) + 16 for record in records]
            lines = [f"{sum(lengths[:i])} {length}\n" for i, length in enumerate(lengths)]
            (root / "index" / f"{name}.idx").write_text("".join(lines), encoding="ascii")
            # labels of the first scalar of kind label, which is int8
            labels = struct.pack("<q", int(extremes("int8")[1, 2])) * len(keys)
            (root / "index" / f"{name}.labels").write_bytes(labels)
            if compression == "gzip" and keys:
                data = (root / name).read_bytes()
                # two members
                (root / name).write_bytes(gzip.compress(data[:99]) + gzip.compress(data[99:]))
            numbers = sum(number_of(len(record), masked_crc(record)) for record in records)
            others = {
                "record_bytes": sum(lengths),
                "index_digest": digest_of("".join(lines).encode("ascii")),
                "labels_digest": digest_of(labels),
                "examples_digest": f"{numbers % 2**64:016x}",
            }
            written.append({"path": name, "num_examples": len(keys)} | stated(root / name) | others)
        count = sum(map(len, shards))
        splits[split] = {"num_examples": count, "label_counts": {"100": count}, "shards": written}
    features = [
        {"name": name, "kind": kind, "dtype": dtype, "shape": shape}
        for name, kind, dtype, shape, _, _ in features_and_values(b"")
    ]
    reasons = {"rejected": {"damaged": 1}}
    manifest = {
        "format_version": 1,
        "requires": "tfshards>=0.1",
        "name": "all",
        "build_id": "00c0ffee",
        "schema": {"features": features, "class_names": []},
        "compression": compression,
        "splits": splits,
        "totals": {
            "entries": 5,
            "accepted": 4,
            "rejected": 1,
            "skipped": 0,
            "reasons": reasons,
            "conversions": {},
        },
        "options": {"by": "hand"},
        "split_cuts": {},
    }
    rejected = {"key": "na\udcefve.png", "reason": "damaged", "detail": "ends early", "size": 9}
    text = json.dumps(rejected) + "\n"
    (root / "rejected-00c0ffee.jsonl").write_text(text, encoding="ascii")
    write_manifest(root, manifest | {"rejects_digest": digest_of(text.encode("ascii")), "inputs_digest": ""})


def write_manifest(root, manifest):
    """Write the manifest with its new digest."""
    unsigned = {name: value for name, value in manifest.items() if name != "digest"}
    text = json.dumps(unsigned | {"digest": "sha256:" + "0" * 64})
    (root / "dataset.json").write_bytes(with_digest(text.encode("ascii")))


def stated(path):
    """Return the description of a plain shard in the manifest, except for its records."""
    data = path.read_bytes()
    sizes = {"num_bytes": len(data), "record_bytes": len(data)}
    return sizes | {"digest": digest_of(data), "last_bytes": data[-8:].hex()}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("format") / "all"
    write_dataset(root)
    return root


# Tests of the reader


def test_every_kind_and_dtype_is_read_exactly(written):
    splits = read_dataset(written)
    assert {name: len(examples) for name, examples in splits.items()} == {"train": 3, "val": 1}
    for split, shards in KEYS.items():
        for example, key in zip(splits[split], (key for keys in shards for key in keys), strict=True):
            rows = list(features_and_values(key))
            assert list(example) == [name for name, *_ in rows]
            for name, _, _, _, value, _ in rows:
                assert (name, example[name].dtype, example[name].shape) == (name, value.dtype, value.shape)
                # not ==, since NaN != NaN and -0.0 == 0.0
                assert (
                    name,
                    example[name].tolist() if value.dtype == object else example[name].tobytes(),
                ) == (
                    name,
                    value.tolist() if value.dtype == object else value.tobytes(),
                )


def test_compressed_shards_are_read_like_plain_ones(written, tmp_path):
    write_dataset(tmp_path / "all", "gzip")
    found, plain = read_dataset(tmp_path / "all"), read_dataset(written)
    keys = {name: [example["key"].tolist() for example in found[name]] for name in found}
    assert keys == {name: [example["key"].tolist() for example in plain[name]] for name in plain}
    assert read_manifest(tmp_path / "all").compression == "gzip"


def test_a_record_of_inputs_is_no_part_of_a_dataset(tmp_path):
    write_dataset(tmp_path / "all")
    (tmp_path / "all" / "inputs-00c0ffee.npz").write_bytes(b"no archive")
    assert {name: len(examples) for name, examples in read_dataset(tmp_path / "all").items()} == {
        "train": 3,
        "val": 1,
    }
    assert verify(tmp_path / "all", deep=True)


def test_no_kind_or_dtype_is_left_out():
    encoded = {(kind, dtype) for kind in ("image", "mask") for dtype in ("uint8", "uint16")}
    written = set(TENSORS) | encoded | {("bytes", "bytes")}
    assert written == {(name, dtype) for name, kind in KINDS.items() for dtype in kind.dtypes}


def test_the_validator_accepts_a_dataset_written_from_the_page(written):
    manifest = read_manifest(written)
    assert file_problems(manifest, written) == []
    for shard in manifest.shards:
        index = parse_index((written / index_path(shard.path)).read_text(encoding="ascii"), shard.path)
        assert (len(index.lengths), index.num_bytes) == (shard.num_examples, shard.record_bytes)
        labels = (written / labels_path(shard.path)).read_bytes()
        assert parse_labels(labels, shard.num_examples, shard.path).tolist() == [100] * shard.num_examples


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
    assert file_problems(read_manifest(tmp_path), tmp_path) == []
    [example] = read_dataset(tmp_path)["train"]
    assert example["x"].dtype == np.int16
    assert {name: value.tolist() for name, value in example.items()} == {
        "x": [1, -2],
        "label": 1,
        "key": b"7",
    }
    # and it equals the file that TensorFlow writes
    [record] = tf.data.TFRecordDataset(str(shard)).as_numpy_iterator()
    assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record


def test_the_check_value_of_the_crc_is_that_of_the_page():
    assert crc32c(b"123456789") == 0xE3069283
