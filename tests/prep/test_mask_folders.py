"""Folders of images and masks: pairs by name, in every layout, from the files to the loader."""

import os
import pickle

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep.table_files import check_repair
from tfshards import loader
from tfshards.prep import ImageFolder, ImageOptions, append, verify
from tfshards.prep.cli.main import main
from tfshards.prep.sources.base import Accepted, Listing, Rejected
from tfshards.schemas import BuildError, InputError
from tfshards.schemas.reasons import Reason

from .deep_files import pixels, png

CLASSES = (0, 2, 4)


def mask_of(number: int) -> np.ndarray:
    """Return a mask of classes that would become others if they were mixed."""
    row, column = np.mgrid[:12, :15]
    return np.array(CLASSES, np.uint8)[(row // (2 + number % 3) + column // 4) % 3]


def photo_of(number: int) -> np.ndarray:
    return np.stack([mask_of(number) * 50, *[np.full((12, 15), number, np.uint8)] * 2], axis=2)


@pytest.fixture
def write(tmp_path):
    """Write photos and masks below ``tmp_path / "data"``: a name ends with the number of its content."""

    def make(*names: str, folder: str = "data"):
        root = tmp_path / folder
        for name in names:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            number = int(path.stem[-1])
            pixels = photo_of(number) if "images" in name or "photos" in name else mask_of(number)
            Image.fromarray(pixels).save(path)
        return root

    return make


def pairs(*stems: str, of: str = "images", masks: str = "masks", suffix: str = ".png") -> list[str]:
    return [f"{stem.format(of)}.png" for stem in stems] + [f"{stem.format(masks)}{suffix}" for stem in stems]


def delivered(out, split="train", **options):
    """Return the batch of a whole split, after it was checked that photos and masks belong together."""
    image = loader.Image(size=(12, 15), method="nearest", **options)
    (batch,) = loader.load(out, split, batch_size=1, remainder="keep", image=image).unbatch().batch(99)
    for photo, mask in zip(batch["image"].numpy(), batch["mask"].numpy(), strict=True):
        assert np.array_equal(photo[:, :, :1], mask * 50)
        assert set(np.unique(mask)) == set(CLASSES)
    return batch


def assert_paired(source: ImageFolder, listing: Listing) -> None:
    """Assert that each example has the photo of its key, and the mask of the same name."""
    rows = listing.rows(np.arange(listing.num_examples))
    for row, found in zip(rows, source.read(rows, listing.schema), strict=True):
        number = int(row.key[-5:-4])
        assert found.conversions in ((), ("re-encoded",))
        assert np.array_equal(pixels(found.values[0], "uint8"), photo_of(number))
        assert np.array_equal(pixels(found.values[1], "uint8")[:, :, 0], mask_of(number))
        assert found.values[2:] == (*([row.label] if listing.schema.label else []), row.key.encode())


def test_from_files_to_the_loader_masks_stay_with_their_images(write, tmp_path, quiet_build):
    root = write(*pairs("train/{}/a1", "train/{}/b2", "val/{}/c3"))
    quiet_build(ImageFolder(root), tmp_path / "out", engine="local")
    for split, numbers in (("train", [1, 2]), ("val", [3])):
        batch = delivered(tmp_path / "out", split, crop="random", flip="horizontal")
        assert sorted(batch["image"].numpy()[:, 0, 0, 1]) == numbers
    assert verify(tmp_path / "out", decode=True)


@pytest.mark.parametrize("link", ["file", "folder", "file with another of its name"])
def test_a_mask_that_was_not_listed_is_not_read(link, write, tmp_path):
    root = write(*pairs("{}/a1"), "images/x/b2.png")
    outside = write("masks/b2.png", folder="elsewhere")
    if link == "folder":
        (root / "masks/x").symlink_to(outside / "masks")
    else:
        (root / "masks/x").mkdir()
        (root / "masks/x/b2.png").symlink_to(outside / "masks/b2.png")
    if link == "file with another of its name":
        Image.fromarray(mask_of(2)).save(root / "masks/x/b2.bmp")
    source = ImageFolder(root, as_is=True)
    listing = source.listing()
    assert listing.keys == [b"images/x/b2.png"], "a1.png is next to the class folder"
    found = outcome(source, listing)
    if link == "file with another of its name":
        assert np.array_equal(pixels(found.values[1], "uint8")[:, :, 0], mask_of(2))
    else:
        assert found == Rejected(Reason.MISSING, "there is no mask of the same name")
    with_links = ImageFolder(root, follow_links=True, as_is=True)
    if link != "file with another of its name":
        assert_paired(with_links, with_links.listing())


def test_a_mask_is_read_where_it_was_listed_even_if_its_split_could_hold_it(write):
    """A split folder with the two folders, next to one without: the masks are in one folder for all."""
    root = write("train/images/a1.png", "masks/train/images/a1.png", "test/b2.png", "masks/test/b2.png")
    for path, content in (("masks/train/images/a1.png", mask_of(1)), ("test/b2.png", photo_of(2))):
        Image.fromarray(content).save(root / path)
    (root / "train/masks").mkdir()
    splits = {"train": "train", "test": "test"}
    source = ImageFolder(root, mask_dir="masks", split_folders=splits, as_is=True)
    listing = source.listing()
    for row in source.read(listing.rows(np.arange(listing.num_examples)), listing.schema):
        assert isinstance(row, Accepted)


def test_the_command_line_says_that_it_pairs_and_how_not_to(write, tmp_path, capsys):
    root = str(write(*pairs("{}/a1", "{}/b2")))
    assert main(["plan", "images", root, str(tmp_path / "out")]) == 0
    line = "warning: 'masks' next to 'images' is taken for their masks, the feature 'mask'; --splits"
    assert line in capsys.readouterr().err
    assert main(["build", "images", root, str(tmp_path / "classes"), "--splits", ""]) == 0
    assert "images 2 masks 2" in " ".join(capsys.readouterr().out.split())
    assert main(["build", "images", root, str(tmp_path / "out"), "--mask-dir", "masks"]) == 0
    assert "is taken for" not in capsys.readouterr().err


def outcome(source, listing):
    (found,) = pickle.loads(pickle.dumps(source)).read(listing.rows(np.array([0])), listing.schema)
    return found


def test_a_mask_that_changes_after_it_was_listed_stops_the_build(write):
    root = write(*pairs("{}/a1"))
    source = ImageFolder(root)
    listing = source.listing()
    assert isinstance(outcome(source, listing), Accepted)
    os.utime(root / "masks/a1.png", ns=(1, 1))
    with raises(InputError, "changed-file"):
        outcome(source, listing)
    (root / "masks/a1.png").unlink()
    with raises(InputError, "changed-file"):
        outcome(source, listing)
    (root / "images/a1.png").unlink()
    with raises(InputError, "unreadable"):
        outcome(source, listing)


def test_a_mask_of_colors_is_rejected_with_its_name_and_damaged_images_without(write):
    root = write(*pairs("{}/a1"))
    (root / "masks/a1.png").write_bytes(png(photo_of(1)))
    source = ImageFolder(root)
    found = outcome(source, source.listing())
    assert found == Rejected(Reason.UNSUPPORTED, "mask: mode RGB: a mask has one channel of at most 8 bits")
    (root / "images/a1.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert outcome(source, source.listing()).detail.startswith("starts with 89 50")


def test_append_and_repair_find_the_masks_again(write, tmp_path, quiet_build):
    root = write(*pairs("{}/a1", "{}/b2", masks="seg"))
    out = tmp_path / "out"
    quiet_build(ImageFolder(root, mask_dir="seg"), out, engine="local")
    check_repair(out, root)
    write(*pairs("{}/c3", masks="seg"))
    log = []
    append([root], out, engine="local", log=log.append)
    assert not any("is taken for" in line for line in log)
    assert sorted(delivered(out)["image"].numpy()[:, 0, 0, 1]) == [1, 2, 3]


def test_the_palette_of_a_mask_is_left_out_even_if_images_are_unchecked(write):
    root = write(*pairs("{}/a1"))
    picture = Image.fromarray(mask_of(1)).convert("P")
    picture.putpalette([200, 100, 50] * 256)
    picture.save(root / "masks/a1.png")
    source = ImageFolder(root, ImageOptions(check="none"))
    found = outcome(source, source.listing())
    assert found.values[0] == (root / "images/a1.png").read_bytes(), "unchecked, as it is"
    assert np.array_equal(pixels(found.values[1], "uint8")[:, :, 0], mask_of(1)), "no colors of a palette"


def test_an_edited_mask_is_named_as_such(write, tmp_path, quiet_build):
    root, out, log = write(*pairs("{}/a1", "{}/b2")), tmp_path / "out", []
    quiet_build(ImageFolder(root), out)
    mask = root / "masks" / "a1.png"
    mask.write_bytes(mask.read_bytes() + b"more")
    with raises(InputError, "dataset-differs"):
        quiet_build(ImageFolder(root), out)
    (root / "masks" / "b2.png").unlink()
    append([root], out, log=log.append)
    assert any("2 inputs have changed, such as 'images/a1.png' or its mask; the" in line for line in log)
    (write(*pairs("{}/a3"), "images/lone4.png") / "masks" / "a3.png").unlink()
    with raises(BuildError, "too-many-rejected"):
        append([root], out, log=log.append)
