"""Export to Parquet with the metadata of Hugging Face ``datasets``: images, class names, splits.

Format: https://parquet.apache.org/docs/file-format, written by pyarrow. The features are in the schema's
metadata under ``huggingface``, as ``datasets`` writes it (``Features.to_dict``), and the names of the files
are those from which it derives splits (https://huggingface.co/docs/datasets/repository_structure).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tfshards.schemas import Feature, Problem, Schema
from tfshards.schemas.columns import Columns, Values
from tfshards.schemas.json_reader import Json
from tfshards.schemas.schema import UNCOMMON_DTYPES

if TYPE_CHECKING:
    import pyarrow as pa


def path(name: str, split: str, number: int, total: int) -> str:
    """Return the path in the directory of one of ``total`` parts; the dataset's ``name`` is not in it."""
    return f"data/{_split_name(split)}-{number:05d}-of-{total:05d}.parquet"


def problems(schema: Schema, splits: Collection[str]) -> list[Problem]:
    """Return what Parquet, or ``datasets``, cannot hold of a dataset."""
    found = [
        Problem(each.name, f"is {each.dtype}, which Parquet does not have")
        for each in schema.features
        if each.dtype in UNCOMMON_DTYPES and not each.is_encoded
    ]
    names = Counter(map(_split_name, splits))
    for split in splits:
        if names[_split_name(split)] > 1:
            both = f"and another split are both {_split_name(split)!r}"
            found.append(Problem(f"splits.{split}", f"{both} for datasets, which has no '-' in names"))
    return found


def write(file: Path, schema: Schema, groups: Iterator[Values], first: int) -> None:
    """Write examples to a new file, each group of them as a row group; they do not hold their numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def batch(columns: Values) -> pa.RecordBatch:
        arrays = [_array(each, columns[each.name]) for each in schema.features]
        return pa.RecordBatch.from_arrays(arrays, schema.names)

    empty = batch(Columns(schema.features).parse_records([])).schema
    described = {
        each.name: _description(each, schema, empty.field(each.name).type) for each in schema.features
    }
    arrow = empty.with_metadata({"huggingface": json.dumps({"info": {"features": described}})})
    # nearly every encoded image is different
    plain = [feature.name for feature in schema.features if not feature.is_encoded]
    with pq.ParquetWriter(file, arrow, use_dictionary=plain, write_statistics=plain) as writer:
        for columns in groups:
            writer.write_batch(batch(columns))


def _description(feature: Feature, schema: Schema, arrow: pa.DataType) -> Json:
    """Return what ``Features.to_dict`` returns of a feature whose column has an Arrow type."""
    if feature.is_encoded:
        return {"_type": "Image"}
    if feature.is_label and feature.shape == () and schema.class_names:
        # -1 means no class
        return {"names": list(schema.class_names), "_type": "ClassLabel"}
    for _ in feature.shape:
        arrow = arrow.value_type
    described: Json = {"dtype": str(arrow).replace("halffloat", "float16"), "_type": "Value"}
    for dim in reversed(feature.shape):
        described = {"feature": described, "length": dim or -1, "_type": "Sequence"}
    return described


def _array(feature: Feature, values: npt.NDArray[Any]) -> pa.Array:
    """Return the values of a feature in some examples as an array of its Arrow type."""
    import pyarrow as pa

    if feature.is_encoded:
        parts = [pa.array(values, pa.binary()), pa.nulls(len(values), pa.string())]
        return pa.StructArray.from_arrays(parts, ["bytes", "path"])
    if feature.is_text:
        flat: object = values if feature.shape == () else [*chain.from_iterable(map(np.ravel, values))]
        array = pa.array(flat, pa.string())
    else:
        rows = [np.zeros(0, feature.dtype), *map(np.ravel, values)] if feature.is_ragged else []
        numbers = np.concatenate(rows) if rows else np.ravel(values)
        array = pa.array(numbers, pa.from_numpy_dtype(np.dtype(feature.dtype)))
    lengths = [*map(len, values)] if feature.is_ragged else [1] * len(values)
    inner = cast("tuple[int, ...]", feature.shape[feature.is_ragged :])
    for axis in reversed(range(len(inner))):
        if inner[axis]:
            array = pa.FixedSizeListArray.from_arrays(array, inner[axis])
        else:
            # a list of fixed size 0 would not know how many there are
            count = sum(lengths) * math.prod(inner[:axis])
            array = pa.ListArray.from_arrays(pa.array([0] * (count + 1), pa.int32()), array)
    if feature.is_ragged:
        array = pa.ListArray.from_arrays(pa.array([*accumulate(lengths, initial=0)], pa.int32()), array)
    return array


def _split_name(name: str) -> str:
    return name.replace("-", "_")
