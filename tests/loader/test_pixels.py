"""How large the stored images are, from the longest records."""

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tfshards import loader
from tfshards.loader.integrity.damaged import open_shards
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.source import open_source
from tfshards.loader.resources import budget as pixels_module
from tfshards.loader.resources.budget import most_pixels, record_lengths
from tfshards.prep import ImageFolder, ImageOptions, Options, build
from tfshards.schemas import Feature, OptionsError, Schema


@pytest.fixture(scope="module", params=["none", "gzip"])
def dataset(request, tmp_path_factory):
    """Twelve small images, the largest 50 x 70, and one file that is not an image."""
    folder = tmp_path_factory.mktemp("pixels")
    (folder / "images").mkdir()
    random = np.random.default_rng(0)
    for number in range(12):
        suffix = "jpg" if number % 2 else "png"
        height, width = (50, 70) if number == 7 else (10 + number, 20)
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number:02d}.{suffix}")
    (folder / "images" / "99.jpg").write_bytes(random.bytes(9000))
    options = Options(compression=request.param)
    images = ImageFolder(folder / "images", ImageOptions(check="none"))
    build(images, folder / "data", shards=1, options=options, engine="local", log=lambda _: None)
    return folder / "data"


def test_the_largest_image_is_found_and_undecodable_ones_count_as_one_pixel(dataset):
    options = LoadOptions(path=dataset, batch_size=2)
    source = open_source(options)
    shards = open_shards(source, options)
    lengths = record_lengths(shards, source.split)
    images = [source.manifest.schema["image"]]
    assert most_pixels(source, shards, lengths, ()) == {}
    assert most_pixels(source, shards, lengths, images) == {"image": 50 * 70}
    # a header may state any length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pixels_module, "MAX_RECORD_BYTES", 1)
        assert most_pixels(source, shards, lengths, images) == {"image": 1}


def test_a_budget_includes_decoded_images(dataset):
    image = loader.Image(size=(8, 8))
    assert len(loader.load(dataset, batch_size=2, image=image, memory_budget="1GiB")) == 6
    with raises(OptionsError, "budget-too-small"):
        loader.load(dataset, batch_size=2, image=image, memory_budget="1MiB")


@pytest.mark.filterwarnings("ignore:split 'train' has 0 examples")
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_budget_of_a_split_without_examples(write_dataset, tmp_path, compression):
    schema = Schema((Feature("image", "image", "uint8", (None, None, 3)),))
    write_dataset(tmp_path, schema, {"train": [[]]}, compression=compression)
    image = loader.Image(size=(8, 8))
    assert len(loader.load(tmp_path, batch_size=2, image=image, memory_budget="1GiB")) == 0
