"""Read examples from any Python iterable: their keys, their values by name, and their splits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from tfshards.prep.sources.keys import number_key, to_text
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.names import name_fault

# The value that holds the split where the splits are iterables of their own.
SPLIT = "__split__"
# What WebDataset calls an integer, and a document, in samples that it has not decoded.
_INTEGERS = ("cls", "cls2", "index", "inx", "id")


class Example(NamedTuple):
    """One example: its key, whether that is its number, and its values by name."""

    key: str
    is_numbered: bool
    values: dict[str, object]


def read_examples(given: object) -> Iterator[Example]:
    """Yield the examples of an iterable, or of each iterable in a mapping of them by split.

    Raises:
        InputError: an example is not a dict, a key is not text, or the name of a split is not valid.
        OptionsError: ``given`` cannot be iterated over.
    """
    if not isinstance(given, Mapping):
        yield from _keyed(given)
        return
    for split, part in given.items():
        fault = name_fault(split) if isinstance(split, str) else f"{split!r} must be a string"
        if fault:
            raise OptionsError("examples-split-name", fault=fault)
        for key, is_numbered, values in _keyed(part, f" of the split {split!r}"):
            # the same key may be in several splits
            yield Example(f"{split}/{key}", is_numbered, {**values, SPLIT: str(split)})


def class_names_in(given: object, name: str) -> tuple[str, ...] | None:
    """Return the class names that a Hugging Face dataset has for a feature, or None."""
    first = next(iter(given.values()), None) if isinstance(given, Mapping) else given
    features = getattr(first, "features", None)
    names = getattr(features.get(name), "names", None) if isinstance(features, Mapping) else None
    return tuple(names) if isinstance(names, (list, tuple)) and names else None


def length_of(given: object) -> int | None:
    """Return the number of examples, if it is known before they are read."""
    parts = [*given.values()] if isinstance(given, Mapping) else [given]
    try:
        return sum(map(len, cast("list[Any]", parts)))
    except TypeError:
        # tf.data has the method, and raises where the number is not known
        return None


def _keyed(given: object, where: str = "") -> Iterator[Example]:
    numbers = count()
    for item in _items(given, where):
        key, values = item if isinstance(item, (tuple, list)) and len(item) == 2 else (None, item)
        if not isinstance(values, Mapping):
            raise InputError("example-type", number=next(numbers), where=where, kind=_kind(item))
        values = dict(values)
        if "__key__" in values:
            values = _of_webdataset(values)
        given_key = values.pop("key", None) if key is None else key
        number = next(numbers)
        if isinstance(given_key, bytes):
            given_key = to_text(given_key)
        if given_key is not None and not isinstance(given_key, str):
            raise InputError("element-key-type", key=given_key, kind=type(given_key).__name__)
        yield Example(number_key(number) if given_key is None else given_key, given_key is None, values)


def _items(given: Any, where: str) -> Iterable[object]:  # noqa: ANN401 -- other packages are not imported
    if callable(given) and not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        given = given()
    if hasattr(given, "as_numpy_iterator"):
        # of tf.data
        return cast("Iterable[object]", given.as_numpy_iterator())
    if hasattr(given, "itertuples") and hasattr(given, "columns"):
        return _rows(given)
    if hasattr(given, "cast_column"):
        given = _undecoded(given)
    is_text = isinstance(given, (str, bytes, PurePath))
    if hasattr(given, "__iter__") and not is_text:
        return cast("Iterable[object]", given)
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not is_text:
        return (given[number] for number in range(len(given)))
    raise OptionsError("examples-not-iterable", where=where, kind=_kind(given))


def _rows(frame: Any) -> Iterator[dict[str, object]]:  # noqa: ANN401
    """Yield the rows of a pandas DataFrame; the values keep the dtypes of their columns."""
    names = [str(name) for name in frame.columns]
    columns = [frame.iloc[:, number].to_numpy() for number in range(len(names))]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError("two-features", name=twice)
    for name, kind, missing in zip(names, frame.dtypes, frame.isna().sum(), strict=True):
        # of floating point numbers, NaN is a value
        if missing and kind.kind != "f":
            raise InputError("example-missing", name=name, missing=int(missing))
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _undecoded(dataset: Any) -> Any:  # noqa: ANN401
    """Return a Hugging Face dataset whose images are the bytes of their files, where it would decode them."""
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping) or (getattr(dataset, "format", None) or {}).get("type"):
        # the user has asked for other values
        return dataset
    for name, feature in features.items():
        if type(feature).__name__ == "Image" and feature.decode and not feature.mode:
            dataset = dataset.cast_column(name, type(feature)(decode=False))
    return dataset


def _of_webdataset(sample: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a sample of WebDataset by extension, and its key as ``key``."""
    values: dict[str, object] = {"key": sample["__key__"]}
    for name, value in sample.items():
        extension = name.rpartition(".")[2]
        if name.startswith("__"):
            continue
        if isinstance(value, bytes) and extension in _INTEGERS:
            text = value.decode("utf-8").strip()
            value = int(text) if text.isdecimal() else text
        elif isinstance(value, bytes) and extension == "json":
            value = json.loads(value)
        values[name] = value
    return values


def _kind(value: object) -> str:
    kind = type(value).__name__
    return f"{kind} of {len(value)}" if isinstance(value, (tuple, list)) else kind
