"""Masks next to images: links that were not listed, files that change, and verbs that find them again."""

import os

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.reported import logged
from tfshards import loader
from tfshards.prep import ImageFolder, append, verify
from tfshards.schemas import BuildError, InputError

TEMPLATE = "{folders}/{stem:-_left}_gt.png"


def mask_of(number):
    row, column = np.mgrid[:12, :15]
    return np.array([0, 2, 4], np.uint8)[(row // (2 + number % 3) + column // 4) % 3]


def photo_of(number):
    return np.stack([mask_of(number) * 50, *[np.full((12, 15), number, np.uint8)] * 2], axis=2)


@pytest.fixture
def write(tmp_path):
    """Write photos and masks below ``data``: a name ends with the number of its content."""

    def make(*names, folder="data"):
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            number = int("".join(filter(str.isdecimal, path.stem)))
            Image.fromarray((photo_of if "images" in name else mask_of)(number)).save(path)
        return tmp_path / folder

    return make


def numbers(out):
    """Return the numbers of the photos in a dataset, after each was compared with its mask."""
    image = loader.Image((12, 15), method="nearest")
    batches = [*loader.batches(out, batch_size=1, image=image)]
    for batch in batches:
        assert np.array_equal(batch["image"][0, :, :, :1], batch["mask"][0] * 50)
    return sorted(int(batch["image"][0, 0, 0, 1]) for batch in batches)


def test_a_mask_that_changes_after_it_was_listed_stops_the_build(write, tmp_path, quiet_build):
    root = write("images/a1.png", "masks/a1.png")

    class Changing(ImageFolder):
        def stage(self, folder, **given):
            found = super().stage(folder, **given)
            os.utime(root / "masks/a1.png", ns=(1, 1))
            return found

    with pytest.raises(InputError, match=r"masks/a1\.png: changed after"):
        quiet_build(Changing(root, mask_dir="masks"), tmp_path / "out")


def test_append_finds_the_masks_again(write, tmp_path, quiet_build):
    def grow(*numbers):
        names = ("images/x/a{}_left.png", "seg/x/a{}_gt.png")
        return write(*(name.format(number) for number in numbers for name in names))

    root, out, log = grow(1, 2), tmp_path / "out", []
    quiet_build(ImageFolder(root, mask_dir="seg/", mask_name=TEMPLATE, as_is=True), out, shards=2)
    grow(3)
    logged(append, log.append)([root], out)
    assert not [line for line in log if "taken for" in line]
    assert numbers(out) == [1, 2, 3]
    assert verify(out, decode=True)


def test_an_edited_mask_is_another_input(write, tmp_path, quiet_build):
    root = write("images/a1.png", "masks/a1.png", "images/b2.png", "masks/b2.png")
    out = tmp_path / "o"
    quiet_build(ImageFolder(root), out)
    mask = root / "masks" / "a1.png"
    mask.write_bytes(mask.read_bytes() + b"more")
    with raises(InputError, "holds a dataset", code="dataset-differs"):
        quiet_build(ImageFolder(root), out)
    write("images/lone4.png")
    with raises(BuildError, "rejected (", code="too-many-rejected"):
        append([root], out)
