"""Crops of JPEG files with an index of their restart intervals are cut out before they are decoded."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Pillow

from tfshards.loader import Image, batches, load
from tfshards.loader.arrays import decode as in_numpy
from tfshards.loader.tensors import cut as in_graph
from tfshards.prep.cli import main as cli
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions
from tfshards.schemas import jpeg_intervals, read_manifest

OPTIONS = ImageOptions(format="jpeg", fast_crops=True, channels="keep", alpha="white")
# height and width: many intervals in a row, one, sides that are no multiples of a unit
SIDES = [(800, 1024), (1024, 752), (900, 1031), (2000, 333)]


def picture(height, width, channels, seed=0):
    """Return a picture with detail at every scale."""
    draw, shape = np.random.default_rng(seed), (height, width) if channels == 1 else (height, width, channels)
    layers = [
        Pillow.fromarray(draw.integers(0, 256, (side, side, *shape[2:]), dtype=np.uint8)).resize(
            (width, height)
        )
        for side in (4, 30, 200)
    ]
    pixels = np.mean([np.asarray(each, np.float32) for each in layers], axis=0)
    return Pillow.fromarray(pixels.astype(np.uint8))


def stored(height, width, channels=3, seed=0):
    file = io.BytesIO()
    picture(height, width, channels, seed).save(file, "PNG")
    return normalize(file.getvalue(), OPTIONS).data


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), SIDES)
def test_a_cut_has_the_pixels_of_the_whole_image(height, width, channels):
    data = stored(height, width, channels)
    index = jpeg_intervals.intervals_of(data)
    assert (index.height, index.width) == (height, width)
    whole = tf.io.decode_jpeg(data, 0, dct_method="INTEGER_ACCURATE").numpy()
    with Pillow.open(io.BytesIO(data)) as file:
        assert np.array_equal(np.atleast_3d(np.asarray(file)), whole)
    draw = np.random.default_rng(1)
    corners = [(0, 0, 10, 10), (height - 7, width - 9, 7, 9), (0, 0, height, width), (16, 128, 16, 128)]
    some = [
        [*draw.integers(0, (height - 1, width - 1)), *draw.integers(1, (height, width))] for _ in range(30)
    ]
    for top, left, high, wide in (*corners, *some):
        box = (int(top), int(left), int(min(high, height - top)), int(min(wide, width - left)))
        expected = whole[box[0] : box[0] + box[2], box[1] : box[1] + box[3]]
        assert np.array_equal(in_numpy._cut(data, index, box, channels), expected), box
        found = in_graph._decode_cut(
            tf.constant(data), tf.constant([height, width]), tf.constant(box), channels, "INTEGER_ACCURATE"
        )
        assert np.array_equal(found, expected), box


def test_only_what_a_crop_needs_is_decoded():
    data = stored(1024, 1024)
    index = jpeg_intervals.intervals_of(data)
    small = jpeg_intervals.cut(data, index, (500, 500, 64, 64))
    assert len(small.data) < len(data) / 20
    assert jpeg_intervals.spares(index, 64, 64)
    assert not jpeg_intervals.spares(index, 900, 900)


def test_an_index_of_another_file_is_not_used():
    data = stored(800, 1024)
    for other in (
        data[:-1],
        data + b"\0",
        data[:30],
        data[:20] + data[600:],
        b"",
        data.replace(b"tfshards", b"tfShards"),
    ):
        assert jpeg_intervals.intervals_of(other) is None
    assert jpeg_intervals.is_sound(data)
    assert jpeg_intervals.is_sound(data[:20])
    at = jpeg_intervals.LENGTHS_AT
    wrong = bytearray(data)
    wrong[at : at + 2], wrong[at + 2 : at + 4] = wrong[at + 2 : at + 4], wrong[at : at + 2]
    assert not jpeg_intervals.is_sound(bytes(wrong))
    # a file whose index would show other pixels to the loader is written again
    plain = ImageOptions(format="jpeg")
    assert normalize(bytes(wrong), plain).conversions[-1] == "re-encoded"
    assert normalize(data, plain).data == data
    assert normalize(data, OPTIONS).data == data


def test_files_without_an_index_get_one_if_they_are_large():
    for sides, count in (((700, 749), 1), ((700, 748), 0)):
        file = io.BytesIO()
        picture(*sides, 3).save(file, "JPEG", quality=90)
        found = normalize(file.getvalue(), OPTIONS)
        assert (jpeg_intervals.intervals_of(found.data) is not None) == bool(count)
        assert (found.data == file.getvalue()) != bool(count)


def test_an_interval_too_long_for_the_index_gives_a_usual_file():
    noise = np.random.default_rng(0).integers(0, 256, (16, 16 * 509, 3), dtype=np.uint8)
    # the number of units of a row is a prime
    interval = jpeg_intervals.interval_of(*noise.shape[:2], is_gray=False)
    assert interval == 509
    file = io.BytesIO()
    Pillow.fromarray(noise).save(file, "JPEG", quality=100, restart_marker_blocks=interval)
    assert jpeg_intervals.with_index(file.getvalue(), interval) == file.getvalue()


@pytest.mark.parametrize("is_gray", [False, True])
def test_an_interval_is_part_of_a_row_and_all_fit_the_index(is_gray):
    side = 8 if is_gray else 16
    for height, width in (*SIDES, (3072, 4096), (20_000, 30_000), (65_500, 65_500), (16, 65_500)):
        number = jpeg_intervals.interval_of(height, width, is_gray=is_gray)
        columns = -(-width // side)
        assert columns % number == 0
        assert -(-height // side) * columns // number <= 32_767
    assert jpeg_intervals.interval_of(3072, 4096, is_gray=is_gray) * side == 128


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Datasets of the same photos with and without an index."""
    root = tmp_path_factory.mktemp("crops")
    for number, (height, width) in enumerate([*SIDES, (640, 480)]):
        file = root / "photos" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture(height, width, 1 if number == 2 else 3, number).save(file)
    for name, more in (("fast", ["--fast-crops"]), ("usual", [])):
        words = ["--format", "jpeg", "--shards", "1", "--name", "n", *more]
        assert cli.main(["build", "images", str(root / "photos"), str(root / name), *words]) == 0
    return root


@pytest.mark.parametrize("crop", ["random", "shift", "center"])
@pytest.mark.parametrize("channels", [1, 3])
def test_both_loaders_deliver_what_they_deliver_without_an_index(built, crop, channels, monkeypatch):
    scale = {"scale": (0.05, 0.3)} if crop == "random" else {}
    image = Image((96, 80), crop=crop, channels=channels, flip="horizontal", **scale)
    options = {"batch_size": 5, "image": image, "select": ("image", "key")}
    ((usual, keys),) = batches(built / "usual", **options)
    cut = []
    original = jpeg_intervals.cut
    monkeypatch.setattr(jpeg_intervals, "cut", lambda *given: cut.append(given) or original(*given))
    ((found, same),) = batches(built / "fast", **options)
    assert same.tolist() == keys.tolist()
    assert len(cut) == (2 if crop == "center" else 4)
    assert np.array_equal(found, usual)
    ((graph, _),) = load(built / "fast", **options)
    # resizing differs by 1; the small photo has no index, and its crop other columns at the edges
    large = keys != b"a/4.png"
    assert np.abs(graph.numpy()[large].astype(int) - found[large]).max() <= (0 if crop == "shift" else 1)


def test_the_dataset_is_like_any_other(built, tmp_path):
    fast = built / "fast"
    assert read_manifest(fast).options["fast_crops"] is True
    assert "fast_crops" not in read_manifest(built / "usual").options
    again = tmp_path / "again"
    for words in (
        ["verify", str(fast), "--deep"],
        ["verify", str(fast), "--repair", str(built / "photos")],
        ["build", "--from", str(fast), str(built / "photos"), str(again)],
        ["report", str(fast), "--output", str(tmp_path / "report.html")],
    ):
        assert cli.main(words) == 0, words
    assert read_manifest(again).build_id == read_manifest(fast).build_id
