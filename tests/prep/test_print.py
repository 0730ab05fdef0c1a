"""Text of plans, manifests and classes: the same from Python and from the command line."""

from dataclasses import replace

import numpy as np
import pytest

from tests.errors import raises
from tfshards import prep
from tfshards.prep import ImageFolder
from tfshards.prep.building.output_state import wanted_of
from tfshards.prep.cli.main import main
from tfshards.schemas import Feature, OptionsError, Schema
from tfshards.schemas.summary import class_lines

KEY = Feature("key", "bytes", "bytes")
TWENTY = [f"c{n}" for n in range(20)]
TAGS = Schema((Feature("tags", "label", "int64", (None,)), KEY), ("ant", "b\ne", "cat"))


def test_class_numbers_are_listed_in_order_for_all_splits():
    lines = class_lines({"train": {"2": 1, "10": 3}, "val": {"0": 4}})
    assert [line.split() for line in lines] == [
        ["class", "train", "val"],
        ["0", "0", "4"],
        ["2", "1", "0"],
        ["10", "3", "0"],
    ]


@pytest.mark.parametrize(
    ("schema", "lines"),
    [
        (TAGS, [r"tags: several classes per example, not counted: ant, b\ne, cat"]),
        (Schema(TAGS.features), ["tags: several classes per example, not counted"]),
        (Schema((Feature("y", "label", "int64"),)), ["y: examples without a class, not counted"]),
        (
            Schema(TAGS.features, tuple(f"c{n}" for n in range(50))),
            [f"tags: several classes per example, not counted: {', '.join(TWENTY)} and 30 more"],
        ),
        (None, ["no labels"]),
    ],
)
def test_classes_that_are_not_counted_are_named(schema, lines):
    assert class_lines({"train": {}}, schema) == lines


def test_long_names_are_cut_in_the_middle_unless_all_are_asked_for():
    name = "n01440764 tench, Tinca tinca, a fish of fresh and brackish water"
    lines = class_lines({"train": {name: 3, "b": 4}})
    assert lines == [
        "class                                     train",
        "n01440764 tench, Tin… and brackish water      3",
        "b                                             4",
    ]
    assert class_lines({"train": {name: 3}}, all_classes=True)[1] == f"{name}      3"


def test_quantiles_are_those_of_each_split_and_left_out_without_classes():
    counts = {"train": {f"c{n:03}": n for n in range(100)}, "val": {"c005": 3}, "test": {}}
    lines = class_lines(counts)
    assert lines[1].split() == ["c099", "99", "0", "-"]
    rows = [line.split()[-3:] for line in lines[-5:]]
    assert rows == [["0", "0", "-"], ["25", "0", "-"], ["50", "0", "-"], ["74", "0", "-"], ["99", "3", "-"]]


def test_a_plan_without_steps_names_the_batch_size(array_files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    array_files(x=np.arange(9))
    assert main(["plan", "arrays", "x.npy", "data"]) == 0
    printed = capsys.readouterr().out
    assert "no steps: every split has fewer than 32 examples, which are one batch" in printed
    assert "workers" not in printed
    assert main(["plan", "arrays", "x.npy", "data", "--batch-size", "9"]) == 0
    assert "steps per epoch, batch 9 per worker" in capsys.readouterr().out


def test_a_plan_prints_the_text_of_the_verb_and_writes_nothing(array_files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    array_files(x=np.arange(40), label=np.arange(40) % 2)
    source = prep.Arrays.open(["x.npy", "label.npy"])
    plan = prep.plan(source, "data", shards={"train": 2}, seed=3)
    assert main(["plan", "arrays", "x.npy", "label.npy", "data", "--shards", "train=2", "--seed", "3"]) == 0
    assert capsys.readouterr().out == f"{plan!r}\n"
    assert not (tmp_path / "data").exists()
    manifest = prep.build(source, "data", shards=2, seed=3)
    assert manifest.inputs_digest == plan.inputs_digest
    assert wanted_of(plan).is_in(manifest)
    assert not wanted_of(prep.plan(source, "data", shards=2, seed=4)).is_in(manifest)
    with raises(OptionsError, "shards-range", asked="shards=0"):
        prep.plan(source, "other", shards=0)


def test_a_manifest_prints_the_text_of_info_and_is_compared_by_content(array_files, tmp_path, capsys):
    (x,) = array_files(x=np.arange(9))
    manifest = prep.build(prep.Arrays.open([x]), tmp_path / "data", shards=2)
    assert main(["info", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().out == f"{manifest!r}\n"
    assert prep.info(tmp_path / "data") == manifest
    assert replace(manifest, name="other") != manifest


def test_classes_come_by_number_and_numbers_as_names_are_warned_of(image_folder, tmp_path, quiet_build, log):
    root = image_folder({f"{number}/a.png": number for number in range(11)})
    manifest = quiet_build(ImageFolder(root), tmp_path / "out")
    listed = [one.split()[0] for one in class_lines({"train": {}} | label_counts(manifest), manifest.schema)]
    assert listed[1:] == [*manifest.schema.class_names] == sorted(map(str, range(11)))
    (warning,) = [line for line in log if "numbers" in line]
    assert warning == (
        "warning: the class names are numbers, but not the labels, which follow the names sorted as text: "
        "class '10' has label 2; class_names= gives them in another order"
    )
    log.clear()
    names = tuple(map(str, range(11)))
    manifest = quiet_build(ImageFolder(root, class_names=names), tmp_path / "other")
    assert manifest.schema.class_names == names
    assert not [line for line in log if "numbers" in line]


def label_counts(manifest):
    return {name: split.label_counts for name, split in manifest.splits.items()}
