"""Runs whose epochs have no steps end in every reader, for every choice of examples."""

from importlib.util import find_spec

import numpy as np
import pytest

from tests.tables import mostly_nightly
from tfshards.schemas import Feature, Schema

SCHEMA = Schema((Feature("number", "int", "int64"), Feature("label", "label", "int64")), ("cat", "dog"))
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
from tfshards.schemas import OptionsError

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
    try:
        print(sum(1 for _ in read()), flush=True)
    except OptionsError as error:
        print("leaves no steps" in str(error), flush=True)
"""


@pytest.fixture(scope="module")
def dataset(write_dataset, tmp_path_factory):
    examples = [{"number": i, "label": i % 2} for i in range(12)]
    folder = tmp_path_factory.mktemp("few") / "data"
    return write_dataset(folder, SCHEMA, {"train": np.array_split(examples, 2)})


def found(programs, dataset, row, readers):
    done = programs.run(["-c", READING, dataset, row, readers], timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("row", mostly_nightly(ROWS, [*ROWS[:2], *ROWS[-2:]]))
def test_a_run_without_steps_ends_and_distribute_refuses_it(programs, dataset, row):
    assert found(programs, dataset, row, "") == ["0", "0", "0", "True"]


@pytest.mark.parametrize("reader", ["receipts", pytest.param("torch", marks=pytest.mark.processes)])
def test_a_run_without_steps_ends_elsewhere(programs, dataset, reader):
    if find_spec(reader) is None and reader == "torch":
        pytest.skip("PyTorch is not installed")
    assert found(programs, dataset, ROWS[0], reader) == ["0"]
