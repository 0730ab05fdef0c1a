"""Image options that stand for others, and values that only Python can give."""

from dataclasses import fields

import numpy as np
import pytest

from tests.pictures import image_file
from tests.surface.command import run
from tfshards.prep import ImageOptions
from tfshards.schemas import OptionsError, read_manifest

RGBA = np.random.default_rng(0).integers(0, 256, (40, 60, 4), dtype=np.uint8)


def test_for_training_stands_for_three_options():
    wanted = ImageOptions(resize="short=258", format="jpeg", jpeg_quality=90)
    assert ImageOptions(for_training=224) == ImageOptions(for_training=224, format="jpeg") == wanted
    assert ImageOptions(for_training=32, jpeg_quality=80).jpeg_quality == 80
    as_pixels = ImageOptions(for_training=224, format="pixels")
    assert as_pixels == ImageOptions(resize="short=258", format="pixels")


@pytest.mark.parametrize(
    "given",
    [{"channels": 3.0}, {"format": ""}, {"resize": (224, 224)}, {"jpeg_quality": True}, {"mask": True}]
    + [{"mask": True, "channels": 1, "format": "jpeg"}, {"for_training": -224}],
    ids=str,
)
def test_values_that_only_python_can_give_are_refused(given):
    with pytest.raises(OptionsError):
        ImageOptions(**given)


def test_a_default_given_explicitly_changes_nothing(image_folder, tmp_path):
    photos = image_folder({"alpha.png": image_file(RGBA), "color.bmp": image_file(RGBA[..., :3], "BMP")})
    outs = tmp_path / "1" / "out", tmp_path / "2" / "out"
    defaults = {field.name: field.default for field in fields(ImageOptions)}
    # mask has no flag; a flag is false unless it is given
    given = {name: value for name, value in defaults.items() if value not in (None, False)}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    for out, more in zip(outs, ([], [*words, "--duplicates=keep"]), strict=True):
        assert run(["build", "images", photos, out, "--max-rejected=100%", *more]).status == 0
    assert read_manifest(outs[0]) == read_manifest(outs[1])
