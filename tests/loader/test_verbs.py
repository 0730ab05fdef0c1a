"""Verbs of the loader: receipts, which tests/order compares with the order, and ``bench``."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tests.format_reader import companion
from tests.loader.conftest import flip_bit, in_shards, shard_of
from tests.prep.exported import BUILD_ID
from tests.surface.command import main
from tfshards import loader
from tfshards.loader import Mix, Occurrence, Shuffle, Worker, batches, when, which
from tfshards.prep import ImageFolder, build
from tfshards.schemas import Feature, InputError, Schema

SCHEMA = Schema((Feature("label", "label", "int64"), Feature("key", "bytes", "bytes")), ("ant", "bee", "cat"))
SIZES = [17, 0, 40, 6]
COUNT = sum(SIZES)


def write_keys(write_dataset, folder, prefix, sizes=SIZES, compression="none"):
    shards = in_shards(lambda number: {"label": number % 3, "key": f"{prefix}{number}".encode()}, sizes)
    return write_dataset(folder, SCHEMA, {"train": shards}, compression=compression)


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_keys(write_dataset, tmp_path_factory.mktemp("data"), "a/")


def position_of(path, worker=None, **options):
    """Return the position of a run, whose shards need not be sound."""
    return batches(path, worker=worker, **{"batch_size": 8, **options}).position


def test_a_key_that_two_mixed_datasets_have_is_found_in_both(data, write_dataset, tmp_path):
    mix = Mix({data: 3, write_keys(write_dataset, tmp_path / "other", "a/", [9, 8]): 1})
    found = when(mix, position_of(mix, remainder="pad"), ["a/4"])
    assert {(each.number, each.key) for each in found} == {(4, b"a/4"), (COUNT + 4, b"a/4")}


def test_only_files_of_keys_are_read_of_shards_whose_keys_are_asked_for(write_dataset, tmp_path):
    path = write_keys(write_dataset, tmp_path / "damaged", "a/")
    run = position_of(path, batch_size=17)
    for shard in range(4):
        shard_of(path, shard).write_bytes(b"")
    flip_bit(path / companion(f"{BUILD_ID}/{shard_of(path, 2).name}", "keys"), 100)
    assert which(path, run, step=0)[3] == Occurrence(0, 0, 0, 3, 3, b"a/3")
    assert when(path, run, [20]) == [Occurrence(0, 1, 0, 3, 20, None)]
    for ask in (lambda: which(path, run, step=1), lambda: when(path, run, ["a/3"])):
        with pytest.raises(ValueError, match=r"00002-of-00004\.keys"):
            ask()


def test_compressed_shards_and_examples_without_keys_have_receipts(write_dataset, tmp_path, numbered):
    path = write_keys(write_dataset, tmp_path / "gzip", "a/", compression="gzip")
    cache = f"disk:{tmp_path}/cache"
    run = position_of(path, batch_size=4, shuffle=Shuffle(), cache=cache)
    found = which(path, run, step=0)
    assert [each.key for each in found] == [f"a/{each.number}".encode() for each in found]
    assert when(path, run, [each.key for each in found]) == found
    run = position_of(numbered(SIZES), batch_size=4)
    assert which(numbered(SIZES), run, step=0)[0] == Occurrence(0, 0, 0, 0, 0, None)
    with raises(InputError, "have no keys; use"):
        when(numbered(SIZES), run, [b"3"])


# The command line


@pytest.fixture
def command(capsys):
    """Return a function that runs a verb with JSON, and returns its rows, or the status and the message."""

    def run(verb, *arguments):
        status = main([verb, *map(str, arguments), "--json"])
        found = json.loads(capsys.readouterr().out)
        return found if status == 0 else (status, found["message"])

    return run


def saved(path, data, **options):
    """Write a position of a run into a file, and return it."""
    path.write_text(json.dumps(position_of(data, **options).to_json()))
    return path


def rows(occurrences):
    return [{**each._asdict(), "key": each.key and each.key.decode()} for each in occurrences]


def test_the_verbs_print_receipts_of_the_run_of_a_position(data, command, tmp_path):
    options = {"shuffle": Shuffle(-3, run=2, lanes=4), "take": 40}
    file = saved(tmp_path / "position.json", data, **options)
    two = position_of(data, Worker(0, 2), **{**options, "batch_size": 4})
    found = command("which", data, file, "--step", "1:3", "--workers", 2, "--take", 40)
    assert found == rows(which(data, two, step=range(1, 3), workers=2, take=40))
    assert {row["worker"] for row in found} == {0, 1}
    found = command("when", data, file, "a/3", "--epochs", "2:4", "--workers", 2, "--take", 40)
    assert found == rows(when(data, two, ["a/3"], epochs=range(2, 4), workers=2, take=40))
    assert found
    # take= is not in a position
    status, message = command("when", data, file, "a/1")
    assert (status, "examples was" in message) == (2, True)
    assert command("when", data, file, "a/1", "--workers", 3)[0] == 2


# ``bench``: which stage is the limit, the figures of real datasets, messages for wrong arguments


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
