"""Crops and flips depend on the example, not on who reads it when; they work for all formats and dtypes."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Image, Position, Shuffle, Worker
from tfshards.loader.examples.crops import crop_name, draws_of
from tfshards.loader.graph.ops import GRAPH
from tfshards.loader.tensors.decode import decode_image
from tfshards.schemas import Feature, OptionsError, Schema


def drawn(*images, epoch=0, numbers=2000):
    """Return the random draws for the first examples."""
    return draws_of(GRAPH, images, tf.constant(epoch, tf.int64), tf.range(numbers, dtype=tf.int64))


def picture(height, width, channels=3):
    """Return pixels of 27 colors without symmetry, which a GIF stores exactly."""
    row, column = np.mgrid[:height, :width]
    planes = [row // (5 + channel) + column // 7 for channel in range(channels)]
    return (np.stack(planes, axis=2) % 3 * 100).astype(np.uint8)


def encoded(pixels, kind):
    file = io.BytesIO()
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}}
    PIL.Image.fromarray(pixels.squeeze()).save(file, kind, **options.get(kind, {}))
    return file.getvalue()


def test_half_of_the_images_are_flipped_and_draws_are_independent():
    image = Image((5, 5), "random", flip="horizontal_and_vertical")
    first = drawn(image)
    vertical, horizontal = first["flip 0"].numpy().T
    assert 0.45 < vertical.mean() < 0.55
    assert 0.45 < horizontal.mean() < 0.55
    others = [vertical, *drawn(image, epoch=1)["flip 0"].numpy().T]
    others += [*drawn(Image(flip="horizontal", seed=1))["flip 1"].numpy().T]
    for other in others:
        assert 0.45 < np.mean(horizontal == other) < 0.55
    boxes = first[crop_name(image)].numpy().reshape(2000, -1).T
    correlations = [np.corrcoef(horizontal, each)[0, 1] for each in boxes]
    assert np.abs(correlations).max() < 0.1
    assert np.array_equal(drawn(Image(flip="vertical"))["flip 0"], first["flip 0"]), "independent of others"


def test_the_draws_are_pinned():
    image = Image((5, 5), "random", flip="vertical", seed=7)
    first = drawn(image, epoch=3, numbers=4)
    assert first["flip 7"].numpy().tolist() == [[False, True], [False, False], [False, False], [False, False]]
    boxes = [
        [0.453737, 0.436305, 0.136580, 0.400223],
        [0.677381, 0.802222, 0.133833, 0.458422],
        [0.735431, 0.659631, 0.363907, 0.084344],
        [0.668528, 0.797529, 0.904094, 0.805767],
    ]
    assert np.allclose(first[crop_name(image)][:, 0], boxes, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("flip", ["horizontal", "vertical", "horizontal_and_vertical"])
def test_an_image_is_flipped_as_drawn_and_only_as_requested(flip, channels):
    png = encoded(picture(31, 23, channels), "PNG")
    for options in ({}, {"size": (8, 6), "dtype": "bfloat16"}):
        plain = decode_image(png, Image(channels=channels, **options), {}).numpy()
        image = Image(channels=channels, flip=flip, **options)
        for vertical in (False, True):
            for horizontal in (False, True):
                wanted = plain[::-1] if vertical and "vertical" in flip else plain
                wanted = wanted[:, ::-1] if horizontal and "horizontal" in flip else wanted
                found = decode_image(png, image, {"flip 0": tf.constant([vertical, horizontal])})
                assert np.array_equal(found, wanted)


@pytest.mark.parametrize("crop", [None, "center", "random"])
@pytest.mark.parametrize("kind", ["GIF", "BMP", "WEBP"])
def test_every_format_supports_every_option(kind, crop):
    image = Image((6, 5), crop, 3, "float32", flip="horizontal", normalize="imagenet")
    draws = {name: draw[1] for name, draw in drawn(image, numbers=2).items()}
    pixels = picture(40, 31)
    found, wanted = (decode_image(encoded(pixels, each), image, draws) for each in (kind, "PNG"))
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("normalize", "mean", "std"),
    [
        (None, 0, 1 / 255),
        ("unit", 0, 1),
        ("symmetric", 0.5, 0.5),
        ("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ((0.25, (1, 2, 4)), 0.25, (1, 2, 4)),
        (((0.1, 0.2, 0.3), 0.5), (0.1, 0.2, 0.3), 0.5),
    ],
)
@pytest.mark.parametrize(("dtype", "precision"), [("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 1e-2)])
def test_floats_are_normalized_as_requested_and_cast_last(normalize, mean, std, dtype, precision):
    png = encoded(picture(31, 23), "PNG")
    for size in (None, (8, 6)):
        plain = decode_image(png, Image(size, None, 3, "float32"), {}).numpy().astype(np.float64)
        found = decode_image(png, Image(size, None, 3, dtype, normalize=normalize), {})
        assert found.dtype == dtype
        wanted = (plain / 255 - mean) / std
        assert np.allclose(found.numpy().astype(np.float64), wanted, rtol=precision, atol=precision)


@pytest.mark.parametrize("crop", [None, "random"])
def test_a_damaged_jpeg_is_an_error(crop):
    jpeg = encoded(picture(131, 178), "JPEG")
    image = Image((4, 4), crop, 3)
    draws = {name: draw[0] for name, draw in drawn(image, numbers=1).items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid JPEG data or crop window"):
        decode_image(jpeg[: len(jpeg) // 2], image, draws)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid JPEG data"):
        decode_image(jpeg[:20], image, draws)


PHOTOS = Schema((Feature("image", "image", "uint8", (None, None, 3)), Feature("number", "int", "int32")))
SIZES = [(40, 30), (31, 33), (25, 25), (60, 20), (20, 50), (33, 33), (28, 41), (90, 64), (64, 90)]


@pytest.fixture(scope="module")
def photos(write_dataset, tmp_path_factory):
    kinds = ("JPEG", "PNG", "JPEG", "WEBP")
    examples = [
        {"image": encoded(picture(*s), kinds[number % 4]), "number": number} for number, s in enumerate(SIZES)
    ]
    return write_dataset(tmp_path_factory.mktemp("photos"), PHOTOS, {"train": [examples[:4], examples[4:]]})


def test_an_image_depends_only_on_seed_epoch_and_example(photos):
    image = Image((5, 6), "random", None, "float16", 3, "bilinear", "horizontal", "symmetric")

    def load(batch_size, threads=None, **options):
        dataset = loader.load(photos, batch_size=batch_size, image=image, remainder="keep", **options)
        chosen = tf.data.Options()
        if threads:
            chosen.threading.private_threadpool_size = threads
        return dataset.with_options(chosen)

    def read(dataset):
        batches = dataset.as_numpy_iterator()
        pairs = [pair for batch in batches for pair in zip(batch["number"], batch["image"], strict=True)]
        return [(int(number), pixels.tobytes()) for number, pixels in pairs]

    stored = load(9)
    first, second = dict(read(stored)), dict(read(stored))
    assert len(first) == len(second) == 9
    assert all(first[number] != second[number] for number in first)
    shuffled = read(load(2, threads=1, shuffle=Shuffle(seed=5, lanes=2), epochs=2))
    assert (dict(shuffled[:9]), dict(shuffled[9:])) == (first, second), "another order, other threads"
    rest = read(load(2, shuffle=Shuffle(seed=5, lanes=2), epochs=2, start=Position(1, 2)))
    assert rest == shuffled[13:], "resumed"
    workers: dict[int, bytes] = {}
    for index in range(2):
        workers |= read(load(3, threads=7, worker=Worker(index, 2)))
    assert workers == first, "other workers, other threads"


def test_a_normalization_that_does_not_fit_the_images_is_refused(photos):
    image = Image((4, 4), channels=None, dtype="float32", normalize=((0, 0, 0, 0), 1))
    with raises(OptionsError, "normalize-channels", name="mean", num_part=4):
        loader.load(photos, batch_size=2, image=image)
