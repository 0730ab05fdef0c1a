"""Scenes with every kind of feature, and the comparison of their batches as arrays and as tensors."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import tensorflow as tf

from tests.pictures import image_file
from tfshards.loader import batches, load
from tfshards.schemas import Feature, Schema

SCHEMA = Schema(
    (
        Feature("image", "image", "uint8", (None, None, 3)),
        Feature("mask", "mask", "uint8", (None, None, 1)),
        Feature("view", "image", "uint8", (None, None, 3)),
        Feature("digit", "raw", "uint8", (8, 6)),
        Feature("label", "label", "int64"),
        Feature("key", "bytes", "bytes"),
        Feature("weight", "float", "float32"),
        Feature("boxes", "float", "float32", (None, 4)),
        Feature("points", "float", "float32", (None, 6)),
        Feature("ids", "int", "int64", (None,)),
        Feature("grid", "raw", "bfloat16", (2, 3)),
    ),
    ("ant", "bee", "cat"),
)
SIZES = [17, 0, 40, 6]
COUNT = sum(SIZES)


def png(draw, channels):
    pixels = draw.integers(0, 256, (*draw.integers(9, 30, 2), channels), dtype=np.uint8).squeeze()
    return image_file(pixels), pixels.shape[:2]


def example(number):
    draw = np.random.default_rng(number)
    image, (height, width) = png(draw, 3)
    mask = image_file(draw.integers(0, 4, (height, width), dtype=np.uint8))
    corners = np.sort(draw.random((number % 3, 2, 2)), axis=1) * [width, height]
    points = draw.random((number % 3, 2, 3)) * [width, height, 1]
    points[..., 2] = np.arange(2) * 2
    return {
        "image": image,
        "mask": mask,
        "view": png(draw, 3)[0],
        "digit": draw.integers(0, 256, (8, 6), dtype=np.uint8),
        "label": number % 3,
        "key": b"%d" % number,
        "weight": np.float32(number),
        "boxes": corners.reshape(-1, 4).astype(np.float32),
        "points": points.reshape(-1, 6).astype(np.float32),
        "ids": np.arange(number % 3),
        "grid": np.full((2, 3), number, ml_dtypes.bfloat16),
    }


def same(found, expected):
    """Compare a value of a batch of arrays with that of a batch of tensors."""
    if isinstance(expected, dict):
        assert [*found] == [*expected]
        return all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, tf.RaggedTensor):
        assert found.dtype == object
        return len(found) == expected.nrows() and all(map(same, found, expected))
    wanted = expected.numpy()
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    # TensorFlow may divide by multiplying with the inverse
    is_moved = found.dtype == np.float32 and found.shape[-1:] in [(4,), (6,)]
    return np.allclose(found, wanted, rtol=1e-6) if is_moved else np.array_equal(found, wanted)


def check_same(path, most=None, **options):
    """Compare the batches of ``load`` and ``batches``, at most so many; return their number."""
    expected, found = load(path, **options), batches(path, **options)
    if most is None:
        assert len(found) == len(expected)
    count = 0
    for one, other in itertools.islice(itertools.zip_longest(found, expected), most):
        assert same(one, other), (count, options)
        count += 1
    return count
