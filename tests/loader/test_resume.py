"""Training that is killed at any step resumes with the next batch."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfshards.schemas import Feature, Schema

PROGRAM = Path(__file__).with_name("resuming.py")
IMAGES = Schema((Feature("image", "image", "uint8", (None, None, 1)), Feature("number", "int", "int64")))
COUNT = 45


@pytest.fixture(scope="module")
def trained(programs, write_dataset, tmp_path_factory):
    """Return the steps that each training method saw, uninterrupted and in parts."""
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 9, 8, 1), dtype=np.uint8)
    examples = [{"image": tf.io.encode_png(image).numpy(), "number": i} for i, image in enumerate(pixels)]
    dataset = write_dataset(
        tmp_path_factory.mktemp("images"), IMAGES, {"train": [examples[:20], examples[20:]]}
    )
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    done = programs.run([PROGRAM, dataset, tmp_path_factory.mktemp("runs"), seed])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("way", ["keras", "tf_keras", "loop"])
def test_a_killed_run_resumes_bit_for_bit(trained, way):
    whole, parts = trained[way]["whole"], trained[way]["parts"]
    assert [step for step, _ in whole["steps"]] == list(range(3 * (COUNT // 4)))
    *killed, last = parts
    assert {part["status"] for part in killed} == {-9}
    assert all(part["steps"][0][0] > 0 for part in parts[1:]), (
        "each part except the first starts from a checkpoint"
    )
    for part in parts:
        first = part["steps"][0][0]
        assert part["steps"] == whole["steps"][first : first + len(part["steps"])]
    for part, following in itertools.pairwise(parts):
        assert following["steps"][0][0] <= part["steps"][-1][0] + 1, "no step is skipped"
    assert last["steps"][-1] == whole["steps"][-1]
    assert last["digest"] == whole["digest"], "weights and optimizer state are equal"
