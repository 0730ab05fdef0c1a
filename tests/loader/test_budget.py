"""``memory_budget=``: the memory that a process uses, and the budgets that are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader.resources.budget import Sizes, ahead_within, longest_records
from tfshards.loader.tensors.batches import Ahead
from tfshards.schemas import OptionsError

pytestmark = pytest.mark.nightly

PROGRAM = Path(__file__).with_name("bounded.py")


@pytest.fixture(scope="module")
def run(programs):
    """Return a function that runs ``bounded.py``."""
    return lambda *arguments: programs.run([PROGRAM, *arguments], timeout=240)


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounded")
    assert run("write", folder).returncode == 0
    return folder


@pytest.mark.nightly
def test_a_process_stays_within_the_budget_on_a_dataset_several_times_as_large(run, folder, tmp_path):
    budget = 128 << 20
    size = sum(path.stat().st_size for path in (folder / "large").glob("*.tfrecord-*"))
    assert size > 2.8 * budget
    done = run("read", folder, budget, f"disk:{tmp_path}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["labels"] == sum(i % 10 for i in range(1600))
    assert found["peak"] - found["base"] < budget


@pytest.mark.parametrize("order", mostly_nightly(["stored", "runs", "full", "ratios"], kept=["ratios"]))
def test_small_records_in_any_order_stay_within_the_least_budget(run, folder, order):
    done = run("least", folder, order)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["steps"] == (30_000 if order == "ratios" else 48_000) // 256
    assert found["peak"] < found["budget"]
    # and the least budget is not unreasonably large
    assert found["budget"] < (300 << 20)


@pytest.mark.parametrize(("case", "steps"), [("photos", 4), ("one batch", 1)])
def test_the_least_budget_of_large_batches_is_close_to_actual_use(run, folder, case, steps):
    done = run("least", folder, case)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["steps"] == steps
    assert found["peak"] < found["budget"] < 2 * found["peak"]


def test_the_least_budget_named_by_the_error_is_enough(folder):
    options = {"batch_size": 16, "image": loader.Image(size=(64, 64))}
    with raises(OptionsError, "budget-too-small") as caught:
        loader.load(folder / "large", **options, memory_budget="20MiB")
    least = int(str(caught.value).rpartition('"')[0].rpartition('"')[2].removesuffix("MiB"))
    loader.load(folder / "large", **options, memory_budget=f"{least}MiB")
    with raises(OptionsError, "budget-too-small"):
        loader.load(folder / "large", **options, memory_budget=f"{least - 2}MiB")


def test_the_order_does_not_depend_on_the_budget(folder):
    def labels(**options):
        data = loader.load(folder / "large", batch_size=16, shuffle=loader.Shuffle(seed=1), **options)
        return [batch["label"].numpy().tolist() for batch in data.take(20)]

    assert labels(memory_budget="256MiB") == labels()


def test_a_budget_does_not_trace_a_second_time(folder):
    traced = []

    def prepare(example, seed):
        traced.append(seed)
        noise = tf.numpy_function(lambda seed: np.float32(seed % 2).sum(), [seed], tf.float32)
        return {"image": example["image"], "noise": tf.ensure_shape(noise, [])}

    options = {"batch_size": 16, "image": loader.Image(size=(64, 64)), "map_fn": prepare}
    plain = loader.load(folder / "small", **options)
    within = loader.load(folder / "small", **options, memory_budget="1GiB")
    assert len(traced) == 2
    assert within.element_spec == plain.element_spec
    for found, wanted in zip(within, plain, strict=True):
        assert (found["noise"].numpy() == wanted["noise"].numpy()).all()


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("much", "memory_budget='much' must be a size such as 128MiB"),
        (1.5, 'must be a size such as "2GiB", or bytes'),
        (True, 'must be a size such as "2GiB", or bytes'),
        (2, "must be at least 1MiB; a number counts bytes"),
    ],
)
def test_an_invalid_budget_is_refused(folder, budget, message):
    with pytest.raises(OptionsError, match=message):
        loader.load(folder / "small", batch_size=1, memory_budget=budget)


def test_a_larger_budget_allows_more_work_ahead():
    sizes = Sizes(
        batch_size=32, group=1 << 20, open_streams=0, decoding=1 << 20, example=1 << 18, by_example=True
    )
    most = Ahead(decoded=8)
    assert ahead_within(sizes, 1 << 40, most) == most
    found = [ahead_within(sizes, budget << 20, most) for budget in range(55, 200)]
    held = [sizes.held(ahead) for ahead in found]
    assert held == sorted(held)
    assert all(held[i] <= (55 + i) << 20 for i in range(145))
    assert found[0] == Ahead(decoded=1, batches=1, parsed=1)


def test_the_longest_records_are_those_that_can_come_together():
    lengths = np.array([3.0, 1.0, 2.0])
    assert [longest_records(lengths, count) for count in range(8)] == [0, 3, 5, 6, 9, 11, 12, 15]
    assert longest_records(lengths[:0], 4) == 0
