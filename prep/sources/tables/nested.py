"""Structs and lists of structs as columns ``NAME/FIELD``, and the class names of Hugging Face's metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.tables.features import is_bytes_type, is_list_type, of_lengths

# The fields of Hugging Face's Image.
_IMAGE_FIELDS = ({"bytes", "path"}, {"bytes"})
# Types of Hugging Face that hold a list of "feature".
_LISTS = ("Sequence", "List", "LargeList", "Array")


def flattened(table: pa.Table) -> pa.Table:
    """Return a table in which each field of a struct, or of a list of structs, is a column ``NAME/FIELD``.

    A struct of the bytes and the path of an image stays one column. A missing struct is one whose fields are
    missing; in a list of structs it has no items.
    """
    columns = [
        pair
        for name, column in zip(table.column_names, table.columns, strict=True)
        for pair in _flat(name, column)
    ]
    names = [name for name, _ in columns]
    return pa.table([column for _, column in columns], names) if names != table.column_names else table


def is_image_struct(kind: pa.DataType) -> bool:
    """Return whether a type is that of Hugging Face's images: a struct of encoded bytes, and of a path."""
    if not pa.types.is_struct(kind) or {field.name for field in kind} not in _IMAGE_FIELDS:
        return False
    return all(is_bytes_type(field.type) or pa.types.is_null(field.type) for field in kind)


def is_along_rows(name: str, table: pa.Table) -> bool:
    """Return whether a column is a field next to a list of lists, such as the classes of boxes."""
    struct, slash, _ = name.rpartition("/")
    return bool(slash) and any(
        field.name.startswith(f"{struct}/")
        and is_list_type(field.type)
        and is_list_type(field.type.value_type)
        for field in table.schema
    )


def classes_in(metadata: Mapping[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """Return the class names by column that Hugging Face's datasets wrote into the metadata of a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return dict(_classes("", features))


def _flat(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    kind = column.type
    if pa.types.is_struct(kind) and kind.num_fields and not is_image_struct(kind):
        for field, values in zip(kind, column.flatten(), strict=True):
            yield from _flat(f"{name}/{field.name}", values)
    elif is_list_type(kind) and pa.types.is_struct(kind.value_type) and not is_image_struct(kind.value_type):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        for field, values in zip(kind.value_type, pc.list_flatten(column).flatten(), strict=True):
            yield from _flat(f"{name}/{field.name}", of_lengths(lengths, values))
    else:
        yield name, column


def _classes(name: str, feature: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(feature, list):
        for item in feature[:1]:
            yield from _classes(name, item)
        return
    if not isinstance(feature, dict):
        return
    kind = feature.get("_type")
    if kind == "ClassLabel":
        names = feature.get("names")
        if isinstance(names, list) and names:
            yield name, tuple(map(str, names))
    elif kind in _LISTS or (kind is None and set(feature) == {"feature"}):
        yield from _classes(name, feature.get("feature"))
    elif kind is None:
        for field, inner in feature.items():
            yield from _classes(f"{name}/{field}" if name else field, inner)
