"""Arrays of several splits, by names such as ``x_train``."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import fault, raises
from tests.prep.table_files import check_repair
from tfshards.prep import Arrays, Options, append, plan
from tfshards.prep.cli import main as cli
from tfshards.prep.records.frames import read_records
from tfshards.prep.sources.arrays.mapped import Layout, MappedArray, MappedFile
from tfshards.schemas import InputError, OptionsError, read_manifest
from tfshards.schemas.example import decode_example

from .test_arrays import columns

RANDOM = np.random.default_rng(0)
MNIST = {
    "x_train": RANDOM.integers(0, 256, (12, 4, 4), dtype=np.uint8),
    "y_train": np.arange(12, dtype=np.uint8) % 3,
    "x_test": RANDOM.integers(0, 256, (5, 4, 4), dtype=np.uint8),
    "y_test": np.arange(5, dtype=np.uint8) % 3,
}


def examples(root, split):
    """The examples of a split by key, as they are stored."""
    shards = read_manifest(root).splits[split].shards
    found = [decode_example(data) for shard in shards for _, data in read_records(root / shard.path, "none")]
    return {int(example["key"][0]): example for example in found}


def test_the_archive_of_keras_becomes_the_splits_of_one_dataset(tmp_path):
    np.savez(tmp_path / "mnist.npz", **MNIST)
    out = tmp_path / "mnist"
    assert cli.main(["build", "arrays", str(tmp_path / "mnist.npz"), str(out), "--shards", "2"]) == 0
    manifest = read_manifest(out)
    assert list(manifest.splits) == ["train", "test"]
    assert manifest.schema.names == ("x", "y", "key")
    assert (manifest.schema["x"].shape, manifest.schema["y"].kind) == ((4, 4), "label")
    assert manifest.splits["test"].label_counts == {"0": 2, "1": 2, "2": 1}
    for split, first in (("train", 0), ("test", 12)):
        found = examples(out, split)
        assert sorted(found) == [*range(first, first + len(MNIST[f"x_{split}"]))]
        for key, example in found.items():
            assert example["x"][0] == MNIST[f"x_{split}"][key - first].tobytes()
            assert example["y"] == [MNIST[f"y_{split}"][key - first]]


# names -> splits, features
NAMES = {
    "split last": (["x_train", "x_val", "x_test"], ["train", "val", "test"], ["x"]),
    "split first": (
        ["val_images", "val_labels", "train_images", "train_labels"],
        ["train", "val"],
        ["images", "labels"],
    ),
    "capitals": (["X_Train", "X_TEST"], ["train", "test"], ["X"]),
    "several words": (["my_x_train", "my_x_dev"], ["train", "dev"], ["my_x"]),
    "a colon": (["layer:0", "layer:1"], ["train"], ["layer:0", "layer:1"]),
    "only one split": (["x_train", "y_train"], ["train"], ["x_train", "y_train"]),
    "not all are of splits": (["x_train", "x_test", "other"], ["train"], ["x_train", "x_test", "other"]),
    "no array": (["train", "test"], ["train"], ["train", "test"]),
    "no name": (["_train", "_test"], ["train"], ["_train", "_test"]),
    "other words": (["x_left", "x_right"], ["train"], ["x_left", "x_right"]),
}


@pytest.mark.parametrize(("names", "splits", "features"), NAMES.values(), ids=NAMES)
def test_names_of_arrays_give_splits(names, splits, features, tmp_path, quiet_build):
    manifest = quiet_build(Arrays({name: np.arange(3.0) for name in names}), tmp_path / "out")
    assert list(manifest.splits) == splits
    assert manifest.schema.names == (*features, "key")


def test_splits_are_given_by_arguments_of_the_command_line(tmp_path, array_files):
    files = [argument.partition("=")[2] for argument in array_files(**MNIST)]
    names = ("image_train", "label_train", "image_test", "label_test")
    out = tmp_path / "out"
    arguments = [f"{name}={file}" for name, file in zip(names, files, strict=True)]
    assert cli.main(["build", "arrays", *arguments, str(out)]) == 0
    manifest = read_manifest(out)
    assert {name: split.num_examples for name, split in manifest.splits.items()} == {"train": 12, "test": 5}
    assert examples(out, "train")[1]["image"][0] == MNIST["x_train"][1].tobytes()
    assert examples(out, "test")[12]["image"][0] == MNIST["x_test"][0].tobytes()


@pytest.mark.parametrize(
    ("name", "wanted"), [("train:x", "x_train"), ("Test:a:b", "a:b_Test"), ("val:", "x_val")]
)
def test_a_split_with_a_colon_is_refused_with_the_name_that_works(name, wanted, tmp_path):
    for arrays in ({name: np.zeros(2)}, [{name: np.zeros(2)}]):
        with raises(OptionsError, "array-split-name", name=name, wanted=wanted):
            Arrays(arrays).stage(tmp_path)
        for path in sorted(tmp_path.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    assert plan(Arrays({wanted: np.zeros(2)}), tmp_path / "out")


def test_arrays_of_splits_may_differ_in_byte_order_memory_order_and_length_of_strings(tmp_path):
    numbers = np.arange(24, dtype=np.int16).reshape(4, 2, 3)
    np.save(tmp_path / "n_train.npy", numbers[:1].astype(">i2"))
    np.save(tmp_path / "n_test.npy", np.asfortranarray(numbers[1:]))
    np.save(tmp_path / "s_train.npy", np.array(["a"]))
    np.save(tmp_path / "s_test.npy", np.array(["猫", "bcd", ""], ">U3"))
    found = columns(Arrays.open([*map(str, sorted(tmp_path.glob("*.npy")))]), tmp_path / "staged")
    assert found["n"] == [row.tobytes() for row in numbers]
    assert found["s"] == [b"a", "猫".encode(), b"bcd", b""]


def test_the_file_of_a_split_that_changes_is_reported_when_its_rows_are_read(tmp_path):
    for name, array in {"x_train": np.arange(2), "x_test": np.arange(2, 4)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    source = Arrays({name: tmp_path / f"{name}.npy" for name in ("x_train", "x_test")})
    stamps = []
    for name in ("", "x_train", "x_test"):
        if name:
            os.utime(tmp_path / f"{name}.npy", ns=(1, 1))
        (tmp_path / f"staged{name}").mkdir()
        reader = source.stage(tmp_path / f"staged{name}")
        stamps.append(reader.listing().stamps[0])
    assert len(set(stamps)) == 3
    array = reader.arrays["x"]
    assert array.take(np.array([3, 0, 2])).tolist() == [3, 0, 2]
    os.utime(tmp_path / "x_test.npy", ns=(2, 2))
    assert array.take(np.array([1])).tolist() == [1]
    for read in (lambda: array.take(np.array([0, 2])), array.check_unchanged):
        with raises(InputError, "changed-file"):
            read()


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any),
    picks=st.lists(st.floats(0, 1, exclude_max=True), max_size=20),
)
def test_any_rows_of_any_files_equal_those_of_the_whole_array(lengths, picks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("splits")
    whole = np.arange(sum(lengths) * 2).reshape(-1, 2)
    files = []
    for number, end in enumerate(np.cumsum(lengths)):
        rows = whole[end - lengths[number] : end]
        np.save(folder / f"{number}.npy", rows)
        files.append(MappedFile(f"{folder}/{number}.npy", Layout("<i8", rows.shape), ()))
    numbers = np.array([int(pick * len(whole)) for pick in picks], dtype=np.int64)
    array = MappedArray(tuple(files))
    assert array.layout.shape == whole.shape
    np.testing.assert_array_equal(array.take(numbers), whole[numbers])


def test_text_of_splits_is_joined(tmp_path, quiet_build):
    labels = {"label_train": np.array(["b", "a"]), "label_test": np.array(["ccc"])}
    manifest = quiet_build(Arrays(labels), tmp_path / "out")
    assert manifest.schema.class_names == ("a", "b", "ccc")
    assert manifest.splits["test"].label_counts == {"a": 0, "b": 0, "ccc": 1}


def test_a_split_without_rows_is_left_out(tmp_path, quiet_build):
    source = Arrays({"x_train": np.arange(6), "x_test": np.arange(0)})
    assert list(quiet_build(source, tmp_path / "out").splits) == ["train"]
    assert plan(source, tmp_path / "out").warnings == ("the split 'test' has no rows; it is left out",)


def test_repair_and_append_read_the_same_splits(tmp_path, array_files):
    arguments = [f"{name}={path}" for name, path in (each.split("=", 1) for each in array_files(**MNIST))]
    out = tmp_path / "out"
    assert cli.main(["build", "arrays", *arguments, str(out)]) == 0
    check_repair(out, *arguments, split="test")
    more = {n: np.concatenate([array, array[:1]]) if "test" in n else array for n, array in MNIST.items()}
    grown = append(array_files(**more), out, engine="local", log=lambda _: None)
    assert {name: split.num_examples for name, split in grown.splits.items()} == {"train": 12, "test": 6}


X = np.arange(3)
WRONG = {
    "arrays that another split lacks": (
        {"x_train": X, "y_train": X, "x_test": X},
        fault("split-lacks-array", split="test", missing="y"),
    ),
    "lengths": (
        {"x_train": X, "y_train": X[:2], "x_test": X, "y_test": X},
        fault("split-arrays-differ", split="train", counted="x_train has 3, y_train has 2"),
    ),
    "dtypes": (
        {"x_train": X, "x_test": X / 2},
        fault("split-arrays-shape", array="x", name="x_test", found="float64 ()", wanted="int64 ()"),
    ),
    "shapes": ({"x_train": X, "x_test": np.zeros((3, 2), int)}, "split-arrays-shape"),
    "bytes and text": ({"x_train": X.astype("S"), "x_test": X.astype("U")}, "split-arrays-shape"),
    "one array twice": ({"x_train": X, "train_x": X, "x_test": X}, fault("arrays-same-split", array="x")),
    "an array of splits": (
        {f"{name}_{split}": X for name in ("x", "fold") for split in ("train", "test")},
        "split-array-useless",
    ),
}


@pytest.mark.parametrize(("arrays", "error"), WRONG.values(), ids=WRONG)
def test_splits_that_do_not_fit_together_are_refused(arrays, error, tmp_path):
    with raises(InputError, error):
        Arrays(arrays, split="fold" if "fold_train" in arrays else None).stage(tmp_path).listing()


def test_ratios_are_refused_where_names_give_splits(tmp_path, quiet_build):
    with raises(InputError, "splits-of-source"):
        quiet_build(Arrays(MNIST), tmp_path / "out", options=Options(splits={"a": 1}))


def test_labels_in_a_column_are_reported(tmp_path):
    found = plan(Arrays({"x": np.zeros((3, 2)), "labels": np.array([[0], [1], [1]])}), tmp_path / "out")
    assert found.warnings == (
        "the array 'labels' has the shape (n, 1), so the values are not classes; if they are, save them with "
        "the shape (n,), by reshape(-1)",
    )
    assert plan(Arrays({"x": np.zeros((3, 1)), "y": np.zeros((3, 2))}), tmp_path / "out").warnings == ()


NOT_CLASSES = {
    "whole floats": (np.array([1.0, 0.0, np.nan]), "floating-point", "as integers or text"),
    "negative": (
        np.array([-1, 0, 1]),
        "negative",
        "as integers from 0, or as text, or take -1 for no class by label='labels'",
    ),
    "fractions": (np.array([0.5, 1, 2], np.float16), None, ""),
    "too many": (np.arange(10_001), None, ""),
}


@pytest.mark.parametrize(("labels", "kind", "remedy"), NOT_CLASSES.values(), ids=NOT_CLASSES)
def test_numbers_that_look_like_classes_but_are_not_are_reported(labels, kind, remedy, tmp_path):
    found = plan(Arrays({"x": np.zeros(len(labels)), "labels": labels}), tmp_path / "out").warnings
    line = f"the array 'labels' holds {kind} numbers, so the values are not classes; if they are, save them"
    assert found == ((f"{line} {remedy}",) if kind else ())


def test_names_of_splits_and_classes_that_look_alike_are_reported(tmp_path):
    arrays = {"label": np.array(["cat", " cat", "dog"]), "split": np.array(["Train", "train", "val"])}
    assert plan(Arrays(arrays), tmp_path / "out").warnings[:2] == (
        "' cat' and 'cat' look alike, but are two classes",
        "'Train' and 'train' look alike, but are two splits",
    )


def test_labels_of_one_split_name_those_of_all(tmp_path):
    renamed = {name.replace("y_", "digit_"): array for name, array in MNIST.items()}
    listing = plan(Arrays(renamed, label="digit_test"), tmp_path / "out").listing
    assert listing.schema["digit"].kind == "label"
    assert listing.labels.tolist() == [*MNIST["y_train"], *MNIST["y_test"]]
    with raises(InputError, "array-unknown", role="label", name="y_train"):
        plan(Arrays(renamed, label="y_train"), tmp_path / "out")
