"""The examples of a shard in groups, as both formats write them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.records.frames import RecordError, read_parts
from tfshards.prep.records.shard_file import in_groups
from tfshards.schemas import InputError, Schema, Shard
from tfshards.schemas.columns import Columns, UnparsedError
from tfshards.schemas.companions import require_index
from tfshards.schemas.compression import Compression
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.storage import AnyPath

# Examples that are held in memory together, also by readers of Parquet.
_GROUP_BYTES = 32 << 20
_GROUP_ROWS = 10_000

# The values of a feature in some examples, as ``Columns`` returns them; of text, strings or lists of them.
Column: TypeAlias = "npt.NDArray[Any] | list[str | list[str]]"


class Group(NamedTuple):
    """Some examples: the number of the first one in its shard, their number, and their values."""

    first: int
    num_examples: int
    columns: Mapping[str, Column]


def read_groups(
    root: AnyPath,
    shard: Shard,
    compression: Compression,
    schema: Schema,
    binary: Collection[str],
    check: Callable[[], object],
) -> Iterator[Group]:
    """Yield the examples of a shard in order, and check at the end that the manifest lists them.

    Args:
        root: the dataset.
        shard: its shard.
        compression: how the shard is compressed.
        schema: the features to read.
        binary: features whose byte strings are not text.
        check: is called after each group, and may end the reading by an error.
    """
    path, index = root / shard.path, require_index(root, shard)
    parser, count = Columns(schema.features), 0
    footers: list[bytes] = []

    def records() -> Iterator[bytes]:
        for _, data, ends in read_parts(path, compression, index, np.arange(shard.num_examples)):
            footers.extend(ends)
            yield from data

    for group in in_groups(records(), len, _GROUP_BYTES, _GROUP_ROWS):
        try:
            columns: dict[str, Column] = {**parser.parse_records(group)}
        except UnparsedError as error:
            record = count + error.row
            raise RecordError(path, record, int(index.offsets[record]), str(error)) from None
        for feature in schema.features:
            if feature.is_text and feature.name not in binary:
                columns[feature.name] = _texts(feature.name, columns[feature.name], path, count)
        yield Group(count, len(group), columns)
        count += len(group)
        check()
    checksums = np.frombuffer(b"".join(footers), "<u4")
    if examples_digest(index.lengths - FRAME_OVERHEAD, checksums) != shard.examples_digest:
        raise InputError(
            f"{path} holds other records than dataset.json lists; 'tfshards verify {root} --deep' lists all "
            "damage"
        )


def _texts(name: str, values: Column, path: AnyPath, first: int) -> list[str | list[str]]:
    """Return byte strings, or lists of them, as text; raise InputError if one is not UTF-8."""
    texts: list[str | list[str]] = []
    for record, value in enumerate(values, first):
        try:
            is_one = isinstance(value, bytes)
            texts.append(value.decode() if is_one else [each.decode() for each in np.ravel(value)])
        except UnicodeDecodeError:
            raise InputError(
                f"{path}: {name!r} of record {record} is not UTF-8; give as_bytes=[{name!r}] and a new "
                "directory=, or leave it out with select="
            ) from None
    return texts
