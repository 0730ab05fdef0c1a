"""Images decode to the pixels of TensorFlow, with the requested sizes, crops and dtypes."""

import numpy as np
import pytest
import tensorflow as tf

from tfshards import loader
from tfshards.loader import Image
from tfshards.loader.examples.crops import center_box, crop_name, draws_of, random_box, shifted_box
from tfshards.loader.graph.ops import GRAPH
from tfshards.loader.tensors.decode import decode_image
from tfshards.schemas import Feature, Schema

NONE = {}


def picture(height, width, channels=3):
    """Return smooth pixels in which all rows and columns differ."""
    row = np.linspace(0, 200, height)[:, None, None]
    column = np.linspace(0, 55, width)[None, :, None]
    return np.round(row + column + 9 * np.arange(channels)).clip(0, 255).astype(np.uint8)


def drawn(image, epoch=0, numbers=60):
    """Return the random draws for the first examples."""
    return draws_of(GRAPH, [image], tf.constant(epoch, tf.int64), tf.range(numbers, dtype=tf.int64))


def plainly(encoded, channels):
    """Return the pixels by the transform that Pillow uses, which may not be the default of TensorFlow."""
    if encoded.startswith(b"\xff\xd8"):
        return tf.io.decode_jpeg(encoded, channels, dct_method="INTEGER_ACCURATE")
    return tf.io.decode_image(encoded, channels)


JPEG, GRAY_JPEG = (tf.io.encode_jpeg(picture(31, 23, channels)).numpy() for channels in (3, 1))
PNG, GRAY_PNG, ALPHA_PNG = (tf.io.encode_png(picture(31, 23, channels)).numpy() for channels in (3, 1, 4))


@pytest.mark.parametrize(
    ("encoded", "channels", "reason"),
    [
        (JPEG, 3, "as stored"),
        (JPEG, 1, "color to gray"),
        (GRAY_JPEG, 1, "gray as stored"),
        (GRAY_JPEG, 3, "gray to color"),
        (PNG, 3, "as stored"),
        (PNG, 4, "with an opaque channel"),
        (GRAY_PNG, 1, "gray as stored"),
        (GRAY_PNG, 3, "gray to color"),
        (ALPHA_PNG, 4, "as stored"),
        (ALPHA_PNG, 3, "without its alpha"),
    ],
)
def test_without_a_size_the_pixels_are_those_that_tensorflow_decodes(encoded, channels, reason):
    wanted = plainly(encoded, channels).numpy()
    assert wanted.shape == (31, 23, channels)
    as_bytes = decode_image(encoded, Image(channels=channels), NONE)
    as_floats = decode_image(encoded, Image(channels=channels, dtype="float32"), NONE)
    assert (as_bytes.dtype, as_floats.dtype) == (tf.uint8, tf.float32)
    assert np.array_equal(as_bytes, wanted), reason
    assert np.array_equal(as_floats, wanted.astype(np.float32)), reason


@pytest.mark.parametrize("encoded", [JPEG, PNG])
@pytest.mark.parametrize("size", [(8, 8), (10, 3), (62, 46)])
def test_with_a_size_the_whole_image_is_resized(encoded, size):
    wanted = tf.image.resize(plainly(encoded, 3), size).numpy()
    assert np.array_equal(decode_image(encoded, Image(size, None, 3, "float32"), NONE), wanted)
    assert np.array_equal(
        decode_image(encoded, Image(size, None, 3), NONE), np.round(wanted).astype(np.uint8)
    )


@pytest.mark.parametrize(
    ("height", "width", "size", "box", "reason"),
    [
        (31, 23, (5, 5), [4, 0, 23, 23], "a square of a tall image"),
        (23, 31, (5, 5), [0, 4, 23, 23], "a square of a wide image"),
        (30, 30, (10, 20), [7, 0, 15, 30], "a wide box of a square"),
        (30, 30, (20, 10), [0, 7, 30, 15], "a tall box of a square"),
        (30, 60, (7, 14), [0, 0, 30, 60], "all of it"),
        (1, 100, (100, 1), [0, 49, 1, 1], "never less than a pixel"),
        (100, 1, (1, 100), [49, 0, 1, 1], "never less than a pixel"),
    ],
)
def test_the_centered_box_is_the_largest_of_the_aspect_ratio(height, width, size, box, reason):
    found = center_box(GRAPH, tf.constant([height, width]), size).numpy().tolist()
    assert found == box, reason


@pytest.mark.parametrize(
    ("encoded", "channels"), [(JPEG, 3), (GRAY_JPEG, 3), (PNG, 3), (ALPHA_PNG, 4), (PNG, 1)]
)
def test_a_center_crop_is_the_centered_box_resized(encoded, channels):
    pixels = plainly(encoded, channels)[4:27]
    wanted = tf.image.resize(pixels, (6, 6)).numpy()
    found = decode_image(encoded, Image((6, 6), "center", channels, "float32"), NONE).numpy()
    # the crop of a JPEG may differ by its upscaled colors at the border
    assert np.abs(found - wanted).max() <= (2 if encoded == JPEG else 0)


@pytest.mark.parametrize(("height", "width"), [(31, 23), (200, 300), (1, 1), (2, 500)])
def test_random_boxes_are_within_the_image_and_their_limits_and_differ(height, width):
    sides = tf.constant([height, width])
    draw = tf.function(lambda draws: random_box(GRAPH, sides, (5, 5), draws))
    (drawn_boxes,) = drawn(Image((5, 5), "random")).values()
    boxes = np.array([draw(draws) for draws in drawn_boxes])
    top, left, box_height, box_width = boxes.T
    assert min(top.min(), left.min()) >= 0
    assert min(box_height.min(), box_width.min()) >= 1
    assert (top + box_height <= height).all()
    assert (left + box_width <= width).all()
    if min(height, width) > 20:
        area = box_height * box_width / (height * width)
        assert 0.07 < area.min() < 0.3
        assert 0.7 < area.max() <= 1
        aspect = box_width / box_height
        assert 0.7 < aspect.min() < 0.9
        assert 1.1 < aspect.max() < 1.42
        assert len(np.unique(boxes, axis=0)) > 50
    if (height, width) == (2, 500):
        assert np.unique(boxes, axis=0).tolist() == [[0, 249, 2, 2]], "the centered box if none fits"


def test_random_boxes_have_the_areas_and_aspect_ratios_asked_for():
    image = Image((5, 5), "random", scale=(0.3, 0.5), ratio=(1, 2))
    boxes = [
        random_box(GRAPH, tf.constant([300, 400]), (5, 5), draws) for draws in drawn(image)[crop_name(image)]
    ]
    height, width = np.array(boxes).T[2:]
    area, aspect = height * width / 120_000, width / height
    assert 0.29 < area.min() < 0.32 < 0.48 < area.max() < 0.51
    assert 0.99 < aspect.min() < 1.05 < 1.9 < aspect.max() < 2.01


def test_a_shifted_box_has_the_size_of_the_result_and_any_position():
    image = Image((28, 20), "shift")
    draws = drawn(image)[crop_name(image)]
    boxes = np.array([shifted_box(GRAPH, tf.constant([31, 23]), (28, 20), each) for each in draws])
    assert {*map(tuple, boxes.tolist())} == {(top, left, 28, 20) for top in range(4) for left in range(4)}
    exact = shifted_box(GRAPH, tf.constant([28, 20]), (28, 20), draws[0]).numpy().tolist()
    assert exact == [0, 0, 28, 20]
    smaller = shifted_box(GRAPH, tf.constant([27, 40]), (28, 20), draws[0]).numpy().tolist()
    assert smaller == center_box(GRAPH, tf.constant([27, 40]), (28, 20)).numpy().tolist()


def test_a_fraction_of_the_centered_box():
    sides = tf.constant([40, 60])
    assert center_box(GRAPH, sides, (8, 8), 0.875).numpy().tolist() == [2, 12, 35, 35]
    assert center_box(GRAPH, sides, (8, 8), 0.001).numpy().tolist() == [19, 29, 1, 1]


@pytest.mark.parametrize("encoded", [JPEG, PNG])
def test_a_random_crop_depends_on_its_draws_and_not_on_the_format(encoded):
    image = Image((6, 6), "random", 3, "float32")
    for draws in drawn(image)[crop_name(image)][:3]:
        top, left, height, width = random_box(GRAPH, tf.constant([31, 23]), (6, 6), draws).numpy()
        whole = plainly(encoded, 3)[top : top + height, left : left + width]
        wanted = tf.image.resize(whole, (6, 6)).numpy()
        found = decode_image(encoded, image, {crop_name(image): draws}).numpy()
        assert np.abs(found - wanted).max() <= (4 if encoded == JPEG else 0)
        assert np.array_equal(decode_image(encoded, image, {crop_name(image): draws}), found)


# loads

SIZES = [(40, 30), (31, 33), (25, 25), (60, 20), (20, 50), (33, 33), (28, 41)]
PHOTOS = Schema((Feature("image", "image", "uint8", (None, None, 3)), Feature("number", "int", "int32")))


@pytest.fixture(scope="module")
def photos(write_dataset, tmp_path_factory):
    encode = (tf.io.encode_jpeg, tf.io.encode_png)
    examples = [
        {"image": encode[number % 2](picture(*s)).numpy(), "number": number} for number, s in enumerate(SIZES)
    ]
    return write_dataset(tmp_path_factory.mktemp("photos"), PHOTOS, {"train": [examples[:4], examples[4:]]})


def test_batches_of_images_have_a_static_shape_and_the_pixels_of_their_bytes(photos):
    dataset = loader.load(photos, batch_size=3, image=Image((8, 6), "center"), remainder="pad")
    assert dataset.element_spec["image"] == tf.TensorSpec((3, 8, 6, 3), tf.uint8)
    (stored,) = loader.load(photos, batch_size=7).as_numpy_iterator()
    wanted = [decode_image(encoded, Image((8, 6), "center", 3), NONE).numpy() for encoded in stored["image"]]
    batches = list(dataset.as_numpy_iterator())
    assert [batch["sample_weight"].tolist() for batch in batches] == [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    found = np.concatenate([batch["image"] for batch in batches])
    assert np.array_equal(found[:7], wanted)
    assert np.array_equal(found[7], wanted[0])


def test_images_of_one_size_need_no_size_option(write_dataset, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", (9, 7, 1)),))
    examples = [{"image": tf.io.encode_png(picture(9, 7, 1)).numpy()}] * 2
    path = write_dataset(tmp_path / "grey", schema, {"train": [examples]})
    dataset = loader.load(path, batch_size=2, image=Image(channels=1), select=("image",))
    assert dataset.element_spec == (tf.TensorSpec((2, 9, 7, 1), tf.uint8),)
    ((images,),) = dataset.as_numpy_iterator()
    assert np.array_equal(images, [picture(9, 7, 1)] * 2)


def test_bytes_that_are_not_an_image_are_an_error(write_dataset, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", (None, None, 3)),))
    path = write_dataset(tmp_path / "text", schema, {"train": [[{"image": b"no image"}] * 2]})
    dataset = loader.load(path, batch_size=2, image=Image((4, 4)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
        list(dataset)


def test_an_image_of_another_size_than_in_the_schema_is_an_error(write_dataset, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", (9, 7, 3)),))
    examples = [{"image": tf.io.encode_png(picture(9, 8)).numpy()}]
    path = write_dataset(tmp_path / "wider", schema, {"train": [examples]})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Shape of tensor .*\[9,8,3\].*\[9,7,3\]"):
        list(loader.load(path, batch_size=1, image=Image()))


@pytest.mark.parametrize(
    ("stored", "asked", "delivered", "reason"),
    [
        (1, None, 1, "those of the dataset"),
        (3, None, 3, "those of the dataset"),
        (4, None, 4, "those of the dataset, so that no alpha is lost"),
        (None, None, 3, "where each image has its own, color"),
        (3, 1, 1, "those asked for"),
        (1, 3, 3, "those asked for"),
    ],
)
def test_by_default_channels_are_those_stored(stored, asked, delivered, reason, write_dataset, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", (None, None, stored)),))
    pixels = picture(9, 7, stored or 3)
    path = write_dataset(tmp_path / "one", schema, {"train": [[{"image": tf.io.encode_png(pixels).numpy()}]]})
    dataset = loader.load(path, batch_size=1, image=Image((9, 7), channels=asked), select=("image",))
    assert dataset.element_spec == (tf.TensorSpec((1, 9, 7, delivered), tf.uint8),), reason
    (((image,),),) = dataset.as_numpy_iterator()
    assert image.shape == (9, 7, delivered)
    if delivered == stored:
        assert np.array_equal(image, pixels)
