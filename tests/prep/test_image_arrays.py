"""Arrays that are images: what is taken for one, and what images get that they get as well."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.pictures import image_file
from tests.tables import mostly_nightly
from tfshards import loader, prep
from tfshards.schemas import OptionsError, read_manifest

SHAPES = {"gray": (12, 9), "one channel": (12, 9, 1), "color": (12, 9, 3), "alpha": (12, 9, 4)}


def pixels(shape: tuple[int, ...], dtype: str = "uint8", count: int = 7) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(0, np.iinfo(dtype).max, (count, *shape), dtype=dtype)


@pytest.fixture
def build(tmp_path, quiet_build):
    """Build a dataset from arrays in the folder ``name``, and return the folder."""

    def run(arrays: object, name: str = "out", build: dict | None = None, **options: object) -> Path:
        quiet_build(prep.Arrays(arrays, **options), tmp_path / name, **(build or {}))
        return tmp_path / name

    return run


def raw(*shape: int) -> np.ndarray:
    return np.zeros((2, *shape), np.uint8)


# arrays by name, which of them are declared, and which are images
RULES = {
    "the only one": ({"x": raw(28, 28), "y": np.arange(2)}, [], ["x"]),
    "16 bits and channels": ({"x": raw(8, 8, 4).astype(np.uint16)}, [], ["x"]),
    "by name": ({"image": raw(28, 28), "mask": raw(28, 28)}, [], ["image"]),
    "two": ({"left": raw(28, 28), "right": raw(28, 28)}, [], []),
    "two of which one is declared": ({"left": raw(28, 28), "image": raw(28, 28)}, ["left"], ["left"]),
    "small": ({"x": raw(7, 28)}, [], []),
    "small but declared": ({"x": raw(2, 3)}, ["x"], ["x"]),
    "numbers": ({"x": raw(28, 28) / 2}, [], []),
    "video": ({"x": raw(4, 28, 28, 3)}, [], []),
    "channels first": ({"x": raw(3, 32, 32)}, [], []),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("arrays", "declared", "expected"), RULES.values(), ids=RULES)
def test_an_array_is_an_image_if_it_is_declared_or_cannot_be_mistaken(arrays, declared, expected, build):
    out = build(arrays, roles=dict.fromkeys(declared, "image"))
    given = {"batch_size": 2, "shuffle": None, "image": loader.Image(size=(5, 5))}
    if not expected:
        with pytest.raises(OptionsError):
            next(iter(loader.batches(out, "train", **given)))
        return
    (batch,) = loader.batches(out, "train", **given)
    assert [name for name, values in batch.items() if values.shape[1:3] == (5, 5)] == expected


# the same images as PNG are the reference, since other tests compare these with Pillow
VIEWS: dict[str, loader.Image] = {
    "as stored": loader.Image(),
    "normalized": loader.Image(dtype="float32", normalize="symmetric"),
    "center": loader.Image(size=(6, 6), crop="center"),
    "random": loader.Image(size=(5, 7), crop="random", flip="horizontal_and_vertical", dtype="float32"),
    "nearest": loader.Image(size=(24, 18), method="nearest", flip="horizontal"),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    mostly_nightly(
        [*((name, "uint8") for name in SHAPES), ("gray", "uint16"), ("one channel", "uint16")],
        [("color", "uint8"), ("gray", "uint16")],
    ),
)
def test_the_loader_gives_of_arrays_what_it_gives_of_equal_pngs(name, dtype, build, tmp_path, quiet_build):
    array = pixels(SHAPES[name], dtype)
    out = build({"image": array, "label": np.arange(len(array))}, build={"shards": 2})
    channels = (*SHAPES[name], 1)[2]
    options = prep.ImageOptions(channels=channels, depth=8 if dtype == "uint8" else 16)
    examples = [
        (str(row), {"image": image_file(each.squeeze()), "label": row}) for row, each in enumerate(array)
    ]
    quiet_build(prep.Examples(examples, images=options), tmp_path / "png", shards=2)
    assert "pixels" not in (out / "dataset.json").read_text()
    given = {"batch_size": 3, "shuffle": None, "select": ("image", "label")}
    for view in VIEWS.values() if name == "color" else [VIEWS["as stored"], VIEWS["random"]]:
        # a batch has one size, which the schema of PNG files does not state
        other = replace(view, size=view.size or (12, 9))
        found = [*loader.load(out, "train", image=view, **given)]
        wanted = [*loader.load(tmp_path / "png", "train", image=other, **given)]
        for (images, labels), others in zip(found, wanted, strict=True):
            assert images.shape[1:] == (*(view.size or (12, 9)), channels)
            np.testing.assert_array_equal(images, others[0])
            np.testing.assert_array_equal(labels, others[1])
    (images, labels), *_ = loader.load(out, "train", image=loader.Image(), **given)
    np.testing.assert_array_equal(images, array[labels].reshape(3, 12, 9, channels))
    # without image= as before
    (arrays, labels), *_ = loader.load(out, "train", **given)
    np.testing.assert_array_equal(arrays, array[labels])


def test_gray_is_repeated_for_color(build):
    out = build({"x": pixels((12, 9)), "y": np.arange(7)})
    image = loader.Image(size=(6, 6), channels=3)
    (batch,) = loader.load(out, "train", batch_size=7, image=image, shuffle=None)
    gray = next(iter(loader.load(out, "train", batch_size=7, image=loader.Image(size=(6, 6)), shuffle=None)))
    np.testing.assert_array_equal(batch["x"], np.repeat(gray["x"], 3, axis=3))
    with raises(OptionsError, "Image.channels=4 must be"):
        loader.load(out, "train", batch_size=7, image=loader.Image(channels=4))


def test_ambiguous_arrays_are_named_and_masks_do_not_stay_behind_in_silence(build, log):
    pair = {"left": pixels((12, 9)), "right": pixels((12, 9))}
    out = build(pair)
    (line,) = [line for line in log if "may be images" in line]
    assert "'left' and 'right'" in line
    assert "roles={'NAME': 'image'}" in line
    with pytest.raises(OptionsError, match="the arrays left, right may be images: name them"):
        loader.load(out, "train", batch_size=7, image=loader.Image(size=(6, 6)))
    with raises(OptionsError, "image="):
        loader.load(out, "train", batch_size=7, image=loader.Image(), select=("key",))
    named = {"left": loader.Image(size=(6, 6), seed=1, flip="horizontal")}
    message = "'right' is delivered as stored, but 'left', which has the same sides"
    with pytest.warns(UserWarning, match=message):
        loader.load(out, "train", batch_size=7, image=named)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.load(out, "train", batch_size=7, image=named, select=("left",))
        loader.load(out, "train", batch_size=7, image={"left": loader.Image()})
        both = {**named, "right": loader.Image(size=(6, 6), seed=1, flip="horizontal", method="nearest")}
        (batch,) = loader.load(out, "train", batch_size=7, image=both, shuffle=None)
    assert batch["right"].shape == (7, 6, 6, 1)
    declared = build(pair, "declared", roles={"left": "image", "right": "image"})
    (batch,) = loader.load(declared, "train", batch_size=7, image=loader.Image(size=(6, 6)))
    assert {batch[name].shape for name in pair} == {(7, 6, 6, 1)}
    assert read_manifest(declared).options["columns"] == {"left": "image", "right": "image"}
