"""Every recommended way to evaluate gives the true loss and accuracy, also where the last batch is small."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.tables import mostly_nightly
from tfshards.schemas import Feature, Schema

# one more than a batch: with two and four replicas, the last batch leaves some without examples
COUNT = 65
SCHEMA = Schema((Feature("x", "float", "float32", (2,)), Feature("label", "label", "int64")))
KERNEL = [[1.0, -0.5, 2.0], [0.25, 3.0, -1.0]]
X = np.random.default_rng(0).normal(size=(COUNT, 2)).astype(np.float32)
LABELS = np.arange(COUNT) % 3
LOGITS = X @ np.array(KERNEL)
TRUE = {
    "loss": float((np.log(np.exp(LOGITS).sum(1)) - LOGITS[np.arange(COUNT), LABELS]).mean()),
    "accuracy": float((LOGITS.argmax(1) == LABELS).mean()),
}


@pytest.fixture(scope="module")
def dataset(write_dataset, tmp_path_factory):
    examples = [{"x": x.tolist(), "label": int(label)} for x, label in zip(X, LABELS, strict=True)]
    shards = {"test": [examples[:30], examples[30:]]}
    return write_dataset(tmp_path_factory.mktemp("held_out"), SCHEMA, shards)


@pytest.mark.parametrize("num_replicas", mostly_nightly([1, 2, 4], [2]))
def test_each_recommended_way_gives_the_true_loss_and_accuracy(programs, dataset, num_replicas):
    program = Path(__file__).with_name("evaluations.py")
    command = [program, dataset, json.dumps(KERNEL), num_replicas]
    done = programs.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for way in ("evaluated", "validated", "custom loop"):
        assert found[way] == pytest.approx(TRUE, rel=1e-5), way
    # each example once, in stored order
    assert np.allclose(np.array(found["predicted"]), LOGITS, atol=1e-4)
