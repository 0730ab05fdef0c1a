"""The recipes of docs/how-to.md for masks and for images of 16 bits run as they are written."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.test_recipes import HOW_TO, commands, python, sections
from tfshards import loader
from tfshards.prep.cli.main import main
from tfshards.schemas import read_manifest

DEEP = np.random.default_rng(0).integers(0, 4096, (20, 16, 1), dtype=np.uint16)
CLASSES = (DEEP % 3).astype(np.uint8)
PHOTO = np.repeat(CLASSES * 100, 3, axis=2)


def recipe(heading):
    """Return the commands and the Python lines of a recipe."""
    text = sections(HOW_TO)[heading]
    return commands(text), python(text)


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tf.io.encode_png(pixels).numpy())


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_images_and_their_masks(folder):
    commands, python = recipe("How do I build from images and their masks?")
    for number in range(8):
        write(folder / f"segmentation/train/images/{number}.png", PHOTO)
        write(folder / f"segmentation/train/masks/{number}.png", CLASSES)
        write(folder / f"VOC2012/JPEGImages/{number}.png", PHOTO)
    write(folder / "VOC2012/SegmentationClass/3.png", CLASSES)
    write(folder / "leftImg8bit/train/ulm/a_leftImg8bit.png", PHOTO)
    write(folder / "gtFine/train/ulm/a_gtFine_labelIds.png", CLASSES)
    for command in commands:
        assert main(command) == 0
    assert read_manifest("data/voc").num_examples == 1
    names = {"loader": loader}
    exec(python, names)
    for image, mask in names["train"]:
        assert (image.dtype, mask.dtype) == (tf.float32, tf.uint8)
        assert set(np.unique(mask)) <= {0, 1, 2}


def test_images_of_16_bits(folder):
    heading = "How do I keep all bits of X-rays, CT slices, depth maps and satellite images?"
    commands, python = recipe(heading)
    for number in range(32):
        write(folder / f"scans/{number}.png", DEEP)
    write(folder / "rooms/images/a.png", PHOTO)
    write(folder / "rooms/masks/a.png", DEEP)
    np.save(folder / "ELEVATION.npy", np.float32(DEEP))
    tiles = [np.roll(DEEP, number, axis=1).repeat(3, axis=2) * np.uint16([1, 3, 16]) for number in range(4)]
    for number, tile in enumerate(tiles):
        write(folder / f"tiles/{'urban' if number % 2 else 'forest'}/{number}.png", tile)
    exec(re.search("```python\n(.+?)```", sections(HOW_TO)[heading], re.S)[1], {})
    for command in commands:
        assert main(command) == 0
    names = {"loader": loader}
    exec(python, names)
    (batch,) = names["scans"]
    wanted = tf.image.resize(DEEP, (512, 512)).numpy()
    assert np.array_equal(batch["image"][0], wanted)
    (batch,) = loader.load("data/elevation", batch_size=20)
    assert np.array_equal(batch["image"], np.float32(DEEP)[np.int64(batch["key"].numpy())])
    assert read_manifest("data/tiles").schema.class_names == ("forest", "urban")
    (batch,) = loader.load("data/tiles", batch_size=4, image=loader.Image(), shuffle=None)
    # sorted by their classes
    wanted = np.stack(tiles)[[0, 2, 1, 3]][np.int64(batch["key"].numpy())]
    assert np.array_equal(batch["image"], wanted)
