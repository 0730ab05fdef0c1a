"""Invalid options are refused with the given value, the allowed ones and a remedy."""

from functools import partial

import numpy as np
import pytest

from tests.errors import fault, raises
from tfshards import loader
from tfshards.loader import Boxes, Image, Keypoints, Position, Shuffle, Worker
from tfshards.schemas import Feature, InputError, OptionsError, Schema


def normalized(normalize, channels=None):
    return Image(dtype="float32", normalize=normalize, channels=channels)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Worker(0, 0), fault("below-least", name="Worker.count", number=0)),
        (lambda: Worker(2, 2), fault("index-range", name="Worker", index=2)),
        (lambda: Shuffle(how="half"), fault("not-a-choice", name="Shuffle.how", found="half")),
        (lambda: Shuffle(how="full", lanes=2), "shuffle-full"),
        (lambda: Shuffle(run=0), fault("below-least", name="Shuffle.run", number=0)),
        (lambda: Shuffle(seed=2**63), fault("seed-64-bits", name="Shuffle.seed", seed=9223372036854775808)),
        (lambda: Position(-1), fault("below-least", name="Position.epoch", number=-1)),
        (lambda: Image(size=(0, 4)), "image-size"),
        (lambda: Image(size=(4, 4), crop="left"), fault("not-a-choice", name="Image.crop", found="left")),
        (lambda: Image(crop="center"), fault("image-crop-no-size", crop="center")),
        (lambda: Image((4, 4), scale=(0.5, 1)), fault("image-crop-option", name="scale", wanted="random")),
        (lambda: Image((4, 4), "random", crop_fraction=0.5), fault("image-crop-option", wanted="center")),
        *[
            (partial(Image, (4, 4), "random", scale=scale), fault("image-scale"))
            for scale in (0.5, (0.5, 1.5), (0.5, 0.1), (0, 1))
        ],
        (lambda: Image((4, 4), "random", ratio=(1, float("inf"))), fault("image-ratio")),
        *[
            (partial(Image, (4, 4), "center", crop_fraction=part), "image-crop-fraction")
            for part in (0, True)
        ],
        *[(partial(Image, channels=count), "image-channels") for count in (2, True)],
        (lambda: Image(dtype="int8"), fault("not-a-choice", name="Image.dtype", found="int8")),
        (lambda: Image(flip=True), fault("not-a-choice", name="Image.flip")),
        (lambda: Image(normalize="unit"), fault("normalize-integers", integers="the stored integers")),
        (lambda: normalized(0.5), fault("normalize-form", given="Image.normalize=0.5")),
        (lambda: normalized((0, "1")), fault("normalize-not-finite", number="1")),
        (lambda: normalized((float("nan"), 1)), "normalize-not-finite"),
        (lambda: normalized((0, (1, 0, 1))), "normalize-std"),
        (lambda: normalized(((0, 0), 1)), fault("normalize-channels", name="mean", num_part=2)),
        (lambda: normalized("imagenet", 4), fault("normalize-channels", name="mean", num_part=3)),
        (lambda: Image(method="cubic"), fault("not-a-choice", name="Image.method", found="cubic")),
        (lambda: Boxes(3, "xywh"), "boxes-feature-type"),
        (lambda: Boxes("b", "xy"), fault("not-a-choice", name="Boxes.format", found="xy")),
        (lambda: Boxes("b", "xywh", along=[1]), "not-strings"),
        (lambda: Boxes("b", "xywh", ["b"]), fault("boxes-along-repeated", along=["b"])),
        *[(partial(Boxes, "b", "xywh", min_visible=part), "boxes-min-visible") for part in (10, True)],
        (lambda: Boxes("b", "xywh", normalized=1), fault("not-a-flag", name="Boxes.normalized", found=1)),
        (lambda: Boxes("b", "xywh", image=1), "boxes-image-type"),
        (lambda: Keypoints(""), "keypoints-feature-type"),
        *[(partial(Keypoints, "a", pairs), "keypoints-pairs") for pairs in ([(0, 0)], [(-1, 1)], 3)],
        (lambda: Keypoints("a", image=1), "keypoints-image-type"),
    ],
)
def test_an_invalid_value_raises_in_its_constructor(make, message):
    with raises(OptionsError, message):
        make()


def test_numbers_of_numpy_are_numbers():
    assert Image(size=(np.int64(3), 4)).size == (3, 4)
    assert normalized([np.float32(0.5), np.ones(3)]) == normalized((0.5, (1.0, 1.0, 1.0)))


SCHEMA = Schema(
    (
        Feature("photo", "image", "uint8", (None, None, 3)),
        Feature("label", "label", "int64"),
        Feature("sample_weight", "float", "float32"),
    )
)


@pytest.fixture(scope="module")
def mixed(write_dataset, tmp_path_factory):
    """A dataset of two splits with an image, a label and a feature named ``sample_weight``."""
    examples = [[{"photo": b"", "label": 0, "sample_weight": 1.0}] * 4]
    return write_dataset(tmp_path_factory.mktemp("mixed"), SCHEMA, {"train": examples, "val": examples})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, fault("below-least", name="batch_size", number=0)),
        ({"image": (224, 224)}, fault("wrong-loader-type", name="image")),
        ({"image": {}}, "image-empty"),
        ({"image": {"photo": (9, 9)}}, fault("image-value", name="photo")),
        ({"image": {"foto": Image((9, 9))}}, fault("image-unknown", encoded=["photo"])),
        ({"image": {"photo": Image((9, 9))}, "select": ("label",)}, "image-no-images"),
        ({"image": {"photo": Image()}}, fault("image-sizes-differ", name="photo")),
        ({"start": 3}, fault("start-type", start=3)),
        ({"select": ()}, "select-empty"),
        ({"select": ("label", "lable")}, fault("select-feature-unknown", unknown="lable")),
        ({"select": ["label", "label"]}, "select-repeated"),
        ({"remainder": "pad"}, fault("weight-name-taken", weight="sample_weight")),
        ({"split": None}, fault("splits-several", names="'train', 'val'")),
        ({"split": "test"}, fault("split-not-shown", split="test")),
    ],
)
def test_options_that_do_not_fit_the_dataset_are_refused(mixed, options, message):
    with raises(InputError if options.keys() == {"split"} else OptionsError, message):
        loader.load(mixed, **{"split": "train", "batch_size": 2, **options})


CACHES = [
    *[(f"disk:/tmp/c, {size}", fault("cache-size-form", given=size)) for size in ("-5GiB", "7,5GiB")],
    ("disk:/tmp/a,b/c", fault("cache-size-form", given="b/c")),
    *[(cache, "cache-form") for cache in ("disk:, 5GiB", "disk:~nobody-has-this-name/cache", 1)],
]


@pytest.mark.parametrize(("cache", "message"), CACHES)
def test_a_mistyped_size_of_a_cache_is_not_part_of_its_path(mixed, cache, message):
    with raises(OptionsError, message):
        loader.load(mixed, "train", batch_size=1, cache=cache)


OBJECTS = Schema(
    (
        Feature("image", "image", "uint8", (None, None, 3)),
        Feature("scan", "image", "uint16", (4, 4, 1)),
        Feature("mask", "mask", "uint8", (None, None, 1)),
        Feature("deep", "mask", "uint16", (None, None, 1)),
        Feature("boxes", "float", "float32", (None, 4), "xywh"),
        Feature("plain", "float", "float32", (None, 4)),
        Feature("points", "float", "float32", (3, 3), "xyv"),
        Feature("pairs", "int", "int64", (2, 2)),
        Feature("number", "int", "int64"),
        Feature("pixels", "raw", "uint8", (4, 4)),
    )
)
ONE = {"image": Image((8, 8))}
CUT = {"image": Image((32, 24), "random"), "mask": Image((8, 8))}


def boxes(*arguments, **options):
    return {"image": ONE, "boxes": Boxes(*arguments, **options)}


def points(*arguments, **options):
    return {"image": ONE, "keypoints": Keypoints(*arguments, **options)}


@pytest.fixture(scope="module")
def objects(write_dataset, tmp_path_factory):
    values = {
        each.name: b"" if each.is_encoded else np.zeros([side or 1 for side in each.shape], each.dtype)
        for each in OBJECTS.features
    }
    return write_dataset(tmp_path_factory.mktemp("objects"), OBJECTS, {"train": [[values]]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": ONE, "boxes": "boxes"}, fault("wrong-loader-type", name="boxes", kind="Boxes")),
        ({"boxes": Boxes("boxes")}, "boxes-no-image"),
        (boxes("bbox", "xywh"), fault("boxes-not-delivered", name="bbox")),
        (boxes("points", "xywh"), fault("boxes-feature", shape=[3, 3])),
        (boxes("boxes", along=["number"]), "boxes-along-feature"),
        (boxes("boxes", image="mask"), fault("boxes-image-decoded", image="mask", known="'image'")),
        ({**boxes("boxes"), "image": {**ONE, "scan": Image((4, 4))}}, "boxes-image-decoded"),
        (boxes("plain"), fault("boxes-format-unknown", feature="plain")),
        (boxes("boxes", "xyxy"), fault("boxes-format-stored", format="xyxy", annotated="boxes")),
        (boxes("boxes", normalized=True), "boxes-format-stored"),
        ({"keypoints": Keypoints("points")}, "keypoints-no-image"),
        (points("none"), "keypoints-not-delivered"),
        (points("pairs"), "keypoints-format-unknown"),
        (points("boxes"), "keypoints-feature"),
        (points("pairs", format="xyv"), "keypoints-feature"),
        (points("points", format="xy"), "keypoints-format-stored"),
        ({**points("points"), "image": {"image": Image((8, 8), flip="vertical")}}, "keypoints-no-pairs"),
        (points("points", [(2, 3)]), fault("keypoints-pairs-range", most=3, count=3)),
        ({"image": CUT}, fault("mask-size-crop", name="mask", size=[8, 8], wanted=[32, 24])),
        ({"image": {**CUT, "image": Image((32, 24), "shift")}}, "mask-size-crop"),
        ({"image": {"mask": Image((9, 9), method="bilinear")}}, fault("mask-options", name="mask")),
        *[
            ({"image": {"mask": Image((9, 9), **wrong)}}, "mask-options")
            for wrong in ({"dtype": "float32"}, {"channels": 3})
        ],
        ({"image": {"deep": Image((9, 9), dtype="uint8")}}, fault("mask-options", name="deep")),
        ({"image": {"scan": Image(dtype="float16")}}, "image-float16"),
        ({"image": {"scan": Image(dtype="uint8")}}, fault("image-dtype-stored", given="image 'scan'")),
        ({"image": {"image": Image((8, 8), dtype="uint16")}}, fault("image-dtype-stored", stored="uint8")),
        ({"image": ONE, "select": ("pixels", "number")}, fault("image-no-images")),
    ],
)
def test_options_that_do_not_fit_images_boxes_or_keypoints_are_refused(objects, options, message):
    for read in (loader.load, loader.batches):
        with raises(OptionsError, message):
            read(objects, batch_size=1, **options)


def test_without_a_dataset_there_is_nothing_to_load(tmp_path):
    with raises(InputError, "dataset-missing", manifest="dataset.json"):
        loader.load(tmp_path, batch_size=2)
    with raises(InputError, "path-missing"):
        loader.load(tmp_path / "nowhere", batch_size=2)


def test_the_split_may_be_left_out_if_there_is_only_one(numbered):
    (batch,) = loader.load(str(numbered([2])), batch_size=2).as_numpy_iterator()
    assert batch["number"].tolist() == [0, 1]


def test_padding_uses_a_selected_feature_named_sample_weight(mixed):
    dataset = loader.load(mixed, "val", batch_size=3, remainder="pad", select=("sample_weight",))
    *_, (stored, weights) = dataset.as_numpy_iterator()
    assert stored.tolist() == [1, 1, 1]
    assert weights.tolist() == [1, 0, 0]
