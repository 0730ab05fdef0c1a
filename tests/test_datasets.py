"""The commands and lines of docs/datasets.md build what the layouts hold; refusals name its sections."""

import io
import re

import numpy as np
import pytest
from PIL import Image

from tests import format_reader, imitations
from tests.conformance.runner import compare_records
from tests.pages import ROOT, Runner, sections_of
from tests.surface import command as cli
from tfshards.prep import verify
from tfshards.schemas import read_manifest

SECTIONS = sections_of(ROOT / "docs" / "datasets.md")[:-1]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder, and return its exit status."""
    monkeypatch.chdir(tmp_path)
    return lambda words: cli.main([*words, "--quiet"])


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.heading)
def test_a_section_builds_exactly_what_its_layout_holds(section, run, capsys):
    source, expected = getattr(imitations, section.name)()
    runner, lists = Runner({}), set()
    for block in section.blocks:
        runner.run(block)
        # alternatives of ImageNet
        lists |= {tuple(runner.names.get("synsets", ()))} - {()}
    assert len(lists) <= 1
    for dataset, splits in expected.items():
        check(dataset, splits)
    if source is None:
        return
    # what a new user would try
    capsys.readouterr()
    assert run(["build", "images", source, "data/tried"]) == 1
    message = capsys.readouterr().err
    anchor = section.heading.lower().replace(" ", "-")
    assert re.search(rf"docs/datasets.md#{anchor}(?= shows|$)", message, re.MULTILINE), message


def check(dataset, expected) -> None:
    """Compare every value, read from docs/format.md and by the loader, with the expected ones."""
    manifest = read_manifest(dataset)
    assert {*manifest.splits} == {*expected}
    features = {feature.name: feature for feature in manifest.schema.features if feature.name != "key"}
    splits = format_reader.read(dataset)
    compare_records(dataset, splits)
    assert verify(dataset, deep=True)
    for split, examples in expected.items():
        found = splits[split]
        assert {*found} == {*examples}
        for key, values in examples.items():
            assert {*values} == {*features}, key
            for name, value in values.items():
                where = f"{split}, {key}, {name}"
                compare(features[name], manifest.schema.class_names, found[key][name], value, where)


def compare(feature, class_names, found: object, value: object, where: str) -> None:
    if feature.kind == "mask" or (isinstance(value, np.ndarray) and feature.kind == "image"):
        # the values of a mask are exact, and an image that was turned is encoded again
        pixels, expected = (e if isinstance(e, np.ndarray) else decoded(e) for e in (found, value))
        assert pixels.shape == expected.shape, where
        most = 0 if feature.kind == "mask" else 12
        assert np.abs(pixels.astype(int) - expected).mean() <= most, where
    elif feature.kind in ("image", "bytes"):
        assert found == value, where
    elif feature.kind == "label" and class_names and value != []:
        assert np.array(class_names)[found].tolist() == value, where
    else:
        np.testing.assert_array_equal(np.ravel(found), np.asarray(value, found.dtype).ravel(), where)


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))
