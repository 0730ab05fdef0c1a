"""Masks keep their values, and are cut, resized and mirrored as the image of their example is."""

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Image, Shuffle
from tfshards.schemas import Feature, OptionsError, Schema

SCHEMA = Schema(
    (
        Feature("photo", "image", "uint8", (None, None, 3)),
        Feature("mask", "mask", "uint8", (None, None, 1)),
        Feature("objects", "mask", "uint16", (None, None, 1)),
        Feature("number", "int", "int64"),
    )
)
SIZES = [(40, 30), (31, 33), (25, 25), (60, 20), (20, 50)]
CLASSES = (0, 2, 4)


def mask_of(height, width):
    """Return a mask of blocks, whose classes would become others if they were mixed."""
    row, column = np.mgrid[:height, :width]
    return np.array(CLASSES, np.uint8)[(row // 5 + column // 7) % 3][:, :, None]


@pytest.fixture(scope="module")
def pairs(write_dataset, tmp_path_factory):
    """Photos whose channels equal their masks, and numbers of objects 300 times as large."""
    examples = []
    for number, size in enumerate(SIZES):
        mask = mask_of(*size)
        images = {"photo": np.repeat(mask, 3, axis=2), "mask": mask, "objects": mask.astype(np.uint16) * 300}
        encoded = {name: tf.io.encode_png(pixels).numpy() for name, pixels in images.items()}
        examples.append({**encoded, "number": number})
    return write_dataset(tmp_path_factory.mktemp("pairs"), SCHEMA, {"train": [examples[:3], examples[3:]]})


def test_given_one_image_masks_are_resized_with_nearest_and_never_normalized(pairs):
    image = Image((17, 13), dtype="float32", normalize="imagenet", method="bilinear")
    (batch,) = loader.load(pairs, batch_size=5, image=image)
    assert (batch["mask"].dtype, batch["objects"].dtype) == (tf.uint8, tf.uint16)
    for row, number in enumerate(batch["number"].numpy()):
        wanted = tf.image.resize(mask_of(*SIZES[number]), (17, 13), "nearest").numpy()
        assert np.array_equal(batch["mask"][row], wanted)
        assert np.array_equal(batch["objects"][row], wanted.astype(np.uint16) * 300)
    assert set(np.unique(batch["mask"])) == set(CLASSES)


def aligned(batch):
    """Return whether the photos, which are resized with nearest too, equal the masks."""
    return np.array_equal(batch["photo"], np.repeat(batch["mask"], 3, axis=3))


GEOMETRY = {"crop": "random", "flip": "horizontal_and_vertical", "seed": 3}


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(Image((11, 9), **GEOMETRY, method="nearest"), marks=pytest.mark.nightly),
        pytest.param(
            {"photo": Image((11, 9), **GEOMETRY, method="nearest"), "mask": Image(), "objects": Image()},
            marks=pytest.mark.nightly,
        ),
        {
            "photo": Image((11, 9), **GEOMETRY, method="nearest"),
            "mask": Image((11, 9), dtype="int64"),
            "objects": Image(dtype="int32", channels=1, method="nearest"),
        },
    ],
    ids=["one for all", "masks without options", "masks with options"],
)
def test_masks_are_cut_and_mirrored_as_their_image(pairs, image):
    dataset = loader.load(pairs, batch_size=5, image=image, shuffle=Shuffle(seed=1), epochs=3)
    seen = []
    for batch in dataset:
        assert aligned(batch)
        assert np.array_equal(batch["objects"], batch["mask"].numpy().astype(np.int64) * 300)
        seen.append(batch["photo"].numpy()[np.argsort(batch["number"])].tobytes())
    assert len(set(seen)) == 3, "every epoch draws other boxes"


def test_a_mask_may_be_smaller_than_its_image_and_covers_the_same_box(pairs):
    image = {"photo": Image((32, 24), **GEOMETRY, method="nearest"), "mask": Image((8, 6))}
    (batch,) = loader.load(pairs, batch_size=5, image=image, select=("photo", "mask"))
    alone = {"mask": Image((8, 6), **GEOMETRY)}
    ((mask,),) = loader.load(pairs, batch_size=5, image=alone, select=("mask",))
    assert np.array_equal(batch[1], mask)


@pytest.mark.parametrize(
    ("crop", "size"),
    [("random", (8, 8)), ("center", (8, 8)), ("shift", (8, 6))],
    ids=["random", "center", "shift"],
)
@pytest.mark.parametrize("read", [loader.load, loader.batches])
def test_a_mask_whose_size_would_give_it_another_box_than_its_image_is_refused(pairs, read, crop, size):
    image = {"photo": Image((32, 24), crop=crop), "mask": Image(size)}
    with raises(OptionsError, "mask-size-crop", name="mask", size=[*size], wanted=[32, 24]):
        read(pairs, batch_size=5, image=image)


def test_a_mask_with_a_crop_or_flip_keeps_its_own(pairs):
    photo = Image((11, 9), **GEOMETRY, method="nearest")
    own = {"photo": photo, "mask": Image((11, 9), crop="center")}
    (batch,) = loader.load(pairs, batch_size=5, image=own)
    assert not aligned(batch)
    ((center,),) = loader.load(pairs, batch_size=5, image={"mask": own["mask"]}, select=("mask",))
    assert np.array_equal(batch["mask"], center)


def test_images_with_different_crops_give_none_to_the_mask(write_dataset, tmp_path):
    schema = Schema((Feature("left", "image", "uint8", (8, 8, 1)), *SCHEMA.features[:2]))
    pixels = {"left": mask_of(8, 8), "photo": np.repeat(mask_of(8, 8), 3, axis=2), "mask": mask_of(8, 8)}
    encoded = {name: tf.io.encode_png(value).numpy() for name, value in pixels.items()}
    root = write_dataset(tmp_path, schema, {"train": [[encoded]]})
    image = {"left": Image((4, 4), crop="random"), "photo": Image((4, 4)), "mask": Image((8, 8))}
    (batch,) = loader.load(root, batch_size=1, image=image)
    assert np.array_equal(batch["mask"][0], mask_of(8, 8))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mask", {"method": "bilinear"}),
        ("mask", {"dtype": "float32"}),
        ("mask", {"dtype": "float32", "normalize": "unit"}),
        ("mask", {"channels": 3}),
        ("objects", {"dtype": "uint8"}),
    ],
)
def test_options_that_would_change_the_values_of_a_mask_are_refused(pairs, name, options):
    with raises(OptionsError, "mask-options", name=name):
        loader.load(pairs, batch_size=5, image={name: Image((9, 9), **options)})


def test_the_memory_budget_counts_masks(pairs):
    dataset = loader.load(pairs, batch_size=5, image=Image((9, 9)), memory_budget="64MiB")
    assert dataset.element_spec["objects"] == tf.TensorSpec((5, 9, 9, 1), tf.uint16)
    (batch,) = dataset
    assert batch["photo"].shape == (5, 9, 9, 3)
