"""Several images per example, such as a photo and its mask: separate options, aligned crops."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Image, Shuffle, Worker
from tfshards.loader.tensors.decode import decode_image
from tfshards.schemas import Feature, Schema

SCHEMA = Schema(
    (
        Feature("photo", "image", "uint8", (None, None, 3)),
        Feature("mask", "image", "uint8", (None, None, 1)),
        Feature("thumb", "image", "uint8", (4, 5, None)),
        Feature("number", "int", "int64"),
        Feature("tags", "int", "int64", (None,)),
    )
)
SIZES = [(40, 30), (31, 33), (25, 25), (60, 20), (20, 50), (33, 33), (28, 41)]
CLASSES = (0, 7, 200)


def mask_of(height, width):
    """Return a label map of blocks whose class numbers are far apart."""
    row, column = np.mgrid[:height, :width]
    return np.array(CLASSES, np.uint8)[(row // 5 + column // 7) % 3][:, :, None]


@pytest.fixture(scope="module")
def pairs(write_dataset, tmp_path_factory):
    """Photos whose three channels equal their masks."""
    examples = []
    for number, size in enumerate(SIZES):
        mask, photo = mask_of(*size), np.repeat(mask_of(*size), 3, axis=2)
        thumb = np.full((4, 5, 1 if number % 2 else 3), number, np.uint8)
        images = {"photo": photo, "mask": mask, "thumb": thumb}
        encoded = {name: tf.io.encode_png(pixels).numpy() for name, pixels in images.items()}
        examples.append({**encoded, "number": number, "tags": list(range(number % 3))})
    root = tmp_path_factory.mktemp("pairs")
    return write_dataset(root, SCHEMA, {"train": [examples[:4], examples[4:]]})


def by_number(dataset):
    found = {}
    for batch in dataset.as_numpy_iterator():
        for row, number in enumerate(batch["number"].tolist()):
            found[number] = {name: value[row] for name, value in batch.items() if name != "tags"}
    return found


NEAREST = Image((8, 6), channels=1, method="nearest")


def test_each_image_is_decoded_by_its_own_options_and_the_others_stay_encoded(pairs):
    image = {"photo": Image((9, 7), dtype="float32"), "mask": NEAREST}
    dataset = loader.load(pairs, batch_size=7, image=image)
    assert dataset.element_spec["photo"] == tf.TensorSpec((7, 9, 7, 3), tf.float32)
    assert dataset.element_spec["mask"] == tf.TensorSpec((7, 8, 6, 1), tf.uint8)
    assert dataset.element_spec["thumb"] == tf.TensorSpec((7,), tf.string)
    (batch,) = dataset
    (stored,) = loader.load(pairs, batch_size=7)
    assert batch["thumb"].numpy().tolist() == stored["thumb"].numpy().tolist()
    assert batch["tags"].to_list() == stored["tags"].to_list()
    for name, each in image.items():
        wanted = [decode_image(encoded, each, {}).numpy() for encoded in stored[name]]
        assert np.array_equal(batch[name], wanted)


def cropped(seed, channels=3):
    flip = "horizontal_and_vertical"
    return Image((11, 9), "random", channels=channels, method="nearest", seed=seed, flip=flip)


ORDERS = [{}, {"shuffle": Shuffle(seed=2)}, {"worker": Worker(1, 2)}]


@pytest.mark.nightly
@pytest.mark.parametrize("options", mostly_nightly(ORDERS, ORDERS[1:2]), ids=["stored", "shuffled", "worker"])
def test_images_of_one_size_and_seed_are_cropped_and_flipped_alike_in_every_epoch(pairs, options):
    image = {"photo": cropped(4), "mask": cropped(4, channels=1)}
    epochs = []
    dataset = loader.load(pairs, batch_size=2, image=image, remainder="keep", **options)
    for _ in range(2):
        rows = by_number(dataset)
        for row in rows.values():
            assert np.array_equal(row["photo"], np.repeat(row["mask"], 3, axis=2))
        epochs.append(rows)
    shared = set(epochs[0]) & set(epochs[1])
    assert any(not np.array_equal(epochs[0][n]["mask"], epochs[1][n]["mask"]) for n in shared)


@pytest.mark.nightly
def test_images_of_different_seeds_are_cropped_and_flipped_differently(pairs):
    image = {"photo": cropped(4), "mask": cropped(5, channels=1)}
    rows = by_number(loader.load(pairs, batch_size=7, image=image))
    equal = [np.array_equal(row["photo"], np.repeat(row["mask"], 3, axis=2)) for row in rows.values()]
    assert sum(equal) < 2
    alone = by_number(loader.load(pairs, batch_size=7, image={"mask": cropped(5, channels=1)}))
    for number, row in rows.items():
        assert np.array_equal(row["mask"], alone[number]["mask"]), "no crop depends on another image's"
