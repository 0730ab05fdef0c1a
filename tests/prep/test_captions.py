"""Several captions per image: rows that name the same image stay in one split, by ``group_by``."""

import os

import pytest

from tests.prep.table_files import examples, write_text
from tfshards.prep import Options
from tfshards.schemas import InputError, read_manifest

RATIOS = {"train": "1/2", "val": "1/2"}
BY_IMAGE = Options(splits=RATIOS, group_by="file_name")


def captions_by_split(out):
    """Return the captions of each split, which begin with the number of their image."""
    return {
        split: {values["caption"][0].decode() for values in examples(out, split).values()}
        for split in read_manifest(out).splits
    }


def images_of(captions):
    return {caption.split()[0] for caption in captions}


def check_apart(out, num_captions, num_images):
    """Check that each image is in one split."""
    splits = captions_by_split(out).values()
    assert sum(map(len, splits)) == num_captions
    assert sum(len(images_of(captions)) for captions in splits) == num_images


def rows_of(spellings, numbers):
    """Return lines of a table with one caption for each spelling of each image."""
    return [f"{spelling.format(n)},{n} {k}" for n in numbers for k, spelling in enumerate(spellings)]


@pytest.fixture
def photos(image_folder):
    return image_folder({f"a/{number}.png": number for number in range(20)})


def test_rows_of_one_image_stay_in_one_split(photos, build_table, tmp_path):
    (photos / "link").symlink_to("a")
    for number in range(14):
        os.symlink(f"{number}.png", photos / f"a/{number}-link.png")
    spellings = ["a/../a//{}.png", "link/{}-link.png", f"{photos}/link/{{}}.png"]
    table = write_text(photos / "rows.csv", "file_name,caption", *rows_of(spellings, range(12)))
    with pytest.raises(InputError, match="group_by='file_name'"):
        build_table(table, build={"options": Options(splits=RATIOS)})
    manifest = build_table(table, build={"options": BY_IMAGE})
    check_apart(tmp_path / "out", 36, 12)
    assert manifest.splits["train"].num_examples == 18
