"""``batches`` in other frameworks: the order of ``load``, which epoch is read, resumed runs, and refusals."""

from __future__ import annotations

import itertools
import json
import pickle
from importlib.util import find_spec

import pytest
import tensorflow as tf

from tests.engines.processes import free_port
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Position, Shuffle, Worker
from tfshards.schemas import read_manifest

from .framework_data import COUNT, OPTIONS, run_together, write_data

pytestmark = [
    pytest.mark.processes,
    # The processes are forked from this one, in which TensorFlow has threads that they do not use.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
STEPS = COUNT // 8


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_data(write_dataset, tmp_path_factory.mktemp("frameworks") / "data")


@pytest.fixture
def torch():
    pytest.importorskip("torchdata")
    return pytest.importorskip("torch")


@pytest.fixture
def grain():
    return pytest.importorskip("grain")


def numbers_of(batches):
    return [(batch["number"] if isinstance(batch, dict) else batch[0]).tolist() for batch in batches]


def in_torch(batches, processes=0, **options):
    return loader.torch.data_loader(batches, processes, **options)


def in_grain(batches):
    import grain

    return grain.MapDataset.source(batches).to_iter_dataset()


def stateful(batches, processes=0, ahead=0):
    from torchdata.stateful_dataloader import StatefulDataLoader

    options = {"batch_size": None, "num_workers": processes, "collate_fn": loader.torch.as_tensors}
    return StatefulDataLoader(batches, sampler=loader.torch.Epochs(batches, ahead), **options)


# the package, and how it reads batches
READERS = {
    "torch": ("torch", in_torch),
    "torch in 3 processes": ("torch", lambda batches: in_torch(batches, 3)),
    "grain": ("grain", in_grain),
}
RUNS = {
    "padded": {"shuffle": Shuffle(seed=3), "remainder": "pad"},
    "smaller last batches": {"remainder": "keep", "worker": Worker(1, 2)},
    "resumed": {"epochs": 3, "start": Position(1, 3)},
    "fewer steps than processes": {"shuffle": None, "take": 16},
}


@pytest.mark.parametrize(("package", "read"), READERS.values(), ids=READERS)
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_the_order_is_that_of_load(data, package, read, options):
    pytest.importorskip(package)
    batches = loader.batches(data, **{**OPTIONS, "select": ("number", "pixels"), **options})
    expected = numbers_of(batches)
    assert numbers_of(read(batches)) == expected
    assert len(batches) == len(expected)


# PyTorch

PROCESSES = [(0, {}), (2, {"persistent_workers": True}), (9, {}), (2, {"multiprocessing_context": "spawn"})]


@pytest.mark.parametrize(("processes", "options"), mostly_nightly(PROCESSES, PROCESSES[:2]))
def test_each_iteration_is_the_next_epoch_unless_it_was_a_look_or_an_epoch_is_set(
    torch, data, processes, options
):
    whole = numbers_of(loader.batches(data, epochs=3, **OPTIONS))
    batches = in_torch(loader.batches(data, **OPTIONS), processes, **options)
    assert len(batches) == STEPS
    found = []
    for _ in range(3):
        # Lightning makes iterators that it does not use
        iter(batches)
        assert numbers_of([next(iter(batches))]) == whole[len(found) :][:1]
        found += numbers_of(batches)
    assert found == whole
    for epoch in (1, 0, 2):
        batches.sampler.set_epoch(epoch)
        for _ in range(2):
            assert numbers_of(batches) == whole[STEPS * epoch :][:STEPS]


def test_epochs_of_one_step_are_counted(torch, data):
    options = {**OPTIONS, "batch_size": COUNT}
    expected = numbers_of(loader.batches(data, epochs=3, **options))
    for processes in (0, 1):
        batches = in_torch(loader.batches(data, **options), processes)
        assert [numbers_of(batches)[0] for _ in range(3)] == expected


def test_a_run_goes_from_one_framework_to_the_next(torch, data):
    options = {**OPTIONS, "select": ("number",), "epochs": 3}
    whole = numbers_of(loader.batches(data, **options))
    first = loader.batches(data, **options)
    found = numbers_of(itertools.islice(first, 9))
    second = in_torch(loader.batches(data, **options, start=first.position))
    found += numbers_of(itertools.islice(second, 8))
    position = Position.from_json(json.loads(json.dumps(second.sampler.state_dict())))
    third = loader.load(data, **options, start=position)
    found += numbers_of([batch[0].numpy()] for batch in third)
    assert found == whole


def test_values_are_tensors_and_what_cannot_be_one_a_list(torch, data):
    expected = next(iter(loader.batches(data, batch_size=8)))
    for processes in (0, 1):
        found = next(iter(in_torch(loader.batches(data, batch_size=8), processes)))
        assert [*found] == [*expected]
        assert found["key"] == expected["key"].tolist()
        assert [each.tolist() for each in found["ids"]] == [each.tolist() for each in expected["ids"]]
        assert {each.dtype for each in found["ids"]} == {torch.int32}
        assert found["half"].dtype == torch.bfloat16
        assert found["half"][:, 0].tolist() == list(range(8))
        assert (found["pixels"].dtype, found["pixels"].shape) == (torch.uint8, (8, 4, 3))


@pytest.mark.parametrize("processes", [0, 3])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_stateful_loader_is_resumed_exactly(torch, data, processes, epochs):
    options = {**OPTIONS, "epochs": epochs}
    whole = numbers_of(loader.batches(data, **{**options, "epochs": 3}))

    def make(state=None):
        made = stateful(loader.batches(data, **options), processes, 2 * processes)
        if state is not None:
            made.load_state_dict(pickle.loads(pickle.dumps(state)))
        return made

    for taken in (4, 7):
        first = make()
        assert numbers_of(itertools.islice(first, taken)) == whole[:taken]
        again = make(first.state_dict())
        found = numbers_of(again)
        ended = again.state_dict()
        if epochs == 1:
            assert found == whole[taken:7]
            found += numbers_of(again)
            assert numbers_of(make(ended)) == whole[7:14]
            found += numbers_of(again)
        assert found == whole[taken:]


@pytest.mark.parametrize("processes", [0, 2])
def test_the_state_of_a_sampler_resumes_in_any_number_of_processes(torch, data, processes):
    whole = numbers_of(loader.batches(data, epochs=3, **OPTIONS))
    first = in_torch(loader.batches(data, **OPTIONS))
    first.sampler.set_epoch(1)
    assert numbers_of(itertools.islice(first, 3)) == whole[7:10]
    again = in_torch(loader.batches(data, **OPTIONS), processes)
    again.sampler.load_state_dict(first.sampler.state_dict())
    # as loops do, also the one that restores
    for epoch, expected in ((1, whole[10:14]), (2, whole[14:])):
        again.sampler.set_epoch(epoch)
        assert numbers_of(again) == expected


RANK = """
import json, os, sys, warnings
import torch, torch.distributed as dist
from lightning.fabric import Fabric
from tfshards import loader
path, port, rank = sys.argv[1:]
os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2", GROUP_RANK="0", LOCAL_WORLD_SIZE="2")
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TORCHELASTIC_RUN_ID="0")
fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
options = dict(batch_size=4, shuffle=loader.Shuffle(seed=4))
batches = loader.batches(path, **options, worker=loader.Worker(fabric.global_rank, fabric.world_size))
# it replaces samplers that it does not know to be divided
for each in fabric.setup_dataloaders(loader.torch.data_loader(batches, num_workers=1)):
    both = [torch.zeros_like(each["number"]) for _ in range(2)]
    dist.all_gather(both, each["number"])
    print(json.dumps(torch.cat(both).tolist()))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loader.torch.Epochs(loader.batches(path, **options))
    loader.torch.Epochs(loader.batches(path, **options, worker=loader.Worker()))
print(len(caught))
dist.destroy_process_group()
"""


def test_two_ranks_read_the_global_batch_of_load_also_in_lightning(torch, data):
    # its import in a process with TensorFlow crashes
    if find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    printed = run_together(RANK, data, free_port(), count=2, GLOO_SOCKET_IFNAME="lo")
    expected = [*map(sorted, numbers_of(loader.batches(data, **OPTIONS)))]
    assert len(expected) == STEPS
    for out in printed:
        *found, num_warnings = map(json.loads, out.splitlines())
        assert [*map(sorted, found)] == expected
        assert num_warnings <= 1


# Keras

# without TensorFlow on the other backends
FIT = """
import json, sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "tensorflow" else PathFinder.find_spec(name, path, target)
path, backend, _ = sys.argv[1:]
if backend != "tensorflow":
    sys.meta_path = [Without if each is PathFinder else each for each in sys.meta_path]
import keras
from tfshards import loader
from tests.loader.framework_data import OPTIONS, model, same, trained
assert keras.backend.backend() == backend
for size in (8, 31):
    options = {**OPTIONS, "batch_size": size, "select": ("pixels", "label")}
    made, batches = model(), loader.batches(path, **options, epochs=None)
    made.fit(iter(batches), epochs=3, steps_per_epoch=batches.steps_per_epoch, verbose=0)
    expected = [*loader.batches(path, **options, epochs=3)]
    print(json.dumps([same(made.get_weights(), trained(each)) for each in (expected, expected[::-1])]))
"""


@pytest.mark.parametrize("backend", mostly_nightly(["tensorflow", "jax", "torch"], ["jax"]))
def test_fit_takes_the_batches_in_the_order_of_load_on_each_backend(data, backend):
    pytest.importorskip("keras", "3.10")
    pytest.importorskip(backend)
    (printed,) = run_together(FIT, data, backend, KERAS_BACKEND=backend)
    assert printed.splitlines() == ["[true, false]"] * 2


# Grain


def test_a_run_of_grain_is_resumed_by_its_state_and_by_load(grain, data):
    options = {**OPTIONS, "epochs": 2}
    whole = numbers_of(loader.batches(data, **options))
    batches = loader.batches(data, **options)
    first, again = iter(in_grain(batches)), iter(in_grain(batches))
    assert numbers_of(itertools.islice(first, 9)) == whole[:9]
    state = json.loads(json.dumps(first.get_state()))
    again.set_state(state)
    assert numbers_of(again) == whole[9:]
    start = Position(*divmod(state["next_index"], batches.steps_per_epoch))
    rest = loader.load(data, **options, start=start)
    assert numbers_of(rest.as_numpy_iterator()) == whole[9:]


# TensorFlow alone


def test_records_are_parsed_by_the_description_of_their_features(data):
    manifest = read_manifest(data)
    paths = [f"{data}/{shard.path}" for shard in manifest.shards]
    description = loader.feature_description(data)
    assert [*description] == [*manifest.schema.names]
    records = tf.data.TFRecordDataset(paths).batch(COUNT).get_single_element()
    found = tf.io.parse_example(records, description)
    expected = loader.load(data, batch_size=COUNT).get_single_element()
    for name in ("number", "label", "key", "ids"):
        assert found[name].dtype == {"key": tf.string}.get(name, tf.int64)
        same = tf.cast(found[name], expected[name].dtype) == expected[name]
        assert tf.reduce_all(getattr(same, "flat_values", same))
    for name in ("pixels", "half"):
        values = tf.io.decode_raw(found[name], expected[name].dtype)
        assert tf.reduce_all(tf.reshape(values, expected[name].shape) == expected[name])
    assert [*loader.feature_description(data, select=("label", "key"))] == ["label", "key"]
