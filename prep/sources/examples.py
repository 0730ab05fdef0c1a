"""``Examples``: the source of any Python iterable, which is read once into files."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.progress.bars import Display
from tfshards.prep.records.example import Values
from tfshards.prep.sources.elements import Elements, Form, check_same, encode_key, warnings_of
from tfshards.prep.sources.features import TEXT
from tfshards.prep.sources.image_paths import ImageFiles
from tfshards.prep.sources.keys import groups_of_keys, number_key, to_bytes, to_text
from tfshards.prep.sources.labels import key_column
from tfshards.prep.sources.staged import Rows, WideWriter, stage
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.schemas import Feature, InputError, OptionsError
from tfshards.schemas.names import name_fault
from tfshards.schemas.sizes import size

# What a batch of the staged file holds.
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 1024
_ARROW = {"bytes": TEXT, "int64": pa.int64(), "float": pa.float32()}


@dataclass(frozen=True)
class Examples:
    """The examples of any Python iterable: dicts of values by name, or pairs ``(key, dict)``.

    The iterable is a list, a generator, an object with ``__len__`` and ``__getitem__`` such as a dataset of
    PyTorch, a Hugging Face ``Dataset``, a ``tf.data.Dataset`` of dicts, or anything else that Python iterates
    over. A function without arguments is called and returns it, so that it can be read again. A mapping by
    the names of splits, such as a ``DatasetDict``, has one for each split.

    Values are arrays, tensors, numbers, booleans, text, ``bytes``, lists, and dicts, whose fields become
    ``NAME/FIELD``. An image is an encoded image as ``bytes``, a path, a picture of Pillow, an array of
    pixels, or a dict ``{"bytes": ..., "path": ...}``; pictures and pixels are stored as PNG.

    The first example and the roles decide which features there are; all examples have the same ones. Where
    the first example has a floating point number of Python, or a list of them, others may have integers.

    The key of an example is the one of the pair, or the value with the role ``key``, or else its number, from
    ``0000000000``; in a mapping by split it begins with ``SPLIT/``. The iterable is read once, into files in
    the build area of the dataset, so that it may be larger than memory.

    Attributes:
        examples: the iterable, or a mapping of iterables by split.
        roles: role of each value whose name does not decide it, such as ``{"photo": "image", "s": "mask"}``.
            ``file_name``, ``image``, ``label``, ``split`` and ``key`` need none; other values are stored as
            they are.
        images: how images are checked, converted and stored.
        class_names: class names in label order; by default the sorted names in the data.
        outside_boxes: what to do about boxes and keypoints outside of their image: ``reject``, ``clip`` or
            ``keep``.
        boxes_in: whether boxes and keypoints of turned images refer to the pixels in the ``file`` or to the
            ``upright`` image.

    Raises:
        OptionsError: a role is unknown, or two values have a role that only one may have.
    """

    examples: Iterable[object] | Mapping[str, Any] | Callable[[], Iterable[object]]
    roles: Mapping[str, str] = field(default_factory=dict)
    images: ImageOptions = field(default_factory=ImageOptions)
    class_names: Sequence[str] | None = None
    outside_boxes: Outside = "reject"
    boxes_in: Reference | None = None

    def __post_init__(self) -> None:
        self._elements()

    def location(self) -> None:
        """Return None, because there is no folder of the examples."""
        return

    def with_class_names(self, names: Sequence[str]) -> Examples:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    def _elements(self) -> Elements:
        return Elements(
            "examples", self.roles, self.images, self.class_names, self.outside_boxes, self.boxes_in
        )

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> StagedReader:
        """Return a reader of the examples, after reading them into ``folder``.

        Args:
            folder: an empty folder.
            group_by: a regular expression with one group, for the keys.
            preview: read the examples, but write nothing.

        Raises:
            InputError: there are no examples, they differ in their names, dtypes or shapes, a value cannot be
                stored, or a key is repeated.
        """
        reading = _Reading(self._elements(), WideWriter(None if preview else folder))
        started = time.monotonic()
        with Display("reading examples", _length_of(self.examples), "examples") as display:
            for example in _read(self.examples):
                reading.add(*example)
                display.advance(1, size(reading.num_bytes))
                if display.is_due:
                    rate = len(reading.keys) / (time.monotonic() - started)
                    display.report(len(reading.keys), rate, reading.num_bytes)
        splits = [*self.examples] if isinstance(self.examples, Mapping) else []
        reader = stage(reading.rows(splits, group_by), folder, preview=preview)
        return replace(reader, staged=replace(reader.listing(), is_numbered=reading.is_numbered))


class _Reading:
    """Reads examples: their values into a file, and into memory what the staged form needs of all of them."""

    def __init__(self, elements: Elements, writer: WideWriter) -> None:
        self._elements, self._writer = elements, writer
        self._form: Form | None = None
        self._batch: list[Sequence[Values | None]] = []
        self._batch_bytes = self.num_bytes = 0
        self._labels: list[int | str | None] = []
        self._splits: list[bytes] = []
        self.keys: list[bytes] = []
        self.is_numbered = False

    def add(self, number: int, split: str, key: object, values: Mapping[str, object]) -> None:
        """Read an example; errors name its key, or its number.

        Args:
            number: its number in its iterable.
            split: name of its iterable in a mapping of them; otherwise empty.
            key: the key of the pair; None without one.
            values: values by name.
        """
        shown = number_key(number) if key is None else key if isinstance(key, str) else repr(key)
        try:
            encoded = self._elements.encode(values, self._form.features if self._form else ())
        except InputError as error:
            raise InputError(f"{shown}: {error}") from None
        form = encoded.form
        if self._form is None:
            self._form = form
            self._elements.check(form)
            for role, given in (("split", split or None), ("key", key)):
                if given is not None and form.has_role(role):
                    raise InputError(
                        f"{shown}: the {role} is given, and a value has the role {role}, too || give the "
                        "value the role value or drop"
                    )
        elif form != self._form:
            check_same(self._form, form, to_text(self.keys[0]), shown)
        if form.has_role("key"):
            key = encoded.key
        elif key is None:
            self.is_numbered, key = True, shown
        self.keys.append((to_bytes(f"{split}/") if split else b"") + encode_key(key))
        self._labels.append(encoded.label)
        self._splits.append(to_bytes(split or encoded.split))
        self._batch.append(encoded.values)
        num_bytes = sum(map(_memory, encoded.values))
        self.num_bytes += num_bytes
        self._batch_bytes += num_bytes
        if self._batch_bytes >= _BATCH_BYTES or len(self._batch) == _BATCH_ROWS:
            self._write(form)

    def _write(self, form: Form) -> None:
        """Write the values of the examples that were read last."""
        columns = zip(form.features, zip(*self._batch, strict=True), strict=True)
        stored = {
            feature.name: pa.array(values, _arrow_type(feature))
            for feature, values in columns
            if feature.kind != "label"
        }
        if stored:
            self._writer.write(stored)
        self._batch, self._batch_bytes = [], 0

    def rows(self, splits: Sequence[str], group_by: str | None) -> Rows:
        """Return all examples as the staged form takes them, if they are in a mapping with these splits."""
        form, num_rows = self._form, len(self.keys)
        if form is None:
            raise InputError(
                "there are no examples || an iterator can be read only once: give a function that returns a "
                "new one, or a list"
            )
        if self._batch:
            self._write(form)
        wide = self._writer.close()
        nothing, zeros = [b""] * num_rows, np.zeros(num_rows, np.int64)
        labels = self._elements.labels(form, self._labels)
        of_splits = pa.chunked_array([pa.array(self._splits, TEXT)])
        left = {*splits} - {to_text(split) for split in of_splits.unique().to_pylist()}
        warnings = warnings_of(form) + ([labels.warning] if labels and labels.warning else [])
        warnings += [f"the split {split!r} has no examples; it is left out" for split in sorted(left)]
        groups = None
        if group_by is not None:
            groups = groups_of_keys(group_by, self.keys, "a regular expression with one (group)")
        return Rows(
            num_rows=num_rows,
            features=form.features,
            rules=self._elements.rules(form),
            recorded={"source": "examples", **self._elements.recorded(form)},
            values={labels.feature.name: labels.values} if labels else {},
            images={
                feature.name: ImageFiles(nothing, nothing, wide.sizes[feature.name], zeros, nothing)
                for feature in form.features
                if wide is not None and feature.is_encoded
            },
            wide=wide,
            keys=key_column("key", pa.chunked_array([pa.array(self.keys, TEXT)])),
            splits=of_splits if splits or form.has_role("split") else None,
            groups=groups,
            class_names=labels.class_names if labels else (),
            warnings=warnings,
        )


def _memory(value: Values | None) -> int:
    """Return about how many bytes of memory a value needs."""
    return sum(map(sys.getsizeof, value)) if isinstance(value, list) else sys.getsizeof(value)


def _arrow_type(feature: Feature) -> pa.DataType:
    kind = _ARROW[feature.wire]
    is_list = feature.shape != () and not feature.is_encoded and feature.kind != "raw"
    return pa.large_list(kind) if is_list else kind


# What ``_Reading.add`` takes.
_Example: TypeAlias = "tuple[int, str, object, Mapping[str, object]]"


def _read(given: object) -> Iterator[_Example]:
    """Yield the examples of an iterable, or of each iterable in a mapping of them by split."""
    if not isinstance(given, Mapping):
        yield from _read_split(given, "")
        return
    for split, part in given.items():
        fault = name_fault(split) if isinstance(split, str) else f"{split!r} must be a string"
        if fault:
            raise OptionsError(
                f"the split {fault}; a mapping has an iterable of examples for each split || Arrays(...) "
                "takes a dict of arrays"
            )
        yield from _read_split(part, split)


def _read_split(given: object, split: str) -> Iterator[_Example]:
    for number, item in enumerate(_items(given)):
        key, values = item if isinstance(item, (tuple, list)) and len(item) == 2 else (None, item)
        if not isinstance(values, Mapping):
            where = f" of the split {split!r}" if split else ""
            raise InputError(
                f"example {number}{where} is of type {type(item).__name__} || give dicts of values by name, "
                "or pairs of a key and a dict; Table(frame) takes a table"
            )
        yield number, split, key, values


def _items(given: object) -> Iterable[object]:
    if callable(given) and not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        given = given()
    is_text = isinstance(given, (str, bytes))
    if isinstance(given, Iterable) and not is_text:
        return given
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not is_text:
        found = cast("Sequence[object]", given)
        return (found[number] for number in range(len(found)))
    what = "a path" if isinstance(given, (str, bytes, PurePath)) else f"of type {type(given).__name__}"
    raise OptionsError(
        f"the examples are {what}, which cannot be iterated over || give an iterable of dicts, "
        "ImageFolder(...) for a folder, or Table(...) for a file"
    )


def _length_of(given: object) -> int | None:
    """Return the number of examples, if it is known before they are read."""
    try:
        return sum(map(len, given.values() if isinstance(given, Mapping) else [cast("Any", given)]))
    except TypeError:
        # tf.data has the method, and raises where the number is not known
        return None
