"""Arrays whose first axis counts the examples; each array, or field of a structured array, is a feature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tfshards.prep.sources.arrays.arguments import join_splits, open_arguments
from tfshards.prep.sources.arrays.features import is_split_array, usual_label
from tfshards.prep.sources.arrays.files import Chunk, GivenArray, stage_arrays
from tfshards.prep.sources.arrays.mapped import AnyArray
from tfshards.prep.sources.arrays.reader import ArraysReader
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.kind import Recorded, SourceKind
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.option import check_strings, option


@dataclass(frozen=True)
class Arrays:
    """Arrays of equal length; the key of an example is its row number.

    If every name is that of an array of a split, such as ``x_train`` or ``test_labels`` of two or more
    splits or ``train:image``, the arrays are splits of the features ``x``, ``labels`` or ``image``. Rows are
    then numbered through the splits in their usual order: train, val, test.

    Integer scalars are stored as int64 lists, strings as byte strings, and other values as raw little-endian
    bytes. The array of labels holds classes if it consists of integer or boolean scalars (at most 10,000
    different ones, none negative), or of strings, which are then the class names.

    Attributes:
        arrays: a dict by feature name of NumPy arrays, paths or URLs of .npy files, or lists of files whose
            arrays are concatenated; axis 0 counts the examples, and the fields of a structured array
            become features ``NAME/FIELD``. Or a structured array, whose fields are the features. Or an
            iterable of such dicts or structured arrays, which are concatenated along axis 0; it is read once,
            so that a generator can supply arrays larger than memory.
        lists: names of the features to store as int64 or float lists.
        class_names: class names in label order; the array of labels must hold the names or their numbers.
            A class may have no examples.
        label: name of the array of labels, or of that of one split; by default ``label``, ``labels`` or
            ``y``, the first that exists, also in capitals; ``""`` for none.
        split: name of the array that names the split of each example, as text or an integer, and is not
            stored; by default ``split``, if it exists and holds such values; ``""`` for none.

    Raises:
        OptionsError: there are no arrays, or the class names are empty or repeated.
    """

    arrays: Mapping[str, GivenArray] | AnyArray | Iterable[Chunk]
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

    def __post_init__(self) -> None:
        if isinstance(self.arrays, np.ndarray):
            if not self.arrays.dtype.names:
                raise OptionsError("arrays-no-names")
        elif isinstance(self.arrays, Mapping) and not self.arrays:
            raise OptionsError("arrays-empty")
        check_class_names(self.class_names)
        check_strings("lists", self.lists)
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
    ) -> Arrays:
        """Return the arrays that the arguments of a command line describe.

        Args:
            arguments: ``NAME=FILE.npy``, ``FILE.npy`` (the file's stem is the name), ``FILE.npz`` (all its
                arrays), or parts of one array: ``X-0.npy X-1.npy``, ``NAME=X-*.npy``, or
                ``NAME=A.npy NAME=B.npy``.
            lists: see the class.
            class_names: see the class.
            label: see the class.
            split: see the class.

        Raises:
            OptionsError: an argument has another form, a name is repeated, or a part is missing.
            InputError: an .npz file cannot be read, or the files of a pattern are not parts of one array.
        """
        return cls(open_arguments(arguments), lists, class_names, label, split)

    def location(self) -> None:
        """Return None, because the dataset may be in the folder of the array files."""
        return

    def with_class_names(self, names: Sequence[str]) -> Arrays:
        """Return the source with these class names, unless it has its own."""
        return self if self.class_names is not None else replace(self, class_names=names)

    def stage(self, folder: Path, *, preview: bool = False) -> ArraysReader:
        """Return a reader of the arrays; arrays that are not in local .npy files are copied into ``folder``.

        Args:
            folder: an empty folder.
            preview: copy no more than listing and grouping need.

        Raises:
            InputError: an array cannot be read, ``label`` or ``split`` is not the name of one, or the disk
                has too little space for the copies.
        """
        staged = stage_arrays(self.arrays, folder, preview=preview)
        staged, num_rows, array_of = join_splits(staged)
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
        )


def _restore(recorded: Recorded, inputs: Sequence[str]) -> Arrays:
    return Arrays.open(inputs, class_names=recorded.class_names, **_recorded(recorded, inputs))


def _recorded(recorded: Recorded, _: Sequence[str]) -> dict[str, Any]:
    options: Mapping[str, Any] = recorded.options
    return {
        "lists": tuple(options.get("lists", ())),
        "label": recorded.label or "",
        "split": options.get("split_array", ""),
    }


ARRAYS = SourceKind(
    name="arrays",
    help="NumPy arrays in .npy or .npz files",
    source_help=(
        "array: NAME=FILE.npy, FILE.npy (the file's stem is the name), FILE.npz (all its arrays), parts of "
        "one array such as X-0.npy X-1.npy, or SPLIT:NAME=FILE.npy; arrays named like x_train and x_test are "
        "splits"
    ),
    group_help="keep rows with equal values in this array in one split",
    records=lambda: (Arrays,),
    make=lambda source, class_names, of_arrays: Arrays.open(source, class_names=class_names, **of_arrays),
    restore=_restore,
    recorded=_recorded,
    takes_several=True,
    # an invalid array fails the build instead
    can_reject=False,
)
