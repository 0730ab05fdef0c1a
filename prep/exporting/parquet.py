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
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.exporting.format import Content, Example, Format, Part
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
        return f"data/{part.split}-{part.index:05d}-of-{part.count:05d}.parquet"

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
        types = {feature.name: self._type(feature) for feature in features}
        described = {feature.name: self._described(feature) for feature in features}
        metadata = {"huggingface": json.dumps({"info": {"features": described}})}
        schema = pa.schema([*types.items()], metadata)
        # nearly every encoded image is different
        plain = [feature.name for feature in features if not feature.is_encoded]
        with pq.ParquetWriter(path, schema, use_dictionary=plain, write_statistics=plain) as writer:
            for rows in in_groups(examples, lambda each: each.num_bytes, _GROUP_BYTES, _GROUP_ROWS):
                columns = [
                    self._column(feature, types[feature.name], [each.values[feature.name] for each in rows])
                    for feature in features
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    def others(self) -> Mapping[str, bytes]:
        """Return the dataset card, which names the files of each split."""
        manifest = self.manifest
        files: list[Json] = [
            {"split": _split_name(name), "path": f"data/{name}-?????-of-*.parquet"}
            for name in manifest.splits
        ]
        # JSON is YAML
        card = json.dumps([{"config_name": "default", "data_files": files}])
        lines = [
            *("---", f"configs: {card}", "---", "", f"# {manifest.name}", ""),
            *(f"Exported by tfshards, build {manifest.build_id}.", "", "| split | examples |", "|---|---|"),
            *(f"| {name} | {split.num_examples:,} |" for name, split in manifest.splits.items()),
        ]
        return {"README.md": "\n".join([*lines, ""]).encode("utf-8")}

    def _is_class(self, feature: Feature) -> bool:
        return feature.kind == "label" and feature.shape == () and bool(self.schema.class_names)

    def _described(self, feature: Feature) -> Json:
        """Return the type of a feature as ``Features.to_dict`` of ``datasets`` has it."""
        if feature.is_encoded:
            return {"_type": "Image"}
        if self._is_class(feature):
            return {"names": list(self.schema.class_names), "_type": "ClassLabel"}
        dtype = str(self._item_type(feature)).replace("halffloat", "float16")
        described: Json = {"dtype": dtype, "_type": "Value"}
        for dim in reversed(feature.shape):
            described = {"feature": described, "length": dim or -1, "_type": "Sequence"}
        return described

    def _item_type(self, feature: Feature) -> Type:
        import pyarrow as pa

        if feature.kind == "bytes":
            return pa.binary() if feature.name in self.binary else pa.string()
        return pa.int64() if self._is_class(feature) else pa.from_numpy_dtype(np.dtype(feature.dtype))

    def _type(self, feature: Feature) -> Type:
        import pyarrow as pa

        if feature.is_encoded:
            return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        found = self._item_type(feature)
        for dim in reversed(feature.shape):
            found = pa.list_(found, dim or -1)
        return found

    def _column(self, feature: Feature, type_: Type, values: Sequence[Content]) -> Array:
        import pyarrow as pa

        if feature.is_encoded:
            parts = [pa.array(values, pa.binary()), pa.nulls(len(values), pa.string())]
            return pa.StructArray.from_arrays(parts, fields=[*type_])
        item = self._item_type(feature)
        if feature.kind == "bytes":
            lists = [[value] if feature.shape == () else value for value in cast("list[list[str]]", values)]
            flat, sizes = pa.array([*chain.from_iterable(lists)], item), [*map(len, lists)]
        else:
            arrays = [np.ravel(self.array(feature, value)) for value in values]
            flat, sizes = pa.array(np.concatenate(arrays)).cast(item), [array.size for array in arrays]
        if not feature.is_ragged:
            return _nested(flat, cast("tuple[int, ...]", feature.shape), len(values))
        lengths = np.array(sizes) // feature.row_elements
        rows = _nested(flat, cast("tuple[int, ...]", feature.shape[1:]), int(lengths.sum()))
        return pa.ListArray.from_arrays(_offsets(lengths), rows)


def _split_name(name: str) -> str:
    return name.replace("-", "_")


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
