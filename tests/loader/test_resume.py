"""Training that is killed at any step resumes with the next batch."""

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.campaigns import SEED
from tests.tables import mostly_nightly
from tfshards.schemas import Feature, Schema

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).with_name("resuming.py")
IMAGES = Schema((Feature("image", "image", "uint8", (None, None, 1)), Feature("number", "int", "int64")))
COUNT = 45


# the numbers of kills by way of training; a killed run of tf_keras has the same callback as one of Keras
FEW, MORE = {"keras": 1, "loop": 1}, {"keras": 2, "tf_keras": 2, "loop": 2}
IN_JAX = {"keras": 2}
WAYS = {"few": FEW, "more": MORE, "in_jax": IN_JAX}
CASES = [(kills, way) for kills, ways in WAYS.items() for way in ways]


@pytest.fixture(scope="module")
def train(programs, write_dataset, tmp_path_factory):
    """Return a function that returns the steps that each way saw, uninterrupted and in parts."""
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 9, 8, 1), dtype=np.uint8)
    examples = [{"image": tf.io.encode_png(image).numpy(), "number": i} for i, image in enumerate(pixels)]
    dataset = write_dataset(tmp_path_factory.mktemp("set"), IMAGES, {"train": [examples[:20], examples[20:]]})
    seed = random.Random(SEED).randrange(2**32)

    def train(kills, backend="tensorflow"):
        command = [PROGRAM, dataset, tmp_path_factory.mktemp("runs"), seed, json.dumps(kills)]
        environment = os.environ | {"KERAS_BACKEND": backend}
        if backend == "tensorflow":
            done = programs.run(command, env=environment)
        else:
            # the processes that have imported TensorFlow have chosen the backend of Keras
            command = [sys.executable, *map(str, command)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return train


@pytest.fixture(scope="module")
def few(train):
    return train(FEW)


@pytest.fixture(scope="module")
def more(train):
    return train(MORE)


@pytest.fixture(scope="module")
def in_jax(train):
    pytest.importorskip("jax")
    return train(IN_JAX, "jax")


@pytest.mark.parametrize(("kills", "way"), mostly_nightly(CASES, CASES[: len(FEW)]))
def test_a_killed_run_resumes_bit_for_bit(request, kills, way):
    trained = request.getfixturevalue(kills)
    whole, parts = trained[way]["whole"], trained[way]["parts"]
    assert [step for step, _ in whole["steps"]] == list(range(3 * (COUNT // 4)))
    *killed, last = parts
    assert {part["status"] for part in killed} == {-9}
    assert all(part["steps"][0][0] > 0 for part in parts[1:]), "later parts start from a checkpoint"
    for part in parts:
        first = part["steps"][0][0]
        assert part["steps"] == whole["steps"][first : first + len(part["steps"])]
    for part, following in itertools.pairwise(parts):
        assert following["steps"][0][0] <= part["steps"][-1][0] + 1, "no step is skipped"
    assert last["steps"][-1] == whole["steps"][-1]
    assert last["digest"] == whole["digest"], "weights and optimizer state are equal"
