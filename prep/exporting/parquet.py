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
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.exporting.examples import Column, Group
from tfshards.schemas import Feature, Problem, Schema
from tfshards.schemas.json_reader import Json
from tfshards.schemas.schema import UNCOMMON_DTYPES

if TYPE_CHECKING:
    import pyarrow as pa

    Array: TypeAlias = pa.Array
    Type: TypeAlias = pa.DataType


def path(name: str, split: str, number: int, total: int) -> str:
    """Return the path in the directory of one of ``total`` parts; the dataset's ``name`` is not in it."""
    return f"data/{_split_name(split)}-{number:05d}-of-{total:05d}.parquet"


def problems(schema: Schema, binary: Collection[str], splits: Collection[str]) -> list[Problem]:
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


def write(file: Path, schema: Schema, binary: Collection[str], groups: Iterator[Group], first: int) -> None:
    """Write examples to a new file, each group of them as a row group; they do not hold their numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {feature.name: _types(feature, schema, binary) for feature in schema.features}
    described = {name: description for name, (_, description) in types.items()}
    metadata = {"huggingface": json.dumps({"info": {"features": described}})}
    arrow = pa.schema([(name, each) for name, (each, _) in types.items()], metadata)
    # nearly every encoded image is different
    plain = [feature.name for feature in schema.features if not feature.is_encoded]
    with pq.ParquetWriter(file, arrow, use_dictionary=plain, write_statistics=plain) as writer:
        for group in groups:
            columns = [
                _column(each, types[each.name][0], group.columns[each.name]) for each in schema.features
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=arrow))


def _types(feature: Feature, schema: Schema, binary: Collection[str]) -> tuple[Type, Json]:
    """Return the Arrow type of a feature, and its description as ``Features.to_dict`` returns it."""
    import pyarrow as pa

    if feature.is_encoded:
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())]), {"_type": "Image"}
    if feature.is_label and feature.shape == () and schema.class_names:
        # -1 means no class
        return pa.int64(), {"names": list(schema.class_names), "_type": "ClassLabel"}
    if feature.is_text:
        arrow = pa.binary() if feature.name in binary else pa.string()
    else:
        arrow = pa.from_numpy_dtype(np.dtype(feature.dtype))
    described: Json = {"dtype": str(arrow).replace("halffloat", "float16"), "_type": "Value"}
    for dim in reversed(feature.shape):
        arrow = pa.list_(arrow, dim or -1)
        described = {"feature": described, "length": dim or -1, "_type": "Sequence"}
    return arrow, described


def _split_name(name: str) -> str:
    return name.replace("-", "_")


def _column(feature: Feature, arrow: Type, values: Column) -> Array:
    """Return the values of a feature as an array of an Arrow type."""
    import pyarrow as pa

    if feature.is_encoded:
        parts = [pa.array(values, pa.binary()), pa.nulls(len(values), pa.string())]
        return pa.StructArray.from_arrays(parts, fields=[*arrow])
    for _ in feature.shape:
        arrow = arrow.value_type
    if feature.is_text:
        # arrays of bytes, or lists of text
        flat: object = values if feature.shape == () else [*chain.from_iterable(map(np.ravel, values))]
    else:
        flat = np.concatenate([*map(np.ravel, values)]) if feature.is_ragged else np.ravel(values)
    shape = cast("tuple[int, ...]", feature.shape)
    if not feature.is_ragged:
        return _nested(pa.array(flat, arrow), shape, len(values))
    lengths = [*map(len, values)]
    return pa.ListArray.from_arrays(
        _offsets(lengths), _nested(pa.array(flat, arrow), shape[1:], sum(lengths))
    )


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
