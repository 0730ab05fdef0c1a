"""``load`` and ``batches`` read the same examples: random datasets, orders, workers, choices and damage."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.tables import mostly_nightly
from tfshards.loader import Mix, Part, Position, Shuffle, Worker, batches, load
from tfshards.schemas import Feature, Schema

from .conftest import flip_bit, frames_of, shard_of

SCHEMA = Schema((Feature("number", "int", "int64"), Feature("label", "label", "int64")), ("a", "b", "c"))
# 100,000 batches in all
BATCHES, SEEDS = 2_000, range(50)


@pytest.fixture(scope="module")
def made(write_dataset, tmp_path_factory):
    """Datasets of different numbers of shards and examples; the last one has damaged records."""
    paths = []
    for number, sizes in enumerate([[9, 0, 14, 7, 11], [300], [1, 2, 3, 120], [40, 40, 41, 40]]):
        shards, count = [], 1000 * number
        for size in sizes:
            each = range(count, count + size)
            shards.append([{"number": value, "label": value * value % 3} for value in each])
            count += size
        paths.append(write_dataset(tmp_path_factory.mktemp("made") / f"d{number}", SCHEMA, {"train": shards}))
    for shard, record in ((0, 0), (0, 1), (2, 40)):
        file = shard_of(paths[-1], shard)
        flip_bit(file, int(frames_of(file).offsets[record]) + 14)
    return paths


def case(rng: random.Random, paths: list[Path]) -> dict[str, object]:
    """Return random options of ``load``; also those of a resumed run, or of one worker among several."""
    path = rng.choice(paths)
    count = rng.choice([1, 1, 2, 3, 4])
    lanes = rng.choice([None, None, count * rng.choice([1, 2])])
    batch_size = rng.choice([1, 2, 3, 5, 8, 16]) * (lanes or 1)
    options = {"worker": Worker(rng.randrange(count), count), "batch_size": batch_size}
    options["shuffle"] = rng.choice(
        [
            None,
            Shuffle(seed=rng.randrange(99)),
            Shuffle(seed=rng.randrange(99), run=rng.choice([None, 2, 7]), lanes=lanes),
            Shuffle(seed=rng.randrange(99), how="full"),
        ]
    )
    options["remainder"] = rng.choice(["drop", "keep", "pad"])
    which = rng.randrange(6)
    if path == paths[-1]:
        options |= {"on_damage": "skip", "remainder": "pad"}
    elif which == 0:
        options["classes"] = rng.choice([["a"], ["a", "c"], {"a": 1, "b": 2.5}, {0: 3, 1: 1}])
    elif which == 1:
        options["take"] = rng.choice([3, 17, Part(1, 3), Part(0, 2, rest=True)])
    elif which == 2:
        path = Mix({paths[0]: 1, paths[2]: rng.choice([0.5, 3])})
    return {"path": path, "start": Position(rng.choice([0, 0, 3]), 0), **options}


@pytest.mark.parametrize("seed", mostly_nightly(SEEDS, SEEDS[:3]))
def test_the_examples_of_each_batch_are_those_of_load(made, seed):
    rng = random.Random(seed)
    options = case(rng, made)
    with warnings.catch_warnings():
        # of damage, and of epochs without steps
        warnings.simplefilter("ignore")
        steps = batches(epochs=None, **options).steps_per_epoch
        if not steps:
            options |= {"remainder": "pad"}
            steps = batches(epochs=None, **options).steps_per_epoch
        epochs = options["start"].epoch + -(-BATCHES // steps)
        expected = load(epochs=epochs, select=("number",), **options)
        found = batches(epochs=epochs, select=("number",), **options)
    assert len(found) == len(expected) >= BATCHES
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one[0], other[0].numpy()), options
        if len(one) > 1:
            assert np.array_equal(one[1], other[1].numpy()), options
