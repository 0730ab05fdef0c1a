"""Images decoded in NumPy and Pillow: the pixels, crops and flips of the graph."""

import io
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Pillow

from tfshards.loader import Image
from tfshards.loader.arrays.decode import decode_image
from tfshards.loader.examples.crops import draws_of
from tfshards.loader.graph.ops import GRAPH
from tfshards.loader.order.ops import NUMPY
from tfshards.loader.tensors.decode import decode_with_region
from tfshards.schemas.pixel_files import encode as encode_pixels

CHANNELS = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4}
NUMBER, EPOCH = 12_345, 2


def noise(mode):
    return np.random.default_rng(5).integers(0, 256, (61, 83, CHANNELS[mode]), dtype=np.uint8).squeeze()


def encoded(mode, kind, **options):
    """Return noise as a file; of 16 bits for the kind "deep"."""
    draw = np.random.default_rng(len(mode) + len(kind))
    if kind == "deep":
        samples = draw.integers(0, 65_536, (31, 47, CHANNELS[mode])).astype(np.uint16)
        return tf.io.encode_png(samples).numpy()
    pixels = draw.integers(0, 256, (61, 83, CHANNELS[mode]), dtype=np.uint8).squeeze()
    picture, file = Pillow.fromarray(pixels), io.BytesIO()
    (picture.convert(mode) if mode in "1P" else picture).save(file, kind, **options)
    return file.getvalue()


FILES = {
    "JPEG": (encoded("RGB", "JPEG"), (1, 3)),
    "JPEG, 4:4:4": (encoded("RGB", "JPEG", subsampling=0), (3,)),
    "JPEG, 4:2:2, progressive": (encoded("RGB", "JPEG", subsampling=1, progressive=True), (1, 3)),
    "gray JPEG": (encoded("L", "JPEG"), (1, 3)),
    "gray PNG": (encoded("L", "PNG"), (1, 3, 4)),
    "PNG of one bit": (encoded("1", "PNG"), (1, 3)),
    "PNG with a palette": (encoded("P", "PNG"), (1, 3)),
    "gray PNG with alpha": (encoded("LA", "PNG"), (1, 3, 4)),
    "PNG": (encoded("RGB", "PNG"), (1, 3, 4)),
    "PNG with alpha": (encoded("RGBA", "PNG"), (1, 3, 4)),
    "gray pixels": (encode_pixels(noise("L")), (1, 3, 4)),
    "pixels": (encode_pixels(noise("RGB")), (1, 3, 4)),
    "GIF": (encoded("P", "GIF"), (3,)),
    "BMP": (encoded("RGB", "BMP"), (3,)),
    "WebP": (encoded("RGB", "WEBP"), (3,)),
    "gray PNG of 16 bits": (encoded("L", "deep"), (1, 3, 4)),
}
OPTIONS = {
    "stored": Image(),
    "bilinear": Image((40, 50)),
    "larger": Image((120, 100), dtype="float32"),
    "nearest": Image((40, 50), method="nearest"),
    "cropped": Image((20, 30), crop="random", flip="horizontal_and_vertical", seed=3),
    "normalized": Image((24, 24), crop="center", dtype="float16", normalize="symmetric"),
    "cropped, large": Image((30, 20), crop="random", scale=(0.6, 1), ratio=(1, 2)),
    "shifted": Image((20, 30), crop="shift", flip="horizontal"),
    "shifted, as floats": Image((20, 30), crop="shift", dtype="float32", normalize="imagenet"),
    "larger than the image": Image((64, 90), crop="shift"),
    "center": Image((20, 20), crop="center", crop_fraction=0.875),
}


def both(data, image, stored, raw_shape=None):
    """Return pixels and region as tensors, and as arrays."""
    numbers = np.array([NUMBER])
    graph = draws_of(GRAPH, [image], tf.constant(EPOCH, tf.int64), tf.constant(numbers))
    arrays = draws_of(NUMPY, [image], np.int64(EPOCH), numbers)
    assert all(np.array_equal(graph[name], arrays[name]) for name in [*graph, *arrays])
    pixels, region = decode_with_region(
        tf.constant(data), image, {name: each[0] for name, each in graph.items()}, stored, raw_shape
    )
    found = decode_image(data, image, {name: each[0] for name, each in arrays.items()}, stored, raw_shape)
    return (pixels.numpy(), region.numpy()), found


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", FILES)
def test_the_pixels_are_those_of_the_graph(name, option):
    (data, channels), image = FILES[name], OPTIONS[option]
    for count in channels:
        if option == "shifted, as floats" and count != 3:
            continue
        for stored in ("uint8", "uint16") if option == "stored" else ("uint16" if "16" in name else "uint8",):
            chosen = replace(
                image, channels=count, dtype=image.dtype or stored, method=image.method or "bilinear"
            )
            (expected, region), found = both(data, chosen, stored)
            assert found.pixels.dtype == expected.dtype
            assert np.array_equal(found.region, region)
            apart = np.abs(found.pixels.astype(np.float64) - expected.astype(np.float64))
            if image.crop and name.startswith(("JPEG", "gray JPEG")):
                # TensorFlow decodes a crop of a JPEG without its neighbors
                assert (apart > 1).mean() < 0.2
            else:
                assert apart.max() == 0, count


@pytest.mark.parametrize("mode", ["LA", "RGB", "RGBA"])
def test_of_color_of_16_bits_the_upper_bytes_are_those_of_the_graph(mode):
    """Builds store none, except with check="none", as uint8."""
    data = encoded(mode, "deep")
    for count in (3, 4):
        image = Image(channels=count, dtype="uint8", method="bilinear")
        (expected, _), found = both(data, image, "uint8")
        assert np.array_equal(found.pixels, expected)
    with pytest.raises(ValueError, match="a PNG in color with 16 bits"):
        decode_image(data, Image(channels=3, dtype="uint16"), {}, "uint16")


@pytest.mark.parametrize("count", [1, 3])
def test_pixels_without_a_file_are_those_of_the_graph(count):
    pixels = np.random.default_rng(0).integers(0, 60_000, (9, 7, 1)).astype("<u2")
    image = Image((6, 5), crop="random", channels=count, dtype="float32", method="bilinear")
    (expected, region), found = both(pixels.tobytes(), image, "uint16", pixels.shape)
    assert np.array_equal(found.pixels, expected)
    assert np.array_equal(found.region, region)


@pytest.mark.parametrize(
    "data", [b"", b"no image", *(FILES[name][0][:300] for name in ("JPEG", "PNG", "pixels"))]
)
def test_what_cannot_be_decoded_is_an_error(data):
    with pytest.raises(ValueError, match=r"^an image cannot be decoded: "):
        decode_image(data, Image((4, 4), channels=3, dtype="uint8"), {})
