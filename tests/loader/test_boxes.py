"""Boxes are where the image shows what they enclose, after crops, resizing and flips."""

import io
import itertools

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.errors import fault, raises
from tests.pictures import image_file
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Boxes, Image
from tfshards.loader.examples.boxes import moved_boxes
from tfshards.loader.graph.ops import GRAPH
from tfshards.schemas import Feature, OptionsError, Schema

COLORS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
SCHEMA = Schema(
    (
        Feature("image", "image", "uint8", (None, None, 3)),
        Feature("boxes", "float", "float32", (None, 4)),
        Feature("classes", "int", "int64", (None,)),
        Feature("names", "bytes", "bytes", (None,)),
        Feature("points", "int", "int64", (None, 2)),
        Feature("pair", "int", "int64", (2,)),
        Feature("number", "int", "int64"),
    )
)


def edges_of(number):
    """Return left, top, right and bottom edges of up to three boxes that do not touch, and the sides."""
    random = np.random.default_rng(number)
    height, width = random.integers(60, 140, 2)
    count = number % 4
    edges = []
    for column in range(count):
        low, high = column * width // 3, (column + 1) * width // 3 - 2
        left, right = np.sort(random.choice(np.arange(low, high), 2, replace=False))
        top, bottom = np.sort(random.choice(np.arange(height), 2, replace=False))
        edges.append([left, top, right, bottom])
    return np.array(edges, np.float32).reshape(-1, 4), (int(height), int(width))


def formatted(edges, sides, kind, normalized=False):
    left, top, right, bottom = edges.T
    rows = {
        "xyxy": [left, top, right, bottom],
        "yxyx": [top, left, bottom, right],
        "xywh": [left, top, right - left, bottom - top],
        "cxcywh": [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top],
    }[kind]
    height, width = sides
    scale = np.float32([height, width] * 2 if kind == "yxyx" else [width, height] * 2)
    return np.stack(rows, axis=1).astype(np.float32) / (scale if normalized else np.float32(1))


def picture(number, form):
    edges, (height, width) = edges_of(number)
    pixels = np.zeros((height, width, 3), np.uint8)
    for color, (left, top, right, bottom) in zip(COLORS, edges.astype(int), strict=False):
        pixels[top:bottom, left:right] = color
    file = io.BytesIO()
    options = {"quality": 98, "subsampling": 0} if form == "JPEG" else {}
    PIL.Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def boxed(write_dataset, tmp_path_factory):
    """Return a dataset whose examples have boxes around areas of one color, in this format."""
    made = {}

    def make(kind, normalized=False, form="PNG", count=16):
        if (kind, normalized, form, count) not in made:
            examples = []
            for number in range(count):
                edges, sides = edges_of(number)
                numbers = np.arange(len(edges))
                examples.append(
                    {
                        "image": picture(number, form),
                        "boxes": formatted(edges, sides, kind, normalized),
                        "classes": numbers,
                        "names": [b"%d" % each for each in numbers],
                        "points": np.stack([numbers, -numbers], axis=1),
                        "pair": [1, 2],
                        "number": number,
                    }
                )
            path = tmp_path_factory.mktemp("boxed")
            made[kind, normalized, form, count] = write_dataset(path, SCHEMA, {"train": [examples]})
        return made[kind, normalized, form, count]

    return make


ALONG = ("classes", "names", "points")


def test_without_a_crop_no_box_is_removed_or_clipped(boxed):
    values = {"boxes": tf.constant([[-5, 2, 200, 3.5], [4, 4, 4, 4]])}
    region = tf.constant([50, 100, 0, 0, 50, 100])
    boxes = Boxes("boxes", "xyxy", min_visible=1, image="image")
    found = moved_boxes(GRAPH, values, boxes, Image((100, 50)), region, {})
    assert found["boxes"].numpy().tolist() == [[-2.5, 4, 100, 7], [2, 8, 2, 8]]
    # the same size as stored, flipped
    draws = {"flip 0": tf.constant([True, True])}
    found = moved_boxes(GRAPH, values, boxes, Image(flip="horizontal"), region, draws)
    assert found["boxes"].numpy().tolist() == [[-100, 2, 105, 3.5], [96, 4, 96, 4]]


def test_boxes_of_integers_come_as_floats_and_are_moved_before_the_users_function(write_dataset, tmp_path):
    schema = Schema((SCHEMA["image"], Feature("boxes", "int", "int64", (None, 4))))
    examples = [{"image": picture(0, "PNG"), "boxes": [[0, 0, 10, 20]] * n} for n in (1, 0)]
    path = write_dataset(tmp_path / "ints", schema, {"train": [examples]})
    height, width = edges_of(0)[1]

    def doubled(example, seed):
        return {"boxes": example["boxes"] * 2}

    given = {"image": Image((2 * height, width)), "boxes": Boxes("boxes", "xywh")}
    dataset = loader.load(path, batch_size=2, map_fn=doubled, memory_budget="1GiB", **given)
    (batch,) = dataset
    assert batch["boxes"].dtype == tf.float32
    assert batch["boxes"].to_list() == [[[0, 0, 20, 80]], []]
    # as they are stored, if the image is
    same = {"image": (height, width, 3)}
    plain = Schema((Feature("image", "image", "uint8", same["image"]), schema["boxes"]))
    path = write_dataset(tmp_path / "same", plain, {"train": [examples]})
    (batch,) = loader.load(path, batch_size=2, image=Image(), boxes=Boxes("boxes", "xywh"))
    assert batch["boxes"].to_list() == [[[0, 0, 10, 20]], []]


def test_a_feature_along_must_have_a_value_for_each_box(boxed):
    dataset = loader.load(
        boxed("xyxy"), batch_size=1, image=Image((8, 8), "center"), boxes=Boxes("boxes", "xyxy", ["pair"])
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"pair.* must have one value for each box"):
        list(dataset)


IMAGE = Image((8, 8))
WRONG = [
    (lambda: Boxes("", "xywh"), "boxes-feature-type"),
    (lambda: Boxes("boxes", "xy"), fault("not-a-choice", name="Boxes.format", found="xy")),
    (lambda: Boxes("boxes", "xywh", "classes"), fault("not-strings", name="Boxes.along", found="classes")),
    (lambda: Boxes("b", "xywh", along=[1]), "not-strings"),
    (lambda: Boxes("b", "xywh", ["b"]), fault("boxes-along-repeated", along=["b"])),
    (lambda: Boxes("b", "xywh", ["c", "c"]), "boxes-along-repeated"),
    (lambda: Boxes("b", "xywh", min_visible=10), fault("boxes-min-visible", share=10)),
    (lambda: Boxes("b", "xywh", min_visible=True), "boxes-min-visible"),
    (lambda: Boxes("b", "xywh", normalized=1), fault("not-a-flag", name="Boxes.normalized", found=1)),
    (lambda: Boxes("b", "xywh", image=1), "boxes-image-type"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_options_of_boxes_that_are_not_allowed_are_refused(make, message):
    with raises(OptionsError, message):
        make()


UNFIT = [
    ({"image": IMAGE, "boxes": "boxes"}, fault("wrong-loader-type", name="boxes", kind="Boxes")),
    ({"boxes": Boxes("boxes", "xywh")}, "boxes-no-image"),
    ({"image": IMAGE, "boxes": Boxes("bbox", "xywh")}, fault("boxes-not-delivered", name="bbox")),
    (
        {"image": IMAGE, "boxes": Boxes("boxes", "xywh", ["classes"]), "select": ("image", "boxes")},
        fault("boxes-not-delivered", name="classes", known="'image', 'boxes'"),
    ),
    ({"image": IMAGE, "boxes": Boxes("points", "xywh")}, fault("boxes-feature", shape=[None, 2])),
    ({"image": IMAGE, "boxes": Boxes("boxes", "xywh", ["number"])}, "boxes-along-feature"),
    ({"image": IMAGE, "boxes": Boxes("boxes", "xywh", image="left")}, "boxes-image-decoded"),
    ({"image": IMAGE, "boxes": Boxes("boxes")}, fault("boxes-format-unknown", feature="boxes")),
]


@pytest.mark.parametrize(("options", "message"), UNFIT)
def test_boxes_that_do_not_fit_the_dataset_are_refused(options, message, boxed):
    with raises(OptionsError, message):
        loader.load(boxed("xywh"), batch_size=2, **options)


def test_boxes_of_one_of_several_images(write_dataset, tmp_path):
    schema = Schema((Feature("left", "image", "uint8", (None, None, 3)), *SCHEMA.features[:2]))
    values = {"left": picture(1, "PNG"), "image": picture(2, "PNG"), "boxes": [[0, 0, 4, 4]]}
    path = write_dataset(tmp_path / "two", schema, {"train": [[values]]})
    options = {"batch_size": 1, "image": IMAGE}
    with raises(OptionsError, "boxes-image-decoded"):
        loader.load(path, boxes=Boxes("boxes", "xyxy"), **options)
    (batch,) = loader.load(path, boxes=Boxes("boxes", "xyxy", image="left"), **options)
    height, width = edges_of(1)[1]
    wanted = np.float32([0, 0, 4 * 8 / width, 4 * 8 / height])
    assert np.allclose(batch["boxes"][0].numpy(), wanted[np.newaxis])


COCO, YOLO = "xywh", "cxcywh-normalized"


@pytest.fixture
def objects(write_dataset, tmp_path):
    """Return a dataset of one example with these boxes, which may be declared."""

    def make(boxes=((1, 1, 4, 4),), coordinates=None):
        png = image_file(PIL.Image.fromarray(np.zeros((20, 30, 3), np.uint8)))
        gray = image_file(PIL.Image.fromarray(np.zeros((20, 30), np.uint8)))
        values = {
            "image": png,
            "mask": gray,
            "objects/bbox": np.array(boxes, np.float32).reshape(-1, 4),
            "objects/category": np.arange(len(boxes)),
            "objects/names": [b"%d" % number for number in range(len(boxes))],
            "tags": [7, 8, 9],
        }
        schema = Schema(
            (
                Feature("image", "image", "uint8", (None, None, 3)),
                Feature("mask", "mask", "uint8", (None, None, 1)),
                Feature("objects/bbox", "float", "float32", (None, 4), coordinates),
                Feature("objects/category", "int", "int64", (None,)),
                Feature("objects/names", "bytes", "bytes", (None,)),
                Feature("tags", "int", "int64", (None,)),
            )
        )
        return write_dataset(tmp_path / "objects", schema, {"train": [[values]]})

    return make


BESIDE = ("objects/category", "objects/names")


def test_a_crop_needs_every_list_that_belongs_to_the_boxes(objects):
    path = objects([[0, 0, 2, 2], [14, 9, 2, 2], [28, 18, 2, 2]])
    image = Image((10, 10), "center")
    with raises(OptionsError, "boxes-left-out", left="objects/names", feature="objects/bbox"):
        loader.load(path, batch_size=1, image=image, boxes=Boxes("objects/bbox", "xywh", BESIDE[:1]))
    (batch,) = loader.load(path, batch_size=1, image=image, boxes=Boxes("objects/bbox", "xywh", BESIDE))
    assert batch["objects/bbox"].to_list() == [[[4.5, 4.5, 1, 1]]]
    assert batch["objects/category"].to_list() == [[1]]
    assert batch["objects/names"].to_list() == [[b"1"]]
    assert batch["tags"].to_list() == [[7, 8, 9]]
    # those that are not delivered keep nothing, and without a crop no box is removed
    select = ("image", "objects/bbox", "objects/category")
    boxes = Boxes("objects/bbox", "xywh", BESIDE[:1])
    (batch,) = loader.load(path, batch_size=1, image=image, boxes=boxes, select=select)
    assert batch[1].to_list() == [[[4.5, 4.5, 1, 1]]]
    (batch,) = loader.load(path, batch_size=1, image=Image((10, 30)), boxes=Boxes("objects/bbox", "xywh"))
    assert batch["objects/bbox"].to_list() == [[[0, 0, 2, 1], [14, 4.5, 2, 1], [28, 9, 2, 1]]]


@pytest.mark.parametrize("image", [Image((10, 10)), Image((10, 10), "center"), Image(flip="horizontal")])
def test_boxes_of_annotations_that_do_not_move_with_their_image_are_reported(image, objects):
    images = {"image": image}
    options = {"batch_size": 1, "image": images, "map_fn": lambda example, seed: example["tags"]}
    path = objects(coordinates=COCO)
    boxes = r"boxes=loader\.Boxes\('objects/bbox', 'xywh', along=\('objects/category', 'objects/names'\)\)"
    with pytest.warns(UserWarning, match=boxes):
        loader.load(path, **options)


def test_boxes_that_stay_true_are_not_reported(objects, recwarn):
    path = objects(coordinates=COCO)
    loader.load(path, batch_size=1)
    loader.load(path, batch_size=1, image=Image((10, 10)), boxes=Boxes("objects/bbox", "xywh"))
    loader.load(path, batch_size=1, image=Image((10, 10)), select=("image", "tags"))
    path = objects(coordinates=YOLO)
    loader.load(path, batch_size=1, image=Image((10, 10)))
    assert not [warning for warning in recwarn if "objects/bbox" in str(warning.message)]
    with pytest.warns(UserWarning, match=r"'cxcywh', along=.*, normalized=True\), or leave them out"):
        loader.load(path, batch_size=1, image=Image((10, 10), "center"))


@pytest.mark.parametrize(
    ("coordinates", "boxes"),
    [
        (YOLO, Boxes("objects/bbox", "cxcywh", normalized=False)),
        (COCO, Boxes("objects/bbox", "xywh", normalized=True)),
        (COCO, Boxes("objects/bbox", "xyxy", BESIDE)),
    ],
)
def test_another_format_than_that_of_the_annotations_is_refused(coordinates, boxes, objects):
    with raises(OptionsError, "boxes-format-stored", format=boxes.format, annotated="objects/bbox"):
        loader.load(objects(coordinates=coordinates), batch_size=1, image=Image((8, 8)), boxes=boxes)


NO_BOXES = [(np.nan, 1, 2, 3), (1, 1, np.inf, 1), (20, 18, -5, -5), (1, 1, -5, 5)]
# whether the boxes are cut, moved, or both
MOVES = [{}, {"crop": "center"}, {"flip": "vertical"}]


@pytest.mark.parametrize(
    ("wrong", "cut"),
    mostly_nightly(
        itertools.product(NO_BOXES, MOVES),
        [*zip(NO_BOXES, [MOVES[i] for i in (0, 2, 1, 0)], strict=True)][:1],
    ),
)
def test_a_box_that_is_none_is_an_error(wrong, cut, objects):
    path = objects([[1, 1, 2, 2], wrong])
    dataset = loader.load(
        path, batch_size=1, image=Image((20, 30), **cut), boxes=Boxes("objects/bbox", "xywh", BESIDE)
    )
    message = r"objects/bbox.* has a box with NaN, an infinite"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(dataset)


def test_a_crop_removes_boxes_without_an_area_and_outside_of_the_image(objects):
    path = objects([[1, 1, 0, 5], [40, 1, 5, 5], [-9, -9, 4, 4], [28, 1, 8, 2], [2, 2, 0, 0]])
    boxes = Boxes("objects/bbox", "xywh", BESIDE)
    (batch,) = loader.load(path, batch_size=1, image=Image((20, 30), "center"), boxes=boxes)
    assert batch["objects/bbox"].to_list() == [[[28, 1, 2, 2]]]
    assert batch["objects/category"].to_list() == [[3]]
    (batch,) = loader.load(path, batch_size=1, image=Image((10, 60)), boxes=boxes)
    wanted = [[2, 0.5, 0, 2.5], [80, 0.5, 10, 2.5], [-18, -4.5, 8, 2], [56, 0.5, 16, 1], [4, 1, 0, 0]]
    assert batch["objects/bbox"].to_list() == [wanted]


def test_a_mask_is_not_the_image_of_boxes(objects):
    path, boxes = objects(), Boxes("objects/bbox", "xywh", image="mask")
    with raises(OptionsError, "boxes-image-decoded", image="mask", known="'image'"):
        loader.load(path, batch_size=1, image=Image((8, 8)), boxes=boxes)
