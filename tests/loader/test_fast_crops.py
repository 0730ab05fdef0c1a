"""Crops of JPEG files with an index of their restart intervals are cut out before they are decoded."""

import contextlib
import io
import shutil
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Pillow

from tests.errors import raises
from tfshards import prep
from tfshards.loader import Image, batches, load
from tfshards.loader.arrays import decode as in_numpy
from tfshards.loader.tensors import cut as in_graph
from tfshards.loader.tensors.decode import decode_image as in_graph_decode
from tfshards.prep.cli import main as cli
from tfshards.prep.imaging import jpeg_index
from tfshards.prep.imaging.normalize import normalize
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.whitelist import ImageError
from tfshards.schemas import InputError, jpeg_intervals, read_manifest

pytestmark = pytest.mark.nightly

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


def damaged(data, at, *numbers, form="<H"):
    """Return a file with other numbers at an offset."""
    new = b"".join(struct.pack(form, number) for number in numbers)
    return data[:at] + new + data[at + len(new) :]


def crop_of(data):
    """Return a small crop of a photo, as both loaders decode it."""
    image = Image((40, 40), crop="center", channels=3, dtype="uint8")
    return in_graph_decode(tf.constant(data), image, {}).numpy(), in_numpy.decode_image(
        data, image, {}
    ).pixels


def test_an_index_of_another_file_is_not_used():
    data = stored(800, 1024)
    short, long = jpeg_intervals.SHORT_AT, jpeg_intervals.LONG_AT
    others = [data + b"\0", data[:30], data[:20] + data[600:], b"", data.replace(b"tfshards", b"tfShards")]
    others += [data.replace(b"\xff\xe9", b"\xff\xfe"), damaged(data, 22, 9, form=">H")]
    others += [
        damaged(data, short + 4, 0),
        damaged(data, short, 8000, 1024),
        damaged(data, long + 4, 1 << 31, form="<I"),
    ]
    for other in others:
        assert jpeg_intervals.intervals_of(other) is None
        assert not jpeg_index.is_sound(other)
    for other in (damaged(data, short, 1024, 800), data.replace(b"tfshards", b"tfShards")):
        for found, wanted in zip(crop_of(other), crop_of(data), strict=True):
            # outside of the middle, the graph's decoder has no neighbors
            assert np.array_equal(found[4:-4, 4:-4], wanted[4:-4, 4:-4])


def test_a_file_whose_index_would_show_other_pixels_is_written_again():
    data, at = stored(800, 1024), jpeg_intervals.LENGTHS_AT
    assert jpeg_index.is_sound(data)
    first, second = struct.unpack_from("<HH", data, at)
    count = len(jpeg_intervals.intervals_of(data).lengths)
    tables, start = at + 2 * count, jpeg_intervals.intervals_of(data).data
    plain = data[:20] + data[tables:]
    half = jpeg_intervals.SHORT_AT + 6
    wrong = [
        damaged(data, at, second, first),
        damaged(data, half, 127),
        # another restart interval, no markers, two of one number, a second scan, an early end
        data.replace(b"\xff\xdd\0\4\0\x08", b"\xff\xdd\0\4\0\x07"),
        data.replace(b"\xff\xdd\0\4\0\x08", b"\xff\xdd\0\4\0\x00"),
        data.replace(b"\xff\xd1", b"\xff\xd0"),
        data.replace(b"\xff\xc0\0\x11", b"\xff\xc2\0\x11"),
        data.replace(b"\xff\xd1", b"\xff\xd9", 1),
        # no markers at all, a scan beyond the end, a frame of no components
        data[:start] + data[start:].replace(b"\xff", b"\0"),
        data.replace(b"\xff\xda\0\x0c", b"\xff\xda\xff\xff"),
        data.replace(b"\1\x22\0\2\x11", b"\1\0\0\2\0"),
    ]
    options = ImageOptions(format="jpeg", check="header")
    for each in wrong:
        assert each != data
        assert not jpeg_index.is_sound(each)
        # it is written again, or rejected, but the build goes on
        with contextlib.suppress(ImageError):
            assert normalize(each, options).data != each
    assert jpeg_index.with_index(plain) == data
    assert normalize(data, ImageOptions(format="jpeg")).data == data
    assert normalize(data, OPTIONS).data == data


def test_files_without_an_index_get_one_if_they_are_large():
    for sides, count in (((700, 749), 1), ((700, 748), 0)):
        file = io.BytesIO()
        picture(*sides, 3).save(file, "JPEG", quality=90)
        found = normalize(file.getvalue(), OPTIONS)
        assert (jpeg_intervals.intervals_of(found.data) is not None) == bool(count)
        assert (found.data == file.getvalue()) != bool(count)


def test_an_interval_too_long_for_the_index_gives_shorter_ones():
    noise = np.random.default_rng(0).integers(0, 256, (16 * 13, 16 * 173, 3), dtype=np.uint8)
    # the number of units of a row is a prime
    assert jpeg_index.intervals_for(*noise.shape[:2], is_gray=False) == [173, 1]
    file = io.BytesIO()
    Pillow.fromarray(noise).save(file, "PNG")
    options = ImageOptions(format="jpeg", fast_crops=True, jpeg_quality=100)
    data = normalize(file.getvalue(), options).data
    assert jpeg_intervals.intervals_of(data).interval_width == 16
    assert normalize(data, options).data == data


@pytest.mark.parametrize("is_gray", [False, True])
def test_an_interval_is_part_of_a_row_and_all_fit_the_index(is_gray):
    side = 8 if is_gray else 16
    for height, width in (
        *SIDES,
        (3072, 4096),
        (20_000, 30_000),
        (65_500, 65_500),
        (16, 65_500),
        (65_500, 16),
    ):
        columns = -(-width // side)
        for number in jpeg_index.intervals_for(height, width, is_gray=is_gray):
            assert columns % number == 0
            assert -(-height // side) * columns // number <= 32_767
    assert jpeg_index.intervals_for(3072, 4096, is_gray=is_gray)[0] * side == 128


def test_the_markers_cost_little():
    photo = picture(1536, 2048, 3)
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=95)
    assert len(stored(1536, 2048)) < 1.025 * len(file.getvalue())


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


def test_masks_of_photos_have_no_index_and_their_crops_match(built, tmp_path):
    for number in range(2):
        file = tmp_path / "masks" / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture(*SIDES[number], 1, number).save(file)
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "b").mkdir()
    for number in range(2):
        name = f"{'ab'[number]}/{number}.png"
        (tmp_path / "photos" / name).write_bytes((built / "photos" / name).read_bytes())
    words = ["--mask-dir", "../masks", "--format", "jpeg", "--fast-crops"]
    assert cli.main(["build", "images", str(tmp_path / "photos"), str(tmp_path / "data"), *words]) == 0
    ((batch,),) = [[*batches(tmp_path / "data", batch_size=2, image=Image((64, 64), crop="shift"))]]
    assert batch["image"].shape == (2, 64, 64, 3)
    assert batch["mask"].shape == (2, 64, 64, 1)


def test_what_a_dataset_records_of_it_applies_to_additions(built, tmp_path):
    fast, photos = built / "fast", built / "photos"
    with raises(InputError, "append-options-differ", name="fast_crops"):
        prep.append(prep.ImageFolder(photos, prep.ImageOptions(format="jpeg")), fast)
    broken = shutil.copytree(fast, tmp_path / "broken")
    next(broken.glob("*.tfrecord-*")).unlink()
    with pytest.raises(InputError, match="fast_crops is False instead of True"):
        prep.repair(broken, prep.ImageFolder(photos, prep.ImageOptions(format="jpeg")))


def test_the_dataset_is_like_any_other(built, tmp_path):
    fast = built / "fast"
    assert read_manifest(fast).options["fast_crops"] is True
    assert read_manifest(built / "usual").options["fast_crops"] is False
    for words in (
        ["verify", str(fast), "--deep"],
        ["verify", str(fast), "--repair", str(built / "photos")],
        ["report", str(fast), "--output", str(tmp_path / "report.html")],
    ):
        assert cli.main(words) == 0, words
