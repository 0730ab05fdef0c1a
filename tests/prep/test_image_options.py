"""Image options that stand for others, and values that only Python can give."""

import pytest

from tfshards.prep import ImageOptions
from tfshards.schemas import OptionsError


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
