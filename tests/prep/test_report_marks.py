"""Masks and boxes that a report draws, what the numbers of boxes mean, and the records it chooses."""

import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tests.pictures import image_file as encoded
from tests.prep.pages import parsed
from tests.prep.table_files import write_parquet
from tfshards.prep import Coco, ImageFolder, ReportOptions, Table, build, report
from tfshards.prep.reporting.drawing import draw_boxes, draw_mask
from tfshards.prep.reporting.glimpse import DrawnBoxes
from tfshards.schemas.coordinates import Coordinates


def page_of(source, folder, **options):
    """Build a dataset and return the page about it."""
    build(source, folder / "out")
    report(folder / "out", folder / "page.html", options=ReportOptions(audit=False, **options))
    return parsed(folder / "page.html")


@pytest.mark.parametrize(
    ("order", "is_share", "box"),
    [("xywh", False, [20, 10, 40, 10]), ("xyxy", False, [20, 10, 60, 20]), ("yxyx", False, [10, 20, 20, 60]),
     ("cxcywh", False, [40, 15, 40, 10]), ("xywh", True, [.2, .2, .4, .2]), ("yxyx", True, [.2, .2, .4, .6])],
)  # fmt: skip
def test_each_format_gives_the_same_edges(order, is_share, box):
    boxes = DrawnBoxes("objects/bbox", None, Coordinates(order, is_share))
    found = boxes.edges([*box, np.inf, 0, 1, 1], (100, 50))
    assert found == ([pytest.approx((0.2, 0.2, 0.6, 0.4))], is_share)


def test_marks_are_drawn_at_their_places():
    drawn = np.asarray(draw_boxes(Image.new("RGB", (101, 51)), [(0.2, 0.2, 0.6, 0.4), (9, 9, 1, 1)], [0, 1]))
    rows, columns = np.nonzero((drawn == (230, 159, 0)).all(axis=2))
    assert (columns.min(), columns.max(), rows.min(), rows.max()) == (20, 60, 10, 20)
    mask = np.zeros((20, 40), np.uint8)
    mask[:10, :20], mask[10:, 20:] = 1, 2
    drawn = np.asarray(draw_mask(Image.new("RGB", (80, 40), "white"), encoded(Image.fromarray(mask))))
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
    assert "boxes 'objects/bbox' as xywh." in text
    assert "2 cat, 1 <b>" in text
    assert text.count("boxes: 0") == 2


def test_masks_are_drawn_over_their_images(tmp_path):
    for number in range(3):
        for folder, image in (("images", Image.new("RGB", (60, 40))), ("masks", Image.new("L", (60, 40), 1))):
            (tmp_path / "in" / folder).mkdir(parents=True, exist_ok=True)
            image.save(tmp_path / "in" / folder / f"{number}.png")
    page = page_of(ImageFolder(tmp_path / "in"), tmp_path)
    assert "mask 'mask', a color for each number but 0." in page.section("marks").text
    over, plain = page.all("img")[0], page.all("img")[-1]
    assert over.attributes["src"] != plain.attributes["src"]


def test_numbers_of_boxes_without_classes_are_captions(tmp_path):
    image = encoded(Image.new("RGB", (90, 60)))
    rows = [[[9.0, 9, 20, 30], [50, 30, 80, 50]], [[9.0, 9, 20, 30]]]
    boxes = pa.array(rows, pa.list_(pa.list_(pa.float32(), 4)))
    path = write_parquet(
        tmp_path / "t.parquet", {"image": pa.array([image] * 2, pa.binary()), "boxes": boxes}
    )
    table = Table(path, {"boxes": "value"})
    text = page_of(table, tmp_path, boxes="xyxy").section("marks").text
    assert all(words in text for words in ("boxes 'boxes' as xyxy.", "boxes: 2", "boxes: 1"))
    unknown = page_of(table, tmp_path).section("marks").text
    assert "boxes 'boxes' are not drawn: --boxes states their format." in unknown


def test_declared_keypoints_are_drawn_over_their_images(tmp_path):
    for number in range(2):
        Image.new("RGB", (90, 60)).save(tmp_path / f"{number}.png")
    rows = [{"file_name": f"{number}.png", "points": [[20, 30, 2], [0, 0, 0]]} for number in range(2)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    page = page_of(Table(tmp_path / "t.jsonl", {"points": "xyv"}), tmp_path)
    assert "keypoints 'points' as xyv." in page.section("marks").text
    over, plain = page.all("img")[0], page.all("img")[-1]
    assert over.attributes["src"] != plain.attributes["src"]
