"""Several replicas and hosts: Keras on the plain dataset, custom training loops on ``loader.distribute``."""

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
from tests.loader.replicas import run_workers
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
    """What the program saw on two devices, and what it wrote to stderr."""
    program = Path(__file__).with_name("replicas.py")
    done = programs.run(
        [program, "devices", dataset, json.dumps([case[0] for case in UNEVEN])],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_fit_on_two_replicas_learns_the_same_as_on_one_device_and_evaluates_exactly(run, dataset):
    found, _ = run
    one, two = found["one"], found["two"]
    assert (found["replicas"], one["steps"], two["steps"]) == (2, 2 * (COUNT // 4), 2 * (COUNT // 4))
    for first, second in zip(one["weights"], two["weights"], strict=True):
        assert np.allclose(first, second, atol=1e-5)
    kernel, bias = map(np.array, two["weights"])
    (batch,) = loader.load(dataset, batch_size=COUNT).as_numpy_iterator()
    logits = batch["x"] @ kernel + bias
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(COUNT), LABELS]
    # two of 24 rows are padding
    for each in (one, two, found["distributed"]):
        assert each["evaluated"]["crossentropy"] == pytest.approx(losses.mean(), abs=1e-5)
    # finite distributed datasets: two epochs of five steps, with and without steps_per_epoch
    assert found["distributed"]["steps"] == [10, 10]


def test_a_loop_gets_the_batches_of_the_plain_dataset(run, dataset):
    plain = loader.load(dataset, batch_size=4, select=("number",), shuffle=loader.Shuffle(seed=2), epochs=2)
    wanted = [numbers.tolist() for (numbers,) in plain.as_numpy_iterator()]
    found = [numbers for epoch in run[0]["shuffled"] for numbers, _ in epoch]
    assert [list(chain(*parts)) for parts in found] == wanted
    assert {len(part) for parts in found for part in parts} == {2}


@pytest.mark.parametrize("how", ["shuffled", "padded"])
def test_a_loop_gets_each_example_once_with_its_list(run, how):
    for epoch in run[0][how]:
        assert len(epoch) == {"shuffled": 5, "padded": 6}[how]
        read = []
        for numbers, found, *weights in epoch:
            # both replicas have half of the batch
            assert [len(part) for part in numbers + found] == [2, 2, 2, 2]
            real = chain(*weights[0]) if weights else [1] * 4
            for number, values, weight in zip(chain(*numbers), chain(*found), real, strict=True):
                assert values == list_of(number)
                read += [number] if weight else []
        assert len(set(read)) == len(read) == {"shuffled": 20, "padded": COUNT}[how]


UNEVEN = [
    ({"batch_size": 1}, 1),
    ({"batch_size": 5}, 5),
    ({"batch_size": 32, "remainder": "keep", "take": 7}, 7),
]


@pytest.mark.parametrize(("number", "case"), enumerate(UNEVEN))
def test_load_warns_of_batches_that_the_replicas_cannot_share(run, number, case):
    (warning,) = run[0]["uneven"][number]
    assert warning.startswith(f"batches of {case[1]} examples cannot be divided evenly among the 2 replicas")


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
    with raises(OptionsError, "global_batch_size=5 must be a multiple of the 2 replicas"):
        loader.distribute(TwoReplicas(), dataset, global_batch_size=5)
    servers = tf.distribute.ParameterServerStrategy.__new__(tf.distribute.ParameterServerStrategy)
    with raises(OptionsError, "the workers"):
        loader.distribute(servers, dataset, global_batch_size=4)


# Several hosts: real processes on loopback, real collectives

# shards, global batch size, remainder, shuffled
TWO = [
    ([23], 4, "drop", True, "one shard serves both, three examples are left out"),
    ([23], 4, "pad", True, "one shard, one example is padded"),
    ([4, 3, 4, 3, 4, 3, 2], 8, "pad", False, "seven shards, stored order"),
    ([1], 8, "pad", False, "the second worker has padding only"),
    ([3], 8, "pad", True, "fewer examples than a batch"),
]


@pytest.fixture(scope="module")
def two(programs, numbered, tmp_path_factory):
    """Return what each of two workers found, and what both wrote to stderr."""
    given = [
        (str(numbered(sizes)), size, {"remainder": remainder, "shuffled": shuffled})
        for sizes, size, remainder, shuffled, _ in TWO
    ]
    read = run_workers(programs, tmp_path_factory.mktemp("two"), [json.dumps(given)], 2)
    return [json.loads(stdout) for stdout, _ in read], "".join(stderr for _, stderr in read)


@pytest.mark.parametrize(("number", "case"), enumerate(TWO))
def test_the_steps_are_even_and_each_example_comes_exactly_once(two, numbered, number, case):
    sizes, global_batch_size, remainder, shuffled, reason = case
    found, _ = two
    read = [worker["cases"][number] for worker in found]
    steps = len(loader.batches(numbered(sizes), batch_size=global_batch_size, remainder=remainder))
    assert {len(each) for each in read} == {steps}, reason
    examples = []
    for step in zip(*read, strict=True):
        assert len({tuple(each["all"]) for each in step}) == 1, "an all-reduce has one result"
        real = []
        for each in step:
            numbers, *weights = each["own"]
            assert len(numbers) == global_batch_size // len(found)
            kept = weights[0] if weights else [1] * len(numbers)
            real += [number for number, weight in zip(numbers, kept, strict=True) if weight]
        assert step[0]["all"] == [sum(real), len(real)]
        examples += real
    assert len(set(examples)) == len(examples), reason
    assert len(examples) == (steps * global_batch_size if remainder == "drop" else sum(sizes)), reason
    if not shuffled:
        assert sorted(examples) == list(range(len(examples)))


def test_workers_read_their_index_and_reading_everything_on_each_raises_a_warning(two):
    found, stderr = two
    assert [worker["worker"] for worker in found] == [[index, len(found)] for index in range(len(found))]
    for worker in found:
        outside, in_scope = worker["warned"]
        message = r" 2 workers, but load\(\) without worker= .* use loader\.distribute"
        assert re.search("TF_CONFIG names" + message, outside)
        assert re.search("scope of a MultiWorkerMirroredStrategy of" + message, in_scope)
    assert not re.search("auto.?shard|sharding policy", stderr, re.IGNORECASE)
