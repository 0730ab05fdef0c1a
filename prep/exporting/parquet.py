"""Export to Parquet with the metadata of Hugging Face ``datasets``: images, class names, splits.

Format: https://parquet.apache.org/docs/file-format, written by pyarrow. The features are in the schema's
metadata under ``huggingface``, as ``datasets`` writes it (``Features.to_dict``), and the names of the files
are those from which it derives splits (https://huggingface.co/docs/datasets/repository_structure).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.exporting.format import Content, Example, Format, Part, array_of
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


class Parquet(Format):
    """Parquet files, which each hold the examples of one shard."""

    name = "parquet"
    text = "Parquet files for Hugging Face datasets"
    package = "pyarrow"

    def path(self, part: Part) -> str:
        """Return the path of a part in the directory."""
        return f"data/{_split_name(part.split)}-{part.number:05d}-of-{part.total:05d}.parquet"

    def problems(self) -> list[Problem]:
        """Return what the format cannot hold of the dataset."""
        problems = self.dtype_problems(UNCOMMON_DTYPES, ", which Parquet does not have")
        names = Counter(map(_split_name, self.manifest.splits))
        for name in self.manifest.splits:
            if names[_split_name(name)] > 1:
                both = f"and another split are both {_split_name(name)!r}"
                problems.append(Problem(f"splits.{name}", f"{both} for datasets, which has no '-' in names"))
        return problems

    def write(self, path: Path, examples: Iterator[Example]) -> None:
        """Write examples to a new file."""
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
            for rows in in_groups(examples, lambda each: each.num_bytes, _GROUP_BYTES, _GROUP_ROWS):
                columns = [
                    _column(feature, types[feature.name][0], [each.values[feature.name] for each in rows])
                    for feature in features
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _types(self, feature: Feature) -> tuple[Type, Json]:
        """Return the Arrow type of a feature, and its description as ``Features.to_dict`` returns it."""
        import pyarrow as pa

        if feature.is_encoded:
            return pa.struct([("bytes", pa.binary()), ("path", pa.string())]), {"_type": "Image"}
        if feature.kind == "label" and feature.shape == () and self.schema.class_names:
            # -1 means no class
            return pa.int64(), {"names": list(self.schema.class_names), "_type": "ClassLabel"}
        if feature.kind == "bytes":
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


def _column(feature: Feature, arrow: Type, values: Sequence[Content]) -> Array:
    """Return the values of a feature as an array of an Arrow type."""
    import pyarrow as pa

    if feature.is_encoded:
        parts = [pa.array(values, pa.binary()), pa.nulls(len(values), pa.string())]
        return pa.StructArray.from_arrays(parts, fields=[*arrow])
    for _ in feature.shape:
        arrow = arrow.value_type
    if feature.kind == "bytes":
        lists = [[value] if feature.shape == () else value for value in cast("list[list[str]]", values)]
        flat, sizes = pa.array([*chain.from_iterable(lists)], arrow), [*map(len, lists)]
    else:
        arrays = [np.ravel(array_of(feature, value)) for value in values]
        flat, sizes = pa.array(np.concatenate(arrays)).cast(arrow), [array.size for array in arrays]
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
