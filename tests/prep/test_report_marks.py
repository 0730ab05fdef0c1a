"""Masks and boxes that a report draws, what the numbers of boxes mean, and the records it chooses."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file as encoded
from tests.prep.pages import parsed
from tfshards.prep import Arrays, ColumnRoles, ImageFolder, ReportOptions, Table, build, report
from tfshards.prep.imaging.stored import draw_boxes, draw_mask, draw_points, thumbnail, thumbnail_of
from tfshards.prep.reporting.catalog import read_catalog
from tfshards.prep.reporting.glimpse import DrawnBoxes, DrawnPoints, boxes_of
from tfshards.schemas import Feature, Schema, read_manifest
from tfshards.schemas.coordinates import Coordinates

IMAGE = Feature("image", "image", "uint8", (None, None, 3))
BOXES = Feature("objects/bbox", "float", "float32", (None, 4))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    out = tmp_path_factory.mktemp("catalog") / "numbers"
    build(Arrays({"x": np.arange(60), "y": np.arange(60) % 3}, label="y"), out, shards=4, log=lambda _: None)
    return out


def test_the_examples_of_each_class_are_chosen_by_seed_and_have_that_class(numbers):
    catalog = read_catalog(numbers, read_manifest(numbers))
    chosen = catalog.some_of_each(5, seed=3)
    assert {label: len(rows) for label, rows in chosen.items()} == {0: 5, 1: 5, 2: 5}
    for label, rows in chosen.items():
        assert set(catalog.labels[rows].tolist()) == {label}
    assert catalog.some_of_each(5, seed=3) == chosen != catalog.some_of_each(5, seed=4)
    assert {len(rows) for rows in catalog.some_of_each(100, seed=3).values()} == {20}


def test_a_sample_is_spread_over_all_shards_and_holds_every_row_of_a_small_dataset(numbers):
    catalog = read_catalog(numbers, read_manifest(numbers))
    assert catalog.some(60, 0) == list(range(60))
    some = catalog.some(20, 0)
    assert len(set(some)) == 20
    assert [len(places) > 0 for _, places in catalog.by_part(some)] == [True] * 4


def test_an_example_is_located_by_its_number_in_the_split(numbers):
    catalog = read_catalog(numbers, read_manifest(numbers))
    assert [catalog.row_of("train", number) for number in (0, 16, 59, 60)] == [0, 16, 59, None]
    assert catalog.row_of("val", 0) is None


@pytest.mark.parametrize(
    ("reason", "coordinates", "given", "expected"),
    [
        ("the dataset declares it", "cxcywh-normalized", None, "cxcywh-normalized"),
        ("it is given", "xywh", "xyxy", "xyxy"),
        ("nothing states it", None, None, "None"),
    ],
)
def test_what_boxes_mean(numbers, reason, coordinates, given, expected):
    schema = Schema((IMAGE, replace(BOXES, coordinates=coordinates)))
    manifest = replace(read_manifest(numbers), schema=schema)
    found = boxes_of(manifest, given)
    assert found.feature == "objects/bbox"
    assert str(found.format) == expected, reason


def test_only_a_feature_that_is_declared_or_named_so_holds_boxes(numbers):
    declared = Feature("places", "float", "float32", (4,), "yxyx")
    found = boxes_of(replace(read_manifest(numbers), schema=Schema((IMAGE, BOXES, declared))), None)
    assert (found.feature, str(found.format)) == ("places", "yxyx")
    weights = Feature("weights", "float", "float32", (4,))
    assert boxes_of(replace(read_manifest(numbers), schema=Schema((IMAGE, weights))), None) is None


@pytest.mark.parametrize(
    ("order", "is_share", "box"),
    [
        ("xywh", False, [20, 10, 40, 10]),
        ("xyxy", False, [20, 10, 60, 20]),
        ("cxcywh", False, [40, 15, 40, 10]),
        ("yxyx", False, [10, 20, 20, 60]),
        ("xywh", True, [0.2, 0.2, 0.4, 0.2]),
        ("yxyx", True, [0.2, 0.2, 0.4, 0.6]),
    ],
)
def test_each_format_gives_the_same_edges(order, is_share, box):
    boxes = DrawnBoxes("objects/bbox", None, Coordinates(order, is_share))
    found = boxes.edges([*box, np.inf, 0, 1, 1], (100, 50))
    assert found == ([pytest.approx((0.2, 0.2, 0.6, 0.4))], is_share)


def test_boxes_are_drawn_at_their_edges():
    drawn = np.asarray(draw_boxes(Image.new("RGB", (101, 51)), [(0.2, 0.2, 0.6, 0.4), (9, 9, 1, 1)], [0, 1]))
    rows, columns = np.nonzero((drawn == (230, 159, 0)).all(axis=2))
    assert (columns.min(), columns.max(), rows.min(), rows.max()) == (20, 60, 10, 20)


def test_keypoints_that_are_labeled_are_drawn_as_disks():
    points = DrawnPoints("points", Coordinates("xyv")).shares([20, 10, 2, 80, 40, 0, 60, 30, 1], (100, 50))
    assert points == [(0.2, 0.2), (0.6, 0.6)]
    assert DrawnPoints("p", Coordinates("xy", True)).shares([0.5, 0.25, np.nan, 0], (9, 9)) == [(0.5, 0.25)]
    drawn = np.asarray(draw_points(Image.new("RGB", (101, 51)), points))
    rows, columns = np.nonzero((drawn == (230, 159, 0)).all(axis=2))
    assert (columns.mean(), rows.mean()) == (pytest.approx(20, abs=0.5), pytest.approx(10, abs=0.5))
    assert drawn[30, 60].any()


def test_a_mask_colors_all_numbers_but_0():
    mask = np.zeros((20, 40), np.uint8)
    mask[:10, :20], mask[10:, 20:] = 1, 2
    drawn = np.asarray(draw_mask(Image.new("RGB", (80, 40), "white"), encoded(Image.fromarray(mask))))
    assert (drawn[:20, 40:] == 255).all()
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) == 3
    with pytest.raises(ValueError, match="is not a known image"):
        draw_mask(Image.new("RGB", (4, 4)), b"no image")


@pytest.mark.parametrize(
    ("reason", "image", "color"),
    [
        ("gray of 16 bits is stretched", Image.fromarray(np.array([[0, 4095]], np.uint16)), (255, 255, 255)),
        ("transparent is white", Image.new("RGBA", (2, 1), (255, 0, 0, 0)), (255, 255, 255)),
        ("a palette has its colors", Image.new("RGB", (2, 1), (9, 99, 199)).quantize(4), (9, 99, 199)),
        ("bilevel is black or white", Image.new("1", (2, 1)), (0, 0, 0)),
    ],
)
def test_every_mode_is_drawn_in_rgb(reason, image, color):
    assert thumbnail(encoded(image), 64).getpixel((1, 0)) == color, reason


def test_thumbnails_keep_the_aspect_and_enlarge_nothing():
    large = encoded(Image.new("RGB", (400, 200)), "JPEG")
    assert thumbnail(large, 96).size == (96, 48)
    assert thumbnail(encoded(Image.new("L", (5, 3))), 96).size == (5, 3)
    assert thumbnail_of(Image.new("L", (400, 200)), 96).size == (96, 48)
    with pytest.raises(ValueError, match="is not a known image"):
        thumbnail(b"no image", 96)
    with pytest.raises(ValueError, match="truncated"):
        thumbnail(large[:-40], 96)
    assert thumbnail(large[:-40], 96, is_damaged=True).size == (96, 48)


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
    build(Table(tmp_path / "in", form="coco"), tmp_path / "out", log=lambda _: None)
    report(tmp_path / "out", tmp_path / "page.html", options=ReportOptions(audit=False))
    text = parsed(tmp_path / "page.html").section("marks").text
    assert "boxes 'objects/bbox' as xywh." in text
    assert "2 cat, 1 <b>" in text
    assert text.count("boxes: 0") == 2


def test_masks_are_drawn_over_their_images(tmp_path):
    for number in range(3):
        for folder, image in (("images", Image.new("RGB", (60, 40))), ("masks", Image.new("L", (60, 40), 1))):
            (tmp_path / "in" / folder).mkdir(parents=True, exist_ok=True)
            image.save(tmp_path / "in" / folder / f"{number}.png")
    build(ImageFolder(tmp_path / "in"), tmp_path / "out", log=lambda _: None)
    report(tmp_path / "out", tmp_path / "page.html", options=ReportOptions(audit=False))
    page = parsed(tmp_path / "page.html")
    assert "mask 'mask', a color for each number but 0." in page.section("marks").text
    over, plain = page.all("img")[0], page.all("img")[-1]
    assert over.attributes["src"] != plain.attributes["src"]


def test_numbers_of_boxes_without_classes_are_captions(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    image = encoded(Image.new("RGB", (90, 60)))
    boxes = pa.array(
        [[[9.0, 9, 20, 30], [50, 30, 80, 50]], [[9.0, 9, 20, 30]]], pa.list_(pa.list_(pa.float32(), 4))
    )
    pq.write_table(
        pa.table({"image": pa.array([image, image], pa.binary()), "boxes": boxes}), tmp_path / "t.parquet"
    )
    table = Table(tmp_path / "t.parquet", columns=ColumnRoles(images=("image",)))
    build(table, tmp_path / "out", log=lambda _: None)
    for boxes in (None, "xyxy"):
        options = ReportOptions(audit=False, boxes=boxes)
        report(tmp_path / "out", tmp_path / f"{boxes}.html", options=options)
    text = parsed(tmp_path / "xyxy.html").section("marks").text
    assert "boxes 'boxes' as xyxy." in text
    assert "boxes: 2" in text
    assert "boxes: 1" in text
    unknown = parsed(tmp_path / "None.html").section("marks").text
    assert "boxes 'boxes' are not drawn: --boxes states their format." in unknown


def test_declared_keypoints_are_drawn_over_their_images(tmp_path):
    for number in range(2):
        Image.new("RGB", (90, 60)).save(tmp_path / f"{number}.png")
    rows = [{"file_name": f"{number}.png", "points": [[20, 30, 2], [0, 0, 0]]} for number in range(2)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    columns = ColumnRoles(keypoints={"points": "xyv"})
    build(Table(tmp_path / "t.jsonl", columns=columns), tmp_path / "out", log=lambda _: None)
    report(tmp_path / "out", tmp_path / "page.html", options=ReportOptions(audit=False))
    page = parsed(tmp_path / "page.html")
    assert "keypoints 'points' as xyv." in page.section("marks").text
    over, plain = page.all("img")[0], page.all("img")[-1]
    assert over.attributes["src"] != plain.attributes["src"]
