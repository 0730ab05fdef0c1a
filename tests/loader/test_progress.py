"""``Progress``: the position of a run in a checkpoint; test_resume.py tests killed training."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Position, Progress, Shuffle
from tfshards.schemas import Feature, OptionsError, Schema

SIZES = [9, 0, 14, 7, 11]
COUNT = sum(SIZES)


def load(numbered, **options):
    options = {"shuffle": Shuffle(seed=3), "remainder": "keep", "epochs": 3, **options}
    return loader.load(numbered(SIZES), batch_size=8, **options)


@pytest.fixture(scope="module")
def where(numbered):
    """Return a position with the order of its run, after a round trip through JSON."""
    progress = Progress(Position(1, 2))
    load(numbered, start=progress)
    return Position.from_json(json.loads(json.dumps(progress.position.to_json())))


def test_a_checkpoint_holds_the_position_and_the_order(numbered, where, tmp_path):
    progress = Progress()
    load(numbered, start=progress)
    assert progress.steps_per_epoch == 6
    progress.advance(6 + 2)
    path = tf.train.Checkpoint(progress=progress).save(str(tmp_path / "run"))
    other = Progress()
    tf.train.Checkpoint(progress=other).restore(path).assert_existing_objects_matched()
    assert other.position.to_json() == progress.position.to_json() == where.to_json()
    with raises(
        OptionsError, "start= belongs to a run in which", "Shuffle.seed", "was 3", code="resume-differs"
    ):
        load(numbered, start=other, shuffle=Shuffle(seed=9))


def test_advance_raises_if_it_would_miscount(numbered, tmp_path):
    progress = Progress()
    with raises(OptionsError, "no dataset starts"):
        progress.advance()
    load(numbered, start=progress)
    with raises(OptionsError, "advance() inside"):
        tf.function(progress.advance, autograph=False)()
    path = tf.train.Checkpoint(progress=progress).save(str(tmp_path / "run"))
    progress.advance(2)
    assert (progress.epoch, progress.step, progress.is_at_start) == (0, 2, False)
    tf.train.Checkpoint(progress=progress).restore(path)
    assert (progress.epoch, progress.step) == (0, 0)
    # the dataset is elsewhere
    with raises(OptionsError, "no dataset starts"):
        progress.advance()


def test_records_before_a_position_are_not_read(write_dataset, tmp_path):
    schema, example = Schema((Feature("x", "raw", "uint8", (1000,)),)), {"x": np.zeros(1000, np.uint8)}
    dataset = write_dataset(tmp_path, schema, {"train": [[example] * 20_000]})
    for shuffle in (None, Shuffle(seed=3)):
        read = {}
        for step in (0, 8_000):
            before = bytes_read()
            next(iter(loader.load(dataset, batch_size=2, shuffle=shuffle, start=Position(0, step))))
            read[step] = bytes_read() - before
        assert read[8_000] < read[0] + 2_000_000, "16 MB of records come before it"


def bytes_read():
    """Return what this process has read by system calls so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_a_load_that_fails_leaves_the_progress_as_it_was(numbered):
    progress = Progress()
    with raises(OptionsError, "does not divide"):
        loader.load(numbered(SIZES), batch_size=8, start=progress, shuffle=Shuffle(lanes=3))
    with raises(OptionsError, "no dataset starts"):
        _ = progress.steps_per_epoch
    loader.load(numbered(SIZES), batch_size=4, start=progress)
    assert progress.steps_per_epoch == COUNT // 4
