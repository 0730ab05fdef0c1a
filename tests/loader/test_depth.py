"""Images with 16 bits per sample are delivered with their exact values."""

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import fault, raises
from tfshards import loader
from tfshards.loader import Image
from tfshards.loader.resources.budget import decoding_bytes
from tfshards.loader.tensors.decode import decode_image
from tfshards.schemas import Feature, OptionsError, Schema

SIZE = (31, 23)
SCAN = np.random.default_rng(0).integers(0, 65536, (*SIZE, 1), dtype=np.uint16)
# gray files as color
DEEP = np.repeat(SCAN, 3, axis=2)
# 8-bit files of a dataset that keeps the depth of each file
SHALLOW = (DEEP >> 8).astype(np.uint8)
JPEG = tf.io.encode_jpeg(SHALLOW).numpy()
PNGS = {"scan": tf.io.encode_png(SCAN).numpy(), "color": tf.io.encode_png(SCAN).numpy()}


@pytest.fixture(scope="module")
def scans(write_dataset, tmp_path_factory):
    """Two examples: 16-bit PNG files, and 8-bit files."""
    schema = Schema(
        (Feature("scan", "image", "uint16", (*SIZE, 1)), Feature("color", "image", "uint16", (*SIZE, 3)))
    )
    shallow = {"scan": tf.io.encode_png(SHALLOW[:, :, :1]).numpy(), "color": JPEG}
    return write_dataset(tmp_path_factory.mktemp("scans"), schema, {"train": [[PNGS, shallow]]})


@pytest.mark.parametrize("dtype", [None, "uint16", "float32"])
def test_values_are_exact_and_those_of_8_bit_files_are_scaled_by_257(scans, dtype):
    (batch,) = loader.load(scans, batch_size=2, image=Image(dtype=dtype))
    assert batch["scan"].dtype == batch["color"].dtype == (dtype or "uint16")
    assert np.array_equal(batch["scan"][0], SCAN)
    assert np.array_equal(batch["color"][0], DEEP)
    assert np.array_equal(batch["scan"][1], SHALLOW[:, :, :1].astype(np.uint16) * 257)
    decoded = tf.io.decode_jpeg(JPEG, dct_method="INTEGER_ACCURATE").numpy().astype(np.uint16) * 257
    assert np.array_equal(batch["color"][1], decoded)


def test_normalize_divides_by_65535(scans):
    (batch,) = loader.load(scans, batch_size=2, image={"color": Image(dtype="float32", normalize="imagenet")})
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    assert np.allclose(batch["color"][0], (DEEP / 65535 - mean) / std, rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(17, 13), (62, 46)])
def test_resizing_computes_in_float_and_rounds(method, size):
    encoded, wanted = PNGS["color"], tf.image.resize(DEEP, size, method).numpy()
    exact = decode_image(encoded, Image(size, channels=3, dtype="float32", method=method), {}, "uint16")
    assert np.array_equal(exact, wanted)
    rounded = decode_image(encoded, Image(size, channels=3, method=method), {}, "uint16")
    assert rounded.dtype == tf.uint16
    assert np.array_equal(rounded, np.round(wanted))


def test_the_memory_of_decoding_counts_two_bytes_per_sample():
    image = Image(channels=3)
    assert decoding_bytes(image, 1000, 2) == 2 * decoding_bytes(image, 1000) == 18_000


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Image(dtype="int32"), fault("image-dtype-stored", stored="uint16", dtype="int32")),
        (Image(dtype="float16"), "image-float16"),
        ({"scan": Image(dtype="uint8")}, fault("image-dtype-stored", given="image 'scan'", stored="uint16")),
    ],
)
def test_dtypes_that_cannot_hold_the_values_are_refused(scans, image, message):
    with raises(OptionsError, message):
        loader.load(scans, batch_size=1, image=image)


def test_images_of_8_bits_are_not_delivered_as_uint16(write_dataset, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", (*SIZE, 3)),))
    root = write_dataset(tmp_path, schema, {"train": [[{"image": JPEG}]]})
    with raises(OptionsError, "image-dtype-stored", stored="uint8", dtype="uint16"):
        loader.load(root, batch_size=1, image=Image(dtype="uint16"))
    with raises(OptionsError, "normalize-integers", integers="the stored integers"):
        Image(normalize="unit")
