"""Images by their options: files of every format, sizes, crops, flips, dtypes, masks, boxes, keypoints.

tests/pixels judges the pixels of files, and that boxes, keypoints and masks stay on what they mark.
"""

import io

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image as Pillow

from tests.errors import raises
from tests.pictures import image_file
from tfshards.loader import Boxes, Image, Keypoints, Position, Shuffle, Worker, batches, load
from tfshards.schemas import Feature, FormatError, OptionsError, Schema
from tfshards.schemas.pixel_files import encode as encode_pixels

READERS = pytest.mark.parametrize("read", [load, batches])


def noise(height, width, channels=3, dtype=np.uint8):
    draw = np.random.default_rng(height + channels)
    return draw.integers(0, np.iinfo(dtype).max + 1, (height, width, channels), dtype)


def stored(mode, kind, **options):
    """Return noise of 61 x 83 pixels as a file."""
    picture = Pillow.fromarray(noise(61, 83, {"LA": 2, "RGB": 3, "RGBA": 4}.get(mode, 1)).squeeze())
    return image_file(picture.convert(mode) if mode in "1P" else picture, kind, **options)


def written(write_dataset, folder, images, dtype="uint8", shape=(None, None, 3), kind="image", **values):
    """Write a dataset of images, numbered; further values are those of each example."""
    schema = [Feature("image", kind, dtype, shape), Feature("number", "int", "int64")]
    schema += [Feature(name, "float", "float32", (None, 2)) for name in values]
    examples = [{"image": each, "number": number, **values} for number, each in enumerate(images)]
    return write_dataset(folder, Schema(tuple(schema)), {"train": [examples]})


def delivered(path, read=batches, **options):
    """Return the first batch, of all examples."""
    batch = next(iter(read(path, **{"batch_size": len(batches(path, batch_size=1)), **options})))
    return {name: np.asarray(each) for name, each in batch.items()}


# Files: both readers give the same pixels, those of Pillow and tf.image.resize

COLOR = {
    "gray PNG": stored("L", "PNG"),
    "PNG of one bit": stored("1", "PNG"),
    "PNG with a palette": stored("P", "PNG"),
    "PNG with alpha": stored("RGBA", "PNG"),
    "gray PNG with alpha": stored("LA", "PNG"),
    "PNG": stored("RGB", "PNG"),
    "pixels": encode_pixels(noise(61, 83)),
    "gray pixels": encode_pixels(noise(61, 83, 1).squeeze()),
}
JPEGS = {
    "JPEG": stored("RGB", "JPEG"),
    "JPEG, 4:2:2, progressive": stored("RGB", "JPEG", subsampling=1, progressive=True),
    "gray JPEG": stored("L", "JPEG"),
}
OTHERS = {
    "JPEG, 4:4:4": stored("RGB", "JPEG", subsampling=0),
    "GIF": stored("P", "GIF"),
    "BMP": stored("RGB", "BMP"),
    "WebP": stored("RGB", "WEBP", lossless=True),
}
DEEP = {"PNG of 16 bits": tf.io.encode_png(noise(61, 83, 1, np.uint16)).numpy()}
BY_CHANNELS = {
    1: {name: COLOR[name] for name in COLOR if "alpha" not in name} | JPEGS,
    3: COLOR | JPEGS | OTHERS,
    4: {name: COLOR[name] for name in COLOR if name != "PNG of one bit"},
}
RANDOM, CENTER, SHIFT = {"crop": "random", "seed": 3}, {"crop": "center"}, {"crop": "shift"}
FLOATS = {"dtype": "float32", "normalize": "imagenet"}
HALVES = {"dtype": "float16", "normalize": "symmetric"}
# channels, the dtype of the feature, and the options
OPTIONS = {
    "bilinear": (3, "uint8", {"size": (40, 50)}),
    "larger": (3, "uint8", {"size": (120, 100), "dtype": "float32"}),
    "nearest": (3, "uint8", {"size": (40, 50), "method": "nearest"}),
    "gray": (1, "uint8", {"size": (61, 83)}),
    "with alpha": (4, "uint8", {"size": (61, 83)}),
    "cut and turned": (3, "uint8", {"size": (20, 30), **RANDOM, "flip": "horizontal_and_vertical"}),
    "cut, gray": (1, "uint8", {"size": (30, 20), **RANDOM, "scale": (0.6, 1), "ratio": (1, 2)}),
    "shifted": (3, "uint8", {"size": (20, 30), **SHIFT, **FLOATS, "flip": "horizontal"}),
    "larger than the image": (4, "uint8", {"size": (64, 90), **SHIFT}),
    "the center, normalized": (3, "uint8", {"size": (24, 24), **CENTER, **HALVES}),
    "16 bits": (3, "uint16", {"size": (61, 83)}),
    "16 bits, resized": (3, "uint16", {"size": (17, 30)}),
    "16 bits, cut, gray": (1, "uint16", {"size": (20, 30), **RANDOM, "dtype": "float32"}),
    "16 bits, with alpha": (4, "uint16", {"size": (90, 100), "method": "nearest"}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_tensorflow_and_numpy_deliver_the_same_pixels_of_every_file(write_dataset, tmp_path, option):
    channels, dtype, options = OPTIONS[option]
    files = BY_CHANNELS[channels] | (DEEP if dtype == "uint16" else {})
    path = written(write_dataset, tmp_path, files.values(), dtype)
    image = Image(channels=channels, **options)
    of_arrays, of_tensors = (delivered(path, read, image=image)["image"] for read in (batches, load))
    assert (of_arrays.dtype, of_arrays.shape) == (of_tensors.dtype, of_tensors.shape)
    for name, one, other in zip(files, of_arrays, of_tensors, strict=True):
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
        if image.crop and "JPEG" in name:
            # TensorFlow decodes a crop of a JPEG without its neighbors
            assert (apart > 1 * (257 if dtype == "uint16" else 1)).mean() < 0.2, name
        else:
            assert apart.max() == 0, name


@READERS
def test_images_are_resized_and_cut_as_their_names_say(write_dataset, tmp_path, read):
    pixels = noise(61, 83)
    path = written(write_dataset, tmp_path, [image_file(pixels)])
    # the size, the options, and the centered box: top, left, height, width
    for size, options, (top, left, height, width) in [
        ((10, 30), {}, (0, 0, 61, 83)),
        ((120, 100), {}, (0, 0, 61, 83)),
        ((20, 20), {"crop": "center"}, (0, 11, 61, 61)),
        ((10, 20), {"crop": "center"}, (10, 0, 41, 83)),
        ((8, 8), {"crop": "center", "crop_fraction": 0.875}, (4, 15, 53, 53)),
        ((8, 8), {"crop": "center", "crop_fraction": 0.001}, (30, 41, 1, 1)),
        ((1, 100), {"crop": "center"}, (30, 0, 1, 83)),
        ((62, 93), {"crop": "shift"}, (3, 0, 55, 83)),
    ]:
        for method in ("bilinear", "nearest"):
            wanted = tf.image.resize(pixels[top : top + height, left : left + width], size, method).numpy()
            image = Image(size, dtype="float32", method=method, **options)
            assert np.array_equal(delivered(path, read, image=image)["image"][0], wanted), (size, options)
            rounded = delivered(path, read, image=Image(size, method=method, **options))["image"][0]
            assert np.array_equal(rounded, np.round(wanted).astype(np.uint8))


NORMALIZED = [
    (None, 0, 1 / 255),
    ("unit", 0, 1),
    ("symmetric", 0.5, 0.5),
    ("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ((0.25, (1, 2, 4)), 0.25, (1, 2, 4)),
    (((0.1, 0.2, 0.3), 0.5), (0.1, 0.2, 0.3), 0.5),
]


@READERS
@pytest.mark.parametrize("white", [255, 65535])
def test_floats_are_normalized_as_requested_and_cast_last(write_dataset, tmp_path, read, white):
    dtype = np.uint16 if white > 255 else np.uint8
    pixels = np.repeat(noise(9, 7, 1, dtype), 3, axis=2)
    path = written(write_dataset, tmp_path, [tf.io.encode_png(pixels[:, :, :1]).numpy()], dtype.__name__)
    for normalize, mean, std in NORMALIZED:
        scale = 1 if normalize is None else white
        wanted = (pixels / scale - mean) / (1 if normalize is None else np.array(std))
        for name, precision in (("float32", 1e-6), ("bfloat16", 1e-2)):
            image = Image((9, 7), dtype=name, normalize=normalize)
            found = delivered(path, read, image=image)["image"][0]
            assert found.dtype == getattr(ml_dtypes, name, name)
            assert np.allclose(found.astype(np.float64), wanted, rtol=precision, atol=precision), normalize


def test_values_of_16_bits_are_exact_and_those_of_8_bits_are_scaled_by_257(write_dataset, tmp_path):
    deep, shallow = noise(9, 7, 1, np.uint16), noise(9, 7, 1)
    files = [tf.io.encode_png(each).numpy() for each in (deep, shallow)]
    path = written(write_dataset, tmp_path, files, "uint16", (9, 7, 1))
    for read in (load, batches):
        found = delivered(path, read, image=Image())["image"]
        assert found.dtype == np.uint16
        assert np.array_equal(found, [deep, shallow.astype(np.uint16) * 257])


BAD = {
    "no image": (b"no image", "Unknown image file"),
    "a cut JPEG": (JPEGS["JPEG"][:2000], "JPEG"),
    "a cut PNG": (COLOR["PNG"][:300], "PNG"),
    "another size": (image_file(noise(9, 8)), r"\[9,8,3\].*\[9,7,3\]"),
}


@pytest.mark.parametrize(("encoded", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_decoded_is_an_error(write_dataset, tmp_path, encoded, message):
    is_sound = "9,8" in message
    path = written(write_dataset, tmp_path, [encoded], shape=(9, 7, 3) if is_sound else (None, None, 3))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        delivered(path, load, image=Image() if is_sound else Image((4, 4)))
    if not is_sound:
        with pytest.raises(FormatError, match="example 0: an image cannot be decoded"):
            delivered(path, image=Image((4, 4)))


# Random crops and flips, which the corners of an image as keypoints show


def drawn(write_dataset, folder, sides, image, count=60, **options):
    """Return the box of each example, and whether it was turned upside down and mirrored."""
    height, width = sides
    corners = np.float32([[0, 0], [width, height]])
    picture = image_file(np.zeros((*sides, 3), np.uint8))
    path = written(write_dataset, folder, [picture] * count, corners=corners)
    keypoints = Keypoints("corners", flip_pairs=(), format="xy")
    found = delivered(path, image=image, keypoints=keypoints, **options)
    corners = np.stack([*found["corners"]])[..., ::-1].astype(np.float64)
    turned = corners[:, 0] > corners[:, 1]
    corners = np.where(turned[:, np.newaxis], image.size - corners, corners)
    scale = (corners[:, 1] - corners[:, 0]) / sides
    boxes = np.concatenate([-corners[:, 0] / scale, image.size / scale], axis=1)
    return np.round(boxes).astype(int)[np.argsort(found["number"])], turned[np.argsort(found["number"])]


def test_random_boxes_are_within_the_image_and_have_the_areas_and_aspect_ratios_asked_for(
    write_dataset, tmp_path
):
    for number, (options, area, ratio) in enumerate(
        [({}, (0.08, 1), (3 / 4, 4 / 3)), ({"scale": (0.3, 0.5), "ratio": (1, 2)}, (0.3, 0.5), (1, 2))]
    ):
        image = Image((50, 50), "random", **options)
        boxes, _ = drawn(write_dataset, tmp_path / str(number), (150, 200), image, 200)
        top, left, height, width = boxes.T
        assert min(top.min(), left.min()) >= 0
        assert max((top + height).max() - 150, (left + width).max() - 200) <= 0
        for found, (low, high) in ((height * width / 30_000, area), (width / height, ratio)):
            assert low * 0.97 < found.min() < low + 0.2 * (high - low)
            assert high - 0.2 * (high - low) < found.max() < high * 1.03
        assert len(np.unique(boxes, axis=0)) > 190
    boxes, _ = drawn(write_dataset, tmp_path / "narrow", (2, 500), Image((5, 5), "random"))
    assert np.unique(boxes, axis=0).tolist() == [[0, 249, 2, 2]], "the centered box if none fits"


def test_a_shifted_box_has_the_size_of_the_result_and_any_position(write_dataset, tmp_path):
    image = Image((28, 20), "shift")
    boxes, _ = drawn(write_dataset, tmp_path / "larger", (31, 23), image, 100)
    assert {*map(tuple, boxes.tolist())} == {(top, left, 28, 20) for top in range(4) for left in range(4)}
    boxes, _ = drawn(write_dataset, tmp_path / "equal", (28, 20), image)
    assert np.unique(boxes, axis=0).tolist() == [[0, 0, 28, 20]]


def test_half_of_the_images_are_flipped_and_draws_are_independent(write_dataset, tmp_path):
    image, count = Image((50, 50), "random", flip="horizontal_and_vertical"), 1000

    def of(name, image=image, **options):
        boxes, turned = drawn(write_dataset, tmp_path / name, (100, 100), image, count, **options)
        return [*boxes.T, *turned.T]

    first = of("first")
    later = {"epochs": 2, "start": Position(1)}
    others = [first[:5], of("epoch", **later)[4:], of("seed", Image((50, 50), flip="horizontal", seed=1))[5:]]
    assert 0.45 < first[4].mean() < 0.55
    assert 0.45 < first[5].mean() < 0.55
    for other in [each for group in others for each in group]:
        assert abs(np.corrcoef(first[5], other)[0, 1]) < 0.1
    alone = of("alone", Image((50, 50), flip="vertical"))
    assert np.array_equal(alone[4], first[4]), "a flip does not depend on a crop or another flip"
    assert not alone[5].any()


GOLDEN_TURNS = [[False, True], [False, False], [False, False], [False, False]]
GOLDEN_BOXES = [[74, 226, 454, 436], [43, 91, 677, 802], [96, 28, 735, 660], [300, 163, 669, 798]]
GOLDEN_SHIFTS = [[28, 45], [43, 38], [3, 19], [50, 14]]


def test_draws_never_change_between_releases(write_dataset, tmp_path):
    image = Image((50, 50), "random", flip="horizontal_and_vertical", seed=7)
    boxes, turned = drawn(write_dataset, tmp_path, (1000, 1000), image, 4, epochs=4, start=Position(3))
    assert turned.tolist() == GOLDEN_TURNS
    assert np.abs(boxes - GOLDEN_BOXES).max() <= 2
    boxes, _ = drawn(
        write_dataset, tmp_path / "shift", (100, 100), Image((50, 50), "shift", seed=7), 4, epochs=4
    )
    assert boxes[:, :2].tolist() == GOLDEN_SHIFTS


def test_an_image_depends_only_on_seed_epoch_and_example(write_dataset, tmp_path):
    sides = [(40, 30), (31, 33), (25, 25), (60, 20), (20, 50), (33, 33), (28, 41), (90, 64), (64, 90)]
    path = written(write_dataset, tmp_path, [image_file(noise(*each)) for each in sides])
    image = Image((5, 6), "random", seed=3, flip="horizontal")

    def read(batch_size, read=batches, **options):
        run = read(path, batch_size=batch_size, image=image, remainder="keep", **options)
        rows = [pair for batch in run for pair in zip(batch["number"], batch["image"], strict=True)]
        return [(int(number), np.asarray(pixels).tobytes()) for number, pixels in rows]

    epochs = read(9, epochs=2)
    first, second = dict(epochs[:9]), dict(epochs[9:])
    assert all(first[number] != second[number] for number in first)
    shuffled = read(2, shuffle=Shuffle(seed=5, lanes=2), epochs=2)
    assert (dict(shuffled[:9]), dict(shuffled[9:])) == (first, second), "another order"
    rest = read(2, load, shuffle=Shuffle(seed=5, lanes=2), epochs=2, start=Position(1, 2))
    assert rest == shuffled[13:], "resumed"
    assert dict(read(3, worker=Worker(0, 2)) + read(3, worker=Worker(1, 2))) == first, "other workers"


# Several images of an example, and masks

PAIRED = Schema(
    (
        Feature("photo", "image", "uint8", (None, None, 3)),
        Feature("other", "image", "uint8", (None, None, 1)),
        Feature("mask", "mask", "uint8", (None, None, 1)),
        Feature("objects", "mask", "uint16", (None, None, 1)),
    )
)
CLASSES = np.array([0, 7, 200], np.uint8)


@pytest.fixture(scope="module")
def pairs(write_dataset, tmp_path_factory):
    """Photos whose channels equal their masks of far numbers, and numbers of objects 300 times as large."""
    examples = []
    for height, width in [(40, 30), (31, 33), (25, 25), (60, 20), (20, 50)]:
        row, column = np.mgrid[:height, :width]
        mask = CLASSES[(row // 5 + column // 7) % 3][:, :, np.newaxis]
        images = {"photo": np.repeat(mask, 3, axis=2), "other": mask, "mask": mask}
        images["objects"] = mask.astype(np.uint16) * 300
        examples.append({name: tf.io.encode_png(each).numpy() for name, each in images.items()})
    return write_dataset(tmp_path_factory.mktemp("pairs"), PAIRED, {"train": [examples]})


MOVED = {"crop": "random", "flip": "horizontal_and_vertical", "seed": 3}
PHOTO = Image((32, 24), **MOVED, method="nearest")
MASKS = {
    "one for all": PHOTO,
    "masks without options": {"photo": PHOTO, "mask": Image(), "objects": Image()},
    "masks with options": {
        "photo": PHOTO,
        "mask": Image((32, 24), dtype="int64"),
        "objects": Image(dtype="int32", channels=1, method="nearest"),
    },
}


@READERS
@pytest.mark.parametrize("image", MASKS.values(), ids=MASKS)
def test_masks_are_cut_and_mirrored_as_their_image_in_every_epoch(pairs, read, image):
    select, seen = ("photo", "mask", "objects"), set()
    for batch in read(pairs, batch_size=5, image=image, select=select, epochs=3):
        photo, mask, objects = map(np.asarray, batch)
        assert np.array_equal(photo, np.repeat(mask, 3, axis=3))
        assert np.array_equal(objects, mask.astype(np.int64) * 300)
        seen.add(photo.tobytes())
    assert len(seen) == 3


@READERS
def test_images_have_their_own_options_and_share_draws_by_seed(pairs, read):
    found = delivered(pairs, read, image={"photo": PHOTO, "other": PHOTO, "mask": Image()})
    assert np.array_equal(found["photo"], np.repeat(found["other"], 3, axis=3))
    assert [*found["objects"]] == [*delivered(pairs, read)["objects"]], "without options, as stored"
    alone = delivered(pairs, read, image={"mask": PHOTO})["mask"]
    assert np.array_equal(found["mask"], alone), "the mask shows the box of the images"
    # images that differ give nothing to the mask
    own = {"photo": PHOTO, "other": Image((32, 24), **MOVED | {"seed": 4}), "mask": Image((32, 24), "center")}
    differ = delivered(pairs, read, image=own)
    for name in ("other", "mask"):
        assert not np.array_equal(differ["photo"], np.repeat(differ[name], 3, axis=3))
        alone = delivered(pairs, read, image={name: own[name]})[name]
        assert np.array_equal(differ[name], alone), "no crop depends on another image"


@READERS
def test_masks_are_resized_with_nearest_and_never_normalized(pairs, read):
    image = Image((17, 13), dtype="float32", normalize="symmetric", method="bilinear")
    found = delivered(pairs, read, image=image)
    assert (found["mask"].dtype, found["objects"].dtype) == (np.uint8, np.uint16)
    for encoded, mask, objects in zip(
        delivered(pairs, read)["mask"], found["mask"], found["objects"], strict=True
    ):
        stored = np.asarray(Pillow.open(io.BytesIO(encoded)))[:, :, np.newaxis]
        assert np.array_equal(mask, tf.image.resize(stored, (17, 13), "nearest"))
        assert np.array_equal(objects, mask.astype(np.uint16) * 300)


# Boxes and keypoints that move with their image


def objects_of(write_dataset, folder, boxes, coordinates=None, **others):
    """Write one example with an image of 20 x 30 pixels, boxes, and lists that belong to them."""
    features = [
        Feature("image", "image", "uint8", (None, None, 3)),
        Feature("view", "image", "uint8", (None, None, 3)),
        Feature("objects/bbox", "float", "float32", (None, 4), coordinates),
        Feature("objects/category", "int", "int64", (None,)),
        Feature("tags", "int", "int64", (None,)),
        Feature("points", "float", "float32", (None, 2), "xy"),
    ]
    values = {
        "image": image_file(noise(20, 30)),
        "view": image_file(noise(40, 40)),
        "objects/bbox": np.float32(boxes).reshape(-1, 4),
        "objects/category": range(len(boxes)),
        "tags": [7, 8, 9],
        "points": [[3, 4]],
    } | others
    return write_dataset(folder, Schema(tuple(features)), {"train": [[values]]})


ALONG = ("objects/category",)
MANY = [[1, 1, 0, 5], [40, 1, 5, 5], [-9, -9, 4, 4], [28, 1, 8, 2], [2, 2, 0, 0], [14, 9, 2, 2]]
# the image, the share of a box that must be visible, and the boxes with their numbers
SHOWN = {
    "resized": (Image((10, 60)), 0.1, (np.array(MANY) * [2, 0.5, 2, 0.5]).tolist(), [*range(6)]),
    "of the same size": (Image((20, 30), "center"), 0.1, [[28, 1, 2, 2], [14, 9, 2, 2]], [3, 5]),
    "mostly visible": (Image((20, 30), "center"), 0.3, [[14, 9, 2, 2]], [5]),
    "cut": (Image((10, 10), "center"), 0.1, [[4.5, 4.5, 1, 1]], [5]),
}


@READERS
@pytest.mark.parametrize(("image", "visible", "wanted", "numbers"), SHOWN.values(), ids=SHOWN)
def test_a_crop_clips_boxes_and_removes_those_that_it_does_not_show(
    write_dataset, tmp_path, read, image, visible, wanted, numbers
):
    path = objects_of(write_dataset, tmp_path, MANY)
    boxes = Boxes("objects/bbox", "xywh", along=ALONG, image="image", min_visible=visible)
    image = {"image": image, "view": Image((8, 8))}
    (batch,) = read(path, batch_size=1, image=image, boxes=boxes)
    found = {name: np.asarray(batch[name][0]).tolist() for name in ("objects/bbox", *ALONG, "tags")}
    assert found == {"objects/bbox": wanted, "objects/category": numbers, "tags": [7, 8, 9]}


@READERS
@pytest.mark.parametrize("cut", [{}, {"crop": "center"}], ids=str)
@pytest.mark.parametrize("wrong", [(np.nan, 1, 2, 3), (1, 1, np.inf, 1), (20, 18, -5, -5), (1, 1, -5, 5)])
def test_a_box_that_is_none_is_an_error(write_dataset, tmp_path, read, cut, wrong):
    path = objects_of(write_dataset, tmp_path, [[1, 1, 2, 2], wrong])
    boxes = Boxes("objects/bbox", "xywh", along=ALONG)
    run = read(path, batch_size=1, image={"image": Image((20, 30), **cut)}, boxes=boxes)
    with pytest.raises(Exception, match=r"objects/bbox.* has a box with NaN, an infinite"):
        list(run)


@READERS
def test_lists_that_are_too_short_for_boxes_or_pairs_are_errors(write_dataset, tmp_path, read):
    path = objects_of(write_dataset, tmp_path, MANY)
    pairs = {"image": {"image": Image((20, 30), flip="vertical")}, "keypoints": Keypoints("points", [(0, 9)])}
    with pytest.raises(Exception, match="has fewer points than"):
        list(read(path, batch_size=1, select=("image", "points"), **pairs))
    boxes = Boxes("objects/bbox", "xywh", along=(*ALONG, "tags"))
    with pytest.raises(Exception, match=r"tags.* must have one value for each box"):
        list(read(path, batch_size=1, image={"image": Image((9, 9), "center")}, boxes=boxes))


REPORTED = {
    "boxes in pixels": ("xywh", Image((10, 10)), "objects/bbox"),
    "boxes of a flip": ("xywh", Image((20, 30), flip="horizontal"), "objects/bbox"),
    "fractions": ("cxcywh-normalized", Image((9, 9), "center"), "objects/bbox"),
    "keypoints": (None, Image((10, 10)), "points"),
}


@pytest.mark.parametrize(("coordinates", "image", "name"), REPORTED.values(), ids=REPORTED)
def test_what_does_not_move_with_its_image_is_reported(write_dataset, tmp_path, coordinates, image, name):
    path = objects_of(write_dataset, tmp_path, [[1, 1, 4, 4]], coordinates)
    with pytest.warns(UserWarning, match="is delivered as stored") as caught:
        batches(path, batch_size=1, image=image)
    (warning,) = caught
    assert name in str(warning.message).partition(" is ")[0].split(", ")


def test_a_crop_needs_every_list_that_belongs_to_the_boxes(write_dataset, tmp_path):
    path = objects_of(write_dataset, tmp_path, MANY)
    of = {"batch_size": 1, "boxes": Boxes("objects/bbox", "xywh")}
    with raises(OptionsError, "Boxes.along="):
        batches(path, image={"image": Image((10, 10), "center")}, **of)
    batches(path, image={"image": Image((10, 10))}, **of)
    batches(path, image={"image": Image((10, 10), "center")}, select=("image", "objects/bbox"), **of)
