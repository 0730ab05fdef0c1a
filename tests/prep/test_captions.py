"""Several captions per image: rows that name the same image stay in one split."""

from __future__ import annotations

import os
from fractions import Fraction

import pyarrow as pa
import pytest

from tests.prep.test_table_nested import IMAGES, encoded, write_parquet
from tfshards.prep import Options, Table, append, plan
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.frames import read_records
from tfshards.prep.sources.tables.images import same_images
from tfshards.prep.sources.tables.staging import PATH, SAME
from tfshards.schemas import read_manifest

RATIOS = {"train": Fraction(1, 2), "val": Fraction(1, 2)}
LINE = "36 rows name 12 images; rows of one image stay in one split, unless group_by= names other "


def captions_by_split(out):
    """Return the captions of each split."""
    manifest = read_manifest(out)
    return {
        name: {
            decode_example(data)["caption"][0].decode()
            for shard in split.shards
            for _, data in read_records(out / shard.path, manifest.compression)
        }
        for name, split in manifest.splits.items()
    }


def rows_of(spellings, numbers):
    """Return lines of a table with one caption for each spelling of each image."""
    return [f"{spelling.format(n)},{n} {k}" for n in numbers for k, spelling in enumerate(spellings)]


def images_of(captions):
    return {caption.split()[0] for caption in captions}


SPELLINGS = {
    "equal": ["a/{}.png"] * 3,
    "other spellings": ["a/{}.png", "./a/{}.png", "a/../a//{}.png"],
    "links": ["a/{}.png", "link/{}.png", "link/{}-link.png"],
    "absolute paths": ["a/{}.png", "ROOT/a/{}.png", "ROOT/link/{}.png"],
}


@pytest.mark.parametrize("spellings", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_rows_of_one_image_stay_in_one_split(spellings, image_folder, quiet_build, tmp_path, log):
    root = image_folder({f"a/{number}.png": number for number in range(14)})
    (root / "link").symlink_to("a")
    for number in range(14):
        os.symlink(f"{number}.png", root / f"a/{number}-link.png")
    table = root / "rows.csv"
    spellings = [spelling.replace("ROOT", str(root)) for spelling in spellings]
    table.write_text("\n".join(["file_name,caption", *rows_of(spellings, range(12))]))
    manifest = quiet_build(Table(table), tmp_path / "out", options=Options(splits=RATIOS))
    splits = captions_by_split(tmp_path / "out")
    assert sum(map(len, splits.values())) == 36
    assert not images_of(splits["train"]) & images_of(splits["val"])
    assert manifest.splits["train"].num_examples == 18
    assert f"{LINE}groups" in log
    assert "same_image" not in plan(Table(table), tmp_path / "whole").options


def test_other_groups_are_those_of_the_user(image_folder, quiet_build, tmp_path, log):
    root = image_folder({f"{number}.png": number for number in range(4)})
    lines = [f"{row % 4}.png,{'abcdefgh'[row]},{row // 4}" for row in range(8)]
    (root / "rows.csv").write_text("\n".join(["file_name,caption,half", *lines]))
    manifest = quiet_build(
        Table(root / "rows.csv"), tmp_path / "out", options=Options(splits=RATIOS, group_by="half")
    )
    found = {frozenset(captions) for captions in captions_by_split(tmp_path / "out").values()}
    assert found == {frozenset("abcd"), frozenset("efgh")}
    assert "same_image" not in manifest.options


def test_one_row_per_image_is_split_as_before(image_folder, quiet_build, tmp_path):
    root = image_folder({f"{number}.png": number for number in range(4)})
    (root / "rows.csv").write_text("file_name\n" + "\n".join(f"{row}.png" for row in range(4)))
    manifest = quiet_build(Table(root / "rows.csv"), tmp_path / "out", options=Options(splits=RATIOS))
    assert "same_image" not in manifest.options


def test_rows_without_an_image_are_alone(image_folder, quiet_build, tmp_path):
    root = image_folder({f"{number}.png": number for number in range(4)})
    lines = [*(f"{row % 4}.png,a" for row in range(8)), ",c", ",d", "none.png,e", "none.png,f"]
    (root / "rows.csv").write_text("\n".join(["file_name,caption", *lines]))
    options = Options(splits=RATIOS, max_rejected=1)
    manifest = quiet_build(Table(root / "rows.csv"), tmp_path / "out", options=options)
    assert manifest.totals.rejected == 4
    assert manifest.options["same_image"] == "one split"


@pytest.mark.parametrize("name", ["0.png", None])
def test_images_of_one_path_inside_of_parquet_stay_in_one_split(name, quiet_build, tmp_path):
    rows = [{"bytes": encoded(0), "path": name} for _ in range(2)] + [
        {"bytes": encoded(1), "path": name and "1.png"}
    ]
    table = pa.table({"image": pa.array(rows, IMAGES), "caption": ["a", "b", "c"]})
    options = Options(splits=RATIOS)
    quiet_build(Table(write_parquet(tmp_path / "rows.parquet", table)), tmp_path / "out", options=options)
    splits = captions_by_split(tmp_path / "out")
    if name:
        assert {frozenset(captions) for captions in splits.values()} == {frozenset("ab"), frozenset("c")}
    assert ("same_image" in read_manifest(tmp_path / "out").options) == (name is not None)


def test_appended_captions_follow_their_image(image_folder, quiet_build, tmp_path):
    root = image_folder({f"{number}.png": number for number in range(20)})
    table = root / "rows.csv"
    lines = rows_of(["{}.png", "./{}.png"], range(10))
    table.write_text("\n".join(["file_name,caption", *lines]))
    quiet_build(Table(table), tmp_path / "out", options=Options(splits=RATIOS))
    table.write_text("\n".join(["file_name,caption", *lines, *rows_of([".//{}.png", "{}.png"], range(20))]))
    append([str(table)], tmp_path / "out", engine="local", log=lambda line: None)
    splits = captions_by_split(tmp_path / "out")
    assert sum(len(images_of(captions)) for captions in splits.values()) == 20
    assert not images_of(splits["train"]) & images_of(splits["val"])


def test_paths_from_the_root_of_the_file_system_are_their_own_folder(tmp_path):
    rows = pa.table(
        {PATH + "image": pa.array([b"x.png", b"/x.png", b"./x.png", b"//x.png"], pa.large_binary())}
    )
    one, other, same, also = same_images(os.fsencode(tmp_path), rows, ["image"])[SAME].to_pylist()
    assert one == same == b"x.png"
    assert other == also == os.path.relpath(b"/x.png", os.fsencode(tmp_path))


def test_stratified_splits_keep_rows_of_one_image_together(image_folder, quiet_build, tmp_path):
    root = image_folder({f"{number}.png": number for number in range(12)})
    rows = [
        f"{spelling}{number}.png,{number} {k},{number % 2}"
        for number in range(12)
        for k, spelling in enumerate(("", "./"))
    ]
    (root / "rows.csv").write_text("\n".join(["file_name,caption,label", *rows]))
    manifest = quiet_build(
        Table(root / "rows.csv"), tmp_path / "out", options=Options(splits=RATIOS, stratify=True)
    )
    splits = captions_by_split(tmp_path / "out")
    assert not images_of(splits["train"]) & images_of(splits["val"])
    assert {name: dict(split.label_counts) for name, split in manifest.splits.items()} == {
        "train": {"0": 6, "1": 6},
        "val": {"0": 6, "1": 6},
    }
