"""Columns of lists of images: one image after another, of any number or of one number in all rows."""

import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep import table_files
from tests.prep.table_files import IMAGES, encoded, examples, write_jsonl, write_text
from tfshards import loader
from tfshards.prep import ColumnRoles, RowOptions, Table, append, verify
from tfshards.prep.cli.main import main
from tfshards.schemas import InputError, read_manifest

VIEWS = [["a0.png", "a1.png"], ["b0.png"], [], ["c0.png", "c1.png", "a0.png"]]


@pytest.fixture
def photos(tmp_path):
    """Write images, and return the bytes of one by its path."""
    names = sorted({name for row in VIEWS for name in row} | {"d0.png", "d1.png"})
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(encoded(number))
    return lambda name: encoded(names.index(name))


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def views(out, name="views"):
    """Return the images of the examples by their number."""
    return {each["number"][0]: each[name] for each in examples(out).values()}


def test_lists_of_paths_are_lists_of_images(photos, tmp_path):
    rows = [{"number": number, "views": names} for number, names in enumerate(VIEWS)]
    path, out = write_jsonl(tmp_path / "t.jsonl", rows), tmp_path / "out"
    assert main(["build", "table", str(path), str(out), "--image", "views", "--quiet"]) == 0
    expected = {number: [photos(name) for name in names] for number, names in enumerate(VIEWS)}
    assert views(out) == expected
    manifest = read_manifest(out)
    assert manifest.schema["views"].shape == (None, None, None, 3)
    assert verify(out, deep=True, decode=True)
    data = loader.load(out, batch_size=4, select=("number", "views"), image=loader.Image(size=(6, 8)))
    for numbers, images in data:
        for number, found in zip(numbers.numpy(), images, strict=True):
            wanted = [pixels(each) for each in expected[number]]
            assert np.array_equal(found.numpy(), np.array(wanted).reshape(-1, 6, 8, 3))
    write_jsonl(path, [*rows, {"number": 4, "views": ["d0.png"]}])
    append(path, out, log=lambda _: None)
    assert views(out) == {**expected, 4: [photos("d0.png")]}
    table_files.check_repair(out, path)


def test_lists_of_one_length_have_it_in_their_shape(photos, tmp_path, build_table, log):
    rows = [{"number": 0, "views": ["a0.png", "a1.png"]}, {"number": 1, "views": ["c0.png", "c1.png"]}]
    manifest = build_table(write_jsonl(tmp_path / "t.jsonl", rows))
    assert manifest.schema["views"].shape == (2, None, None, 3)
    assert any("'views' holds images" in line for line in log)
    assert views(tmp_path / "out") == {row["number"]: [*map(photos, row["views"])] for row in rows}
    ((images,),) = loader.load(
        tmp_path / "out", batch_size=2, select=("views",), image=loader.Image(size=(3, 4))
    )
    assert images.shape == (2, 2, 3, 4, 3)


def test_rows_of_one_image_each_become_lists(photos, tmp_path, build_table, log):
    path = write_text(tmp_path / "t.csv", "number,view,x", "0,a0.png,1", "1,b0.png,2", "0,a1.png,3")
    rows = RowOptions(one_row_per=("number",))
    build_table(path, columns=ColumnRoles(images=("view",)), rows=rows)
    assert views(tmp_path / "out", "view") == {0: [photos("a0.png"), photos("a1.png")], 1: [photos("b0.png")]}
    assert any("lists: view, x" in line for line in log)


def test_images_in_lists_of_a_file_are_lists(photos, tmp_path, build_table):
    cells = [[{"bytes": photos(name), "path": None} for name in names] for names in VIEWS]
    table = pa.table({"number": range(4), "views": pa.array(cells, pa.list_(IMAGES))})
    build_table(table_files.write_parquet(tmp_path / "t.parquet", table))
    assert views(tmp_path / "out") == {n: [*map(photos, names)] for n, names in enumerate(VIEWS)}


def test_lists_of_masks_next_to_an_image(photos, tmp_path, build_table):
    for number in range(3):
        (tmp_path / f"m{number}.png").write_bytes(encoded(number, mode="L"))
    rows = [
        {"number": 0, "file_name": "a0.png", "masks": ["m0.png", "m1.png"]},
        {"number": 1, "file_name": "b0.png", "masks": ["m2.png"]},
    ]
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    manifest = build_table(path, columns=ColumnRoles(masks=("masks",)))
    assert manifest.schema["masks"].kind == "mask"
    stored = views(tmp_path / "out", "masks")
    for row in rows:
        wanted = [pixels((tmp_path / name).read_bytes()) for name in row["masks"]]
        assert np.array_equal([pixels(each) for each in stored[row["number"]]], wanted)


def test_a_row_with_a_missing_image_in_its_list_is_rejected_by_name(photos, tmp_path):
    rows = [{"number": 0, "views": ["a0.png", "gone.png"]}, {"number": 1, "views": ["b0.png", None]}]
    rows += [{"number": 2, "views": ["b0.png"]}]
    path, out = write_jsonl(tmp_path / "t.jsonl", rows), tmp_path / "out"
    flags = ["--image", "views", "--max-rejected", "70%", "--quiet"]
    assert main(["build", "table", str(path), str(out), *flags]) == 0
    assert views(out) == {2: [photos("b0.png")]}
    text = next(out.glob("rejected-*")).read_text()
    assert "views[1]: there is no file 'gone.png'" in text
    assert "views[1]: the row names no file" in text


WRONG = {
    "boxes": ({"boxes": {"box": "xywh"}}, "boxes-of-image-list"),
    "boxes that no one declared": ({}, "boxes-of-image-list"),
    "splits of lists": ({"split": "views", "boxes": {"box": "none"}}, "split-column-type"),
}


@pytest.mark.parametrize(("roles", "code"), WRONG.values(), ids=WRONG)
def test_what_belongs_to_one_image_is_refused(roles, code, photos, tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"views": ["a0.png", "a1.png"], "box": [0, 0, 1, 1]}])
    with raises(InputError, code):
        Table(path, columns=ColumnRoles(images=("views",), **roles)).stage(tmp_path)


def test_lists_have_an_end(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"views": [["a0.png"]]}])
    with raises(InputError, "image-list-long"):
        Table(path, columns=ColumnRoles(images=("views",))).stage(tmp_path)
    path = write_jsonl(tmp_path / "t.jsonl", [{"views": ["a.png"] * 1001}])
    with raises(InputError, "image-list-long", found=1001):
        Table(path, columns=ColumnRoles(images=("views",))).stage(tmp_path)
