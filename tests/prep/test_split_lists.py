"""Splits, and labels, that lists of files give."""

import numpy as np
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import encoded, examples, write_jsonl, write_text
from tfshards.prep import ColumnRoles, ImageFolder, Table, append, repair
from tfshards.prep.cli.main import main
from tfshards.schemas import InputError, OptionsError, read_manifest

FILES = ["cat/a.png", "cat/b b.png", "dog/c.png", "dog/d.png", "x.png"]


@pytest.fixture
def photos(tmp_path):
    """Write images of two classes, and one next to them, and return their folder."""
    root = tmp_path / "food" / "images"
    for number, name in enumerate(FILES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(encoded(number))
    return root


def splits(out):
    return {name: [*examples(out, name)] for name in read_manifest(out).splits}


LISTS = {
    "paths": ("../meta", ["cat/a.png", "dog/c.png"], ["cat/b b.png"]),
    "without suffixes": ("../meta", ["cat/a", "/dog/c", ""], ["./cat/b b"]),
    "backslashes": ("../meta", ["cat\\a.png", "dog\\c.png"], ["cat/b b"]),
    "relative to the list": ("cat", ["a.png", "../dog/c"], ["b b.png"]),
}


@pytest.mark.parametrize(("folder", "train", "test"), LISTS.values(), ids=LISTS)
def test_lists_give_the_splits_of_images_in_class_folders(folder, train, test, photos, tmp_path, capsys):
    write_text(photos / folder / "train.txt", *train)
    write_text(photos / folder / "test.txt", *test)
    out = tmp_path / "out"
    flags = ["--split-list", f"train={folder}/train.txt", "--split-list", f"test={folder}/test.txt"]
    assert main(["build", "images", str(photos), str(out), *flags]) == 0
    assert splits(out) == {"train": ["cat/a.png", "dog/c.png"], "test": ["cat/b b.png"]}
    assert {key: each["label"] for key, each in examples(out).items()} == {
        "cat/a.png": [0],
        "cat/b b.png": [0],
        "dog/c.png": [1],
    }
    manifest = read_manifest(out)
    assert manifest.totals.reasons["skipped"]["in no split list"] == 2
    assert "2 files in no split list, such as 'dog/d.png': left out" in capsys.readouterr().err


LABELS = {
    "numbers after spaces": (["cat/a.png 3", "cat/b b.png 0", "x.png -1"], None, (), [3, 0, -1]),
    "numbers of names": (["cat/a 1", "cat/b b 0", "x 0"], ("p", "q"), ("p", "q"), [1, 0, 0]),
    "names after tabs": (["cat/a\tred fox", "cat/b b\tant", "x\tant"], None, ("ant", "red fox"), [1, 0, 0]),
    "names after commas": (["cat/a.png,b", "cat/b b.png, a", "x.png,a"], ("b", "a"), ("b", "a"), [0, 1, 1]),
}


@pytest.mark.parametrize(("lines", "given", "names", "labels"), LABELS.values(), ids=LABELS)
def test_labels_in_lists_replace_those_of_folders(lines, given, names, labels, photos, tmp_path, quiet_build):
    write_text(photos / "train.txt", *lines)
    source = ImageFolder(photos, class_names=given, split_list={"train": "train.txt"})
    manifest = quiet_build(source, tmp_path / "out")
    keys = ["cat/a.png", "cat/b b.png", "x.png"]
    assert {key: each["label"] for key, each in examples(tmp_path / "out").items()} == {
        key: [label] for key, label in zip(keys, labels, strict=True)
    }
    assert manifest.schema.class_names == names


def test_a_change_of_a_list_is_another_build(photos, tmp_path, quiet_build):
    source = ImageFolder(photos, split_list={"train": "train.txt"})
    write_text(photos / "train.txt", "cat/a.png 3")
    first = quiet_build(source, tmp_path / "a")
    shard = tmp_path / "a" / first.shards[0].path
    before = shard.read_bytes()
    shard.write_bytes(before[:-1])
    assert repair(tmp_path / "a", photos)
    assert shard.read_bytes() == before
    write_text(photos / "train.txt", "cat/a.png 4")
    assert quiet_build(source, tmp_path / "b").build_id != first.build_id


def test_masks_follow_their_images_in_lists(tmp_path, quiet_build):
    for number, name in enumerate("abc"):
        for folder, mode in (("images", "RGB"), ("masks", "L")):
            (tmp_path / "voc" / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / "voc" / folder / f"{name}.png").write_bytes(encoded(number, mode=mode))
    write_text(tmp_path / "voc" / "sets" / "val.txt", "images/b", "images/c.png")
    source = ImageFolder(tmp_path / "voc", exclude=("**/c.png",), split_list={"val": "sets/val.txt"})
    quiet_build(source, tmp_path / "out")
    assert splits(tmp_path / "out") == {"val": ["images/b.png"]}


WRONG = {
    "gone": (["cat/a.png", "cat/gone.png"], fault("split-list-missing", num_missing=1, first="cat/gone.png")),
    "two files of the name": (["cat/a"], fault("split-list-missing", num_missing=1, count=1)),
    "twice": (["cat/a.png", "cat/./a.png"], fault("split-list-repeated", key="cat/a.png", split="train")),
    "some labels": (["cat/a.png 1", "dog/c.png"], fault("split-list-labels-missing", first="dog/c.png")),
    "beyond the names": (["cat/a.png 2"], fault("split-list-label", found=2)),
    "other names": (["cat/a.png z"], "classes-differ"),
    "no lines": ([""], fault("split-list-missing", count=0)),
}


@pytest.mark.parametrize(("lines", "expected"), WRONG.values(), ids=WRONG)
def test_lists_that_do_not_fit_are_refused(lines, expected, photos):
    (photos / "cat" / "a.jpg").write_bytes(encoded(9, "JPEG"))
    write_text(photos / "train.txt", *lines)
    source = ImageFolder(photos, class_names=("p", "q"), split_list={"train": "train.txt"})
    with raises(InputError, expected):
        source.listing()
    with raises(InputError, "unreadable"):
        ImageFolder(photos, split_list={"train": "gone.txt"}).listing()


@pytest.mark.parametrize(
    "given", ["train.txt", {"a b": "x"}, {"train": "/x"}, {"train": ""}, {"train": "s3://b/x"}]
)
def test_lists_have_splits_and_relative_paths(given):
    for source in (ImageFolder, Table):
        with raises(OptionsError, "split-list-form"):
            source("x", split_list=given)
    with raises(OptionsError, "split-list-and-folders"):
        ImageFolder("x", split_list={"train": "x"}, split_folders={"train": "y"})


def test_lists_give_the_splits_of_rows_by_their_images(photos, tmp_path, capsys):
    rows = [{"file_name": f"images/{name}", "x": number} for number, name in enumerate(FILES)]
    path = write_jsonl(tmp_path / "food" / "t.jsonl", rows)
    write_text(tmp_path / "food" / "train.txt", "images/cat/a", "images/x.png")
    write_text(tmp_path / "food" / "val.txt", "images/dog/d.png")
    out = tmp_path / "out"
    flags = ["--split-list=train=train.txt", "--split-list=val=val.txt"]
    assert main(["build", "table", str(path), str(out), *flags]) == 0
    assert splits(out) == {"train": ["images/cat/a.png", "images/x.png"], "val": ["images/dog/d.png"]}
    assert {key: each["x"] for key, each in examples(out).items()} == {
        f"images/{FILES[number]}": [number] for number in (0, 3, 4)
    }
    manifest = read_manifest(out)
    assert (manifest.totals.entries, manifest.totals.skipped) == (5, 2)
    assert "2 files in no split list" in capsys.readouterr().err
    write_text(tmp_path / "food" / "val.txt", "images/dog/d.png", "images/dog/c.png")
    append(path, out, log=lambda _: None)
    assert splits(out)["val"] == ["images/dog/c.png", "images/dog/d.png"]


TABLES = {
    "no images": ([{"x": 1}], ["a"], "split-list-table"),
    "a column of splits": ([{"file_name": "cat/a.png", "split": "train"}], ["cat/a.png"], "split-list-table"),
    "labels": ([{"file_name": "cat/a.png"}], ["cat/a.png 1"], "split-list-table-labels"),
}


@pytest.mark.parametrize(("rows", "lines", "code"), TABLES.values(), ids=TABLES)
def test_lists_of_a_table_need_paths_alone(rows, lines, code, photos, tmp_path):
    write_text(photos / "train.txt", *lines)
    path = write_jsonl(photos / "t.jsonl", rows)
    with raises(InputError, code):
        Table(path, split_list={"train": "train.txt"}).stage(tmp_path)
    if "split" in rows[0]:
        roles = ColumnRoles(split="")
        listing = Table(path, columns=roles, split_list={"train": "train.txt"}).stage(tmp_path).listing()
        assert np.array_equal(listing.splits["train"], [0])
