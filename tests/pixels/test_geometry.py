"""Boxes, keypoints and masks are where the delivered picture shows them, after all turns, crops and flips."""

import itertools
import json

import numpy as np
import pytest

from tests.pixels.scenes import (
    BOX_FORMATS,
    BOXES,
    COLORS,
    POINTS,
    boxes,
    edges,
    edges_of_boxes,
    points,
    scene,
    shown,
)
from tests.tables import mostly_nightly
from tfshards import loader, prep

# turns after which the sides of a mask show to which picture it belongs; the others are rejected
CLEAR = (1, 6, 5, 8, 7, 6)
POINT_FORMATS = ("xyv", "xy", "xyv", "xy-normalized")
RESIZES = (None, "64x120", "short=60", "long=200")
# format of boxes, of keypoints, what the numbers refer to, and how the build resizes
BUILDS = [
    (form, POINT_FORMATS[number % 4], reference, RESIZES[(number + offset) % 4])
    for number, form in enumerate(BOX_FORMATS)
    for offset, reference in enumerate(("file", "upright"))
]
# a stored pixel becomes at most two delivered ones, between which colors mix
SLACK = 2.5
SIZE = {"size": (90, 100)}
CUTS = {
    "resized": SIZE,
    "flipped": {**SIZE, "flip": "horizontal"},
    "turned over": {**SIZE, "flip": "vertical"},
    "centered": {"size": (72, 60), "crop": "center"},
    "random": {"size": (80, 96), "crop": "random", "scale": (0.5, 1.0)},
    "shifted": {"size": (44, 52), "crop": "shift"},
    "random and flipped": {"size": (96, 80), "crop": "random", "flip": "horizontal_and_vertical"},
    "nearest": {"size": (70, 90), "crop": "random", "flip": "horizontal", "method": "nearest"},
}


def build(folder, form, point_form, reference, resize):
    """Build a table of photos and masks that are turned in different ways."""
    rows = []
    for number, orientation in enumerate(CLEAR):
        each, kind = scene(number, orientation), "PNG" if number % 2 else "JPEG"
        name = f"{number:02}.{kind[:3].lower()}"
        (folder / name).write_bytes(each.image(kind))
        (folder / f"mask{number:02}.png").write_bytes(each.mask(upright=number % 3 == 0))
        classes = each.upright() if reference == "upright" else each.classes
        objects = {"bbox": boxes(classes, form), "kind": [*BOXES]}
        values = {"objects": objects, "points": points(classes, point_form), "number": number}
        rows.append({"file_name": name, "mask": f"mask{number:02}.png", **values})
    (folder / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    roles = {"objects/bbox": form, "points": point_form, "mask": "mask"}
    images = prep.ImageOptions(resize=resize)
    table = prep.Table(folder / "table.jsonl", roles, images, boxes_in=reference)
    prep.build(table, folder / "data", shards=2)


def options_of(cut, form, point_form):
    """Return the options of ``load`` and ``batches`` for a cut."""
    return {
        "batch_size": len(CLEAR),
        "image": loader.Image(**CUTS[cut]),
        "boxes": loader.Boxes("objects/bbox", along=("objects/kind",), min_visible=0.0),
        "keypoints": loader.Keypoints("points", flip_pairs=()),
        "shuffle": loader.Shuffle(seed=3),
        "epochs": 2,
    }


@pytest.mark.parametrize(("form", "point_form", "reference", "resize"), mostly_nightly(BUILDS, BUILDS[::3]))
def test_what_was_declared_stays_on_what_it_marked(form, point_form, reference, resize, tmp_path):
    build(tmp_path, form, point_form, reference, resize)
    for cut in CUTS:
        seen = 0
        for batch in loader.batches(tmp_path / "data", "train", **options_of(cut, form, point_form)):
            for row in range(len(batch["number"])):
                seen += compare({name: values[row] for name, values in batch.items()}, form, point_form, cut)
        # of 3 boxes and 2 points in each of 10 pictures
        assert seen > 15, cut


@pytest.fixture(scope="module")
def turned(tmp_path_factory):
    """Return a dataset of turned photos, with boxes, keypoints and masks."""
    folder = tmp_path_factory.mktemp("turned")
    build(folder, "xywh", "xyv", "file", None)
    return folder / "data"


@pytest.mark.parametrize("cut", mostly_nightly(CUTS, ["shifted", "random and flipped", "nearest"]))
def test_tensorflow_delivers_what_numpy_delivers(cut, turned):
    options = options_of(cut, "xywh", "xyv") | {"epochs": 1}
    (wanted,) = loader.batches(turned, "train", **options)
    (found,) = loader.load(turned, "train", **options)
    assert [*found] == [*wanted]
    for name, values in wanted.items():
        for row in range(len(CLEAR)):
            one, other = np.asarray(found[name][row]), np.asarray(values[row])
            assert one.shape == other.shape, name
            if name == "image":
                # TensorFlow decodes the crop of a JPEG without the columns beside it
                inner = np.abs(one.astype(int) - other)[:, 8:-8]
                assert inner.max() <= 1 if cut != "nearest" else (inner > 1).mean() < 0.01
            elif other.dtype.kind == "f":
                assert np.allclose(one, other, atol=1e-3), name
            else:
                assert np.array_equal(one, other), name


def test_a_mirrored_picture_exchanges_left_and_right_keypoints(turned):
    options = options_of("flipped", "xywh", "xyv")
    (plain, *_) = loader.batches(turned, "train", **options)
    pairs = {"keypoints": loader.Keypoints("points", flip_pairs=((0, 1),))}
    (swapped, *_) = loader.batches(turned, "train", **options | pairs)
    mirrored = 0
    for row in range(len(CLEAR)):
        points, others = plain["points"][row], swapped["points"][row]
        # the first keypoint is on the left of the second in an upright photo that was not turned over
        if np.array_equal(points, others):
            continue
        assert np.array_equal(points[::-1], others)
        mirrored += 1
    assert 0 < mirrored < len(CLEAR)


def compare(example, form, point_form, cut):
    """Compare an example's boxes, points and mask with its pixels; return how many were compared."""
    picture, mask = example["image"], example.get("mask")
    sides = picture.shape[:2]
    areas = shown(picture)
    compared = 0
    found = edges_of_boxes(example["objects/bbox"], form, sides)
    assert len(found) == len(example["objects/kind"]), cut
    for kind, box in zip(example["objects/kind"], found, strict=True):
        if min(box[2] - box[0], box[3] - box[1]) < 4:
            continue
        assert np.abs(np.subtract(edges(areas[kind], True), box)).max() <= SLACK, (cut, kind)
        compared += 1
    missing = {*BOXES} - {*example["objects/kind"].tolist()}
    assert all(areas[kind].sum() <= 9 for kind in missing), cut
    across, down = (sides[1], sides[0]) if point_form.endswith("-normalized") else (1, 1)
    for kind, point in zip(POINTS, np.asarray(example["points"]), strict=True):
        x, y = point[0] * across, point[1] * down
        is_inside = 2 < x < sides[1] - 2 and 2 < y < sides[0] - 2
        if not is_inside or (point_form == "xyv" and point[2] == 0):
            continue
        left, top, right, bottom = edges(areas[kind], True)
        if left > 0 and top > 0 and right < sides[1] and bottom < sides[0]:
            assert abs((left + right) / 2 - x) <= SLACK, (cut, kind)
            assert abs((top + bottom) / 2 - y) <= SLACK, (cut, kind)
            compared += 1
    if mask is None:
        return compared
    # at the edges of an area the picture is mixed, and the mask is not
    mask = mask[..., 0]
    assert {*np.unique(mask).tolist()} <= {0, *COLORS}
    for kind, area in areas.items():
        assert (mask[eroded(area)] == kind).all(), (cut, kind)
        assert area[eroded(mask == kind)].all(), (cut, kind)
    return compared


def eroded(area):
    """Return an area without its outer three pixels, bool of the same shape."""
    for axis, step in itertools.product((0, 1), (1, -1)):
        for _ in range(3):
            area = area & np.roll(area, step, axis)
    return area
