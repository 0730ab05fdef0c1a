"""Arrays whose first axis counts the examples; each array is a feature."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tfshards.prep.imaging.options import ImageOptions, parse_resize
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.prep.imaging.pixels import resized_pixels
from tfshards.prep.records.example import Values
from tfshards.prep.sources.arrays.arguments import join_splits, open_arguments
from tfshards.prep.sources.arrays.features import (
    as_images,
    feature_of,
    is_class_dtype,
    is_split_array,
    read_labels,
    splits_of,
    strings,
    unused_label,
    usual_label,
    values_of,
    widened,
)
from tfshards.prep.sources.arrays.files import GivenArray, stage_arrays
from tfshards.prep.sources.arrays.mapped import AnyArray, MappedArray
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Row, pieces_of
from tfshards.prep.sources.classes import check_class_names, twins
from tfshards.prep.sources.keys import KEY_FEATURE, RowKeys, require_values
from tfshards.prep.sources.kinds import Recorded
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import check_strings, option, options_of


@dataclass(frozen=True)
class Arrays:
    """Arrays of equal length; the key of an example is its row number.

    If every name is that of an array of a split, such as ``x_train`` or ``test_labels`` of two or more
    splits, the arrays are splits of the features ``x`` or ``labels``. Rows are then numbered through the
    splits in their usual order: train, val, test.

    Integer scalars are stored as int64 lists, strings as byte strings, and other values as raw little-endian
    bytes. The array of labels holds classes if it consists of integer or boolean scalars (at most 10,000
    different ones, none negative), or of strings, which are then the class names.

    Attributes:
        arrays: a dict by feature name of NumPy arrays, or paths or URLs of .npy files; axis 0 counts the
            examples. Or an iterable of dicts of NumPy arrays, which are concatenated along axis 0; it is
            read once, so that a generator can supply arrays larger than memory.
        lists: names of the features to store as int64 or float lists.
        class_names: class names in label order; the array of labels must hold the names or their numbers.
            A class may have no examples.
        label: name of the array of labels, or of that of one split; by default ``label``, ``labels`` or
            ``y``, the first that exists, also in capitals; ``""`` for none. Integers in an array that is
            named here may be -1, for no class.
        split: name of the array that names the split of each example, as text or an integer, and is not
            stored; by default ``split``, if it exists and holds such values; ``""`` for none.
        image_arrays: names of the arrays that are images, uint8 or uint16 of shape ``(n, height, width)`` or
            ``(n, height, width, 1 | 3 | 4)``, which is recorded. Without it, the only array of this kind with
            sides of at least 8, or the one of several that is named ``image``, is taken for images.
        resize: size of the images, as in ``ImageOptions``.

    Raises:
        OptionsError: there are no arrays, an array has no name, or the class names are empty or repeated.
    """

    arrays: Mapping[str, GivenArray] | Iterable[Mapping[str, AnyArray]]
    lists: tuple[str, ...] = option(
        (),
        "store this array as an int64 or float list rather than as bytes",
        flag="list",
        metavar="NAME",
        is_repeatable=True,
    )
    class_names: Sequence[str] | None = None
    label: str | None = option(
        None,
        "array of classes, one string or integer per example; '' for none",
        metavar="NAME",
        default_text="label, labels or y, the first that exists",
    )
    split: str | None = option(
        None,
        "array that names the split of each example; '' for none",
        flag="split-array",
        metavar="NAME",
        default_text="split, if it exists",
    )
    image_arrays: tuple[str, ...] = option(
        (),
        "array that holds images, uint8 or uint16 of shape (n, height, width) or (n, height, width, 1|3|4)",
        flag="image-array",
        metavar="NAME",
        is_repeatable=True,
        default_text="the only array like this, or the one named image",
    )
    resize: str | None = option(None, options_of(ImageOptions)["resize"].help, metavar="SIZE")

    def __post_init__(self) -> None:
        if isinstance(self.arrays, np.ndarray):
            raise OptionsError("arrays-no-names")
        if isinstance(self.arrays, Mapping) and not self.arrays:
            raise OptionsError("arrays-empty")
        check_class_names(self.class_names)
        check_strings("lists", self.lists)
        check_strings("image_arrays", self.image_arrays)
        if self.resize is not None:
            parse_resize(self.resize)
        if self.label and self.label == self.split:
            raise OptionsError("label-is-split", label=self.label)

    @classmethod
    def open(
        cls,
        arguments: Sequence[str],
        lists: tuple[str, ...] = (),
        class_names: Sequence[str] | None = None,
        *,
        label: str | None = None,
        split: str | None = None,
        image_arrays: tuple[str, ...] = (),
        resize: str | None = None,
    ) -> Arrays:
        """Return the arrays that the arguments of a command line describe.

        Args:
            arguments: ``NAME=FILE.npy``, ``FILE.npy`` (the file's stem is the name) or ``FILE.npz`` (all its
                arrays).
            lists: see the class.
            class_names: see the class.
            label: see the class.
            split: see the class.
            image_arrays: see the class.
            resize: see the class.

        Raises:
            OptionsError: an argument has another form, a name is repeated, or files are numbered like parts.
            InputError: an .npz file cannot be read.
        """
        return cls(open_arguments(arguments), lists, class_names, label, split, image_arrays, resize)

    @classmethod
    def from_recorded(cls, recorded: Recorded, inputs: Sequence[str]) -> Arrays:
        """Return the source of a build from its record, and the arguments that describe its arrays."""
        options = recorded.options
        return cls.open(
            inputs,
            class_names=recorded.class_names,
            lists=tuple(options.get("lists", ())),
            label=recorded.label or "",
            split=options.get("split_array", ""),
            image_arrays=tuple(options.get("image_arrays", ())),
            resize=options.get("resize"),
        )

    def location(self) -> None:
        """Return None, because the dataset may be in the folder of the array files."""
        return

    def with_class_names(self, names: Sequence[str]) -> Arrays:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    def stage(self, folder: Path, *, group_by: str | None = None, preview: bool = False) -> ArraysReader:
        """Return a reader of the arrays; arrays that are not in local .npy files are copied into ``folder``.

        Raises:
            InputError: an array cannot be read, ``label`` or ``split`` is not the name of one, or the disk
                has too little space for the copies.
        """
        staged, num_rows, array_of = join_splits(stage_arrays(self.arrays, folder, preview=preview))
        if num_rows and self.split:
            raise InputError("split-array-useless", split=self.split)
        # the array of any split represents all
        label, split = (name and array_of.get(name, name) for name in (self.label, self.split))
        for role, name in (("label", label), ("split", split)):
            if name and name not in staged:
                raise InputError("array-unknown", role=role, name=name, names=[*staged])
        has_split = "split" in staged and not num_rows and label != "split"
        if split is None and has_split and is_split_array(staged["split"]):
            split = "split"
        if label is None:
            label = usual_label([name for name in staged if name != split])
        return ArraysReader(
            staged,
            self.lists,
            tuple(self.class_names or ()),
            label or None,
            split or None,
            is_label_named=bool(self.label),
            num_rows=num_rows,
            image_arrays=tuple(array_of.get(name, name) for name in self.image_arrays),
            resize=self.resize,
            group_by=group_by,
        )


@dataclass(frozen=True)
class ArraysReader:
    """The reader of ``Arrays``, after each array was staged in files that can be mapped.

    Attributes:
        arrays: mapped arrays by feature name.
        lists, class_names, label, split: see ``Arrays``; the names are those of existing arrays.
        is_label_named: whether the user named the array of labels.
        num_rows: number of rows of each split, in order; empty unless the names of the arrays give splits.
        image_arrays, resize: see ``Arrays``.
        group_by: array of scalars by which examples are grouped, see ``Source.stage``.
    """

    arrays: Mapping[str, MappedArray]
    lists: tuple[str, ...]
    class_names: tuple[str, ...] = ()
    label: str | None = None
    split: str | None = None
    is_label_named: bool = False
    num_rows: Mapping[str, int] = field(default_factory=dict)
    image_arrays: tuple[str, ...] = ()
    resize: str | None = None
    group_by: str | None = None

    @property
    def stored(self) -> dict[str, MappedArray]:
        """The arrays that are features, by name."""
        return {name: array for name, array in self.arrays.items() if name != self.split}

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        options: dict[str, Json] = {"source": "arrays", "lists": [*sorted(self.lists)]}
        if self.image_arrays:
            options["image_arrays"] = [*sorted(self.image_arrays)]
        if self.resize is not None:
            options |= {"resize": self.resize, **decoder_versions()}
        return options if self.split is None else {**options, "split_array": self.split}

    def listing(self) -> Listing:
        """Return the listing; only the labels are read."""
        lengths = {name: array.num_rows for name, array in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise InputError("arrays-differ-in-length", listed=listed)
        if unknown := sorted(set(self.lists) - set(lengths)):
            raise InputError("list-unknown", unknown=unknown[0], lengths=lengths)
        count = next(iter(lengths.values()))
        if not count:
            raise InputError("arrays-no-rows")
        if KEY_FEATURE.name in lengths:
            raise InputError("array-named-key")
        label = self.arrays.get(self.label or "")
        labels = read_labels(self.label or "", label, self.class_names, may_lack=self.is_label_named)
        num_open = 0 if labels is None else int((labels.numbers == -1).sum())
        if labels is None and self.is_label_named:
            shape = self.arrays[self.label or ""].layout.shape[1:]
            per_row = f"; each of its rows has the shape {shape}" if shape else ""
            raise InputError("label-not-classes", label=self.label, per_row=per_row)
        features = [
            feature_of(
                name,
                array.layout,
                as_list=name in self.lists,
                is_label=name == self.label and labels is not None,
            )
            for name, array in self.stored.items()
        ]
        features, unclear = as_images(features, self.image_arrays, self.resize)
        splits = self._splits()
        size = sum(array.layout.row_bytes for array in self.stored.values())
        if not size:
            # for arrays without values, the size of a file does not limit the number of rows
            raise InputError("arrays-no-values")
        return Listing(
            schema=Schema((*features, KEY_FEATURE), labels.class_names if labels else ()),
            keys=RowKeys(count),
            sizes=np.full(count, size, dtype=np.int64),
            stamps=np.full(count, self._stamp()),
            labels=labels.numbers if labels else None,
            splits=splits,
            groups=None if self.group_by is None else self._groups(self.group_by),
            warnings=(
                *(
                    f"the split {split!r} has no rows; it is left out"
                    for split, n in self.num_rows.items()
                    if not n
                ),
                *(twins(labels.class_names) if labels else unused_label(self.label, label)),
                *twins(splits or (), "splits"),
                *([f"array {self.label!r}: rows without a class (-1): {num_open:,}"] if num_open else []),
                *unclear,
            ),
            identity=repr([(name, *array.summary) for name, array in self.arrays.items()])
            + (repr(self.num_rows) if self.num_rows else ""),
        )

    def _stamp(self) -> int:
        """Return a number that changes with the modification time of any file, or 0 for copies."""
        identities = ", ".join(filter(None, (array.identity for array in self.arrays.values())))
        digest = hashlib.blake2b(identities.encode("ascii"), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1 if identities else 0

    def _splits(self) -> dict[str, IntArray] | None:
        if self.split is not None:
            return splits_of(self.split, self.arrays[self.split])
        ends = np.cumsum([*self.num_rows.values()])
        splits = {
            split: np.arange(end - count, end, dtype=np.int64)
            for (split, count), end in zip(self.num_rows.items(), ends.tolist(), strict=True)
            if count
        }
        return splits or None

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the values of each row."""
        for piece in pieces_of(rows):
            yield from self._read(piece, schema)

    def _read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        numbers = np.array([int(row.key) for row in rows], dtype=np.int64)
        columns = [_values(schema[name], array, rows, numbers) for name, array in self.stored.items()]
        keys = [row.key.encode("ascii") for row in rows]
        return [Accepted(values) for values in zip(*columns, keys, strict=True)]

    def _groups(self, by: str) -> Sequence[bytes]:
        """Return the group of each row: its value in the array of scalars ``by``."""
        scalars = {name: array for name, array in self.arrays.items() if len(array.layout.shape) == 1}
        if by not in scalars:
            raise InputError("group-by-array", by=by, join=", ".join(scalars) or "none")
        layout = scalars[by].layout
        values = widened(scalars[by].whole(), layout)
        if layout.is_text:
            groups = strings(by, values)
        else:
            # -0.0 becomes 0.0, which it equals
            numbers = (
                value + 0 if isinstance(value, (float, complex)) else value for value in values.tolist()
            )
            groups = [str(number).encode() for number in numbers]
        num_missing = groups.count(b"") if layout.is_text else int(np.count_nonzero(values != values))
        require_values(by, num_missing, "array")
        return groups


def _values(feature: Feature, array: MappedArray, rows: Sequence[Row], numbers: IntArray) -> Sequence[Values]:
    if feature.kind == "label" and not is_class_dtype(array.layout):
        # the listing has the numbers of the classes
        array.check_unchanged()
        return [row.label for row in rows]
    block = array.take(numbers)
    if feature.kind == "raw" and feature.shape != block.shape[1:]:
        height, width = (side or 0 for side in feature.shape[:2])
        block = np.stack([resized_pixels(each, (width, height)) for each in block])
    return values_of(feature, block, array.layout)
