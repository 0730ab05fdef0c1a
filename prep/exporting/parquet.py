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

from tfshards.prep.exporting.format import Column, Examples, Format
from tfshards.schemas import Feature, Problem
from tfshards.schemas.json_reader import Json
from tfshards.schemas.schema import UNCOMMON_DTYPES

if TYPE_CHECKING:
    import pyarrow as pa

    Array: TypeAlias = pa.Array
    Type: TypeAlias = pa.DataType


class Parquet(Format):
    """Parquet files, which each hold the examples of one shard."""

    name = "parquet"
    text = "Parquet files for Hugging Face datasets"
    package = "pyarrow"

    def path(self, split: str, number: int, total: int) -> str:
        """Return the path in the directory of a part, given its split, and its number among ``total``."""
        return f"data/{_split_name(split)}-{number:05d}-of-{total:05d}.parquet"

    def problems(self, splits: Collection[str]) -> list[Problem]:
        """Return what the format cannot hold of a dataset with these splits."""
        problems = self.dtype_problems(UNCOMMON_DTYPES, ", which Parquet does not have")
        names = Counter(map(_split_name, splits))
        for split in splits:
            if names[_split_name(split)] > 1:
                both = f"and another split are both {_split_name(split)!r}"
                problems.append(Problem(f"splits.{split}", f"{both} for datasets, which has no '-' in names"))
        return problems

    def write(self, path: Path, groups: Iterator[Examples]) -> None:
        """Write examples to a new file, each group of them as a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        features = self.schema.features
        types = {feature.name: self._types(feature) for feature in features}
        described = {name: description for name, (_, description) in types.items()}
        metadata = {"huggingface": json.dumps({"info": {"features": described}})}
        schema = pa.schema([(name, arrow) for name, (arrow, _) in types.items()], metadata)
        # nearly every encoded image is different
        plain = [feature.name for feature in features if not feature.is_encoded]
        with pq.ParquetWriter(path, schema, use_dictionary=plain, write_statistics=plain) as writer:
            for group in groups:
                columns = [_column(each, types[each.name][0], group.columns[each.name]) for each in features]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _types(self, feature: Feature) -> tuple[Type, Json]:
        """Return the Arrow type of a feature, and its description as ``Features.to_dict`` returns it."""
        import pyarrow as pa

        if feature.is_encoded:
            return pa.struct([("bytes", pa.binary()), ("path", pa.string())]), {"_type": "Image"}
        if feature.is_label and feature.shape == () and self.schema.class_names:
            # -1 means no class
            return pa.int64(), {"names": list(self.schema.class_names), "_type": "ClassLabel"}
        if feature.is_text:
            arrow = pa.binary() if feature.name in self.binary else pa.string()
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
