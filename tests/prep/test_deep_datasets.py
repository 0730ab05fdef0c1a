"""Every verb on a dataset of 16-bit images with masks: the values stay exact, also in what it prints."""

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from tests.pictures import image_file
from tests.surface.command import run
from tfshards import loader
from tfshards.prep import ImageOptions, Table, append, audit, reshard, verify
from tfshards.schemas import Feature

SIZE = (12, 9)
# the lower byte matters as much as the upper one
SCANS = np.random.default_rng(3).integers(0, 65536, (4, *SIZE), dtype=np.uint16)
CLASSES = (SCANS % 5).astype(np.uint8)
OPTIONS = ImageOptions(depth=16, channels=1, resize="12x9")


@pytest.fixture
def rows(tmp_path):
    """A table of four 16-bit scans with masks of 8 bits."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for number, (scan, classes) in enumerate(zip(SCANS, CLASSES, strict=True)):
        (folder / f"{number}.png").write_bytes(image_file(scan))
        (folder / f"{number}-mask.png").write_bytes(image_file(classes))
    names = "".join(f"{number}.png,{number}-mask.png,{number % 2}\n" for number in range(4))
    (folder / "metadata.csv").write_text(f"file_name,mask,label\n{names}")
    return folder


def table(folder) -> Table:
    return Table(folder, {"mask": "mask"}, OPTIONS)


def assert_exact(root, split="train", start=0):
    """Assert that the loader gives the scans from ``start`` on, and their classes."""
    (batch,) = loader.load(root, split, batch_size=4 - start, image=loader.Image(flip=None))
    numbers = np.array([int(key[:1]) for key in batch["key"].numpy()])
    assert sorted(numbers) == list(range(start, 4))
    assert np.array_equal(batch["image"], SCANS[numbers, ..., None])
    assert np.array_equal(batch["mask"], CLASSES[numbers, ..., None])


def test_each_verb_keeps_the_values(rows, tmp_path, quiet_build):
    out = tmp_path / "out"
    manifest = quiet_build(table(rows), out)
    assert manifest.schema["image"] == Feature("image", "image", "uint16", (12, 9, 1))
    assert manifest.schema["mask"] == Feature("mask", "mask", "uint16", (12, 9, 1))
    assert_exact(out)
    assert verify(out, decode=True)
    assert not audit(out).notes
    saved = tmp_path / "saved.png"
    ended = run(["show", out, "0.png", "--save", saved])
    assert (ended.status, ended.out.count("PNG 12 x 9 (height x width), mode I;16, ")) == (0, 2)
    assert np.array_equal(Image.open(saved), SCANS[0])
    for example in (
        tfds.builder_from_directory(out / manifest.folder).as_dataset(split="train").as_numpy_iterator()
    ):
        number = int(example["key"][:1])
        assert np.array_equal(example["image"][..., 0], SCANS[number])
        assert np.array_equal(example["mask"][..., 0], CLASSES[number])
    reshard(out, tmp_path / "resharded", shards=2)
    assert_exact(tmp_path / "resharded")
    text = (rows / "metadata.csv").read_text().splitlines(keepends=True)
    (rows / "metadata.csv").write_text("".join([text[0], *text[3:]]))
    quiet_build(table(rows), tmp_path / "half")
    (rows / "metadata.csv").write_text("".join(text[:3]))
    append([rows], tmp_path / "half")
    assert_exact(tmp_path / "half")
