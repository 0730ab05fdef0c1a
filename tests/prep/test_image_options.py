"""Image options that stand for others, and what a build says of conversions that lose something."""

from dataclasses import fields

import numpy as np
import pytest
from PIL import Image, ImageCms

from tests.pictures import image_file
from tests.surface.command import run
from tfshards.prep import ImageOptions
from tfshards.schemas import OptionsError, read_manifest

RGBA = np.random.default_rng(0).integers(0, 256, (40, 60, 4), dtype=np.uint8)
FRAMES = [Image.fromarray(RGBA[..., 0] // n) for n in (1, 2)]
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.fixture
def photos(image_folder):
    files = {"alpha.png": image_file(RGBA), "color.bmp": image_file(RGBA[..., :3], "BMP")}
    moving = image_file(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:])
    return image_folder(
        {**files, "moving.gif": moving, "profile.png": image_file(FRAMES[1], icc_profile=PROFILE)}
    )


def test_for_training_stands_for_three_options():
    wanted = ImageOptions(resize="short=258", format="jpeg", jpeg_quality=90)
    assert ImageOptions(for_training=224) == ImageOptions(for_training=224, format="jpeg") == wanted
    assert ImageOptions(for_training=32, jpeg_quality=80).jpeg_quality == 80
    as_pixels = ImageOptions(for_training=224, format="pixels")
    assert as_pixels == ImageOptions(resize="short=258", format="pixels")


@pytest.mark.parametrize(
    "given",
    [{"channels": 3.0}, {"alpha": ""}, {"resize": (224, 224)}, {"jpeg_quality": True}, {"mask": True}]
    + [{"mask": True, "channels": 1, "format": "jpeg"}, {"for_training": -224}],
    ids=str,
)
def test_values_that_only_python_can_give_are_refused(given):
    with pytest.raises(OptionsError):
        ImageOptions(**given)


def test_a_default_given_explicitly_changes_nothing(photos, tmp_path):
    outs = tmp_path / "1" / "out", tmp_path / "2" / "out"
    defaults = {field.name: field.default for field in fields(ImageOptions)}
    # mask has no flag; a flag is false unless it is given
    given = {name: value for name, value in defaults.items() if value not in (None, False)}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    for out, more in zip(outs, ([], [*words, "--duplicates=keep"]), strict=True):
        assert run(["build", "images", photos, out, "--max-rejected=100%", *more]).status == 0
    assert read_manifest(outs[0]) == read_manifest(outs[1])


def test_what_conversions_lose_is_said_with_the_options_that_keep_it(photos, tmp_path):
    words = ["build", "images", photos, tmp_path / "out", "--animation", "first"]
    ended = run(words)
    assert ended.status == 0
    (warning,) = [line for line in ended.err.splitlines() if line.startswith("warning")]
    assert all(text in warning for text in ("'alpha.png'", "alpha='keep'", "channels=4"))
    lines = [line for line in ended.out.splitlines() if "  accepted:" in line]
    assert {"alpha over white", "color profile ignored", "first frame"} <= {
        line.split(": ")[1] for line in lines
    }
    kept = run([*words, "--alpha", "keep", "--channels", "4", "--overwrite"])
    assert (kept.status, "warning" in kept.err, "alpha" in kept.out) == (0, False, False)
