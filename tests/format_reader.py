"""A reader of datasets written only from docs/format.md.

It uses the standard library, NumPy and Pillow, and does not import tfshards, so it shows what other tools can
read, and judges what tfshards writes.
"""

import gzip
import hashlib
import io
import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def read(root):
    """Return the examples of each split by key, in stored order, as ``{split: {key: {feature: value}}}``.

    Keys are text, as ``os.fsdecode`` returns it, or count the examples of a split without keys. Numbers are
    arrays of the schema's dtype and shape, byte strings are bytes or nested lists of bytes, and images stay
    encoded.

    Raises:
        ValueError, KeyError: as ``read_dataset``; or a key is repeated, or classes are counted wrongly.
    """
    manifest, found, known = read_manifest(Folder(root)), {}, set()
    for split, examples in read_dataset(root, are_encoded=True).items():
        keys = [
            os.fsdecode(each["key"].item()) if "key" in each else str(n) for n, each in enumerate(examples)
        ]
        found[split] = dict(zip(keys, map(plain, examples), strict=True))
        if len({*keys}) < len(keys) or (known & {*keys} and "key" in examples[0]):
            raise ValueError(f"{root}: a key is repeated")
        known |= {*keys}
        check_label_counts(split, manifest, examples)
    return found


def plain(example):
    """Return an example with byte strings instead of arrays of objects."""
    is_text = {name: isinstance(v, np.ndarray) and v.dtype.kind == "O" for name, v in example.items()}
    return {name: v.tolist() if is_text[name] else v for name, v in example.items()}


def decode(data):
    """Return the pixels of an encoded image as its file has them, ``(height, width[, channels])``."""
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image)


def read_dataset(root, text=None, *, are_encoded=False):
    """Return the examples of each split in order, as ``{split: [{feature: array}]}``.

    Arrays have the schema's dtype and shape; byte strings are in arrays of objects, images are decoded.

    Args:
        root: folder of the dataset, or the content of its files by their paths.
        text: the manifest, if it is not that in ``dataset.json``.
        are_encoded: whether images are returned as the bytes of their files.

    Raises:
        ValueError: the dataset violates docs/format.md; the message names the file and the record.
        KeyError: a file is missing.
    """
    files = root if isinstance(root, Mapping) else Folder(root)
    manifest = read_manifest(files, text)
    return {
        name: [each for shard in split["shards"] for each in read_shard(files, shard, manifest, are_encoded)]
        for name, split in manifest["splits"].items()
    }


def read_manifest(files, text=None):
    """Return the manifest, after checking its sums, its digest and the list of rejected inputs."""
    text = files["dataset.json"] if text is None else text
    manifest = json.loads(text)
    if manifest["format_version"] > 1:
        raise ValueError(f"format version {manifest['format_version']}: install {manifest['requires']}")
    check_sums(manifest)
    if with_digest(text) != text:
        raise ValueError("dataset.json: the digest differs")
    check_build(files, manifest, text)
    read_rejects(files, manifest)
    return manifest


class Folder(Mapping):
    """The content of the files of a folder by their paths."""

    def __init__(self, root):
        self.root = Path(root)

    def __getitem__(self, path):
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            raise KeyError(path) from None

    def __iter__(self) -> Iterator[str]:
        return (path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())

    def __len__(self):
        return sum(1 for _ in self)


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


def check_label_counts(split, manifest, examples):
    scalar, stated = scalar_label(manifest["schema"]), manifest["splits"][split]["label_counts"]
    if scalar and stated:
        labels = [int(example[scalar]) for example in examples]
        names = manifest["schema"]["class_names"] or {label: str(label) for label in labels}
        counted = {names[label]: labels.count(label) for label in labels}
        if counted != {label: count for label, count in stated.items() if count}:
            raise ValueError(f"dataset.json: split {split} holds {counted}, not {stated}")


def scalar_label(schema):
    names = [f["name"] for f in schema["features"] if (f["kind"], f["shape"]) == ("label", [])]
    return names[0] if names else None


def with_digest(text):
    """Return the text of a manifest with its digest."""
    start = text.rindex(b'"digest": "sha256:') + len('"digest": "sha256:')
    zeroed = text[:start] + b"0" * 64 + text[start + 64 :]
    return text[:start] + hashlib.sha256(zeroed).hexdigest().encode() + text[start + 64 :]


def digest_of(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def rejects_path(manifest):
    return f"{manifest['folder']}/rejected.jsonl"


def check_build(files, manifest, text):
    """Check the files of the folder of the build that follow from the manifest."""
    folder = manifest["folder"]
    if not folder:
        return
    if files[f"{folder}/dataset.json"] != text:
        raise ValueError(f"{folder}/dataset.json: is not the manifest")
    if not json.loads(files[f"{folder}/build.json"])["format"].startswith("tfshards build"):
        raise ValueError(f"{folder}/build.json: is not the record of a build")
    digests = dict(manifest.get("views", {}))
    if manifest["removed_digest"]:
        digests[f"{folder}/removed.txt"] = manifest["removed_digest"]
    for path, digest in digests.items():
        if digest_of(files[path]) != digest:
            raise ValueError(f"{path}: the digest differs")


def read_rejects(files, manifest):
    """Return the keys of the rejected inputs."""
    path, keys, reasons = rejects_path(manifest), [], {}
    if manifest["totals"]["rejected"] and digest_of(files[path]) != manifest["rejects_digest"]:
        raise ValueError(f"{path}: the digest differs")
    for line in files[path].decode("ascii").splitlines() if manifest["totals"]["rejected"] else ():
        reject = json.loads(line)
        types = {name: type(value).__name__ for name, value in reject.items()}
        if types != {"key": "str", "reason": "str", "detail": "str", "size": "int"}:
            raise ValueError(f"{path}: {line} is not a reject")
        keys.append(reject["key"])
        reasons[reject["reason"]] = reasons.get(reject["reason"], 0) + 1
    if keys != sorted(keys) or reasons != manifest["totals"]["reasons"].get("rejected", {}):
        raise ValueError(f"{path}: does not hold what totals.reasons.rejected counts")
    return keys


def companion(path, suffix):
    """Return the path of the index (``idx``), the ``labels`` or the ``keys`` of a shard."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/index/{name}.{suffix}".removeprefix("/")


def read_shard(files, shard, manifest, are_encoded=False):
    path = shard["path"]
    data = files[path]
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
        examples.append(read_example(record, manifest, place, are_encoded))
        lines.append(f"{offset} {len(record) + 16}\n")
        numbers += number_of(len(record), masked_crc(record))
        offset += len(record) + 16
    if len(examples) != shard["num_examples"]:
        raise ValueError(f"{path}: has {len(examples)} records instead of {shard['num_examples']}")
    if f"{numbers % 2**64:016x}" != shard["examples_digest"]:
        raise ValueError(f"{path}: has other records")
    # for a file that another program wrote, the path that it would have in the folder of the build
    place = shard.get("companions", path)
    found = files[companion(place, "idx")]
    if found != "".join(lines).encode("ascii") or digest_of(found) != shard["index_digest"]:
        raise ValueError(f"{path}: the index is another's")
    check_labels(files, companion(place, "labels"), shard, manifest, examples)
    check_keys(files, companion(place, "keys"), shard, manifest, examples)
    return examples


def check_labels(files, path, shard, manifest, examples):
    scalar = scalar_label(manifest["schema"])
    if scalar is None:
        if shard["labels_digest"] or path in files:
            raise ValueError(f"{path}: the schema has no label")
        return
    found = files[path]
    if found != b"".join(struct.pack("<q", int(example[scalar])) for example in examples):
        raise ValueError(f"{path}: holds other labels than the records")
    if digest_of(found) != shard["labels_digest"]:
        raise ValueError(f"{path}: the digest differs")


def check_keys(files, path, shard, manifest, examples):
    if ("key", "bytes", []) not in [
        (f["name"], f["kind"], f["shape"]) for f in manifest["schema"]["features"]
    ]:
        if shard["keys_digest"] or path in files:
            raise ValueError(f"{path}: the schema has no key")
        return
    found, keys = files[path], [example["key"].item() for example in examples]
    if found != b"\0".join(keys) or any(b"\0" in key for key in keys):
        raise ValueError(f"{path}: holds other keys than the records")
    if digest_of(found) != shard["keys_digest"]:
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


def read_example(record, manifest, place, are_encoded):
    schema, options = manifest["schema"], manifest["options"]
    try:
        stored = read_features(record)
    except (ValueError, IndexError, struct.error) as error:
        raise ValueError(f"{place}: is not a tf.train.Example: {error}") from None
    names = sorted((feature["name"] for feature in schema["features"]), key=str.encode)
    if options.get("source") != "adopt" and not {"origin", "of"} & {*options} and [*stored] != names:
        raise ValueError(f"{place}: has the features {[*stored]} instead of {names}")
    values = {}
    for feature in schema["features"]:
        if feature["name"] not in stored:
            raise ValueError(f"{place}: lacks {feature['name']!r}")
        values[feature["name"]] = read_value(
            feature, *stored[feature["name"]], f"{place}, {feature['name']!r}", are_encoded
        )
        if feature["kind"] == "label" and schema["class_names"]:
            label = values[feature["name"]]
            if np.any((label < -1) | (label >= len(schema["class_names"]))):
                raise ValueError(f"{place}: {label} is not a class")
    return values


# Protocol buffers, as the page describes Example


def read_features(record):
    """Return the name of the list and its items for each feature of a serialized Example."""
    found = {}
    for _, features in fields(record):
        for _, entry in fields(features):
            name, feature = (dict(fields(entry)).get(number, b"") for number in (1, 2))
            found[name.decode()] = (None, [])
            for number, items in fields(feature):
                found[name.decode()] = read_list(number, items)
    return found


def read_list(number, data):
    name, items = ("bytes_list", "float_list", "int64_list")[number - 1], []
    for _, value in fields(data):
        if name == "bytes_list":
            items.append(value)
        elif name == "float_list":
            items += [each for (each,) in struct.iter_unpack("<f", value)]
        elif isinstance(value, int):
            items.append(value)
        else:
            at = 0
            while at < len(value):
                each, at = varint(value, at)
                items.append(each)
    if name == "int64_list":
        items = [each - 2**64 if each >= 2**63 else each for each in items]
    return name, items


def fields(data):
    """Yield the number and the value of each field of a message: an integer, or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at) if tag & 7 in (0, 2) else (4, at)
        if tag & 7 not in (0, 2, 5):
            raise ValueError(f"the wire type {tag & 7} at byte {at}")
        if tag & 7:
            end = at + value
            if end > len(data):
                raise ValueError(f"a field ends after byte {len(data)}")
            value, at = data[at:end], end
        yield tag >> 3, value


def varint(data, at):
    """Return the number at an offset, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


LISTS = {
    "image": "bytes_list",
    "mask": "bytes_list",
    "label": "int64_list",
    "bytes": "bytes_list",
    "int": "int64_list",
    "float": "float_list",
    "raw": "bytes_list",
}


def dtype_of(name):
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def decode_image(data, channels, dtype):
    """Return the pixels of an image file, with the channels and the dtype of the schema."""
    with Image.open(io.BytesIO(data)) as image:
        if image.mode.startswith("I;16") and dtype == "uint16":
            return np.asarray(image, np.uint16)[:, :, None]
        mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels, image.mode)
        pixels = np.asarray(image.convert(mode), np.dtype(dtype))
    return (pixels[:, :, None] if pixels.ndim == 2 else pixels) * (257 if dtype == "uint16" else 1)


def read_value(feature, held, items, place, are_encoded):
    kind, shape = feature["kind"], feature["shape"]
    if held not in (LISTS[kind], None):
        raise ValueError(f"{place}: is a {held}")
    if shape[:1] == [None] and kind not in ("image", "mask"):
        row = np.prod(shape[1:], dtype=int)
        shape = [len(items) // row, *shape[1:]]
    if len(items) != (1 if kind in ("image", "mask", "raw") else np.prod(shape, dtype=int)):
        raise ValueError(f"{place}: has {len(items)} values")
    if kind in ("image", "mask"):
        pixels = decode_image(items[0], shape[2], feature["dtype"])
        if any(want not in (None, got) for want, got in zip(shape, pixels.shape, strict=True)):
            raise ValueError(f"{place}: has the shape {pixels.shape}")
        if kind == "mask" and decode(items[0]).dtype.itemsize != np.dtype(feature["dtype"]).itemsize:
            raise ValueError(f"{place}: has values of {decode(items[0]).dtype}")
        return items[0] if are_encoded else pixels
    if kind == "bytes":
        value = np.empty(len(items), dtype=object)
        value[:] = items
        return value.reshape(shape)
    dtype = dtype_of(feature["dtype"])
    if kind == "raw":
        if len(items[0]) != dtype.itemsize * np.prod(shape, dtype=int):
            raise ValueError(f"{place}: has {len(items[0])} bytes")
        return np.frombuffer(items[0], dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    wide = np.array(items, dtype=np.int64 if LISTS[kind] == "int64_list" else np.float32)
    value = wide.astype(dtype)
    if not np.array_equal(value.astype(wide.dtype), wide, equal_nan=kind == "float"):
        raise ValueError(f"{place}: does not fit {dtype}")
    return value.reshape(shape)
