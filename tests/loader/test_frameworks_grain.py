"""``loader.grain``: the order of ``load`` from Grain's iterators, whose state is saved and restored."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Position, Records, Shuffle, Worker
from tfshards.schemas import OptionsError

from .framework_data import run_together, write_data

pytestmark = pytest.mark.processes

grain = pytest.importorskip("grain")

OPTIONS = {"batch_size": 8, "shuffle": Shuffle(seed=4), "epochs": 2}


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_data(write_dataset, tmp_path_factory.mktemp("grain") / "data")


def numbers_of(batches):
    return [batch["number"].tolist() for batch in batches]


def iterated(data, **options):
    return iter(grain.MapDataset.source(loader.grain.source(data, **OPTIONS | options)).to_iter_dataset())


RUNS = {
    "several epochs": {},
    "resumed": {"start": Position(1, 3)},
    "smaller last batches": {"remainder": "keep", "worker": Worker(1, 2)},
    "stored": {"shuffle": None, "epochs": 1},
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_the_order_is_that_of_load_by_batch_and_by_example(data, options):
    options = OPTIONS | options
    expected = numbers_of(loader.batches(data, **options))
    source = loader.grain.source(data, **options)
    assert len(source) == len(expected)
    assert numbers_of(grain.MapDataset.source(source).to_iter_dataset()) == expected
    sampler = loader.grain.Sampler(data, **options)
    records = Records(data, select=("number",))
    found = grain.DataLoader(
        data_source=records, sampler=sampler, shard_options=grain.sharding.NoSharding(), worker_count=0
    )
    assert [int(each["number"]) for each in found] == [*itertools.chain(*expected)]
    assert [sampler[index].index for index in range(3)] == [0, 1, 2]


def test_an_iterator_is_resumed_by_its_state_and_by_load(data):
    whole = numbers_of(loader.batches(data, **OPTIONS))
    first = iterated(data)
    assert numbers_of(itertools.islice(first, 9)) == whole[:9]
    state = json.loads(json.dumps(first.get_state()))
    again = iterated(data)
    again.set_state(state)
    assert numbers_of(again) == whole[9:]
    start = loader.grain.source(data, **OPTIONS).position(state["next_index"])
    rest = loader.load(data, **OPTIONS, start=start)
    assert [batch["number"].numpy().tolist() for batch in rest] == whole[9:]


def test_a_loader_of_examples_is_resumed_and_refuses_the_state_of_another_order(data):
    def make(seed):
        sampler = loader.grain.Sampler(data, **OPTIONS | {"shuffle": Shuffle(seed=seed)})
        loaded = grain.DataLoader(
            data_source=Records(data, select=("number",)),
            sampler=sampler,
            shard_options=grain.sharding.NoSharding(),
            operations=[grain.transforms.Batch(8)],
            worker_count=0,
        )
        return iter(loaded)

    whole = numbers_of(loader.batches(data, **OPTIONS))
    first = make(4)
    assert numbers_of(itertools.islice(first, 5)) == whole[:5]
    again = make(4)
    again.set_state(first.get_state())
    assert numbers_of(again) == whole[5:]
    with pytest.raises(ValueError, match="Sampler in checkpoint does not match"):
        make(5).set_state(first.get_state())


def test_a_checkpoint_of_orbax_restores_an_iterator(data, tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    whole = numbers_of(loader.batches(data, **OPTIONS))
    first = iterated(data)
    list(itertools.islice(first, 4))
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        saved = grain.checkpoint.CheckpointSave(first)
        manager.save(4, args=ocp.args.Composite(data=saved))
        manager.wait_until_finished()
        again = iterated(data)
        restored = grain.checkpoint.CheckpointRestore(again)
        manager.restore(4, args=ocp.args.Composite(data=restored))
    assert numbers_of(again) == whole[4:]


def test_indices_outside_the_run_and_runs_without_an_end_are_refused(data):
    source, sampler = loader.grain.source(data, **OPTIONS), loader.grain.Sampler(data, **OPTIONS)
    for index in (-1, 14):
        with pytest.raises(IndexError, match=f"batch {index} of 14"):
            source[index]
    for index in (-1, 112):
        with pytest.raises(IndexError, match=f"example {index} of 112"):
            sampler[index]
    for make in (loader.grain.source, loader.grain.Sampler):
        with raises(OptionsError, "grain-endless"):
            make(data, batch_size=8, epochs=None)
    with pytest.warns(UserWarning, match="leaves no steps"):
        assert len(loader.grain.Sampler(data, batch_size=100)) == 0


def test_copies_read_the_same_and_are_described_by_their_order(data):
    for each in (loader.grain.source(data, **OPTIONS), loader.grain.Sampler(data, **OPTIONS)):
        again = pickle.loads(pickle.dumps(each))
        assert repr(again) == repr(each)
        assert "'seed': 4" in repr(each)
        assert (len(again), "0x" in repr(each)) == (len(each), False)
        assert again[3] is not None


PROCESSES = """
import json, sys
import grain
from absl import flags
from tfshards import loader
from tests.loader.test_frameworks_grain import OPTIONS
if __name__ == "__main__":
    path, _ = sys.argv[1:]
    flags.FLAGS(sys.argv[:1])
    source = grain.MapDataset.source(loader.grain.source(path, **OPTIONS)).to_iter_dataset()
    options = grain.multiprocessing.MultiprocessingOptions(num_workers=2)
    dataset = source.mp_prefetch(options)
    first = iter(dataset)
    found = [next(first) for _ in range(5)]
    again = iter(dataset)
    again.set_state(first.get_state())
    found += again
    assert "tensorflow" not in sys.modules
    print(json.dumps([[batch["number"].tolist(), [key.decode() for key in batch["key"]]] for batch in found]))
"""


@pytest.mark.nightly
def test_processes_of_grain_read_ahead_in_the_same_order(data):
    (printed,) = run_together(PROCESSES, data)
    expected = [*loader.batches(data, **OPTIONS)]
    keys = [[key.decode() for key in batch["key"]] for batch in expected]
    assert json.loads(printed) == [list(pair) for pair in zip(numbers_of(expected), keys, strict=True)]
    assert np.all(np.array(keys[0]).astype(int) == expected[0]["number"])
