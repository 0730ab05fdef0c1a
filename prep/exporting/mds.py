"""Export to MDS, the shards of MosaicML Streaming: ``SPLIT/index.json`` and ``SPLIT/shard.00000.mds``.

Format: https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html, and
``streaming/base/format/mds`` of version 2. A shard is the number of its samples (uint32, little-endian, like
all that follow), the offsets of the samples and of the end, its columns as JSON, and the samples: the lengths
of values without a fixed length, then the values, in the order of the columns, which are sorted by name.

| feature | encoding |
|---|---|
| image of 8 bits | ``jpeg``: opened by Pillow, which also opens PNG and WebP |
| mask | ``png`` |
| image of 16 bits | ``bytes``, since Pillow would reduce colors to 8 bits |
| scalar label | ``int`` |
| scalar number | its dtype; bool is ``uint8`` |
| other numbers | ``ndarray:DTYPE:SHAPE``; ragged ``ndarray:DTYPE`` |
| byte string | ``str``, or ``bytes`` if some are not UTF-8 |
| list of byte strings | ``json`` |

MDS has no place for class names: ``labels.txt`` has them, in label order. An empty shard has no file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from tfshards.prep.exporting.format import Contents, Format, WrittenPart, dtype_problems, lists_of_text
from tfshards.prep.exporting.request import Example, Part, Request, array_of, text_of, value_of
from tfshards.prep.records.example import Values
from tfshards.prep.views.table import labels_text
from tfshards.schemas import Feature, InputError, Problem
from tfshards.schemas.feature import ITEM_SIZES
from tfshards.schemas.json_reader import Json

_MAX_BYTES = (1 << 32) - 1
_UINT32 = struct.Struct("<I")
# The dtype of the dimensions of an array whose shape varies, by its code.
_SHAPE_DTYPES = ("u1", "<u2", "<u4", "<u8")


def _problems(request: Request) -> list[Problem]:
    refused = {
        dtype: f"is {dtype}, which MDS has no encoding for"
        for dtype in ("bfloat16", "complex64", "complex128")
    }
    problems = dtype_problems(request, refused) + lists_of_text(request)
    for part in request.parts:
        if part.shard.record_bytes > _MAX_BYTES // 2:
            what = f"has records of {part.shard.record_bytes:,} bytes, but MDS numbers bytes with 32 bits"
            problems.append(Problem(part.shard.path, f"{what}; make smaller shards with 'tfshards reshard'"))
    return problems


def _write(request: Request, part: Part, folder: Path, examples: Iterable[Example]) -> None:
    count, features = part.shard.num_examples, _columns(request)
    if not count:
        # an iteration checks the shard
        assert not list(examples)
        return
    config = json.dumps(_config(request), sort_keys=True).encode("utf-8")
    offsets = [4 + 4 * (count + 1) + len(config)]
    (folder / part.split).mkdir()
    with (folder / _path(part)).open("wb") as file:
        file.seek(offsets[0] - len(config))
        file.write(config)
        for example in examples:
            sample = _sample(request, features, example.values)
            offsets.append(offsets[-1] + len(sample))
            file.write(sample)
        if offsets[-1] > _MAX_BYTES:
            raise InputError("export-mds-size", path=part.shard.path, offsets=offsets[-1])
        file.seek(0)
        file.write(_UINT32.pack(count) + np.array(offsets, "<u4").tobytes())


def _read(request: Request, part: Part, folder: Path) -> Iterator[Mapping[str, Values]]:
    if not part.shard.num_examples:
        return
    with (folder / _path(part)).open("rb") as file:
        (count,) = _UINT32.unpack(file.read(4))
        offsets = np.frombuffer(file.read(4 * (count + 1)), "<u4").tolist()
        columns = json.loads(file.read(offsets[0] - file.tell()))
        assert columns == _config(request)
        for start, end in pairwise(offsets):
            yield _values(request, file, end - start)


def _finish(request: Request, written: Sequence[WrittenPart], _: Path) -> Contents:
    contents: dict[str, list[bytes]] = {}
    for split in request.manifest.splits:
        shards: list[Json] = []
        for part, files in written:
            if part.split == split and files:
                raw: Json = {
                    "basename": files[0].path.rpartition("/")[2],
                    "bytes": files[0].num_bytes,
                    "hashes": {"sha256": files[0].digest.removeprefix("sha256:")},
                }
                entry = {"samples": part.shard.num_examples, "raw_data": raw, "zip_data": None}
                shards.append({**entry, **_config(request)})
        index: Json = {"version": 2, "shards": shards}
        contents[f"{split}/index.json"] = [json.dumps(index, sort_keys=True).encode("utf-8")]
    names = request.schema.class_names
    return {**contents, **({"labels.txt": [labels_text(names).encode("utf-8")]} if names else {})}


def _path(part: Part) -> str:
    return f"{part.split}/shard.{part.index:05d}.mds"


def _columns(request: Request) -> list[Feature]:
    return sorted(request.schema.features, key=lambda feature: feature.name)


def _config(request: Request) -> dict[str, Json]:
    features = _columns(request)
    encodings: list[Json] = [_encoding(request, feature) for feature in features]
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": ["sha256"],
        "size_limit": None,
        "column_names": [feature.name for feature in features],
        "column_encodings": encodings,
        "column_sizes": [_fixed_size(feature) for feature in features],
    }


def _encoding(request: Request, feature: Feature) -> str:
    if feature.kind == "image":
        return "jpeg" if feature.dtype == "uint8" else "bytes"
    if feature.kind == "mask":
        return "png"
    if feature.kind == "bytes":
        scalar = "bytes" if feature.name in request.binary else "str"
        return scalar if feature.shape == () else "json"
    if feature.shape == ():
        return "int" if feature.kind == "label" else _dtype(feature)
    dims = ",".join(map(str, feature.shape))
    return f"ndarray:{_dtype(feature)}" + ("" if _varies(feature) else f":{dims}")


def _dtype(feature: Feature) -> str:
    return "uint8" if feature.dtype == "bool" else feature.dtype


def _varies(feature: Feature) -> bool:
    # MDS has no fixed shapes without elements
    return feature.is_ragged or 0 in feature.shape


def _fixed_size(feature: Feature) -> int | None:
    """Return the number of bytes that each value has, or None."""
    if feature.kind == "bytes" or feature.is_encoded or _varies(feature):
        return None
    if feature.kind == "label" and feature.shape == ():
        return 8
    return feature.num_elements * ITEM_SIZES[feature.dtype]


def _sample(request: Request, features: Sequence[Feature], values: Mapping[str, Values]) -> bytes:
    data = [_encoded(request, feature, values[feature.name]) for feature in features]
    sizes = [len(each) for feature, each in zip(features, data, strict=True) if _fixed_size(feature) is None]
    return b"".join([np.array(sizes, "<u4").tobytes(), *data])


def _encoded(request: Request, feature: Feature, value: Values) -> bytes:
    if feature.is_encoded:
        return cast("bytes", value)
    if feature.kind == "bytes" and feature.shape == ():
        text_of(request, feature, cast("bytes", value))
        return cast("bytes", value)
    if feature.kind == "bytes":
        texts = [text_of(request, feature, each) for each in cast("Sequence[bytes]", value)]
        return json.dumps(texts).encode("ascii")
    if feature.kind == "label" and feature.shape == ():
        return cast("int", value).to_bytes(8, "little", signed=True)
    array = array_of(feature, value)
    # little-endian on every machine
    content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    if not _varies(feature):
        return content
    largest = max(array.shape)
    code = next(code for code in range(4) if largest < 1 << (8 << code))
    return bytes([array.ndim << 2 | code]) + np.array(array.shape, _SHAPE_DTYPES[code]).tobytes() + content


def _values(request: Request, file: BinaryIO, num_bytes: int) -> dict[str, Values]:
    features, data = _columns(request), file.read(num_bytes)
    sizes = [_fixed_size(feature) for feature in features]
    at = 4 * sizes.count(None)
    lengths = iter(np.frombuffer(data[:at], "<u4").tolist())
    values: dict[str, Values] = {}
    for feature, size in zip(features, sizes, strict=True):
        end = at + (next(lengths) if size is None else size)
        values[feature.name] = _decoded(feature, data[at:end])
        at = end
    return values


def _decoded(feature: Feature, data: bytes) -> Values:
    if feature.is_encoded or (feature.kind == "bytes" and feature.shape == ()):
        return data
    if feature.kind == "bytes":
        return [text.encode("utf-8") for text in json.loads(data)]
    if feature.kind == "label" and feature.shape == ():
        return int.from_bytes(data, "little", signed=True)
    shape: Sequence[int | None] = feature.shape
    if _varies(feature):
        ndim, dtype = data[0] >> 2, np.dtype(_SHAPE_DTYPES[data[0] & 3])
        end = 1 + ndim * dtype.itemsize
        shape, data = np.frombuffer(data[1:end], dtype).tolist(), data[end:]
    array = np.frombuffer(data, np.dtype(feature.dtype).newbyteorder("<")).reshape(
        cast("Sequence[int]", shape)
    )
    return value_of(feature, array)


MDS = Format("mds", "MDS shards for MosaicML Streaming", _problems, _write, _read, _finish)
