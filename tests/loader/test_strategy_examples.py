"""The examples of strategies run as they stand, on digits, and learn."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from tfshards.schemas import Feature, Schema

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEMA = Schema(
    (Feature("image", "image", "uint8", (None, None, 1)), Feature("label", "label", "int64")),
    tuple("0123456789"),
)
HELD_OUT = 179


@pytest.fixture(scope="module")
def digits(write_dataset, tmp_path_factory):
    images, labels = load_digits(return_X_y=True)
    examples = [
        {"image": tf.io.encode_png((image * 15.9).astype("uint8").reshape(8, 8, 1)).numpy(), "label": label}
        for image, label in zip(images[:1179], labels, strict=False)
    ]
    splits = {"train": [examples[HELD_OUT:600], examples[600:]], "test": [examples[:HELD_OUT]]}
    return write_dataset(tmp_path_factory.mktemp("digits"), SCHEMA, splits)


@pytest.mark.parametrize(
    ("name", "lines"),
    [("mirrored_custom_loop.py", 1), ("multiworker.py", 2), ("parameter_server.py", 1)],
)
def test_each_example_recognises_digits_and_says_nothing_of_auto_sharding(digits, name, lines):
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), str(digits)],
        capture_output=True,
        text=True,
        env=environment | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "1"},
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    accuracies = re.findall(rf"accuracy: ([\d.]+) on {HELD_OUT} ", done.stdout)
    assert len(accuracies) == lines, done.stdout
    assert len(set(accuracies)) == 1, "all workers know the one accuracy"
    assert float(accuracies[0]) > 0.8
    assert not re.search("auto.?shard|sharding policy", done.stderr, re.IGNORECASE)
