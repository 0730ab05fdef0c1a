"""Lists of encoded images are decoded image by image, alike within an example, and delivered as lists."""

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.pictures import image_file
from tfshards import loader
from tfshards.loader import Boxes, Image, Shuffle
from tfshards.schemas import Feature, OptionsError, Schema

pytestmark = pytest.mark.nightly


def pixels_of(number, size=(6, 8)):
    return np.random.default_rng(number).integers(0, 256, (*size, 3)).astype(np.uint8)


def png(pixels):
    return image_file(pixels)


def frames_of(number):
    """Return the 0 to 2 images of an example."""
    return [pixels_of(10 * number + place) for place in range(number % 3)]


SCHEMA = Schema(
    (
        Feature("number", "int", "int64"),
        Feature("frames", "image", "uint8", (None, 6, 8, 3)),
        Feature("pair", "image", "uint8", (2, None, None, 3)),
        Feature("photo", "image", "uint8", (6, 8, 3)),
        Feature("objects/bbox", "float", "float32", (None, 4), "xywh"),
    )
)


@pytest.fixture(scope="module")
def listed(write_dataset, tmp_path_factory):
    examples = [
        {
            "number": number,
            "frames": [png(frame) for frame in frames_of(number)],
            "pair": [png(pixels_of(number)), png(pixels_of(100 + number, (4 + number, 5)))],
            "photo": png(pixels_of(number)),
            "objects/bbox": [[1, 1, 2, 2]],
        }
        for number in range(7)
    ]
    return write_dataset(tmp_path_factory.mktemp("frames"), SCHEMA, {"train": [examples[:4], examples[4:]]})


def test_images_come_as_encoded_strings_in_lists(listed):
    (batch,) = loader.load(listed, batch_size=7, select=("frames", "pair"))
    assert batch[0].to_list() == [[png(frame) for frame in frames_of(number)] for number in range(7)]
    assert batch[1].shape == (7, 2)
    assert batch[1][3, 0].numpy() == png(pixels_of(3))


@pytest.mark.parametrize(
    "options", [{"memory_budget": "1GiB"}, {"remainder": "keep", "shuffle": Shuffle(seed=3)}]
)
def test_lists_of_one_size_are_decoded_exactly(listed, options):
    dataset = loader.load(
        listed, batch_size=3, select=("number", "frames"), image={"frames": Image()}, **options
    )
    spec, found = dataset.element_spec[1], []
    rows = None if "remainder" in options else 3
    assert spec == tf.RaggedTensorSpec([rows, None, 6, 8, 3], tf.uint8, 1, tf.int64)
    for numbers, frames in dataset:
        for number, ours in zip(numbers.numpy(), frames, strict=True):
            wanted = np.array(frames_of(number), np.uint8).reshape(-1, 6, 8, 3)
            assert np.array_equal(ours.numpy(), wanted)
            found.append(number)
    assert len(found) == (7 if "remainder" in options else 6)


def test_the_images_of_an_example_are_cropped_and_flipped_alike(listed):
    # the first image of a pair is the photo, the second has another size
    cut = Image(size=(3, 4), crop="random", flip="horizontal", dtype="float32")
    options = {"select": ("number", "photo", "pair"), "shuffle": Shuffle(seed=1), "batch_size": 7}
    ((_, photos, pairs),) = loader.load(listed, image=cut, **options)
    assert pairs.shape == (7, 2, 3, 4, 3)
    assert np.array_equal(pairs[:, 0], photos)
    assert not np.array_equal(pairs[:, 1], photos)
    (padded,) = loader.load(listed, batch_size=9, remainder="pad", select=("pair",), image=Image(size=(3, 4)))
    assert padded[0].shape == (9, 2, 3, 4, 3)


def test_the_users_function_gets_and_returns_lists(listed):
    def last_first(example, seed):
        return {"number": example["number"], "frames": example["frames"][::-1]}

    image = {"frames": Image(dtype="float32")}
    (batch,) = loader.load(listed, batch_size=7, map_fn=last_first, image=image, memory_budget="1GiB")
    for number, frames in zip(batch["number"].numpy(), batch["frames"], strict=True):
        wanted = np.array(frames_of(number)[::-1], np.float32).reshape(-1, 6, 8, 3)
        assert np.array_equal(frames.numpy(), wanted)


def test_what_a_list_of_images_cannot_be_is_refused(listed):
    with raises(OptionsError, "image-sizes-differ", name="pair"):
        loader.load(
            listed, batch_size=2, select=("pair",), image=Image(), map_fn=lambda example, seed: example
        )
    with raises(OptionsError, "boxes-image-decoded", image="frames"):
        select, image = ("frames", "objects/bbox"), Image(size=(3, 4))
        loader.load(
            listed, batch_size=2, select=select, image=image, boxes=Boxes("objects/bbox", image="frames")
        )
    with raises(OptionsError, "budget-too-small"):
        loader.load(listed, batch_size=7, image=Image(size=(600, 800)), memory_budget="20MiB")
