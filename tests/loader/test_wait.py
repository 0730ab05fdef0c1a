"""``InputWait`` with inputs and steps of known duration."""

import json
from pathlib import Path

import pytest

from tests.tables import mostly_nightly
from tfshards import loader

PROGRAM = Path(__file__).with_name("waiting.py")
# cases between others, each of which takes a second of sleep
LEFT_OUT = ["fit, half", "mirrored fit, fed", "mirrored loop, half", "tf_keras fit, half"]


@pytest.fixture(scope="module", params=mostly_nightly([LEFT_OUT, []], [LEFT_OUT]), ids=["most", "all"])
def found(request, programs):
    done = programs.run([PROGRAM, *request.param])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_share_is_the_time_by_which_input_is_slower_than_the_step(found):
    # Wide limits, because other processes slow down input and steps.
    limits = {"starved": (0.5, 1.0), "half": (0.05, 0.9), "fed": (0.0, 0.6)}
    shares = {name: case["share"] for name, case in found.items() if name != "refused"}
    for name, share in shares.items():
        low, high = limits[name.split(", ")[1]]
        assert low <= share <= high, shares
    assert shares["fit, fed"] < shares["fit, starved"] - 0.15


def test_all_batches_except_those_of_the_first_step_count(found):
    batches = {name: case["batches"] for name, case in found.items() if name != "refused"}
    for name, numbers in batches.items():
        # Two epochs of 8 steps, or of 4 if they share one iterator.
        wanted = 14 if "two steps" in name else 7 if "over epochs" in name else 15
        assert numbers == wanted, name


def test_the_history_has_the_share_of_each_epoch(found):
    for name in found.keys() & {"fit, starved", "fit, half", "mirrored fit, half", "tf_keras fit, half"}:
        epochs, share = found[name]["epochs"], found[name]["share"]
        assert len(epochs) == 2
        assert min(epochs) <= share <= max(epochs), name


def test_the_text_advises_whether_and_what_to_change(found):
    assert "faster input would gain nothing" in found["fit, fed"]["text"]
    assert 'cache="disk:PATH"' in found["fit, starved"]["text"]


def test_a_dataset_that_is_not_watched_is_rejected(found):
    assert "nothing was measured; train for two steps" in str(loader.InputWait())
    unwatched, no_dataset = found["refused"]
    assert "fit(wait.watch(dataset), callbacks=[wait])" in unwatched
    assert "requires a tf.data.Dataset" in no_dataset
