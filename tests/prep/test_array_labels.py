"""The classes of arrays: given class names, and those that follow from labels of strings."""

import ml_dtypes
import numpy as np
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import check_repair
from tfshards.prep import Arrays
from tfshards.prep.sources.arrays.source import ArraysReader
from tfshards.schemas import Feature, InputError, OptionsError

STRINGS = {
    "text": (np.array(["dog", "ant", "dog", "猫"]), ("ant", "dog", "猫"), [1, 0, 1, 2]),
    "bytes": (np.array([b"dog", b"ant", b"dog", "猫".encode()]), ("ant", "dog", "猫"), [1, 0, 1, 2]),
    "big-endian text": (np.array(["b", "a"], ">U4"), ("a", "b"), [1, 0]),
    "bytes that are not UTF-8": (np.array([b"\xff", b"a"]), ("a", "\udcff"), [1, 0]),
    "text with surrogates for such bytes": (np.array(["\udcff", "a"]), ("a", "\udcff"), [1, 0]),
    # "é" is the bytes C3 A9, so that both are one class; sorted by bytes, "z" comes first
    "two spellings of the same bytes": (np.array(["é", "\udcc3\udca9", "z"]), ("z", "é"), [1, 1, 0]),
    "sorted by bytes rather than alphabet": (np.array(["ä", "B", "a"]), ("B", "a", "ä"), [2, 0, 1]),
}


def stage(source: Arrays, folder) -> ArraysReader:
    folder.mkdir(exist_ok=True)
    return source.stage(folder)


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize(("array", "names", "numbers"), STRINGS.values(), ids=STRINGS)
def test_labels_of_strings_are_classes_sorted_by_name(array, names, numbers, in_file, tmp_path):
    np.save(tmp_path / "label.npy", array)
    column = tmp_path / "label.npy" if in_file else array
    reader = stage(Arrays({"label": column}), tmp_path / "staged")
    listing = reader.listing()
    assert listing.schema.class_names == names
    assert listing.schema["label"] == Feature("label", "label", "int64")
    assert listing.labels.tolist() == numbers
    rows = listing.rows(np.arange(len(array))[::-1])
    assert [outcome.values[0] for outcome in reader.read(rows, listing.schema)] == numbers[::-1]


def test_an_empty_string_is_not_a_class_name(tmp_path):
    with raises(InputError, "array-label-empty", name="label", row=2):
        stage(Arrays({"label": np.array(["b", "a", "", ""])}), tmp_path / "staged").listing()


def test_more_than_ten_thousand_strings_are_not_classes(tmp_path):
    for number, kind in ((10_000, "label"), (10_001, "bytes")):
        texts = np.arange(number).astype("S5")
        assert stage(Arrays({"label": texts}), tmp_path / kind).listing().schema["label"].kind == kind


def test_a_file_of_labels_that_changes_during_the_build_is_reported(tmp_path):
    path = tmp_path / "label.npy"
    np.save(path, np.array(["b", "a"]))
    reader = stage(Arrays({"label": path}), tmp_path / "staged")
    listing = reader.listing()
    np.save(path, np.array(["b", "a", "c"]))
    with raises(InputError, "changed-file"):
        reader.read(listing.rows(np.arange(2)), listing.schema)


NAMED = {
    "integers": (np.array([2, 0, 2], np.uint8), ("ant", "bee", "cat"), [2, 0, 2]),
    "big-endian integers": (np.array([1, 0], ">i8"), ("b", "a"), [1, 0]),
    "uint64": (np.array([1, 0], np.uint64), ("b", "a"), [1, 0]),
    "truth values": (np.array([True, False]), ("no", "yes"), [1, 0]),
    "text": (np.array(["b", "a", "b"]), ("b", "unseen", "a"), [0, 2, 0]),
    "bytes": (np.array([b"\xff", b"a"]), ("a", "\udcff"), [1, 0]),
}


@pytest.mark.parametrize(("array", "names", "numbers"), NAMED.values(), ids=NAMED)
def test_given_class_names_keep_their_order_even_without_examples(array, names, numbers, tmp_path):
    reader = stage(Arrays({"label": array}, class_names=list(names)), tmp_path / "staged")
    listing = reader.listing()
    assert listing.schema.class_names == names
    assert listing.schema["label"].kind == "label"
    assert listing.labels.tolist() == numbers
    rows = listing.rows(np.arange(len(array)))
    assert [outcome.values[0] for outcome in reader.read(rows, listing.schema)] == numbers


NOT_NAMED = {
    "too large": ({"label": np.array([0, 1, 2, 5])}, fault("array-label-range", row=2, last=1)),
    "negative": ({"label": np.array([0, -1], np.int8)}, fault("array-label-range", name="label", row=1)),
    "a new name": ({"label": np.array(["a", "c", "d"])}, fault("array-label-unknown", name="label", row=1)),
    "a new name in bytes": ({"label": np.array([b"\xff"])}, fault("array-label-unknown", row=0)),
    "no labels": ({"x": np.array([0, 1])}, "class-names-no-label"),
    "fractions": ({"label": np.array([0.0])}, "array-label-shape"),
    "uint64": ({"label": np.array([1, 2**64 - 1], np.uint64)}, fault("array-label-range", row=1, last=1)),
    "bfloat16": ({"label": np.array([1], ml_dtypes.bfloat16)}, fault("array-label-shape", dtype="bfloat16")),
    "one-hot rows": ({"label": np.eye(2, dtype=int)}, "array-label-shape"),
}


@pytest.mark.parametrize(("arrays", "message"), NOT_NAMED.values(), ids=NOT_NAMED)
def test_a_label_missing_from_the_class_names_is_reported(arrays, message, tmp_path):
    with raises(InputError, message):
        stage(Arrays(arrays, class_names=("a", "b")), tmp_path / "staged").listing()


@pytest.mark.parametrize(
    ("arrays", "label", "found", "reason"),
    [
        (
            {"images": np.zeros((2, 3)), "labels": np.array([1, 0])},
            None,
            "labels",
            "labels.npy next to images.npy",
        ),
        ({"X": np.zeros((2, 3)), "y": np.array(["b", "a"])}, None, "y", "as in scikit-learn"),
        ({"y": np.array([5, 6]), "label": np.array([1, 0])}, None, "label", "label is first"),
        ({"y": np.array([1, 0]), "labels": np.array([5, 6])}, "y", "y", "named by the user"),
        ({"X": np.zeros(2), "Y": np.array([1, 0])}, None, "Y", "in capitals"),
        ({"Y": np.zeros(2), "y": np.array([1, 0])}, None, "y", "not in capitals first"),
        ({"species": np.array([1, 0])}, "species", "species", "any name"),
        ({"y": np.array([1, 0])}, "", None, "none is wanted"),
        ({"y": np.array([0.5, 1.5])}, None, None, "a quantity"),
        ({"x": np.array([0, 1])}, None, None, "no usual name"),
    ],
)
def test_the_array_of_labels_is_found_by_its_name(arrays, label, found, reason, tmp_path):
    listing = stage(Arrays(arrays, label=label), tmp_path / "staged").listing()
    labels = [feature.name for feature in listing.schema.features if feature.kind == "label"]
    assert labels == [found] * (found is not None), reason
    assert (listing.labels is None) == (found is None), reason
    if found:
        assert listing.labels.tolist() == [1, 0], reason


SPLITS = np.array(["test", "train", "val", "train"])


@pytest.mark.parametrize(
    ("arrays", "split", "wanted", "reason"),
    [
        ({"split": SPLITS}, None, {"train": [1, 3], "val": [2], "test": [0]}, "text, in the usual order"),
        ({"split": np.array([1, 0, 1, 0])}, None, {"0": [1, 3], "1": [0, 2]}, "numbers of folds"),
        ({"fold": SPLITS}, "fold", {"train": [1, 3], "val": [2], "test": [0]}, "named by the user"),
        ({"y": SPLITS}, "y", {"train": [1, 3], "val": [2], "test": [0]}, "not the label, then"),
        ({"split": SPLITS}, "", None, "none is wanted"),
        ({"split": np.zeros(4)}, None, None, "no names of splits"),
        ({"split": np.zeros((4, 2), np.int64)}, None, None, "several numbers for each example"),
        ({"fold": SPLITS}, None, None, "no usual name"),
    ],
)
def test_the_array_of_splits_is_found_by_its_name_and_is_not_stored(arrays, split, wanted, reason, tmp_path):
    reader = stage(Arrays({"x": np.arange(4), **arrays}, split=split), tmp_path / "staged")
    listing = reader.listing()
    if wanted is None:
        assert listing.splits is None, reason
        assert listing.schema.names == ("x", *arrays, "key"), reason
        assert "split_array" not in reader.options(), reason
        return
    assert [(name, rows.tolist()) for name, rows in listing.splits.items()] == list(wanted.items()), reason
    assert listing.schema.names == ("x", "key"), reason
    assert reader.options()["split_array"] == next(iter(arrays)), reason
    rows = listing.rows(np.arange(4))
    assert [outcome.values for outcome in reader.read(rows, listing.schema)] == [
        (number, b"%d" % number) for number in range(4)
    ]


WRONG_ROLES = {
    "no such labels": ({"label": "z"}, fault("array-unknown", role="label", name="z")),
    "no such splits": ({"split": "z"}, fault("array-unknown", role="split", name="z")),
    "labels that are quantities": ({"label": "x"}, fault("label-not-classes", label="x")),
    "splits that are quantities": ({"split": "x"}, fault("split-array-shape", name="x")),
    "too many splits": ({"split": "many"}, fault("split-array-many", name="many", num_distinct=101)),
    "two roles": ({"label": "x", "split": "x"}, fault("label-is-split", label="x")),
}


@pytest.mark.parametrize(("roles", "message"), WRONG_ROLES.values(), ids=WRONG_ROLES)
def test_an_array_that_cannot_have_its_role_is_reported(roles, message, tmp_path):
    with raises((InputError, OptionsError), message):
        stage(Arrays({"x": np.zeros(101), "many": np.arange(101)}, **roles), tmp_path / "staged").listing()


def test_a_value_that_cannot_name_a_split_is_reported_with_its_row(tmp_path):
    arrays = {"x": np.zeros(3), "split": np.array(["train", "a/b", "a/b"])}
    with pytest.raises(InputError, match=r"^array 'split', row 1: the split name "):
        stage(Arrays(arrays), tmp_path / "staged").listing()


@pytest.mark.parametrize(
    ("roles", "features", "splits"),
    [
        ({}, ["x", "y", "key"], ["train", "test"]),
        ({"label": "", "split": ""}, ["x", "y", "split", "key"], ["train"]),
    ],
)
def test_a_repair_keeps_the_roles_of_the_build(roles, features, splits, tmp_path, quiet_build):
    for name, array in {"x": np.zeros((4, 2)), "y": np.arange(4) % 2, "split": SPLITS}.items():
        np.save(
            tmp_path / f"{name}.npy", np.where(array == "val", "test", array) if name == "split" else array
        )
    inputs = [str(tmp_path / f"{name}.npy") for name in ("x", "y", "split")]
    out = tmp_path / "out"
    manifest = quiet_build(Arrays.open(inputs, **roles), out)
    assert list(manifest.schema.names) == features
    assert list(manifest.splits) == splits
    assert manifest.schema["y"].kind == ("int" if roles else "label")
    check_repair(out, *inputs)


def test_zeros_of_either_sign_are_one_group_and_rows_without_a_value_are_none(tmp_path):
    arrays = {
        "x": np.arange(3),
        "zero": np.array([0.0, -0.0, 1.0]),
        "narrow": np.array([0.0, -0.0, 1.0], ml_dtypes.bfloat16),
        "nan": np.array([0.0, np.nan, np.nan], np.float32),
        "text": np.array(["a", "", "b"]),
    }
    reader = stage(Arrays(arrays), tmp_path / "staged")
    listing = reader.listing()
    assert reader.groups(listing, "zero") == reader.groups(listing, "narrow") == [b"0.0", b"0.0", b"1.0"]
    for name, number in (("nan", 2), ("text", 1)):
        with raises(InputError, "group-by-missing", by=name, num_missing=number, where="array"):
            reader.groups(listing, name)
