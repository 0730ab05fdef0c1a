"""Splits, and labels, that lists of files give."""

import numpy as np
import pytest

from tests.errors import raises
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
