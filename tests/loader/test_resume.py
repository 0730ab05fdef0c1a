"""Training that is killed at any step goes on with the very batch that would have come next."""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfshards.schemas import Feature, Schema

PROGRAM = Path(__file__).with_name("resuming.py")
IMAGES = Schema((Feature("image", "image", "uint8", (None, None, 1)), Feature("number", "int", "int64")))
COUNT = 45


@pytest.fixture(scope="module")
def trained(write_dataset, tmp_path_factory):
    """Return what each way of training saw, undisturbed and in parts."""
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 9, 8, 1), dtype=np.uint8)
    examples = [{"image": tf.io.encode_png(image).numpy(), "number": i} for i, image in enumerate(pixels)]
    dataset = write_dataset(
        tmp_path_factory.mktemp("images"), IMAGES, {"train": [examples[:20], examples[20:]]}
    )
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(dataset), str(tmp_path_factory.mktemp("runs")), str(seed)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("way", ["keras", "tf_keras", "loop"])
def test_a_run_that_was_killed_goes_on_bit_for_bit(trained, way):
    whole, parts = trained[way]["whole"], trained[way]["parts"]
    assert [step for step, _ in whole["steps"]] == list(range(3 * (COUNT // 4)))
    *killed, last = parts
    assert {part["status"] for part in killed} == {-9}
    assert all(part["steps"][0][0] > 0 for part in parts[1:]), "each but the first begins behind a checkpoint"
    for part in parts:
        first = part["steps"][0][0]
        assert part["steps"] == whole["steps"][first : first + len(part["steps"])]
    for part, following in itertools.pairwise(parts):
        assert following["steps"][0][0] <= part["steps"][-1][0] + 1, "no step is left out"
    assert last["steps"][-1] == whole["steps"][-1]
    assert last["digest"] == whole["digest"], "the weights, and the optimizer's state"
