"""From the stored values of examples to what is delivered of them, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.loader.examples.content import MAP_SEED, Content, pixels_shape
from tfshards.loader.examples.ops import NUMPY
from tfshards.loader.options.load_options import WEIGHT
from tfshards.loader.reading.damage import PADDING
from tfshards.schemas import Feature, FormatError, OptionsError, Problem
from tfshards.schemas.columns import objects
from tfshards.schemas.index import IntArray as Ints

# Values by name, one for each example.
Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"
# A batch: a dict by feature, a tuple, or the results of the user's function.
Batch: TypeAlias = Any


def processed(content: Content, columns: Columns, epoch: int, numbers: Ints) -> Columns:
    """Return the columns of some examples as they are delivered, with ``WEIGHT`` if they have weights.

    Args:
        content: what is delivered.
        columns: the stored values of ``content.parsed``; a row of ``PADDING`` has the values of any example.
        epoch: the epoch, on which random crops and flips depend.
        numbers: shape ``(n,)`` int64: the numbers of the examples.
    """
    found = {feature.name: columns[feature.name] for feature in content.features}
    if content.by_example:
        found = _by_example(content, found, epoch, numbers)
    if content.adds_weight:
        weights = np.ones(len(numbers), np.float32)
        if content.weighing is not None:
            weights = content.weighing.of(columns[content.weighing.feature.name])
        found[WEIGHT] = np.where(numbers == PADDING, np.float32(0), weights)
    return found


def _by_example(content: Content, columns: Columns, epoch: int, numbers: Ints) -> Columns:
    # Pillow is imported where it is needed
    decode = import_module("tfshards.loader.arrays.decode").decode_image if content.images else None
    draws = content.draws(epoch, numbers)
    rows = []
    for row, number in enumerate(numbers.tolist()):
        values = {name: column[row] for name, column in columns.items()}
        try:
            drawn = {name: each[row] for name, each in draws.items()}
            rows.append(content.decoded(NUMPY, decode, values, drawn))
        except ValueError as error:
            raise FormatError("an example", [Problem(f"example {number}", str(error))]) from error
    if content.user_map is not None:
        seeds = draws[MAP_SEED]
        return {"": objects([content.user_map(row, seed) for row, seed in zip(rows, seeds, strict=True)])}
    return {
        feature.name: _stacked(content, feature, [row[feature.name] for row in rows])
        for feature in content.features
    }


def _stacked(content: Content, feature: Feature, values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return the values of a feature as a column: an array of objects if they are bytes or lists."""
    image = content.images.get(feature.name)
    if image is not None:
        return objects(values) if None in pixels_shape(feature, image) else np.stack(values)
    is_object = feature.is_ragged or feature.holds_strings
    return objects(values) if is_object else np.stack(values)


def joined(parts: Sequence[Columns]) -> Columns:
    """Return the rows of some columns one after another."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def delivered(content: Content, columns: Columns) -> Batch:
    """Return a batch as the user gets it."""
    values = columns if content.user_map is None else _nested([*columns[""]])
    return content.delivered(values, columns[WEIGHT] if content.adds_weight else None)


def _nested(values: Sequence[Any]) -> Batch:
    """Return dicts and tuples of arrays, each stacked over the examples."""
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _nested([each[name] for each in values]) for name in first}
    if isinstance(first, tuple):
        return tuple(_nested(each) for each in zip(*values, strict=True))
    if isinstance(first, (bytes, str)):
        return objects(values)
    if first is None:
        raise OptionsError("map_fn returns None; return the values that go into a batch")
    arrays = [np.asarray(value) for value in values]
    return np.stack(arrays) if len({array.shape for array in arrays}) == 1 else objects(arrays)
