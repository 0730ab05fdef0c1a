"""A reader of datasets written only from docs/format.md.

It does not import tfshards, so it shows what other programs can read, and it judges what tfshards writes.
Where it can choose, it is strict: records have exactly the features of the schema, in the order of a writer.
"""

import gzip
import hashlib
import io
import json
import os
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
from PIL import Image


def read(dataset):
    """Return the examples of each split in stored order, as ``{split: {key: {feature: value}}}``.

    Numbers are arrays of the schema's dtype and shape, lists of byte strings are lists, and one byte string,
    such as an encoded image, is bytes. Keys are text, as ``os.fsdecode`` returns it; without keys they count
    the examples.

    Raises:
        ValueError: the dataset violates docs/format.md; the message names the file and the record.
    """
    root = Path(dataset)
    manifest = read_manifest(root)
    splits, number = {}, 0
    for name, split in manifest["splits"].items():
        splits[name] = examples = {}
        for shard in split["shards"]:
            for example in read_shard(root, shard, manifest):
                key = os.fsdecode(example["key"]) if "key" in example else str(number)
                if any(key in others for others in splits.values()):
                    raise ValueError(f"{root / shard['path']}: the key {key!r} is repeated")
                examples[key] = example
                number += 1
        check_label_counts(name, split, examples, manifest["schema"])
    return splits


def decode(data):
    """Return the pixels of an encoded image or mask, ``(height, width[, channels])``."""
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image)


def read_manifest(root):
    """Return the manifest, whose digest, sums and list of rejected inputs are checked."""
    root = Path(root)
    text = (root / "dataset.json").read_bytes()
    manifest = json.loads(text)
    if manifest["format_version"] > 1:
        raise ValueError(f"format version {manifest['format_version']}: install {manifest['requires']}")
    check_sums(manifest)
    if with_digest(text) != text:
        raise ValueError("dataset.json: the digest differs")
    check_rejects(root, manifest)
    return manifest


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


def check_label_counts(name, split, examples, schema):
    scalar = scalar_label(schema)
    if not (scalar and split["label_counts"]):
        return
    labels = [int(example[scalar]) for example in examples.values()]
    names = schema["class_names"] or {label: str(label) for label in labels}
    counted = {names[label]: labels.count(label) for label in labels}
    if counted != {label: count for label, count in split["label_counts"].items() if count}:
        raise ValueError(f"dataset.json: split {name} holds {counted}, not {split['label_counts']}")


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


# Shards


def read_shard(root, shard, manifest):
    """Return the examples of a shard, after checking its digests, frames, index and labels."""
    path, index = root / shard["path"], root / Path(shard["path"]).parent / "index"
    data = path.read_bytes()
    if len(data) != shard["num_bytes"]:
        raise ValueError(f"{path}: has {len(data)} bytes instead of {shard['num_bytes']}")
    if data[-8:].hex() != shard["last_bytes"]:
        raise ValueError(f"{path}: ends with other bytes")
    if digest_of(data) != shard["digest"]:
        raise ValueError(f"{path}: the digest differs")
    if manifest["compression"] == "gzip":
        data = gzip.decompress(data) if data else b""
    if len(data) != shard["record_bytes"]:
        raise ValueError(f"{path}: its records take {len(data)} bytes")
    examples, lines, offset, numbers = [], [], 0, 0
    while offset < len(data):
        place = f"{path}, record {len(examples)}"
        record = read_frame(data, offset, place)
        examples.append(read_example(record, manifest, place))
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
    check_labels(index / f"{path.name}.labels", shard, manifest["schema"], examples)
    return examples


def scalar_label(schema):
    names = [f["name"] for f in schema["features"] if (f["kind"], f["shape"]) == ("label", [])]
    return names[0] if names else None


def check_labels(path, shard, schema, examples):
    scalar = scalar_label(schema)
    if scalar is None:
        if shard["labels_digest"] or path.exists():
            raise ValueError(f"{path}: the schema has no label")
        return
    found = path.read_bytes()
    if found != b"".join(struct.pack("<q", int(example[scalar])) for example in examples):
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


# Records: the protocol buffer Example


def fields(data):
    """Return the number and the value of each field of a message: bytes, or a number of 0 or more."""
    found, offset = [], 0
    while offset < len(data):
        tag, offset = varint(data, offset)
        if tag & 7 == 0:
            value, offset = varint(data, offset)
        else:
            size, offset = (4, offset) if tag & 7 == 5 else varint(data, offset)
            if tag & 7 not in (2, 5) or offset + size > len(data):
                raise ValueError("is not an Example")
            value, offset = data[offset : offset + size], offset + size
        found.append((tag >> 3, value))
    return found


def varint(data, offset):
    value = shift = 0
    while True:
        value |= (data[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if not data[offset - 1] & 0x80:
            return value, offset


def varints(data):
    numbers, offset = [], 0
    while offset < len(data):
        number, offset = varint(data, offset)
        numbers.append(number)
    return numbers


def stored_list(data):
    """Return the kind of a Feature, 1 (bytes), 2 (float) or 3 (int64), and its values."""
    [(kind, content)] = fields(data)
    values = []
    for _, value in fields(content):
        if kind == 1:
            values.append(value)
        elif kind == 2:
            values += np.frombuffer(value, "<f4").tolist()
        else:
            numbers = [value] if isinstance(value, int) else varints(value)
            values += [number - 2**64 if number >= 2**63 else number for number in numbers]
    return kind, values


def read_example(record, manifest, place):
    """Return the values of a record by feature."""
    schema = manifest["schema"]
    entries = [dict(fields(entry)) for _, message in fields(record) for _, entry in fields(message)]
    stored = {entry[1].decode("utf-8"): entry.get(2, b"") for entry in entries}
    names = [feature["name"] for feature in schema["features"]]
    if manifest["options"].get("source") != "adopt" and [*stored] != sorted(names, key=str.encode):
        raise ValueError(f"{place}: has the features {[*stored]} instead of {sorted(names)}")
    values = {}
    for feature in schema["features"]:
        name = feature["name"]
        if name not in stored and "storage" not in feature:
            raise ValueError(f"{place}: lacks {name!r}")
        values[name] = read_value(feature, stored.get(name, b""), f"{place}, {name!r}")
        if feature["kind"] == "label" and schema["class_names"]:
            label = values[name]
            if np.any((label < -1) | (label >= len(schema["class_names"]))):
                raise ValueError(f"{place}: {label} is not a class")
    return values


LISTS = {"image": 1, "mask": 1, "label": 3, "bytes": 1, "int": 3, "float": 2, "raw": 1}


def read_value(feature, data, place):
    kind, shape = feature["kind"], feature["shape"]
    varies = shape[:1] == [None] and kind not in ("image", "mask")
    list_kind, items = stored_list(data) if data else (LISTS[kind], [])
    if list_kind != LISTS[kind]:
        raise ValueError(f"{place}: has a list of another kind")
    if varies:
        shape = [len(items) // np.prod(shape[1:], dtype=int), *shape[1:]]
    if len(items) != (1 if kind in ("image", "mask", "raw") else np.prod(shape, dtype=int)):
        raise ValueError(f"{place}: has {len(items)} values")
    if kind in ("image", "mask"):
        check_image(feature, items[0], place)
        return items[0]
    if kind == "bytes":
        return nested(items, shape)
    dtype = np.dtype(getattr(ml_dtypes, feature["dtype"], feature["dtype"]))
    if kind == "raw":
        if len(items[0]) != dtype.itemsize * np.prod(shape, dtype=int):
            raise ValueError(f"{place}: has {len(items[0])} bytes")
        return np.frombuffer(items[0], dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    wide = np.array(items, np.int64 if kind in ("label", "int") else np.float32)
    value = wide.astype(dtype)
    if not np.array_equal(value.astype(wide.dtype), wide, equal_nan=kind == "float"):
        raise ValueError(f"{place}: does not fit {dtype}")
    return value.reshape(shape)


def nested(items, shape):
    """Return byte strings as lists of a shape; one string for a scalar."""
    if not shape:
        return items[0]
    step = int(np.prod(shape[1:], dtype=int))
    return [nested(items[number * step : (number + 1) * step], shape[1:]) for number in range(shape[0])]


def check_image(feature, data, place):
    """Compare the header of an image with its feature."""
    with Image.open(io.BytesIO(data)) as image:
        height, width = image.height, image.width
        deep = image.mode.startswith("I")
    if any(want not in (None, got) for want, got in zip(feature["shape"], (height, width), strict=False)):
        raise ValueError(f"{place}: has {height} x {width} pixels")
    if feature["kind"] == "mask" and deep != (feature["dtype"] == "uint16"):
        raise ValueError(f"{place}: has the mode {image.mode}, not {feature['dtype']}")
