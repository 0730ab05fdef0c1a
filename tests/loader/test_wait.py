"""``InputWait`` against inputs and steps that take a known time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("waiting.py")


@pytest.fixture(scope="module")
def found():
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_share_is_that_of_the_time_by_which_the_input_is_slower_than_the_step(found):
    # other processes make input and steps slower, never faster
    limits = {"starved": (0.5, 1.0), "half": (0.15, 0.85), "fed": (0.0, 0.6)}
    shares = {name: case["share"] for name, case in found.items() if name != "refused"}
    for name, share in shares.items():
        low, high = limits[name.split(", ")[1]]
        assert low <= share <= high, shares
    assert shares["fit, fed"] < shares["fit, starved"] - 0.15


def test_every_batch_counts_but_for_those_of_the_first_step(found):
    batches = {name: case["batches"] for name, case in found.items() if name != "refused"}
    for name, numbers in batches.items():
        if "loop" in name:
            assert numbers == [23], name
        elif "two steps" in name:
            assert numbers == [10, 12], name
        elif "over epochs" in name:
            assert numbers == [5, 6], name
        else:
            assert numbers == [11, 12], name


def test_it_says_what_to_change_and_that_nothing_has_to(found):
    assert "nothing about it is worth a change" in found["fit, fed"]["says"]
    assert 'cache="disk:PATH"' in found["fit, starved"]["says"]


def test_a_dataset_that_was_not_watched_is_refused(found):
    unwatched, no_dataset = found["refused"]
    assert "fit(wait.watch(dataset), callbacks=[wait])" in unwatched
    assert "must be a tf.data.Dataset" in no_dataset
