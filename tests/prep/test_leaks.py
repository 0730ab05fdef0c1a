"""Names in different splits that look like copies or parts of one image, and names that do not."""

import re

import numpy as np
import pytest

from tfshards.prep import Arrays, ImageFolder, Options, plan
from tfshards.prep.planning.leaks import leak_warnings
from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.keys import KEY_FEATURE
from tfshards.schemas import Schema


def warnings_of(names, *, by_ratio=True, sizes=None, limit=100_000):
    """Return the warnings about names of which every other one is in val."""
    keys = [name.encode() for name in names]
    sizes = np.arange(1, len(keys) + 1) if sizes is None else np.array(sizes)
    listing = Listing(Schema((KEY_FEATURE,)), keys, sizes, np.zeros(len(keys), np.int64))
    numbers = np.arange(len(keys))
    return [
        *leak_warnings(listing, {"train": numbers[::2], "val": numbers[1::2]}, by_ratio=by_ratio, limit=limit)
    ]


LEAKS = [
    ("a copy by Windows", ["a/img.jpg", "a/img (1).jpg"], "2 examples look like copies"),
    ("a copy by the Finder", ["a/img.jpg", "a/img copy 2.jpg"], "look like copies"),
    ("a copy without suffix", ["a/img", "a/img - Copy"], "look like copies"),
    ("frames of one video", [f"walk/v1_frame_{n:04}.jpg" for n in range(4)], "4 examples are named as parts"),
    ("slices of one scan", ["ct/p7-slice12.png", "ct/p7-slice13.png"], "named as parts"),
    ("frames in the folder of a video", ["v1/frame1.jpg", "v1/frame2.jpg"], "named as parts"),
    ("augmented by Roboflow", [f"a/x_jpg.rf.{d * 32}.jpg" for d in "ab"], "named as parts"),
    ("other separators", ["ct/p7-slice1.png", "ct/p7_slice2.png"], "2 examples are named as parts"),
    ("frames without a name", ["frame1.jpg", "Frame2.jpg"], "2 examples are named as parts"),
    ("two words of parts", ["a/clip1_crop_1.jpg", "a/clip1_crop_2.jpg"], "2 examples are named as parts"),
]


@pytest.mark.parametrize(("names", "text"), [row[1:] for row in LEAKS], ids=[row[0] for row in LEAKS])
def test_names_of_one_image_in_two_splits_are_reported_with_groups_that_keep_them_together(names, text):
    (line,) = warnings_of(names)
    assert text in line
    assert f"{names[0]!r} in 'train' and {names[1]!r} in 'val'" in line
    pattern = re.search(r"group_by='(.*)' keeps them together", line)[1].replace("\\\\", "\\")
    # the proposed expression has one group, which all of them share
    assert len({re.search(pattern, name)[1] for name in names}) == 1
    assert re.search(pattern, "other/photo.jpg")[1] == "other/photo"


@pytest.mark.parametrize(
    "names",
    [
        ["n01440764/n01440764_10026.JPEG", "n01440764/n01440764_10027.JPEG"],
        ["cat/cat.1.jpg", "cat/cat.2.jpg"],
        ["cat (1).jpg", "cat (2).jpg", "cat (3).jpg"],
        ["AnnualCrop/AnnualCrop_1.jpg", "AnnualCrop/AnnualCrop_2.jpg"],
        ["COCO_train2014_000000000009.jpg", "COCO_train2014_000000000025.jpg"],
        ["a/IMG_0001.jpg", "a/IMG_0002.jpg", "b/IMG_0001.jpg"],
    ],
)
def test_files_that_are_only_numbered_are_not_reported(names):
    assert warnings_of(names) == []


def test_the_splits_of_folders_have_another_remedy():
    names = ["train/a/v1_frame1.jpg", "val/a/v1_frame2.jpg"]
    (line,) = warnings_of(names, by_ratio=False)
    assert line.endswith("; move them into one split")
    # each folder may hold another video
    assert warnings_of(["train/a/frame1.jpg", "val/a/frame1.jpg"], by_ratio=False) == []


def test_of_many_examples_some_are_looked_at():
    names = [f"a/v{n // 4}_frame{n}.jpg" for n in range(3000)]
    text = (
        "named as parts of one whose other parts are in another split, such as 'a/v0_frame0.jpg' in 'train'"
    )
    # blocks of 1,000
    for limit, looked_at in ((1, "1,000"), (2000, "2,000"), (2999, "2,000")):
        (line,) = warnings_of(names, limit=limit)
        assert line.startswith(f"{looked_at} examples of {looked_at} looked at are {text}")
    (line,) = warnings_of(names[:2500], limit=2500)
    assert line.startswith(f"2,500 examples are {text}")


def test_a_plan_reports_leaks_and_groups_remove_them(image_folder, tmp_path):
    folder = image_folder(
        {f"{c}/{c}{v}_frame{n}.jpg": b"x" * (9 * v + n) for c in "ab" for v in range(9) for n in (1, 2)}
    )
    splits = {"train": 0.5, "val": 0.5}
    source, out = ImageFolder(folder), tmp_path / "out"
    (line,) = plan(source, out, options=Options(splits=splits)).warnings
    group_by = re.search("group_by='(.*)' keeps", line)[1].replace("\\\\", "\\")
    assert plan(source, out, options=Options(splits=splits, group_by=group_by)).warnings == ()
    rows = Arrays({"x": np.arange(40)})
    assert plan(rows, out, options=Options(splits=splits)).warnings == ()
