"""Invalid options are refused with the given value, the allowed ones and a remedy."""

import dataclasses
import inspect

import numpy as np
import pytest

from tfshards import loader
from tfshards.loader import Image, Position, Shuffle, Worker
from tfshards.loader.options.load_options import LoadKeywords, LoadOptions
from tfshards.schemas import Feature, InputError, OptionsError, Schema


def normalized(normalize, channels=None):
    return Image(dtype="float32", normalize=normalize, channels=channels)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Worker(0, 0), "Worker.count=0 must be at least 1"),
        (lambda: Worker(2, 2), "Worker.index=2 does not fit count=2; use 0 to 1"),
        (lambda: Worker(0.5, 2), "Worker.index=0.5 must be an integer"),
        (lambda: Worker(0, "2"), "Worker.count='2' must be an integer"),
        (lambda: Shuffle(how="half"), "Shuffle.how='half' must be 'runs' or 'full'"),
        (lambda: Shuffle("full"), r"Shuffle.seed='full' must be an integer; .* Shuffle\(how='full'\)"),
        (lambda: Shuffle(how="full", lanes=2), r"Shuffle\(how='full'\) has neither runs nor lanes"),
        (lambda: Shuffle(seed=0.5), "Shuffle.seed=0.5 must be an integer"),
        (lambda: Shuffle(seed=True), "Shuffle.seed=True must be an integer"),
        (lambda: Image(size=224), r"Image.size=224 must be \(height, width\)"),
        (lambda: Image(size=(1.5, 2)), r"Image.size=\(1.5, 2\) must be \(height, width\)"),
        (lambda: Worker(-1, 2), "Worker.index=-1 does not fit count=2"),
        (lambda: Shuffle(run=0), "Shuffle.run=0 must be at least 2"),
        (lambda: Shuffle(lanes=0), "Shuffle.lanes=0 must be at least 1"),
        (lambda: Shuffle(seed=2**63), r"Shuffle.seed=9223372036854775808 must lie between -2\^63 and"),
        (lambda: Shuffle(seed=-(2**63) - 1), r"Shuffle.seed=-9223372036854775809 must lie between"),
        (lambda: Position(-1), "Position.epoch=-1 must be at least 0"),
        (lambda: Position(0, -1), "Position.step=-1 must be at least 0"),
        (lambda: Image(size=(0, 4)), r"Image.size=\(0, 4\) must be \(height, width\), each at least 1"),
        (lambda: Image(size=(4,)), r"Image.size=\(4,\) must be \(height, width\)"),
        (lambda: Image(size=(4, 4, 3)), r"Image.size=\(4, 4, 3\) must be \(height, width\)"),
        (lambda: Image(size=(4, 4), crop="left"), "Image.crop='left' must be None, 'center' or 'random'"),
        (lambda: Image(crop="center"), r"Image.crop='center' needs a size, as in Image\(size=\(224, 224\)\)"),
        (lambda: Image(channels=2), "Image.channels=2 must be 1, 3 or 4, or None for the dataset's"),
        (lambda: Image(channels=True), "Image.channels=True must be 1, 3 or 4, or None"),
        (lambda: Image(channels=3.0), r"Image\.channels=3\.0 must be 1, 3 or 4, or None"),
        (lambda: Image(size=(True, 3)), r"must be \(height, width\), each at least 1"),
        (
            lambda: Image(dtype="int8"),
            "Image.dtype='int8' must be one of uint8, uint16, int32, int64, float32",
        ),
        (
            lambda: Image(flip=True),
            "Image.flip=True must be None or one of horizontal, vertical, horizontal_and",
        ),
        (
            lambda: Image(normalize="unit"),
            "'unit' makes fractions, which would be truncated to the stored integers; use dtype='float32'",
        ),
        (
            lambda: normalized("zscore"),
            r"'zscore' must be one of unit, symmetric, imagenet, or \(mean, std\)",
        ),
        (lambda: normalized(0.5), r"Image.normalize=0.5 must be \(mean, std\) or one of unit, symm"),
        (lambda: normalized((0.5,)), r"Image.normalize=\(0.5,\) must be \(mean, std\) or one of"),
        (lambda: normalized((0, "1")), r"holds '1'; mean and std must be finite numbers, or one per channel"),
        (lambda: normalized(([0, [1, 2], 3], 1)), r"holds \[1, 2\]; mean and std must be finite numbers"),
        (lambda: normalized((float("nan"), 1)), "holds nan; mean and std must be finite"),
        (lambda: normalized((0, (1, 1, float("inf")))), "holds inf; mean and std must be finite"),
        (lambda: normalized((0, (1, 0, 1))), "divides by std, which must be above 0"),
        (lambda: normalized((0, -1)), "divides by std, which must be above 0"),
        (lambda: normalized(((0, 0), 1)), "has a mean for 2 channels, but images have 1, 3 or 4; give one"),
        (lambda: normalized((0, (1, 1, 1)), 1), "has a std for 3 channels, but images have 1; give one for"),
        (lambda: normalized("imagenet", 4), "'imagenet' has a mean for 3 channels, but images have 4"),
        (lambda: Image((9, 9), dct_scaling=2), "Image.dct_scaling=2 must be True or False"),
        (lambda: Image(dct_scaling=True), r"Image.dct_scaling=True needs a size to shrink to, as in Image\("),
        (
            lambda: Image((9, 9), dct_scaling=True, method="nearest"),
            "mixes values, which method='nearest' never",
        ),
        (
            lambda: Image((9, 9), dct_scaling=True, channels=4),
            "is for JPEG, which has no images of 4 channels",
        ),
        (lambda: Image(method="cubic"), "Image.method='cubic' must be one of bilinear, nearest, area"),
        (lambda: Image(seed=2**63), "Image.seed=9223372036854775808 must lie between"),
    ],
)
def test_an_invalid_value_raises_in_its_constructor(make, message):
    with pytest.raises(OptionsError, match=message):
        make()


def test_the_seed_is_the_first_argument_of_shuffle():
    assert Shuffle(7) == Shuffle(seed=7)
    assert Shuffle(7, "full") == Shuffle(seed=7, how="full")


def test_integers_of_numpy_are_integers():
    assert Worker(np.int64(1), np.int32(2)) == Worker(1, 2)
    assert Image(size=(np.int64(3), 4)).size == (3, 4)
    assert normalized([np.float32(0.5), np.ones(3)]) == normalized((0.5, (1.0, 1.0, 1.0)))


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ("disk:/tmp/c 5GiB", r'has a size in its path; .* such as "disk:/tmp/c, 5GiB"$'),
        ("disk:/tmp/c 1.5 tib", r'a comma, such as "disk:/tmp/c, 1.5 tib"$'),
        ("disk:/tmp/c;5GiB", r'a comma, such as "disk:/tmp/c, 5GiB"$'),
        ("disk:/tmp/c, -5GiB", "has '-5GiB' after its first comma, which must be a size"),
        ("disk:/tmp/c, big", "has 'big' after its first comma"),
        ("disk:/tmp/c,", "has '' after its first comma"),
        ("disk:/tmp/c, 7,5GiB", "has '7,5GiB' after its first comma, .* a path must not contain a comma$"),
        ("disk:/tmp/c, 5GiB, 6", "has '5GiB, 6' after its first comma"),
        ("disk:/tmp/a,b/c", "has 'b/c' after its first comma"),
        ("disk:, 5GiB", 'must be "disk:PATH", "disk:PATH, SIZE" or None'),
    ],
)
def test_a_mistyped_size_of_a_cache_is_not_part_of_its_path(cache, message):
    with pytest.raises(OptionsError, match=message):
        LoadOptions(path="x", batch_size=1, cache=cache)


@pytest.mark.parametrize(
    ("cache", "folder", "size"),
    [
        ("disk:/tmp/c, 900TiB", "/tmp/c", 900 << 40),
        ("disk:/tmp/c,5000", "/tmp/c", 5000),
        ("disk: /tmp/my disk 2 , 1TB", "/tmp/my disk 2", 10**12),
        ("disk:/tmp/my disk 2", "/tmp/my disk 2", None),
    ],
)
def test_a_cache_is_a_folder_and_a_size(cache, folder, size):
    options = LoadOptions(path="x", batch_size=1, cache=cache)
    assert (str(options.cache_folder), options.cache_bytes) == (folder, size)


@pytest.mark.parametrize("seed", [-(2**63), -1, 0, 2**63 - 1])
def test_every_integer_of_64_bits_is_a_seed(seed):
    assert (Shuffle(seed=seed).seed, Image(seed=seed).seed) == (seed, seed)


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
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, OptionsError, "batch_size=0 must be at least 1"),
        ({"batch_size": -2}, OptionsError, "batch_size=-2 must be at least 1"),
        ({"batch_size": 2.0}, OptionsError, r"batch_size=2\.0 must be an integer"),
        ({"epochs": 1.5}, OptionsError, r"epochs=1\.5 must be an integer"),
        ({"worker": (0, 2)}, OptionsError, r"worker=\(0, 2\) must be loader\.Worker\(\.\.\.\)"),
        ({"shuffle": True}, OptionsError, r"shuffle=True must be loader\.Shuffle"),
        ({"image": (224, 224)}, OptionsError, r"image=\(224, 224\) must be loader\.Image"),
        ({"image": {}}, OptionsError, "image={} names no feature; leave it out for encoded bytes"),
        ({"image": {"photo": (9, 9)}}, OptionsError, r"image\['photo'\]=\(9, 9\) must be loader\.Image\("),
        (
            {"image": {"foto": Image((9, 9))}},
            OptionsError,
            "image= names 'foto', which is not a delivered image; those are 'photo'$",
        ),
        (
            {"image": {"label": Image((9, 9))}},
            OptionsError,
            "image= names 'label', which is not a delivered image",
        ),
        (
            {"image": {"photo": Image((9, 9))}, "select": ("label",)},
            OptionsError,
            "image= is given, but none of the selected features is an image or a mask: 'label'",
        ),
        (
            {"image": {"photo": Image()}},
            OptionsError,
            r"the sizes of the images in 'photo' are not known .* use Image\(size=",
        ),
        ({"class_names": "cat"}, OptionsError, r"class_names='cat' must be a list of names, such as"),
        ({"class_names": {"cat": 0}}, OptionsError, r"class_names=\{'cat': 0\} must be a list of names"),
        ({"start": 3}, OptionsError, r"start=3 must be loader\.Position"),
        (
            {"split": ["train"]},
            OptionsError,
            r"split=\['train'\] must be one name; the splits are 'train', 'val'",
        ),
        ({"remainder": "wrap"}, OptionsError, "remainder='wrap' must be one of drop, pad, keep"),
        (
            {"select": "label"},
            OptionsError,
            r"select='label' must be a tuple of names, such as select=\('label',\)",
        ),
        (
            {"select": ()},
            OptionsError,
            r"select=\(\) is empty; the features are 'photo', 'label', 'sample_weight'",
        ),
        (
            {"select": ("label", "lable")},
            OptionsError,
            r"select=\('label', 'lable'\) has no feature for 'lable'; the features are 'photo', 'label'",
        ),
        ({"select": ["label", "label"]}, OptionsError, "names a feature twice"),
        (
            {"remainder": "pad"},
            OptionsError,
            "remainder='pad' and sample_weights= add 'sample_weight', which is a feature already; use sel",
        ),
        (
            {"image": Image(), "select": ("label",)},
            OptionsError,
            "image= is given, but none of the selected features is an image or a mask: 'label'",
        ),
        (
            {"image": Image()},
            OptionsError,
            r"the sizes of the images in 'photo' are not known to be equal \(shape \(None, None, 3\)\), "
            r".* use Image\(size=\(height, width\)\)",
        ),
        (
            {"shuffle": Shuffle(lanes=3)},
            OptionsError,
            "Shuffle.lanes=3 does not divide the global batch size 2",
        ),
        ({"split": None}, InputError, "has several splits; name one of 'train', 'val'"),
        ({"split": "test"}, InputError, "has no split 'test'; the splits are 'train', 'val'"),
    ],
)
def test_options_that_do_not_fit_the_dataset_are_refused(mixed, options, error, message):
    with pytest.raises(error, match=message):
        loader.load(mixed, **{"split": "train", "batch_size": 2, **options})


def test_without_a_dataset_there_is_nothing_to_load(tmp_path):
    with pytest.raises(InputError, match=r"is not a dataset: it has no dataset\.json"):
        loader.load(tmp_path, batch_size=2)
    with pytest.raises(InputError, match="nowhere does not exist"):
        loader.load(tmp_path / "nowhere", batch_size=2)


def test_the_split_may_be_left_out_if_there_is_only_one(numbered):
    (batch,) = loader.load(str(numbered([2])), batch_size=2).as_numpy_iterator()
    assert batch["number"].tolist() == [0, 1]


def test_padding_uses_a_selected_feature_named_sample_weight(mixed):
    dataset = loader.load(mixed, "val", batch_size=3, remainder="pad", select=("sample_weight",))
    *_, (stored, weights) = dataset.as_numpy_iterator()
    assert stored.tolist() == [1, 1, 1]
    assert weights.tolist() == [1, 0, 0]


def test_the_parameters_of_load_are_the_fields_of_its_options():
    parameters = inspect.signature(loader.load).parameters
    fields = {field.name: field for field in dataclasses.fields(LoadOptions)}
    assert set(parameters) == set(fields)
    for name, parameter in parameters.items():
        left_out = dataclasses.MISSING if parameter.default is parameter.empty else parameter.default
        assert fields[name].default == left_out, name
    assert set(LoadKeywords.__annotations__) == set(fields) - {"path", "split", "batch_size", "worker"}
    documented = loader.load.__doc__.partition("Args:")[2].partition("Raises:")[0]
    assert all(f"\n        {name}: " in documented for name in fields)
