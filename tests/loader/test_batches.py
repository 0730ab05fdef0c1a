"""``batches``: what ``load`` delivers, as NumPy arrays and without TensorFlow."""

from __future__ import annotations

import io
import itertools
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from PIL import Image as Pillow

from tests.errors import raises
from tfshards.loader import Image, Progress, Shuffle, batches, load
from tfshards.schemas import InputError, OptionsError

from .conftest import in_shards
from .scenes import COUNT, SCHEMA, SIZES, example


@pytest.fixture(scope="module")
def scenes(write_dataset, tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("scenes"), SCHEMA, {"train": in_shards(example, SIZES)})


def test_images_of_different_sizes_are_an_array_of_objects(scenes):
    (found,) = batches(
        scenes,
        batch_size=COUNT,
        image={"image": Image()},
        select=("image", "key"),
        map_fn=lambda example, _: {"image": example["image"]},
    )
    assert len(found["image"]) == COUNT
    for number, pixels in enumerate(found["image"]):
        with Pillow.open(io.BytesIO(example(number)["image"])) as picture:
            assert np.array_equal(pixels, picture)


def test_a_batch_is_a_function_of_its_epoch_and_step(scenes):
    options = {"batch_size": 8, "shuffle": Shuffle(seed=4), "select": ("key",)}
    run = batches(scenes, epochs=2, **options)
    steps = run.steps_per_epoch
    expected = [batch[0].tolist() for batch in run]
    again = pickle.loads(pickle.dumps(run))
    for number in (0, steps + 2, 1):
        epoch, step = divmod(number, steps)
        assert again.batch(epoch, step)[0].tolist() == expected[number]
        assert [b"%d" % each for each in run.numbers(epoch, step)] == expected[number]
    with pytest.raises(IndexError, match=f"step {steps} of {steps}"):
        run.batch(0, steps)


def test_a_run_of_load_is_continued_from_its_progress(scenes):
    options = {"batch_size": 8, "shuffle": Shuffle(seed=4, run=3), "select": ("key",), "epochs": 3}
    whole, progress = [batch[0].tolist() for batch in batches(scenes, **options)], Progress()
    for _ in itertools.islice(load(scenes, start=progress, **options), 5):
        progress.advance()
    assert [batch[0].tolist() for batch in batches(scenes, start=progress, **options)] == whole[5:]


def test_an_iteration_that_is_not_finished_leaves_no_threads(scenes):
    before = threading.active_count()
    iterator = iter(batches(scenes, batch_size=4, image=Image((8, 8))))
    next(iterator)
    iterator.close()
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPool"):
            thread.join(20)
    assert threading.active_count() <= before


def test_options_that_only_load_has_are_refused(scenes):
    with raises(OptionsError, "batches-without", name="memory_budget"):
        batches(scenes, batch_size=4, memory_budget="1GiB")
    with raises(OptionsError, "cache-has-bound", cache="disk:/near, 1GiB"):
        batches(scenes, batch_size=4, cache="disk:/near, 1GiB")


def test_compressed_shards_are_refused(write_dataset, tmp_path):
    path = write_dataset(tmp_path / "gzip", SCHEMA, {"train": [[example(0)]]}, compression="gzip")
    with raises(InputError, "records-compressed"):
        batches(path, batch_size=1)


def test_neither_tensorflow_nor_without_images_pillow_is_imported(scenes):
    code = """
import sys
sys.modules["tensorflow"] = sys.modules["PIL"] = None
from tfshards import loader
run = loader.batches(sys.argv[1], batch_size=8, shuffle=loader.Shuffle())
assert sum(len(batch["key"]) for batch in run) == 56
assert len(loader.Records(sys.argv[1], select=("key",))[:5]["key"]) == 5
order = dict(batch_size=8, shuffle=loader.Shuffle(seed=1))
found = loader.which(sys.argv[1], step=9, **order)
keys = [each.key for each in found]
assert found == loader.when(sys.argv[1], examples=keys, epochs=range(1, 2), **order)
try:
    loader.load
except ModuleNotFoundError as error:
    print(error)
try:
    loader.batches(sys.argv[1], batch_size=8, image=loader.Image((4, 4)))
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, scenes], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "tfshards.loader needs tensorflow: pip install 'tfshards[loader]'",
        "image= needs PIL: pip install 'tfshards[images]'",
    ]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("returned", "code"),
    [([0.0], "map-fn-kind"), ({"sample_weight": 1}, "map-fn-weight"), (None, "map-fn-value")],
)
def test_results_that_cannot_be_delivered_are_refused(scenes, returned, code):
    run = batches(scenes, batch_size=4, remainder="pad", map_fn=lambda example, seed: returned)
    with raises(OptionsError, code):
        next(iter(run))
