"""Masks and boxes that a report draws, at their places and with their classes."""

import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tests.pictures import image_file as encoded
from tests.prep.pages import parsed
from tests.prep.table_files import write_parquet
from tfshards.prep import Coco, ImageFolder, Table, build, report
from tfshards.prep.reporting.pictures import Marks, with_mask
from tfshards.schemas import Feature, Schema


def page_of(source, folder):
    """Build a dataset and return the page about it."""
    build(source, folder / "out")
    report(folder / "out", folder / "page.html", audit=False)
    return parsed(folder / "page.html")


@pytest.mark.parametrize(
    ("form", "box"),
    [("xywh", [20, 10, 40, 10]), ("xyxy", [20, 10, 60, 20]), ("yxyx", [10, 20, 20, 60]),
     ("cxcywh", [40, 15, 40, 10]), ("xywh-normalized", [.2, .2, .4, .2]),
     ("yxyx-normalized", [.2, .2, .4, .6])],
)  # fmt: skip
def test_boxes_are_drawn_at_their_places(form, box):
    schema = Schema(
        (
            Feature("image", "image", "uint8", (None, None, 3)),
            Feature("boxes", "float", "float32", (None, 4), coordinates=form),
        )
    )
    image = encoded(Image.new("RGB", (101, 51)))
    scale = 1 if "-" in form else 1.01
    values = {"image": [image], "boxes": [*(scale * each for each in box), np.inf, 0, 1, 1, *([9] * 4)][:8]}
    drawn = np.asarray(Marks.of(schema).drawn(200, values))
    rows, columns = np.nonzero((drawn == (230, 159, 0)).all(axis=2))
    assert np.allclose((columns.min(), columns.max(), rows.min(), rows.max()), (20, 60, 10, 20), atol=1)
    assert Marks.of(schema).caption(values, schema) == "boxes: 1"


def test_masks_have_a_color_for_each_number():
    mask = np.zeros((20, 40), np.uint8)
    mask[:10, :20], mask[10:, 20:] = 1, 2
    drawn = np.asarray(with_mask(Image.new("RGB", (80, 40), "white"), encoded(Image.fromarray(mask))))
    assert (drawn[:20, 40:] == 255).all()
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) == 3


def test_boxes_of_coco_are_drawn_with_their_classes(tmp_path):
    (tmp_path / "in/annotations").mkdir(parents=True)
    (tmp_path / "in/train2017").mkdir()
    names = [f"{number}.jpg" for number in range(3)]
    for name in names:
        Image.new("RGB", (90, 60), "white").save(tmp_path / "in/train2017" / name)
    boxes = [
        {"id": number, "image_id": 0, "category_id": kind, "bbox": [9, 9, 30, 30], "area": 1, "iscrowd": 0}
        for number, kind in enumerate([1, 1, 2])
    ]
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    classes = [{"id": 1, "name": "cat"}, {"id": 2, "name": "<b>"}]
    content = json.dumps({"images": images, "annotations": boxes, "categories": classes})
    (tmp_path / "in/annotations/instances_train2017.json").write_text(content)
    text = page_of(Coco(tmp_path / "in"), tmp_path).section("marks").text
    assert "Boxes 'objects/bbox' as xywh." in text
    assert "2 cat, 1 <b>" in text
    assert text.count("boxes: 0") == 2


def test_masks_are_drawn_over_their_images(tmp_path):
    for number in range(3):
        for folder, image in (("images", Image.new("RGB", (60, 40))), ("masks", Image.new("L", (60, 40), 1))):
            (tmp_path / "in" / folder).mkdir(parents=True, exist_ok=True)
            image.save(tmp_path / "in" / folder / f"{number}.png")
    page = page_of(ImageFolder(tmp_path / "in"), tmp_path)
    assert "Mask 'mask', a color for each number but 0." in page.section("marks").text
    over, plain = page.all("img")[0], page.all("img")[-1]
    assert over.attributes["src"] != plain.attributes["src"]


def test_numbers_of_boxes_without_classes_are_captions(tmp_path):
    image = encoded(Image.new("RGB", (90, 60)))
    rows = [[[9.0, 9, 20, 30], [50, 30, 80, 50]], [[9.0, 9, 20, 30]]]
    boxes = pa.array(rows, pa.list_(pa.list_(pa.float32(), 4)))
    path = write_parquet(
        tmp_path / "t.parquet", {"image": pa.array([image] * 2, pa.binary()), "boxes": boxes}
    )
    text = page_of(Table(path, {"boxes": "xyxy"}), tmp_path).section("marks").text
    assert all(words in text for words in ("Boxes 'boxes' as xyxy.", "boxes: 2", "boxes: 1"))


def test_declared_keypoints_are_drawn_over_their_images(tmp_path):
    for number in range(2):
        Image.new("RGB", (90, 60)).save(tmp_path / f"{number}.png")
    rows = [{"file_name": f"{number}.png", "points": [[20, 30, 2], [0, 0, 0]]} for number in range(2)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    page = page_of(Table(tmp_path / "t.jsonl", {"points": "xyv"}), tmp_path)
    assert "Keypoints 'points' as xyv." in page.section("marks").text
    over, plain = page.all("img")[0], page.all("img")[-1]
    assert over.attributes["src"] != plain.attributes["src"]
