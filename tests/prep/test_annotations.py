"""Annotations stay with their images through every verb.

tests/conformance/test_annotations.py has what boxes, keypoints and polygons become with an image.
"""

import pytest
from PIL import Image

from tests.prep.table_files import examples, write_jsonl
from tests.surface.command import main
from tfshards.schemas import read_manifest

SIDES, BOXES = (12, 8), {f"{n}.png": [n, 1, n + 3, 4] for n in range(7)}


def table_of(path, names):
    return write_jsonl(path, [{"file_name": name, "boxes": BOXES[name], "kind": "a"} for name in names])


def stored_boxes(out):
    """Return the boxes of each image, whose key may begin with the name of a split."""
    found = {key.rpartition("/")[2]: values["boxes"] for key, values in examples(out).items()}
    assert len(found) == len(examples(out))
    return found


@pytest.fixture
def photos(tmp_path):
    """A folder of photos with the tag of each orientation."""
    (tmp_path / "photos").mkdir()
    for number, name in enumerate(BOXES):
        exif = Image.Exif()
        exif[0x0112] = number + 1
        Image.new("RGB", SIDES).save(tmp_path / "photos" / name, exif=exif)
    return tmp_path / "photos"


def test_boxes_of_a_table_stay_with_their_images_through_every_verb(photos, tmp_path, capsys):
    some, out, whole = [*BOXES][:5], tmp_path / "out", tmp_path / "whole"
    table = table_of(tmp_path / "t.jsonl", some)
    flags = ["--root", str(photos), "--roles", "boxes=xyxy", "--boxes-in", "file"]
    assert main(["build", "table", str(table), str(out), *flags, "--resize", "long=6"]) == 0
    table_of(table, BOXES)
    assert main(["append", str(table), str(photos), str(out)]) == 0
    assert main(["build", "table", str(table), str(whole), *flags, "--resize", "long=6"]) == 0
    schema, wanted = read_manifest(whole).schema, stored_boxes(whole)
    assert schema["boxes"].coordinates == "xyxy"
    # the first is upright, and half as large
    assert wanted["0.png"] == [0, 0.5, 1.5, 2]
    assert (read_manifest(out).schema, stored_boxes(out)) == (schema, wanted)
    resharded, merged, keys = tmp_path / "resharded", tmp_path / "merged", tmp_path / "keys.txt"
    assert main(["reshard", str(whole), str(resharded), "--shards", "2"]) == 0
    assert (read_manifest(resharded).schema, stored_boxes(resharded)) == (schema, wanted)
    keys.write_text("\n".join(some))
    assert main(["remove", str(out), "--keys", str(keys)]) == 0
    assert {*stored_boxes(out)} == {*BOXES} - {*some}
    table_of(table, some)
    assert main(["build", "table", str(table), str(tmp_path / "some"), *flags, "--resize", "long=6"]) == 0
    assert main(["merge", f"a={out}", f"b={tmp_path / 'some'}", str(merged), "--as-splits"]) == 0
    assert read_manifest(merged).schema == schema
    found = {key: values["boxes"] for split in "ab" for key, values in examples(merged, split).items()}
    assert found == wanted
    capsys.readouterr()
    exported, again = tmp_path / "exported", tmp_path / "again"
    assert main(["export", str(whole), str(exported), "--to", "parquet"]) == 0
    # the flag that the command prints
    assert "--roles boxes=xyxy" in capsys.readouterr().err
    (table,) = (exported / "data").glob("*.parquet")
    flags = ["--roles", "boxes=xyxy", "--boxes-in", "upright"]
    assert main(["build", "table", str(table), str(again), *flags]) == 0
    assert sorted(values["boxes"] for values in examples(again).values()) == sorted(wanted.values())
