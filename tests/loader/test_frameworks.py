"""``loader.torch``, ``.jax``, ``.keras``, ``.grain``: the order of ``load``, resumed runs, and refusals."""

from __future__ import annotations

import itertools
import json
import pickle
import socket
import subprocess
import sys

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Part, Position, Records, Shuffle, Worker
from tfshards.schemas import OptionsError

from .framework_data import COUNT, OPTIONS, model, run_together, same, trained, write_data

pytestmark = [
    pytest.mark.processes,
    # The processes are forked from this one, in which TensorFlow has threads that they do not use.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
PACKAGES = {"torch": "torchdata", "jax": "jax", "keras": "keras", "grain": "grain"}


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_data(write_dataset, tmp_path_factory.mktemp("frameworks") / "data")


def numbers_of(batches):
    return [(batch["number"] if isinstance(batch, dict) else batch[0]).tolist() for batch in batches]


def in_torch(source, processes=0, stateful=False, **options):
    """Return PyTorch's loader of a dataset of batches, or of records and their sampler."""
    from torch.utils.data import DataLoader
    from torchdata.stateful_dataloader import StatefulDataLoader

    kind = StatefulDataLoader if stateful else DataLoader
    options = options if "batch_sampler" in options else {"batch_size": None, **options}
    return kind(source, num_workers=processes, **options)


def in_grain(source):
    import grain

    return grain.MapDataset.source(source).to_iter_dataset()


def examples_in_grain(data, operations=(), **options):
    """Return Grain's loader of examples in the order of the sampler."""
    import grain

    return grain.DataLoader(
        data_source=Records(data, select=("number",)),
        sampler=loader.grain.Sampler(data, **options),
        shard_options=grain.sharding.NoSharding(),
        operations=operations,
        worker_count=0,
    )


# the framework, its name for the batches of a dataset, and how they are read
READERS = {
    "torch": ("torch", "Batches", in_torch),
    "torch in 3 processes": ("torch", "Batches", lambda batches: in_torch(batches, 3)),
    "jax": ("jax", "batches", iter),
    "grain": ("grain", "source", in_grain),
}
RUNS = {
    "padded": {"shuffle": Shuffle(seed=3), "remainder": "pad"},
    "smaller last batches": {"remainder": "keep", "worker": Worker(1, 2)},
    "resumed": {"epochs": 3, "start": Position(1, 3)},
    "fewer steps than processes": {"shuffle": None, "take": 16},
}


@pytest.mark.parametrize(("framework", "name", "read"), READERS.values(), ids=READERS)
@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_the_order_is_that_of_load(data, framework, name, read, options):
    pytest.importorskip(PACKAGES[framework])
    options = {**OPTIONS, "select": ("number", "pixels"), **options}
    if framework == "jax":
        # it has its own workers
        options.pop("worker", None)
    expected = numbers_of(loader.batches(data, **options))
    made = getattr(getattr(loader, framework), name)(data, **options)
    assert numbers_of(read(made)) == expected
    assert len(made) == len(expected)


# PyTorch


@pytest.fixture
def torch():
    pytest.importorskip("torchdata")
    return pytest.importorskip("torch")


@pytest.mark.parametrize("processes", [0, 2])
def test_each_iteration_is_the_next_epoch_unless_an_epoch_is_set(torch, data, processes):
    dataset = loader.torch.Batches(data, **OPTIONS)
    whole = numbers_of(loader.batches(data, epochs=3, **OPTIONS))
    batches = in_torch(dataset, processes, persistent_workers=processes > 0)
    assert [batch for _ in range(3) for batch in numbers_of(batches)] == whole
    # Lightning makes iterators that it does not use
    for epoch in (1, 0, 2):
        dataset.set_epoch(epoch)
        for _ in range(2):
            iter(batches)
            assert numbers_of(batches) == whole[7 * epoch : 7 * epoch + 7]


def test_a_run_goes_from_one_framework_to_the_next(torch, data):
    options = {**OPTIONS, "select": ("number",), "epochs": 3}
    whole = numbers_of(loader.batches(data, **options))
    first = loader.batches(data, **options)
    found = numbers_of(itertools.islice(first, 9))
    second = loader.torch.Batches(data, **options, start=first.position)
    found += numbers_of(itertools.islice(in_torch(second), 8))
    third = loader.load(data, **options, start=second.position)
    found += numbers_of([batch[0].numpy()] for batch in third)
    assert found == whole


def test_values_are_tensors_and_what_cannot_be_one_a_list(torch, data):
    expected = next(iter(loader.batches(data, batch_size=8)))
    for processes in (0, 1):
        found = next(iter(in_torch(loader.torch.Batches(data, batch_size=8), processes)))
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
        made = in_torch(loader.torch.Batches(data, **options), processes, stateful=True)
        if state is not None:
            made.load_state_dict(state)
        return made

    first = make()
    assert numbers_of(itertools.islice(first, 4)) == whole[:4]
    again = make(pickle.loads(pickle.dumps(first.state_dict())))
    found = numbers_of(again)
    ended = again.state_dict()
    if epochs == 1:
        assert found == whole[4:7]
        found += numbers_of(again)
        assert numbers_of(make(ended)) == whole[7:14]
        found += numbers_of(again)
    assert found == whole[4:]


@pytest.mark.parametrize("processes", [0, 2])
def test_the_sampler_gives_records_in_the_order_of_load(torch, data, processes):
    options = {**OPTIONS, "remainder": "keep", "take": Part(0, 2, rest=True)}
    whole = numbers_of(loader.batches(data, epochs=3, **options))
    records = Records(data, "train", select=("number", "label"))

    def make(stateful=True):
        sampler = loader.torch.BatchSampler(data, "train", **options)
        return sampler, in_torch(records, processes, stateful, batch_sampler=sampler)

    sampler, batches = make(stateful=False)
    steps = len(sampler)
    assert sampler.steps_per_epoch == steps == len(whole) // 3
    assert [batch for _ in range(3) for batch in numbers_of(batches)] == whole
    sampler, first = make()
    sampler.set_epoch(1)
    assert numbers_of(itertools.islice(first, 2)) == whole[steps:][:2]
    state = pickle.loads(pickle.dumps(first.state_dict()))
    _, again = make()
    again.load_state_dict(state)
    assert numbers_of(again) == whole[steps + 2 : 2 * steps]
    ended = again.state_dict()
    assert numbers_of(again) == whole[2 * steps :]
    again.load_state_dict(ended)
    assert numbers_of(again) == whole[2 * steps :]


def test_what_has_no_number_or_no_epoch_or_another_order_is_refused(torch, data):
    batches = loader.torch.Batches(data, **OPTIONS)
    state = batches.state_dict()
    with raises(OptionsError, "resume-order", what="Shuffle.seed"):
        loader.torch.Batches(data, batch_size=8, shuffle=Shuffle(seed=5)).load_state_dict(state)
    batches.load_state_dict({**state, "processes": 2})
    with raises(OptionsError, "state-processes", found=2, wanted=1):
        next(iter(batches))
    with raises(OptionsError, "not-a-choice", name="remainder", found="pad"):
        loader.torch.BatchSampler(data, batch_size=8, remainder="pad")
    with raises(OptionsError, "not-a-path"):
        loader.torch.BatchSampler(loader.Mix({data: 1}), batch_size=8)
    with raises(OptionsError, "set-epoch-of-run"):
        loader.torch.Batches(data, batch_size=8, epochs=3).set_epoch(1)


RANK = """
import json, sys
import torch, torch.distributed as dist
from torch.utils.data import DataLoader
from tfshards import loader
path, init, rank = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{init}", rank=int(rank), world_size=2)
options = dict(batch_size=4, shuffle=loader.Shuffle(seed=4))
dataset = loader.torch.Batches(path, **options)
own = [batch["number"] for batch in DataLoader(dataset, batch_size=None, num_workers=1)]
assert [each.tolist() for each in own] == list(loader.torch.BatchSampler(path, **options))
for each in own:
    both = [torch.zeros_like(each) for _ in range(2)]
    dist.all_gather(both, each)
    print(json.dumps(torch.cat(both).tolist()))
dist.destroy_process_group()
"""


def test_two_ranks_read_the_global_batch_of_load(torch, data, tmp_path):
    printed = run_together(RANK, data, tmp_path / "init", count=2, GLOO_SOCKET_IFNAME="lo")
    expected = [*map(sorted, numbers_of(loader.batches(data, **OPTIONS)))]
    assert len(expected) == COUNT // 8
    for out in printed:
        assert [sorted(json.loads(line)) for line in out.splitlines()] == expected


def test_a_launcher_names_the_rank(torch, data, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    options = {**OPTIONS, "batch_size": 4}
    expected = numbers_of(loader.batches(data, worker=Worker(1, 2), **options))
    assert numbers_of(loader.torch.Batches(data, **options)) == expected


# JAX


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


ARRAYS = {**OPTIONS, "select": ("number", "pixels", "half")}


def test_batches_of_jax_are_arrays_of_each_epoch(jax, data):
    batches = loader.jax.batches(data, **ARRAYS)
    expected = [*loader.batches(data, **ARRAYS, epochs=2)]
    found = [batch for _ in range(2) for batch in batches]
    assert (batches.steps_per_epoch, len(found)) == (7, 14)
    for one, other in zip(found, expected, strict=True):
        assert all(isinstance(each, jax.Array) for each in one)
        assert all(map(np.array_equal, one, other))
    assert [each.dtype.name for each in found[0]] == ["int32", "uint8", "bfloat16"]
    mapped = loader.jax.batches(data, **OPTIONS, map_fn=lambda example, _: example["ids"].sum())
    assert next(iter(mapped)).shape == (8,)
    with raises(OptionsError, "batch-objects", name="key", found="bytes"):
        next(iter(loader.jax.batches(data, batch_size=8)))


DEVICES = """
import sys
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from tfshards import loader
path, _ = sys.argv[1:]
options = dict(batch_size=8, shuffle=loader.Shuffle(seed=4), select=("number", "pixels", "half"))
assert "tensorflow" not in sys.modules
devices = jax.devices()
assert len(devices) == 4
sharding = NamedSharding(jax.make_mesh((4,), ("batch",)), PartitionSpec("batch"))
expected = list(loader.batches(path, **options))
for one, other in zip(loader.jax.batches(path, **options, sharding=sharding), expected, strict=True):
    assert one[0].sharding == sharding
    assert [each.data.shape for each in one[1].addressable_shards] == [(2, 4, 3)] * 4
    assert all(map(np.array_equal, one, other))
last = SingleDeviceSharding(devices[3])
batch = next(iter(loader.jax.batches(path, **options, sharding=last)))
assert [each.devices() for each in batch] == [{devices[3]}] * 3
print("passed")
"""


def test_a_batch_is_sharded_over_devices(jax, data):
    flags = "--xla_force_host_platform_device_count=4"
    assert run_together(DEVICES, data, XLA_FLAGS=flags, JAX_PLATFORMS="cpu") == ["passed\n"]


PROCESSES = """
import json, sys
import jax
from jax.sharding import NamedSharding, PartitionSpec
from tfshards import loader
path, port, index = sys.argv[1:]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(index))
sharding = NamedSharding(jax.make_mesh((2,), ("batch",)), PartitionSpec("batch"))
options = dict(batch_size=4, shuffle=loader.Shuffle(seed=4), select=("number",), sharding=sharding)
for (number,) in loader.jax.batches(path, **options):
    assert number.shape == (8,) and not number.is_fully_addressable
    own = [shard.data.tolist() for shard in number.addressable_shards]
    print(json.dumps(own[0]))
"""


@pytest.mark.nightly
def test_two_processes_of_jax_read_the_global_batch_of_load(jax, data):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    printed = run_together(PROCESSES, data, port, count=2, JAX_PLATFORMS="cpu")
    first, second = ([json.loads(line) for line in out.splitlines()] for out in printed)
    union = [sorted(one + other) for one, other in zip(first, second, strict=True)]
    assert union == [*map(sorted, numbers_of(loader.batches(data, **OPTIONS)))]


# Keras


@pytest.fixture
def keras():
    return pytest.importorskip("keras", "3.10")


LABELED = {**OPTIONS, "select": ("pixels", "label")}
FITS = {
    "one epoch after another": ({}, {"epochs": 3}),
    "a run without an end": ({"epochs": None}, {"epochs": 3, "steps_per_epoch": 7}),
    "from a position": ({"epochs": 3, "start": Position(1, 2)}, {}),
}


@pytest.mark.parametrize(("options", "fit"), FITS.values(), ids=FITS)
def test_fit_takes_the_batches_in_the_order_of_load(keras, data, options, fit):
    made, batches = model(), loader.keras.Batches(data, **LABELED, **options)
    made.fit(batches, shuffle=False, verbose=0, **fit)
    expected = [*loader.batches(data, **LABELED, epochs=3)][9 if "start" in options else 0 :]
    assert same(made.get_weights(), trained(expected))
    assert not same(made.get_weights(), trained(expected[::-1]))
    assert batches.steps_per_epoch == 7


def test_a_batch_is_had_by_its_index(keras, data):
    batches = loader.keras.Batches(data, **LABELED)
    expected = [label.tolist() for _, label in loader.batches(data, **LABELED)]
    assert [batches[index][1].tolist() for index in (3, 4, 0, 6)] == [expected[i] for i in (3, 4, 0, 6)]
    assert [label.tolist() for _, label in batches] == expected
    assert (len(batches), batches.num_batches) == (7, 7)
    for index in (-1, 7):
        with pytest.raises(IndexError, match=f"batch {index} of 7"):
            batches[index]
    endless = loader.keras.Batches(data, **LABELED, epochs=None)
    assert endless.num_batches is None
    assert endless[7][1].tolist() != expected[0]


def test_what_keras_cannot_use_is_refused(keras, data):
    # this backend wraps errors of the batches
    with pytest.raises(Exception, match=r"use fit\(shuffle=False\)"):
        model().fit(loader.keras.Batches(data, **LABELED), verbose=0)
    batches = loader.keras.Batches(data, **LABELED)
    batches.on_epoch_begin()
    with raises(OptionsError, "keras-shuffle", index=3, wanted=0):
        batches[3]
    with raises(OptionsError, "batch-objects", name="key", found="bytes"):
        loader.keras.Batches(data, batch_size=8)[0]
    with raises(OptionsError, "batch-objects", name=1, found="ndarray"):
        loader.keras.Batches(data, batch_size=8, select=("label", "ids"))[0]
    start = loader.Progress(Position(0, 2))
    with raises(OptionsError, "keras-step", step=2):
        loader.keras.Batches(data, **LABELED, epochs=None, start=start)


def test_resume_saves_after_each_epoch(keras, data, tmp_path):
    for epochs in (1, 3):
        resume, made = loader.Resume(tmp_path), model()
        batches = loader.keras.Batches(data, **LABELED, epochs=None, start=resume.progress)
        options = {"initial_epoch": resume.progress.epoch, "steps_per_epoch": batches.steps_per_epoch}
        made.fit(batches, epochs=epochs, shuffle=False, verbose=0, callbacks=[resume], **options)
    assert same(made.get_weights(), trained(loader.batches(data, **LABELED, epochs=3)))


FIT = """
import json, sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "tensorflow" else PathFinder.find_spec(name, path, target)
sys.meta_path = [Without if each is PathFinder else each for each in sys.meta_path]
import keras
from tfshards import loader
from tests.loader.framework_data import OPTIONS, model, same, trained
path, _ = sys.argv[1:]
options = {**OPTIONS, "select": ("pixels", "label")}
made, batches = model(), loader.keras.Batches(path, **options)
made.fit(batches, epochs=3, shuffle=False, verbose=0)
expected = trained(loader.batches(path, **options, epochs=3))
print(json.dumps([keras.backend.backend(), same(made.get_weights(), expected)]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fit_on_the_backends_without_tensorflow(keras, data, backend):
    pytest.importorskip(backend)
    (printed,) = run_together(FIT, data, KERAS_BACKEND=backend)
    assert json.loads(printed) == [backend, True]


# Grain


@pytest.fixture
def grain():
    return pytest.importorskip("grain")


TWICE = {**OPTIONS, "epochs": 2}


def test_a_run_of_grain_is_resumed_by_its_state_and_by_load(grain, data):
    whole = numbers_of(loader.batches(data, **TWICE))
    source = loader.grain.source(data, **TWICE)
    # as processes of Grain get it
    assert numbers_of([pickle.loads(pickle.dumps(source))[1]]) == whole[1:2]
    first, again = iter(in_grain(source)), iter(in_grain(source))
    assert numbers_of(itertools.islice(first, 9)) == whole[:9]
    state = json.loads(json.dumps(first.get_state()))
    again.set_state(state)
    assert numbers_of(again) == whole[9:]
    rest = loader.load(data, **TWICE, start=source.position(state["next_index"]))
    assert numbers_of(rest.as_numpy_iterator()) == whole[9:]


def test_a_loader_of_examples_is_resumed_and_refuses_the_state_of_another_order(grain, data):
    for options in ({"start": Position(1, 3)}, {"remainder": "keep", "worker": Worker(1, 2)}):
        found = [int(each["number"]) for each in examples_in_grain(data, **TWICE, **options)]
        assert found == [*itertools.chain(*numbers_of(loader.batches(data, **TWICE, **options)))]

    def make(seed):
        options = {**TWICE, "shuffle": Shuffle(seed=seed)}
        return iter(examples_in_grain(data, [grain.transforms.Batch(8)], **options))

    whole = numbers_of(loader.batches(data, **TWICE))
    first, again = make(4), make(4)
    assert numbers_of(itertools.islice(first, 5)) == whole[:5]
    again.set_state(first.get_state())
    assert numbers_of(again) == whole[5:]
    with pytest.raises(ValueError, match="Sampler in checkpoint does not match"):
        make(5).set_state(first.get_state())


def test_indices_outside_the_run_and_runs_without_an_end_are_refused(grain, data):
    for make, name, count in ((loader.grain.source, "batch", 14), (loader.grain.Sampler, "example", 112)):
        made = make(data, **TWICE)
        for index in (-1, count):
            with pytest.raises(IndexError, match=f"{name} {index} of {count}"):
                made[index]
        with raises(OptionsError, "grain-endless"):
            make(data, batch_size=8, epochs=None)
    assert [made[index].index for index in range(3)] == [0, 1, 2]
    with pytest.warns(UserWarning, match="leaves no steps"):
        assert len(loader.grain.Sampler(data, batch_size=100)) == 0


# All of them


def test_a_framework_is_imported_when_it_is_used_and_named_where_it_is_missing():
    code = """
import sys
from tfshards import loader
assert {"torch", "jax", "keras", "grain"} <= set(dir(loader))
assert not {"torch", "jax", "keras", "grain", "tensorflow"} & set(sys.modules)
for name in ("torch", "jax", "keras", "grain"):
    sys.modules[name] = None
    try:
        getattr(loader, name)
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    expected = [f"tfshards.loader needs {name}: pip install 'tfshards[{name}]'" for name in PACKAGES]
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")
