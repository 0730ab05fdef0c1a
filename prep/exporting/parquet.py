"""Export to Parquet with the metadata of Hugging Face ``datasets``: images, class names, a dataset card.

Format: https://parquet.apache.org/docs/file-format, written by pyarrow. The features are in the schema's
metadata under ``huggingface``, as ``datasets`` writes it (``Features.to_dict``), and ``README.md`` lists the
splits (https://huggingface.co/docs/hub/datasets-manual-configuration): ``datasets.load_dataset(DIR)``.

| feature | column | type of ``datasets`` |
|---|---|---|
| image, mask | struct of ``bytes`` and ``path``, which is null | ``Image`` |
| scalar label with class names | int64; -1 means no class | ``ClassLabel`` |
| byte string | string, or binary if some are not UTF-8 | ``Value`` |
| number | its dtype | ``Value`` |
| numbers | lists, of fixed size where the shape is fixed | ``List`` of ``List`` … |
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.exporting.format import Format, dtype_problems
from tfshards.prep.exporting.request import (
    ExportedExample,
    ExportPart,
    ExportRequest,
    array_of,
    text_of,
)
from tfshards.prep.records.example import Values
from tfshards.prep.records.shard_file import in_groups
from tfshards.schemas import Feature, Problem
from tfshards.schemas.json_reader import Json
from tfshards.schemas.schema import UNCOMMON_DTYPES

if TYPE_CHECKING:
    import pyarrow as pa

    Array: TypeAlias = pa.Array
    Type: TypeAlias = pa.DataType

# Readers hold a row group in memory.
_GROUP_BYTES = 32 << 20
_GROUP_ROWS = 10_000


def _problems(request: ExportRequest) -> list[Problem]:
    problems = dtype_problems(request, UNCOMMON_DTYPES, ", which Parquet does not have")
    names = Counter(map(_split_name, request.manifest.splits))
    for name in request.manifest.splits:
        if names[_split_name(name)] > 1:
            what = f"and another split are both {_split_name(name)!r} for datasets, which has no '-' in names"
            problems.append(Problem(f"splits.{name}", what))
    return problems


def _write(
    request: ExportRequest, part: ExportPart, folder: Path, examples: Iterable[ExportedExample]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, features = _schema(request), request.schema.features
    (folder / "data").mkdir()
    # nearly every value of these is different
    plain = [feature.name for feature in features if not feature.is_encoded]
    with pq.ParquetWriter(
        folder / _path(part), schema, use_dictionary=plain, write_statistics=plain
    ) as writer:
        for rows in in_groups(examples, lambda example: len(example.data), _GROUP_BYTES, _GROUP_ROWS):
            columns = [
                _column(request, feature, [example.values[feature.name] for example in rows])
                for feature in features
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _finish(request: ExportRequest) -> Mapping[str, bytes]:
    files: list[Json] = [
        {"split": _split_name(name), "path": f"data/{name}-?????-of-*.parquet"}
        for name in request.manifest.splits
    ]
    card: Json = [{"config_name": "default", "data_files": files}]
    rows = [f"| {name} | {split.num_examples:,} |" for name, split in request.manifest.splits.items()]
    # JSON is YAML
    text = (
        f"---\nconfigs: {json.dumps(card)}\n---\n\n# {request.manifest.name}\n\n"
        f"Exported by tfshards, build {request.manifest.build_id}.\n\n| split | examples |\n|---|---|"
    )
    return {"README.md": "\n".join([text, *rows, ""]).encode("utf-8")}


def _split_name(name: str) -> str:
    return name.replace("-", "_")


def _path(part: ExportPart) -> str:
    return f"data/{part.split}-{part.name}.parquet"


def _schema(request: ExportRequest) -> pa.Schema:
    import pyarrow as pa

    described = {feature.name: _described(request, feature) for feature in request.schema.features}
    metadata = {"huggingface": json.dumps({"info": {"features": described}})}
    fields = [(feature.name, _type(request, feature)) for feature in request.schema.features]
    return pa.schema(fields, metadata)


def _described(request: ExportRequest, feature: Feature) -> Json:
    """Return the type of a feature as ``Features.to_dict`` of ``datasets`` has it."""
    if feature.is_encoded:
        return {"_type": "Image"}
    if _is_class(request, feature):
        return {"names": list(request.schema.class_names), "_type": "ClassLabel"}
    described: Json = {
        "dtype": str(_item_type(request, feature)).replace("halffloat", "float16"),
        "_type": "Value",
    }
    for dim in reversed(feature.shape):
        described = {"feature": described, "length": dim or -1, "_type": "Sequence"}
    return described


def _is_class(request: ExportRequest, feature: Feature) -> bool:
    return feature.kind == "label" and feature.shape == () and bool(request.schema.class_names)


def _item_type(request: ExportRequest, feature: Feature) -> Type:
    import pyarrow as pa

    if feature.kind == "bytes":
        return pa.binary() if feature.name in request.binary else pa.string()
    return pa.int64() if _is_class(request, feature) else pa.from_numpy_dtype(np.dtype(feature.dtype))


def _type(request: ExportRequest, feature: Feature) -> Type:
    import pyarrow as pa

    if feature.is_encoded:
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    found = _item_type(request, feature)
    for dim in reversed(feature.shape):
        found = pa.list_(found, dim or -1)
    return found


def _column(request: ExportRequest, feature: Feature, values: Sequence[Values]) -> Array:
    import pyarrow as pa

    if feature.is_encoded:
        fields = list(_type(request, feature))
        content = pa.array(values, pa.binary())
        return pa.StructArray.from_arrays([content, pa.nulls(len(values), pa.string())], fields=fields)
    item = _item_type(request, feature)
    if feature.kind == "bytes":
        lists = [[value] if feature.shape == () else value for value in cast("list[list[bytes]]", values)]
        texts = [text_of(request, feature, cast("bytes", each)) for value in lists for each in value]
        flat, sizes = pa.array(texts, item), [len(value) for value in lists]
    else:
        arrays = [np.ravel(array_of(feature, value)) for value in values]
        flat, sizes = pa.array(np.concatenate(arrays)).cast(item), [array.size for array in arrays]
    if not feature.is_ragged:
        return _nested(flat, cast("tuple[int, ...]", feature.shape), len(values))
    lengths = np.array(sizes) // feature.row_elements
    rows = _nested(flat, cast("tuple[int, ...]", feature.shape[1:]), int(lengths.sum()))
    return pa.ListArray.from_arrays(_offsets(lengths), rows)


def _offsets(lengths: npt.ArrayLike) -> Array:
    import pyarrow as pa

    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _nested(flat: Array, shape: tuple[int, ...], rows: int) -> Array:
    """Return ``rows`` lists of lists of the shape, whose elements are in ``flat``."""
    import pyarrow as pa

    for axis in reversed(range(len(shape))):
        if shape[axis]:
            flat = pa.FixedSizeListArray.from_arrays(flat, shape[axis])
        else:
            # a list of fixed size 0 would not know how many there are
            flat = pa.ListArray.from_arrays(_offsets([0] * (rows * math.prod(shape[:axis]))), flat)
    return flat


PARQUET = Format("parquet", "Parquet files for Hugging Face datasets", _problems, _write, _finish, "pyarrow")
