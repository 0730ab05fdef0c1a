"""The classes of arrays: given class names, and those that follow from labels of strings."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

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


def stage(source: Arrays, folder: Path) -> ArraysReader:
    folder.mkdir(exist_ok=True)
    return source.stage(folder)


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize(("array", "names", "numbers"), STRINGS.values(), ids=STRINGS.keys())
def test_labels_of_strings_are_classes_sorted_by_name(array, names, numbers, in_file, tmp_path):
    np.save(tmp_path / "label.npy", array)
    column = [tmp_path / "label.npy"] if in_file else array
    reader = stage(Arrays({"label": column}), tmp_path / "staged")
    listing = reader.listing()
    assert listing.schema.class_names == names
    assert listing.schema["label"] == Feature("label", "label", "int64")
    assert listing.labels.tolist() == numbers
    rows = listing.rows(np.arange(len(array))[::-1])
    assert [outcome.values[0] for outcome in reader.read(rows, listing.schema)] == numbers[::-1]


def test_an_empty_string_is_not_a_class_name(tmp_path):
    with pytest.raises(
        InputError,
        match=r"^array 'label', row 2: is an empty string, which is not a class name; fill it in, or",
    ):
        stage(Arrays({"label": np.array(["b", "a", "", ""])}), tmp_path / "staged").listing()


def test_more_than_ten_thousand_strings_are_not_classes(tmp_path):
    for number, kind in ((10_000, "label"), (10_001, "bytes")):
        texts = np.arange(number).astype("S5")
        assert stage(Arrays({"label": texts}), tmp_path / kind).listing().schema["label"].kind == kind


def test_rows_are_grouped_by_the_strings_of_their_labels(tmp_path):
    reader = stage(Arrays({"label": np.array(["b", "a"])}), tmp_path / "staged")
    assert reader.groups(reader.listing(), "label") == [b"b", b"a"]


def test_a_file_of_labels_that_changes_during_the_build_is_reported(tmp_path):
    path = tmp_path / "label.npy"
    np.save(path, np.array(["b", "a"]))
    reader = stage(Arrays({"label": path}), tmp_path / "staged")
    listing = reader.listing()
    np.save(path, np.array(["b", "a", "c"]))
    with pytest.raises(InputError, match=r"label\.npy: changed after the build listed it"):
        reader.read(listing.rows(np.arange(2)), listing.schema)


NAMED = {
    "integers": (np.array([2, 0, 2], np.uint8), ("ant", "bee", "cat"), [2, 0, 2]),
    "big-endian integers": (np.array([1, 0], ">i8"), ("b", "a"), [1, 0]),
    "text": (np.array(["b", "a", "b"]), ("b", "unseen", "a"), [0, 2, 0]),
    "bytes": (np.array([b"\xff", b"a"]), ("a", "\udcff"), [1, 0]),
}


@pytest.mark.parametrize(("array", "names", "numbers"), NAMED.values(), ids=NAMED.keys())
def test_given_class_names_keep_their_order_even_without_examples(array, names, numbers, tmp_path):
    reader = stage(Arrays({"label": array}, class_names=list(names)), tmp_path / "staged")
    listing = reader.listing()
    assert listing.schema.class_names == names
    assert listing.schema["label"].kind == "label"
    assert listing.labels.tolist() == numbers
    rows = listing.rows(np.arange(len(array)))
    assert [outcome.values[0] for outcome in reader.read(rows, listing.schema)] == numbers


NOT_NAMED = {
    "too large": (
        {"label": np.array([0, 1, 2, 5])},
        r"^array 'label', row 2: is 2; the 2 class names are numbered from 0 to 1$",
    ),
    "negative": ({"label": np.array([0, -1], np.int8)}, r"^array 'label', row 1: is -1; the 2 class names"),
    "a new name": (
        {"label": np.array(["a", "c", "d"])},
        r"^array 'label', row 1: 'c' is not one of the 2 class names; add it at their end, or correct the la",
    ),
    "a new name in bytes": (
        {"label": np.array([b"\xff"])},
        r"^array 'label', row 0: '\\udcff' is not one of",
    ),
    "no labels": (
        {"x": np.array([0, 1])},
        r"^class_names= needs an array named 'label'; rename the array of labels, or leave out the names$",
    ),
    "fractions": (
        {"label": np.array([0.0])},
        r"holds float64 \(\) per example; class_names= needs one string, or one integer",
    ),
    "truth values": ({"label": np.array([True])}, r"holds bool \(\) per example; class_names= needs one str"),
    "uint64": (
        {"label": np.array([1], np.uint64)},
        r"holds uint64 \(\) per example; .* or one integer that fits int64",
    ),
    "bfloat16": ({"label": np.array([1], ml_dtypes.bfloat16)}, r"holds bfloat16 \(\) per example"),
    "one-hot rows": (
        {"label": np.eye(2, dtype=int)},
        r"holds int64 \(2,\) per example; class_names= needs one",
    ),
}


@pytest.mark.parametrize(("arrays", "message"), NOT_NAMED.values(), ids=NOT_NAMED.keys())
def test_a_label_missing_from_the_class_names_is_reported(arrays, message, tmp_path):
    with pytest.raises(InputError, match=message):
        stage(Arrays(arrays, class_names=("a", "b")), tmp_path / "staged").listing()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("ab", r"^class_names='ab' must be a list of strings, in label order$"),
        ((1, 2), r"^class_names=\(1, 2\) must be a list of strings"),
        ((), r"^class_names= is empty; leave it out to use the class names in the data$"),
        (("a", "b", "a"), r"^class_names= contains 'a' twice; give each class once$"),
    ],
)
def test_invalid_class_names_are_refused_at_once(names, message):
    with pytest.raises(OptionsError, match=message):
        Arrays({"label": np.arange(2)}, class_names=names)


def test_class_names_are_stored_in_the_dataset(quiet_build, tmp_path):
    arrays = {"x": np.arange(6.0), "label": np.array(["b", "a", "b", "b", "a", "b"])}
    for names, counts in ((None, [2, 4]), (("b", "c", "a"), [4, 0, 2])):
        manifest = quiet_build(Arrays(arrays, class_names=names), tmp_path / f"out{len(counts)}", shards=2)
        assert manifest.schema.class_names == (names or ("a", "b"))
        assert list(manifest.splits["train"].label_counts.values()) == counts
