"""The classes of arrays: given class names, and those that follow from labels of strings."""

import ml_dtypes
import numpy as np
import pytest

from tests.errors import raises
from tests.prep.table_files import check_repair
from tfshards.prep import Arrays
from tfshards.prep.sources.arrays.source import ArraysReader
from tfshards.schemas import InputError


def stage(source: Arrays, folder) -> ArraysReader:
    folder.mkdir(exist_ok=True)
    return source.stage(folder)


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


SPLITS = np.array(["test", "train", "val", "train"])


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
