"""Keypoints are where the image shows them, after crops, resizing and flips; left and right change places."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.errors import fault, raises
from tests.pictures import image_file
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Image, Keypoints, Shuffle
from tfshards.schemas import Feature, OptionsError, Schema

SIDES = (40, 60)
COLORS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
SCHEMA = Schema(
    (
        Feature("image", "image", "uint8", (*SIDES, 3)),
        Feature("points", "float", "float32", (3, 3), "xyv"),
        Feature("plain", "float", "float32", (None, 2), "xy-normalized"),
        Feature("people", "float", "float32", (None, 6), "xyv"),
        Feature("undeclared", "int", "int64", (2, 2)),
        Feature("box", "float", "float32", (4,), "xywh"),
    )
)
NUM_EXAMPLES = 24


def example(number):
    """Return an image with three squares of 5 x 5 pixels around its keypoints."""
    random = np.random.default_rng(number)
    pixels = np.zeros((*SIDES, 3), np.uint8)
    points = []
    for column, color in enumerate(COLORS):
        x, y = column * 20 + random.integers(3, 16), random.integers(3, 36)
        pixels[y - 2 : y + 3, x - 2 : x + 3] = color
        points.append([x + 0.5, y + 0.5, 1 + column % 2])
    file = image_file(pixels)
    points = np.float32(points)
    points[2, 2] = number % 2
    return {
        "image": file,
        "points": points,
        "plain": points[: number % 3, :2] / np.float32(SIDES[::-1]),
        "people": [points[:2].ravel(), points[1:].ravel()],
        "undeclared": [[1, 2], [3, 4]],
        "box": [1, 2, 3, 4],
    }


@pytest.fixture(scope="module")
def path(write_dataset, tmp_path_factory):
    examples = [example(number) for number in range(NUM_EXAMPLES)]
    return write_dataset(tmp_path_factory.mktemp("keypoints"), SCHEMA, {"train": [examples]})


@pytest.mark.filterwarnings("ignore:.* is delivered as stored")
@pytest.mark.parametrize(
    "flip", mostly_nightly(["horizontal", "vertical", "horizontal_and_vertical"], ["horizontal"])
)
def test_left_and_right_change_places_where_the_image_is_mirrored(flip, path):
    options = {"batch_size": NUM_EXAMPLES, "image": Image(flip=flip)}
    (plain,) = loader.load(path, keypoints=Keypoints("points", flip_pairs=()), **options)
    (swapped,) = loader.load(path, keypoints=Keypoints("points", flip_pairs=[[0, 1]]), **options)
    counts = [0, 0]
    for number, image in enumerate(plain["image"].numpy()):
        original = np.asarray(PIL.Image.open(io.BytesIO(example(number)["image"])))
        turns = {
            (False, False): original,
            (False, True): original[:, ::-1],
            (True, False): original[::-1],
            (True, True): original[::-1, ::-1],
        }
        turn = next(turn for turn, pixels in turns.items() if np.array_equal(pixels, image))
        order = [1, 0, 2] if turn[0] != turn[1] else [0, 1, 2]
        counts[turn[0] != turn[1]] += 1
        assert np.array_equal(swapped["points"][number], plain["points"].numpy()[number][order])
    assert min(counts) > 2


WRONG = [
    (lambda: Keypoints(""), "keypoints-feature-type"),
    (lambda: Keypoints("a", [(0, 0)]), "keypoints-pairs"),
    (lambda: Keypoints("a", [(0, 1, 2)]), "keypoints-pairs"),
    (lambda: Keypoints("a", [(-1, 1)]), "keypoints-pairs"),
    (lambda: Keypoints("a", 3), "keypoints-pairs"),
    (lambda: Keypoints("a", format="yx"), fault("not-a-choice", name="Keypoints.format")),
    (lambda: Keypoints("a", normalized=1), fault("not-a-flag", name="Keypoints.normalized")),
    (lambda: Keypoints("a", image=1), "keypoints-image-type"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_options_of_keypoints_that_are_not_allowed_are_refused(make, message):
    with raises(OptionsError, message):
        make()


UNFIT = [
    ({"keypoints": Keypoints("points")}, "keypoints-no-image"),
    ({"image": Image(), "keypoints": Keypoints("none")}, "keypoints-not-delivered"),
    ({"image": Image(), "keypoints": Keypoints("undeclared")}, "keypoints-format-unknown"),
    ({"image": Image(), "keypoints": Keypoints("box")}, "keypoints-feature"),
    ({"image": Image(), "keypoints": Keypoints("undeclared", format="xyv")}, "keypoints-feature"),
    ({"image": Image(), "keypoints": Keypoints("points", format="xy")}, "keypoints-format-stored"),
    ({"image": Image(), "keypoints": Keypoints("points", normalized=True)}, "keypoints-format-stored"),
    ({"image": Image(flip="vertical"), "keypoints": Keypoints("points")}, "keypoints-no-pairs"),
    (
        {"image": Image(), "keypoints": Keypoints("points", [(2, 3)])},
        fault("keypoints-pairs-range", most=3, count=3),
    ),
]


@pytest.mark.parametrize(("options", "message"), UNFIT)
def test_keypoints_that_do_not_fit_the_dataset_are_refused(options, message, path):
    with raises(OptionsError, message):
        loader.load(path, batch_size=2, **options)


def test_undeclared_keypoints_and_lists_that_are_too_short(path):
    image = Image((20, 30), flip="horizontal")
    (batch,) = loader.load(
        path,
        batch_size=NUM_EXAMPLES,
        image=Image((20, 30)),
        keypoints=Keypoints("undeclared", format="xy"),
        select=("image", "undeclared"),
    )
    assert batch[1].numpy()[0].tolist() == [[0.5, 1], [1.5, 2]]
    dataset = loader.load(
        path, batch_size=1, image=image, keypoints=Keypoints("plain", [(0, 9)]), select=("image", "plain")
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="has fewer points than"):
        list(dataset)


def test_every_feature_that_does_not_move_is_named(path):
    with pytest.warns(UserWarning, match="is delivered as stored") as warned:
        loader.load(path, batch_size=1, image=Image((8, 8)), shuffle=Shuffle())
    texts = [str(each.message) for each in warned]
    assert any("keypoints=loader.Keypoints('points')" in text for text in texts)
    assert any("boxes=loader.Boxes('box', 'xywh')" in text for text in texts)
    # fractions stay true
    assert not any("'plain' is delivered" in text for text in texts)
