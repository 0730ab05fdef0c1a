"""Folders of images hold what can be named by paths and written as JSON, and refuse the rest by name."""

from __future__ import annotations

from functools import partial

import pytest

from tests.prep.exported import EVERYTHING, example, write_dataset
from tfshards.prep import export
from tfshards.schemas import Feature, FormatError, InputError, Schema

quietly = partial(export, log=lambda _: None)


def test_keys_that_are_no_safe_paths_become_numbers(tmp_path):
    schema = Schema((EVERYTHING["image"], EVERYTHING["key"]))
    keys = [
        b"../../x.png",
        b"/etc/x.png",
        b"a//b",
        b"",
        b".hidden",
        b"metadata.jsonl",
        b"metadata.jsonl/x.png",
        b"x" * 300,
        b"fine/\xff.png",
    ]
    rows = [{"image": example(1)["image"], "key": key} for key in keys]
    write_dataset(tmp_path / "ds", schema, {"train": [rows]})
    made = quietly(tmp_path / "ds", tmp_path / "out", to="folder")
    assert sorted(made.files) == sorted(
        [f"train/{number:09d}.png" for number in range(8)] + ["train/fine/\udcff.png", "train/metadata.jsonl"]
    )


@pytest.mark.parametrize("shards", [1, 2])
def test_two_keys_with_one_path_are_refused(tmp_path, shards):
    schema = Schema((EVERYTHING["image"], EVERYTHING["key"]))
    rows = [{"image": example(1)["image"], "key": key} for key in (b"train/x.png", b"x.png")]
    write_dataset(tmp_path / "ds", schema, {"train": [rows] if shards == 1 else [[row] for row in rows]})
    with pytest.raises(
        InputError, match=r"two examples would both be written to 'train/x\.png': their keys dif"
    ):
        quietly(tmp_path / "ds", tmp_path / "out", to="folder")


FOLDER_FAULTS = [
    (Schema((Feature("x", "int", "int64"),)), "features: hold no image; parquet and webdataset store other"),
    (
        Schema((EVERYTHING["image"], EVERYTHING["label"]), ("a/b", "..", "no-class", "", "metadata.jsonl")),
        r"class_names\.a/b: cannot name a folder\n  class_names\.\.\.: cannot",
    ),
    (Schema((EVERYTHING["image"], Feature("w", "bytes", "bytes", (2, 2)))), "w: is an array of byte strings"),
]


@pytest.mark.parametrize(("schema", "message"), FOLDER_FAULTS)
def test_what_a_folder_cannot_hold_is_refused(tmp_path, schema, message):
    write_dataset(tmp_path / "ds", schema, {"train": [[]]})
    with pytest.raises(FormatError, match=message):
        quietly(tmp_path / "ds", tmp_path / "out", to="folder")


def test_values_that_json_lacks_are_refused_by_example_and_name(tmp_path):
    schema = Schema((EVERYTHING["image"], Feature("x", "float", "float32")))
    write_dataset(tmp_path / "ds", schema, {"train": [[{"image": example(1)["image"], "x": float("nan")}]]})
    with pytest.raises(
        InputError, match="example 0: the feature 'x' is not finite, which JSON cannot hold; leave"
    ):
        quietly(tmp_path / "ds", tmp_path / "out", to="folder")
