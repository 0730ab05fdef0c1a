"""``bench``: which stage is the limit, the figures of real datasets, messages for wrong arguments."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.surface.command import main
from tfshards import loader
from tfshards.prep import Arrays, ImageFolder, build
from tfshards.schemas import OptionsError

SECONDS = 0.05


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(24):
        image = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize((100, 80))
        image.save(folder / f"{number}.{'png' if number % 3 == 0 else 'jpg'}")
    out = tmp_path_factory.mktemp("built") / "out"
    build(ImageFolder(folder), out, shards=2)
    return str(out)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "out"
    build(Arrays({"x": np.arange(64), "y": np.arange(64) % 2}), path)
    return str(path)


# the figures of each stage and what they mean
LIMITS = [
    ("decoding is slow", {}, "decoding"),
    ("decoding is fast", {"decoded": 900, "delivered": 800}, "parsing"),
    ("nothing is decoded", {"decoded": None, "delivered": 900}, "parsing"),
    ("the loop in Python is slow", {"decoded": 990, "delivered": 300}, "Python"),
    ("all are fast", {"parsed": 9900, "decoded": None, "delivered": 9800}, "records"),
    ("the store is slow", {"records": 120, "parsed": 119}, "records"),
]


def test_the_limit_follows_from_the_figures(photos):
    shuffle = loader.Shuffle(seed=0)
    speeds = loader.bench(photos, batch_size=4, size="32x32", crop="random", shuffle=shuffle, seconds=SECONDS)
    assert min(speeds.records, speeds.parsed, speeds.decoded, speeds.delivered) > 0
    assert repr(speeds).splitlines()[-1].startswith(f"limit: {speeds.limit}; ")
    usual = {"records": 10_000, "parsed": 1000, "decoded": 100, "delivered": 100}
    for reason, figures, limit in LIMITS:
        assert replace(speeds, **{**usual, **figures}).limit == limit, reason


def test_wrong_arguments_are_named(rows):
    for options, message in [({"seconds": 0}, "seconds=0 "), ({"batch_size": 65}, "exceeds the 64 examples")]:
        with pytest.raises(OptionsError, match=message):
            loader.bench(**{"dataset": rows, "batch_size": 8, "seconds": SECONDS, **options})


def test_the_command_prints_the_table_or_json(photos, rows, capsys):
    line = ["bench", rows, "--batch-size", "8", "--seconds", "0.05"]
    assert main(line) == 0
    assert "delivered" in capsys.readouterr().out
    line[1] = photos
    flags = ["--size", "64x48", "--crop", "random", "--json", "--select", "image", "--shuffle", "3"]
    assert main([*line, *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limit"] in ("records", "parsing", "decoding", "Python")
    assert [*found["examples_per_second"]] == ["records", "parsed", "decoded", "delivered"]
