"""The commands and lines of docs/datasets.md build what the layouts hold; refusals name its sections."""

import io
import re
from pathlib import Path

import datasets
import h5py
import numpy as np
import pandas
import pytest
from PIL import Image

from tests import format_reader, imitations
from tests.conformance.runner import compare_records
from tests.test_recipes import HOW_TO, commands, sections
from tfshards.command import VERBS
from tfshards.prep import build, verify
from tfshards.prep.cli import main as cli
from tfshards.schemas import read_manifest

PAGE = sections((Path(__file__).parents[1] / "docs" / "datasets.md").read_text())
# section -> what writes its layout
LAYOUTS = {
    "ImageNet": imitations.imagenet,
    "Tiny ImageNet": imitations.tiny_imagenet,
    "CUB-200-2011": imitations.cub,
    "CelebA": imitations.celeba,
    "Oxford-IIIT Pet": imitations.pets,
    "Food-101": imitations.food,
    "Oxford Flowers-102": imitations.flowers,
    "iNaturalist": imitations.inaturalist,
    "Market-1501": imitations.market,
    "Nested folders": imitations.nested,
    "FGVC-Aircraft": imitations.aircraft,
    "Kaggle": imitations.kaggle,
    "Pascal VOC": imitations.voc,
    "COCO": imitations.coco,
    "Open Images": imitations.open_images,
    "YOLO": imitations.yolo,
    "Boxes in JSON Lines": imitations.json_lines,
    "Cityscapes": imitations.cityscapes,
    "MVTec AD": imitations.mvtec,
    "Images and masks": imitations.masks,
    "Pairs of images": imitations.pairs,
    "MNIST": imitations.mnist,
    "CIFAR-10": imitations.cifar,
    "SVHN": imitations.svhn,
    "WebDataset": imitations.webdataset,
    "Hugging Face": imitations.hugging_face,
    "Masks of Hugging Face": imitations.scenes,
    "RLDS": imitations.rlds,
    "Other layouts": imitations.years,
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder without Beam, and return its exit status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(build.__wrapped__.__kwdefaults__, "engine", "local")
    return lambda words: cli.main([*words, "--quiet"], VERBS)


def test_each_section_has_a_layout():
    assert {*PAGE} == {*LAYOUTS}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_section_builds_exactly_what_its_layout_holds(name, run, capsys):
    source, expected = LAYOUTS[name]()
    lists = follow(PAGE[name], run, {})
    # alternatives of ImageNet
    assert len(lists) <= 1
    for dataset, splits in expected.items():
        check(dataset, splits)
    if source is None:
        return
    # what a new user would try
    capsys.readouterr()
    assert run(["build", "images", source, "data/tried"]) == 1
    message = capsys.readouterr().err
    anchor = name.lower().replace(" ", "-")
    assert re.search(rf"docs/datasets.md#{anchor}(?= shows|$)", message, re.MULTILINE), message


def follow(section: str, run, names: dict[str, object]) -> set[tuple[str, ...]]:
    """Run the blocks of Python and the commands of a section in their order; return each list ``synsets``."""
    lists = set()
    for part in re.split(r"(^```python\n.*?^```$)", section, flags=re.M | re.S):
        if part.startswith("```python"):
            exec(part.removeprefix("```python\n").removesuffix("```"), names)
            lists |= {tuple(names["synsets"])} if "synsets" in names else set()
        for words in [] if part.startswith("```") else commands(part):
            assert run(words) == 0, words
    return lists


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


def test_the_recipe_to_build_from_files_of_other_formats_runs(run):
    kinds = datasets.Features({"number": datasets.Value("int64"), "image": datasets.Image()})
    numbers, saved, expected = [3, 1, 2], {}, {}
    for split in ("train", "test"):
        names = [f"{split}{number}.png" for number in numbers]
        images = [imitations.picture(name, len(name)) for name in names]
        saved[split] = datasets.Dataset.from_dict({"number": numbers, "image": names}, kinds)
        rows = zip(names, images, numbers, strict=True)
        expected[split] = {name: {"image": image, "number": number} for name, image, number in rows}
    datasets.DatasetDict(saved).save_to_disk("saved")
    with h5py.File("arrays.h5", "w") as file:
        file["x"], file["label"] = np.arange(6).reshape(3, 2), [1, 0, 1]
    Path("parquet").mkdir()
    frame = pandas.DataFrame({"number": numbers})
    follow(sections(HOW_TO)["How do I build from files of other formats?"], run, {"frame": frame})
    check("data/saved", expected)
    check("data/frame", {"train": {str(row): {"number": number} for row, number in enumerate(numbers)}})
    check("data/arrays", {"train": {str(n): {"x": [2 * n, 2 * n + 1], "label": 1 - n % 2} for n in range(3)}})
