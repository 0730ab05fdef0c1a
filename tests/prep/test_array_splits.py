"""Arrays of several splits: by names such as ``x_train``, and as ``SPLIT:NAME``."""

import numpy as np
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import check_repair
from tfshards.prep import Arrays, Options, append, plan
from tfshards.prep.cli import main as cli
from tfshards.prep.records.frames import read_records
from tfshards.schemas import InputError, read_manifest
from tfshards.schemas.example import decode_example

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
    "explicit": (["test:a_b", "fold1:a_b"], ["test", "fold1"], ["a_b"]),
    "explicit, one split": (["train:x", "train:y"], ["train"], ["x", "y"]),
    "explicit, with more colons": (["train:x:y", "test:x:y"], ["train", "test"], ["x:y"]),
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
    names = ("train:image", "train:label", "test:image", "test:label")
    out = tmp_path / "out"
    arguments = [f"{name}={file}" for name, file in zip(names, files, strict=True)]
    # the training images in two parts
    np.save(tmp_path / "more.npy", MNIST["x_train"])
    arguments.append(f"train:image={tmp_path / 'more.npy'}")
    np.save(files[1], np.tile(MNIST["y_train"], 2))
    assert cli.main(["build", "arrays", *arguments, str(out)]) == 0
    manifest = read_manifest(out)
    assert {name: split.num_examples for name, split in manifest.splits.items()} == {"train": 24, "test": 5}
    assert examples(out, "train")[13]["image"][0] == MNIST["x_train"][1].tobytes()
    assert examples(out, "test")[24]["image"][0] == MNIST["x_test"][0].tobytes()


def test_text_of_splits_is_joined(tmp_path, quiet_build):
    given = {"train:label": np.array(["b", "a"]), "test:label": np.array(["ccc"])}
    manifest = quiet_build(Arrays(given), tmp_path / "out")
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
    "dtypes": ({"x_train": X, "x_test": X / 2}, fault("parts-shape", name="x")),
    "one array twice": ({"x_train": X, "train_x": X, "x_test": X}, fault("arrays-same-split", array="x")),
    "only some with a split": ({"train:x": X, "y": X}, fault("array-without-split", other="y")),
    "no name": ({"train:": X}, "array-split-name"),
    "no split": ({":x": X}, "array-split-name"),
    "an array of splits": ({"train:x": X, "train:fold": X}, "split-array-useless"),
}


@pytest.mark.parametrize(("arrays", "error"), WRONG.values(), ids=WRONG)
def test_splits_that_do_not_fit_together_are_refused(arrays, error, tmp_path):
    with raises(InputError, error):
        Arrays(arrays, split="fold" if "train:fold" in arrays else None).stage(tmp_path).listing()


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
