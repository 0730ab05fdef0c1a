"""``batches``: what ``load`` delivers, as NumPy arrays and without TensorFlow; runs without steps end."""

from __future__ import annotations

import io
import itertools
import pickle
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from PIL import Image as Pillow

from tests.loader.conftest import in_shards
from tests.loader.scenes import COUNT, SCHEMA, SIZES, example
from tests.tables import mostly_nightly
from tfshards.loader import Image, Position, Progress, Shuffle, batches, load
from tfshards.schemas import Feature, Schema


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


def test_a_run_is_a_sequence_of_batches(scenes):
    options = {"batch_size": 8, "shuffle": Shuffle(seed=4), "select": ("key",)}
    run = batches(scenes, epochs=2, **options)
    steps = run.steps_per_epoch
    expected = [batch[0].tolist() for batch in run]
    again = pickle.loads(pickle.dumps(run))
    assert len(again) == len(expected) == 2 * steps
    # in order, at two distances, as several processes read, from the end
    for index in [*range(2 * steps), *range(0, steps, 2), 3, 6, 9, 12, 1, -1, -2 * steps]:
        assert again[index][0].tolist() == expected[index]
        place = divmod(index % (2 * steps), steps)
        assert again[place][0].tolist() == expected[index]
        assert [b"%d" % each for each in run.numbers(*place)] == expected[index]
    for index in (2 * steps, -2 * steps - 1, (0, steps), (-1, 0)):
        with pytest.raises(
            IndexError, match=re.escape(f"batch {index} of Batches(split 'train' of {scenes}")
        ):
            run[index]
    tail = batches(scenes, epochs=2, start=Position(1, 2), **options)
    assert [tail[index][0].tolist() for index in range(len(tail))] == expected[steps + 2 :]


def test_an_iteration_of_one_batch_is_a_look(scenes):
    for size in (8, COUNT):
        options = {"batch_size": size, "shuffle": Shuffle(seed=4), "select": ("key",)}
        expected = [batch[0].tolist() for batch in batches(scenes, epochs=4, **options)]
        run, steps = batches(scenes, **options), COUNT // size
        looks = [[next(iter(run))[0].tolist() for _ in range(2)]]
        iter(run)
        found = [batch[0].tolist() for batch in run]
        # two at the same time are the same epoch
        pairs = [*zip(run, run, strict=True)]
        looks.append([one[0].tolist() for one, _ in pairs])
        found += [other[0].tolist() for _, other in pairs]
        if steps > 1:
            # two batches of the third
            for _ in itertools.islice(run, 2):
                pass
            found += expected[2 * steps : 3 * steps]
        found += [batch[0].tolist() for batch in run]
        assert found == expected[: len(found)]
        assert looks == [[expected[0]] * 2, expected[steps : 2 * steps]]


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


def test_neither_tensorflow_nor_without_images_pillow_is_imported(scenes):
    code = """
import sys
sys.modules["tensorflow"] = sys.modules["PIL"] = None
from tfshards import loader
run = loader.batches(sys.argv[1], batch_size=8, shuffle=loader.Shuffle())
assert sum(len(batch["key"]) for batch in run) == 56
assert len(loader.Records(sys.argv[1], select=("key",))[:5]["key"]) == 5
position = run.position
found = loader.which(sys.argv[1], position, step=9)
keys = [each.key for each in found]
assert found == loader.when(sys.argv[1], position, keys, epochs=range(1, 2))
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


# Runs whose epochs have no steps end in every reader, for every choice of examples


FEW = Schema((Feature("number", "int", "int64"), Feature("label", "label", "int64")), ("cat", "dog"))
# of 12 examples, which are chosen for batches of 8
ROWS = [
    "take=5",
    "take=5, epochs=10**15",
    "take=5, shuffle=Shuffle(seed=0)",
    "take=5, shuffle=Shuffle(how='full')",
    "take=5, shuffle=Shuffle(seed=0), epochs=1",
    "take=5, start=Position(3, 0)",
    "take=5, start=Progress()",
    "take=5, map_fn=lambda example, seed: example",
    "take=7, worker=Worker(1, 4), batch_size=2",
    "take=Part(0, 2)",
    "take=Part(0, 2, rest=True), shuffle=Shuffle(seed=0)",
    "classes=['cat']",
    "classes={'cat': 1, 'dog': 2}, take=7",
    "path=Mix({path: 1, path + '/../data': 2}), take=7",
]


READING = """
import sys, warnings
import tensorflow as tf
from tfshards import loader
from tfshards.loader import *

warnings.simplefilter("ignore")
path = sys.argv[1]
options = {"path": path, "batch_size": 8, "epochs": None, **eval(f"dict({sys.argv[2]})")}

def distributed():
    of_all = {"global_batch_size": 8, **options}
    del of_all["batch_size"]
    of_all.pop("worker", None)
    return distribute(tf.distribute.get_strategy(), **of_all)

READERS = {
    "": [
        lambda: load(**options),
        lambda: load(**options).repeat(),
        lambda: batches(**options),
        distributed,
    ],
    "torch": [lambda: loader.torch.data_loader(batches(**options))],
    "receipts": [
        lambda: when(path, batches(**options).position, [3], epochs=range(10**15), take=options["take"])
    ],
}
for read in READERS[sys.argv[3]]:
    print(sum(1 for _ in read()), flush=True)
"""


@pytest.fixture(scope="module")
def dataset(write_dataset, tmp_path_factory):
    examples = [{"number": i, "label": i % 2} for i in range(12)]
    folder = tmp_path_factory.mktemp("few") / "data"
    return write_dataset(folder, FEW, {"train": np.array_split(examples, 2)})


def found(programs, dataset, row, readers):
    done = programs.run(["-c", READING, dataset, row, readers], timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("row", mostly_nightly(ROWS, [*ROWS[:2], *ROWS[-2:]]))
def test_a_run_without_steps_ends(programs, dataset, row):
    assert found(programs, dataset, row, "") == ["0"] * 4
