"""A small dataset for the tests of frameworks, and the programs that they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from tfshards.loader import Shuffle
from tfshards.schemas import Feature, Schema

SCHEMA = Schema(
    (
        Feature("number", "int", "int64"),
        Feature("pixels", "raw", "uint8", (4, 3)),
        Feature("label", "label", "int64"),
        Feature("key", "bytes", "bytes"),
        Feature("ids", "int", "int32", (None,)),
        Feature("half", "raw", "bfloat16", (2,)),
    ),
    ("ant", "bee", "cat"),
)
SIZES = [17, 0, 40, 6]
COUNT = sum(SIZES)
OPTIONS = {"batch_size": 8, "shuffle": Shuffle(seed=4)}


def example(number):
    return {
        "number": number,
        "pixels": np.full((4, 3), number, np.uint8),
        "label": number % 3,
        "key": b"%d" % number,
        "ids": np.arange(number % 3),
        "half": np.full(2, number, ml_dtypes.bfloat16),
    }


def write_data(write_dataset, folder):
    ends = np.cumsum(SIZES).tolist()
    shards = [[*map(example, range(end - size, end))] for size, end in zip(SIZES, ends, strict=True)]
    return str(write_dataset(folder, SCHEMA, {"train": shards}))


def model():
    """Return a model of Keras that is always the same."""
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Rescaling(1 / 63), keras.layers.Flatten(), keras.layers.Dense(3)]
    made = keras.Sequential([keras.Input((4, 3)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.5, momentum=0.9), loss)
    return made


def trained(batches):
    """Return the weights of a model that was trained on some batches, in their order."""
    made = model()
    for batch in batches:
        made.train_on_batch(*batch)
    return made.get_weights()


def same(one, other):
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(one, other, strict=True))


def run_together(code, *arguments, count=1, **variables):
    """Return what processes print that run a program at the same time, each with its number as the last."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    options = {"env": os.environ | variables, "cwd": Path(__file__).parents[2], "text": True}
    started = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        for number in range(count)
    ]
    try:
        printed = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * count, printed
    return [out for out, _ in printed]
