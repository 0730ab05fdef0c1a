"""Fixtures for the tests of the command line: a folder with a source and a dataset of each kind."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.pictures import image_file, write
from tests.surface.command import snapshot
from tfshards import loader, prep


def picture(number: int) -> bytes:
    """Return a small PNG."""
    return image_file(np.random.default_rng(number).integers(0, 256, (4 + number, 6, 3), dtype=np.uint8))


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A folder with inputs, datasets and files of somebody else, for tests that change nothing."""
    root = tmp_path_factory.mktemp("made")
    for number in range(8):
        write(root / "photos" / ("cat", "dog")[number % 2] / f"{number}.png", picture(number))
    np.save(root / "x.npy", np.arange(12))
    rows = "".join(f"{number}.5,{number % 3}\n" for number in range(9))
    write(root / "t.csv", f"size,label\n{rows}")
    annotated = {"id": 1, "file_name": "photos/cat/0.png"}
    write(root / "coco.json", json.dumps({"images": [annotated], "annotations": [], "categories": []}))
    write(root / "yolo" / "1.png", picture(1))
    write(root / "yolo" / "1.txt", "0 0.5 0.5 0.5 0.5\n")
    write(root / "keys", "cat/0.png\n")
    write(root / "labels.csv", "key,label\ncat/2.png,dog\n")
    write(root / "other" / "mine", "mine")
    write(root / "broken" / "dataset.json", "{")
    photos = prep.ImageFolder(root / "photos")
    first = prep.build(photos, root / "data", shards=2, seed=1)
    prep.build(photos, root / "data", shards=2, overwrite=True)
    write(root / "old", first.folder)
    position = loader.batches(root / "data", batch_size=2).position
    write(root / "position.json", json.dumps(position.to_json()))
    shutil.copytree(root / "data", root / "more")
    for number in range(20, 24):
        write(root / "added" / ("cat", "dog")[number % 2] / f"{number}.png", picture(number))
    prep.build(prep.ImageFolder(root / "added"), root / "new-ones", shards=1)
    shutil.copytree(root / "data", root / "torn")
    for shard in (root / "torn").glob("*/*.tfrecord-*"):
        shard.write_bytes(shard.read_bytes()[:20] + b"?" + shard.read_bytes()[21:])
    numbers = prep.build(prep.Arrays({"x": np.arange(12)}), root / "numbers", shards=2)
    for number, shard in enumerate(numbers.shards):
        (root / "found").mkdir(exist_ok=True)
        shutil.copy(root / "numbers" / shard.path, root / "found" / f"x.tfrecord-{number:05d}-of-00002")
    return root


@pytest.fixture
def here(made, monkeypatch) -> Iterator[Path]:
    """The working directory: the folder that no test changes."""
    monkeypatch.chdir(made)
    before = snapshot(".")
    yield made
    assert snapshot(".") == before


@pytest.fixture
def own(made, tmp_path, monkeypatch) -> Path:
    """The working directory: a copy of the folder, which a test may change."""
    root = Path(shutil.copytree(made, tmp_path / "own", symlinks=True))
    monkeypatch.chdir(root)
    return root
