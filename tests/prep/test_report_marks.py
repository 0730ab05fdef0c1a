"""Masks, boxes and keypoints that a report draws, at their places."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file as encoded
from tests.prep.pages import parsed
from tfshards.prep import Coco, Table, build, report
from tfshards.prep.reporting.pictures import drawn, with_mask
from tfshards.schemas import Feature, Schema


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
    rows, columns = np.nonzero((np.asarray(drawn(schema, 200, values)) == (230, 159, 0)).all(axis=2))
    assert np.allclose((columns.min(), columns.max(), rows.min(), rows.max()), (20, 60, 10, 20), atol=1)


def test_masks_have_a_color_for_each_number():
    mask = np.zeros((20, 40), np.uint8)
    mask[:10, :20], mask[10:, 20:] = 1, 2
    over = np.asarray(with_mask(Image.new("RGB", (80, 40), "white"), encoded(Image.fromarray(mask))))
    assert (over[:20, 40:] == 255).all()
    assert len(np.unique(over.reshape(-1, 3), axis=0)) == 3


def pictures(source, folder):
    """Build a dataset; return the note about what is drawn, and the sources of the pictures on the page."""
    build(source, folder / "out")
    report(folder / "out", folder / "page.html")
    page = parsed(folder / "page.html")
    return page.section("sheet").text, {one.attributes["src"] for one in page.all("img")}


def test_boxes_of_coco_are_drawn_over_their_images(tmp_path):
    (tmp_path / "in/annotations").mkdir(parents=True)
    (tmp_path / "in/train2017").mkdir()
    names = [f"{number}.jpg" for number in range(3)]
    for name in names:
        Image.new("RGB", (90, 60), "white").save(tmp_path / "in/train2017" / name)
    box = {"id": 1, "image_id": 0, "category_id": 1, "bbox": [9, 9, 30, 30], "area": 1, "iscrowd": 0}
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    content = json.dumps({"images": images, "annotations": [box], "categories": [{"id": 1, "name": "cat"}]})
    (tmp_path / "in/annotations/instances_train2017.json").write_text(content)
    note, shown = pictures(Coco(tmp_path / "in"), tmp_path)
    assert "Drawn over the images: 'objects/bbox' (xywh)." in note
    # one of three equal images has a box
    assert len(shown) == 2


def test_declared_keypoints_are_drawn_over_their_images(tmp_path):
    for number in range(3):
        Image.new("RGB", (90, 60)).save(tmp_path / f"{number}.png")
    # of invisible ones nothing is drawn
    rows = [{"file_name": f"{n}.png", "points": [[20, 30, 2 * (n == 1)], [0, 0, 0]]} for n in range(3)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    note, shown = pictures(Table(tmp_path / "t.jsonl", {"points": "xyv"}), tmp_path)
    assert "Drawn over the images: 'points' (xyv)." in note
    assert len(shown) == 2
