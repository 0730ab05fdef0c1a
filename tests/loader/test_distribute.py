"""Several replicas: Keras on the plain dataset, custom training loops on ``loader.distribute``."""

import json
import os
import re
import warnings
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.loader.test_options import cluster
from tfshards import loader
from tfshards.schemas import Feature, OptionsError, Schema

pytestmark = pytest.mark.processes

COUNT = 22
LABELS = [0, 1, 1, 2, 2, 2, 2] * 3 + [0]
SCHEMA = Schema(
    (
        Feature("x", "float", "float32", (2,)),
        Feature("label", "label", "int64"),
        Feature("number", "int", "int64"),
        Feature("list", "int", "int32", (None,)),
    )
)


def list_of(number):
    """Return a list of 0 to 2 numbers; empty for all examples of some batches."""
    return [] if 4 <= number < 12 else [number + 1] * (number % 3)


@pytest.fixture(scope="module")
def dataset(write_dataset, tmp_path_factory):
    examples = [
        {"x": [np.sin(number), np.cos(3 * number)], "label": label, "number": number, "list": list_of(number)}
        for number, label in enumerate(LABELS)
    ]
    counts = {str(label): LABELS.count(label) for label in range(3)}
    path = tmp_path_factory.mktemp("labeled")
    return write_dataset(path, SCHEMA, {"train": [examples[:9], examples[9:]]}, {"train": counts})


@pytest.fixture(scope="module")
def run(programs, dataset):
    """What the program saw on two replicas, and what it wrote to stderr."""
    program = Path(__file__).with_name("two_replicas.py")
    done = programs.run(
        [program, dataset, json.dumps([case[0] for case in UNEVEN])],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def same(first, second):
    return all(np.allclose(one, two, atol=1e-5) for one, two in zip(first, second, strict=True))


def test_fit_on_two_replicas_learns_the_same_as_on_one_device(run):
    found, _ = run
    one, two = found["one"], found["two"]
    assert found["replicas"] == 2
    assert one["steps"] == two["steps"] == 2 * (COUNT // 4)
    assert same(one["weights"], two["weights"])
    assert same(one["later"], two["later"])
    assert not same(one["weights"], one["later"])
    # each pass over the plain dataset is the next epoch
    assert same(one["plain"], one["weights"])
    # under a strategy, Keras iterates the dataset once more to build the model, and discards that epoch
    assert same(two["plain"], one["later"]) or same(two["plain"], one["weights"])


@pytest.mark.parametrize("devices", ["one", "two"])
def test_evaluation_is_exact_padded_with_weighted_metrics_or_with_a_smaller_last_batch(run, dataset, devices):
    trained = run[0][devices]
    kernel, bias = map(np.array, trained["weights"])
    (batch,) = loader.load(dataset, batch_size=COUNT).as_numpy_iterator()
    logits = batch["x"] @ kernel + bias
    predicted = np.array(trained["predicted"])
    assert predicted.shape == (24, 3)
    assert np.allclose(predicted[:COUNT], logits, atol=1e-5)
    assert np.allclose(predicted[COUNT:], logits[0], atol=1e-5)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(COUNT), LABELS]
    assert trained["evaluated"]["crossentropy"] == pytest.approx(losses.mean(), abs=1e-5)
    # of one example in the last batch, one replica has none
    assert trained["kept"]["crossentropy"] == pytest.approx(losses[:21].mean(), abs=1e-5)
    assert np.allclose(trained["kept rows"], logits[:21], atol=1e-5)
    assert trained["evaluated"]["mean_label"] == pytest.approx(np.mean(LABELS), abs=1e-5)
    # two of 24 rows are padding with label 0, which plain metrics count
    assert trained["evaluated"]["counts_padding"] == pytest.approx(sum(LABELS) / 24, abs=1e-5)


def test_fit_accepts_a_finite_distributed_dataset_epoch_by_epoch(run):
    found = run[0]["distributed"]
    # two epochs of five steps, with and without steps_per_epoch
    assert found["steps"] == [10, 20]
    padded, distributed = found["evaluated"]
    assert distributed == pytest.approx(padded, abs=1e-6)


def test_a_loop_gets_each_example_exactly_once_over_the_replicas(run):
    for epoch in run[0]["padded"]:
        assert len(epoch) == 6
        stored = []
        for numbers, weights in epoch:
            assert [len(part) for part in numbers + weights] == [2, 2, 2, 2]
            pairs = zip(chain(*numbers), chain(*weights), strict=True)
            stored += [number for number, weight in pairs if weight]
        assert stored == list(range(COUNT))


def test_a_loop_gets_the_batches_of_the_plain_dataset(run, dataset):
    plain = loader.load(dataset, batch_size=4, select=("number",), shuffle=loader.Shuffle(seed=2), epochs=2)
    wanted = [numbers.tolist() for (numbers,) in plain.as_numpy_iterator()]
    found = [parts for epoch in run[0]["shuffled"] for (parts,) in epoch]
    assert [list(chain(*parts)) for parts in found] == wanted
    assert {len(part) for parts in found for part in parts} == {2}


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_a_loop_gets_each_example_with_its_list(run, remainder):
    for epoch in run[0]["lists"][remainder]:
        assert len(epoch) == (6 if remainder == "pad" else 5)
        read = []
        for numbers, found, *weights in epoch:
            # both replicas have half of the batch
            assert [len(part) for part in numbers + found] == [2, 2, 2, 2]
            real = chain(*weights[0]) if weights else [1] * 4
            for number, values, weight in zip(chain(*numbers), chain(*found), real, strict=True):
                assert values == list_of(number)
                read += [number] if weight else []
        assert len(set(read)) == len(read) == (COUNT if remainder == "pad" else 20)


UNEVEN = [
    ({"batch_size": 1}, "batch_size=1 cannot", "use 2, or", 22),
    ({"batch_size": 5}, "batch_size=5 cannot", "use 4 or 6, or", 20),
    ({"batch_size": 32, "remainder": "keep", "take": 7}, "the only batch, of 7 examples, cannot", "'pad'", 7),
]


@pytest.mark.parametrize(("number", "case"), enumerate(UNEVEN))
def test_load_warns_of_batches_that_the_replicas_cannot_share(run, number, case):
    _, what, use, predicted = case
    found = run[0]["uneven"][number]
    (warning,) = found["warnings"]
    assert warning.startswith(f"{what} be divided evenly among the 2 replicas")
    assert use in warning
    assert found["predicted"] == predicted, "predict works, so that this is no error"


def test_there_are_no_warnings_about_auto_sharding(run, dataset):
    assert not re.search("auto.?shard|sharding policy", run[1], re.IGNORECASE)
    policy = loader.load(dataset, batch_size=4).options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.OFF


def test_reading_everything_as_one_of_several_workers_raises_a_warning(dataset, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", cluster("worker", 0, worker=2)["TF_CONFIG"])
    message = r"TF_CONFIG names 2 workers, but load\(\) without worker= reads the"
    with pytest.warns(UserWarning, match=message):
        loader.load(dataset, batch_size=4)


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        (cluster("worker", 0, worker=2), {"worker": loader.Worker()}, "it is meant"),
        (cluster("worker", 0, worker=1), {}, "there is one worker"),
        (cluster("evaluator", 0, worker=2, evaluator=1), {}, "an evaluator reads for itself"),
        (cluster("chief", 0, chief=1, worker=2, ps=1), {}, "a coordinator may read for itself"),
    ],
)
def test_reading_everything_raises_no_warning_if_it_is_right(dataset, monkeypatch, config, options, reason):
    monkeypatch.setenv("TF_CONFIG", config["TF_CONFIG"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(loader.load(dataset, batch_size=4, **options)) == 5, reason


class TwoReplicas(tf.distribute.Strategy):
    """A fake strategy, which is refused before it is used."""

    num_replicas_in_sync = 2

    def __init__(self):
        pass


def test_a_batch_that_the_replicas_do_not_divide_is_refused(dataset):
    with raises(OptionsError, "replicas; use", "2 replicas", "6 or 4"):
        loader.distribute(TwoReplicas(), dataset, global_batch_size=5)
    with raises(OptionsError, "replicas; use", "use 2"):
        loader.distribute(TwoReplicas(), dataset, global_batch_size=1)
    with raises(OptionsError, "strategy='mirrored' must be"):
        loader.distribute("mirrored", dataset, global_batch_size=4)
    servers = tf.distribute.ParameterServerStrategy.__new__(tf.distribute.ParameterServerStrategy)
    with raises(OptionsError, "the workers"):
        loader.distribute(servers, dataset, global_batch_size=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"global_batch_size": 0}, "global_batch_size="),
        ({"remainder": "keep"}, "remainder='keep' may"),
        ({"global_batch_size": 23}, ("exceeds the examples", "global_batch_size=23")),
        ({"remainder": "wrap"}, "remainder="),
    ],
)
def test_options_that_cannot_be_distributed_are_refused(dataset, options, message):
    with raises(OptionsError, message):
        loader.distribute(tf.distribute.get_strategy(), dataset, **{"global_batch_size": 4, **options})
