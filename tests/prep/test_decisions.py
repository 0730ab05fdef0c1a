"""What a build does with an output that holds another dataset: refuse by name, replace, or keep it."""

import numpy as np
import pytest

from tests.errors import raises
from tests.surface.command import run
from tfshards.prep import Arrays, ImageFolder, Options, append, remove
from tfshards.schemas import InputError

X, Y = np.arange(9), np.arange(9) % 2


@pytest.fixture
def out(tmp_path, quiet_build):
    """A dataset of two arrays."""
    quiet_build(Arrays({"x": X, "label": Y}), tmp_path / "out", shards=2, seed=1, options=Options(name="n"))
    return tmp_path / "out"


# what differs: arrays, shards and seed, name -> words that the refusal has for it
OTHERS = {
    "another name": ({}, {"seed": 1}, "m", ["another name", "'n'"]),
    "a seed": ({}, {"seed": 2}, "n", ["other options", "seed="]),
    "inputs": ({"x": X[::-1]}, {"seed": 1}, "n", ["other inputs"]),
}


@pytest.mark.parametrize(("arrays", "given", "name", "words"), OTHERS.values(), ids=OTHERS)
def test_the_causes_of_another_build_are_named_until_overwrite_is_given(
    arrays, given, name, words, out, quiet_build, contents
):
    before = contents(out)
    source = Arrays({"x": X, "label": Y, **arrays})
    more = {"shards": 2, "options": Options(name=name), **given}
    with raises(InputError, "holds a dataset", code="dataset-differs") as caught:
        quiet_build(source, out, **more)
    assert all(word in str(caught.value) for word in words)
    assert contents(out) == before
    quiet_build(source, out, **more, overwrite=True)


def test_a_build_names_the_edits_that_it_would_lose(image_folder, tmp_path, quiet_build):
    root, out = image_folder({"a/1.png": 1, "b/2.png": 2}), tmp_path / "out"
    quiet_build(ImageFolder(root), out)
    image_folder({"a/3.png": 3})
    append([root], out)
    remove(out, ["a/3.png"])
    with raises(InputError, "was edited: 1 example removed, 0 relabeled", code="dataset-differs"):
        quiet_build(ImageFolder(root), out)
    assert "1 example removed" in run(["plan", "images", root, out]).err
    assert quiet_build(ImageFolder(root), out, overwrite=True).num_examples == 3
