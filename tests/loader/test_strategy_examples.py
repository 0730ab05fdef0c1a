"""The examples of strategies run unchanged on digits, and learn."""

import os
import re
from pathlib import Path

import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from tests.loader.cluster import run_cluster
from tfshards.schemas import Feature, Schema

pytestmark = pytest.mark.processes

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


def check(stdout, stderr, lines):
    """Assert that ``lines`` workers report the accuracy, and TensorFlow does not mention auto-sharding."""
    accuracies = re.findall(rf"accuracy: ([\d.]+) on {HELD_OUT} ", stdout)
    assert len(accuracies) == lines, stdout
    assert len(set(accuracies)) == 1, "all workers know the one accuracy"
    assert float(accuracies[0]) > 0.8
    assert not re.search("auto.?shard|sharding policy", stderr, re.IGNORECASE)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        # test_distribute.py trains and evaluates on two replicas more often
        pytest.param("mirrored_custom_loop.py", 1, marks=pytest.mark.nightly),
        # these start each of their workers
        pytest.param("multiworker.py", 2, marks=pytest.mark.nightly),
        pytest.param("parameter_server.py", 1, marks=pytest.mark.nightly),
    ],
)
def test_each_example_recognizes_digits(programs, digits, name, lines):
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    done = programs.run([EXAMPLES / name, digits], env=environment | {"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr
    check(done.stdout, done.stderr, lines)


# test_several_hosts.py and test_parameter_servers.py read under these strategies more often
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "tasks", "until"),
    [
        ("multiworker.py", {"worker": 2}, "worker"),
        ("parameter_server.py", {"worker": 2, "ps": 1, "chief": 1}, "chief"),
    ],
)
def test_examples_recognize_digits_as_tasks_of_a_cluster(programs, digits, tmp_path, name, tasks, until):
    ended = run_cluster(programs, tmp_path, EXAMPLES / name, [digits], tasks, until, timeout=600)
    check("".join(stdout for stdout, _ in ended), "".join(stderr for _, stderr in ended), len(ended))
