"""``bench``: which stage is the limit, the figures of real datasets, messages for wrong arguments."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.errors import fault, raises
from tfshards import loader
from tfshards.command import VERBS
from tfshards.loader.options.image import IMAGE_DTYPES
from tfshards.loader.speed.bench import Speeds
from tfshards.prep import Arrays, ImageFolder, build
from tfshards.prep.cli.main import main
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
    build(ImageFolder(folder), out, shards=2, log=lambda _: None)
    return str(out)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "out"
    build(Arrays({"x": np.arange(64), "y": np.arange(64) % 2}), path, log=lambda _: None)
    return str(path)


SPEEDS = Speeds(
    dataset="d",
    split="train",
    batch_size=32,
    record_bytes=1000,
    num_examples=64,
    is_remote=False,
    disk=None,
    records=5000,
    parsed=4000,
    decoded=700,
    delivered=690,
)


LIMITS = [
    ("the disk is slower than everything else", {"disk": 90}, "disk"),
    ("the disk is faster than what is delivered", {"disk": 110}, "decoding"),
    ("no disk was measured", {"disk": None}, "decoding"),
    ("decoding is fast", {"decoded": 900, "delivered": 800}, "parsing"),
    ("nothing is decoded", {"decoded": None, "delivered": 900}, "parsing"),
    ("the loop in Python is slow", {"decoded": 990, "delivered": 300}, "Python"),
    (
        "nothing takes longer than the records",
        {"disk": None, "parsed": 9900, "decoded": None, "delivered": 9800},
        "records",
    ),
    ("the store is slow", {"records": 120, "parsed": 119, "disk": None, "is_remote": True}, "store"),
]


@pytest.mark.parametrize(("figures", "limit"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS])
def test_the_limit_follows_from_the_figures(figures, limit):
    usual = {"disk": 5000, "records": 10_000, "parsed": 1000, "decoded": 100, "delivered": 100}
    assert replace(SPEEDS, **{**usual, **figures}).limit == limit


@pytest.mark.nightly
def test_photos_are_measured_up_to_each_stage(photos):
    image = loader.Image(size=(32, 32), crop="random", flip="horizontal", dtype="float32")
    speeds = loader.bench(photos, batch_size=4, image=image, shuffle=loader.Shuffle(seed=0), seconds=SECONDS)
    assert min(speeds.records, speeds.parsed, speeds.decoded, speeds.delivered) > 0
    assert speeds.disk is None or speeds.disk > 0
    assert (speeds.split, speeds.num_examples) == ("train", 24)
    shown = repr(speeds).splitlines()
    assert shown[0].split() == ["train,", "batch", "4", "examples/s", "MB/s", "of", "records"]
    assert shown[-1].startswith(f"limit: {speeds.limit}; ")


@pytest.mark.nightly
def test_rows_are_not_decoded(rows):
    speeds = loader.bench(rows, batch_size=8, select=("x",), seconds=SECONDS)
    assert speeds.decoded is None
    assert speeds.limit in ("disk", "records", "parsing", "Python")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seconds": 0}, OptionsError, fault("bench-seconds", seconds=0)),
        ({"seconds": True}, OptionsError, "bench-seconds"),
        ({"batch_size": 65}, OptionsError, fault("bench-batch-size", batch_size=65, num_examples=64)),
        ({"path": loader.Mix({"a": 1.0})}, OptionsError, "bench-path"),
    ],
)
def test_wrong_arguments_are_named(options, error, message, rows):
    with raises(error, message):
        loader.bench(**{"path": rows, "batch_size": 8, "seconds": SECONDS, **options})


def test_the_command_prints_the_table_or_json(photos, rows, capsys):
    line = ["bench", rows, "--batch-size", "8", "--seconds", "0.05"]
    assert main(line, VERBS) == 0
    assert "delivered to Python" in capsys.readouterr().out
    line[1] = photos
    flags = ["--size", "64x48", "--dtype", "float32", "--json", "--select", "image", "--shuffle", "3"]
    assert main([*line, *flags], VERBS) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limit"] in ("disk", "records", "parsing", "decoding", "Python")
    assert found["bytes_per_second"]["parsed"] > found["examples_per_second"]["parsed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "5"], "--size 5 must be HEIGHTxWIDTH, such as 224x224, or none"),
        (
            ["--size", "none", "--crop", "center"],
            "--crop center needs images of a fixed size, such as --size 224x224",
        ),
    ],
)
def test_wrong_flags_are_named_before_tensorflow_is_imported(arguments, message, photos, capsys, monkeypatch):
    # an import of it would raise
    monkeypatch.setitem(sys.modules, "tfshards.loader", None)
    assert main(["bench", photos, *arguments], VERBS) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"tfshards: {message}")


def test_the_flag_has_all_dtypes_of_images(photos, capsys):
    assert main(["bench", photos, "--dtype", "float"], VERBS) == 2
    choices = capsys.readouterr().err.partition("choose from ")[2].partition(")")[0]
    assert choices.replace("'", "").split(", ") == [*IMAGE_DTYPES]


def test_a_size_for_a_dataset_without_images_is_refused(rows, capsys):
    assert main(["bench", rows, "--size", "8x8"], VERBS) == 2
    assert "--size 8x8 is for images, which" in capsys.readouterr().err
