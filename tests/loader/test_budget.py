"""``memory_budget=``: too small ones are refused with the least one; the order does not depend on it."""

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.pictures import image_file
from tfshards.loader import Image, Shuffle, load
from tfshards.schemas import Feature, OptionsError, Schema


@pytest.fixture(scope="module")
def photos(write_dataset, tmp_path_factory):
    """Sixteen images of 7 megapixels, in small files."""
    image = image_file(np.zeros((2600, 2700, 3), np.uint8))
    schema = Schema((Feature("image", "image", "uint8", (None, None, 3)), Feature("number", "int", "int64")))
    examples = [{"image": image, "number": number} for number in range(16)]
    return write_dataset(tmp_path_factory.mktemp("photos"), schema, {"train": [examples]})


def test_the_least_budget_that_the_error_names_is_enough_and_changes_no_batch(photos):
    options = {"batch_size": 4, "image": Image((8, 8)), "shuffle": Shuffle(1)}
    with raises(OptionsError, "budget-too-small") as caught:
        load(photos, **options, memory_budget="20MiB")
    least = int(str(caught.value).partition('memory_budget="')[2].partition("MiB")[0])
    assert least > 21, "decoded images count"
    with raises(OptionsError, "budget-too-small"):
        load(photos, **options, memory_budget=f"{least - 2}MiB")
    data = load(photos, **options, memory_budget=f"{least}MiB")
    for found, wanted in zip(data, load(photos, **options), strict=True):
        assert tf.reduce_all(found["number"] == wanted["number"])


@pytest.mark.parametrize("budget", ["much", 1.5, True, 2])
def test_an_invalid_budget_is_refused(photos, budget):
    with pytest.raises(OptionsError, match="memory_budget"):
        load(photos, batch_size=1, memory_budget=budget)
