"""``loader.jax``: the order of ``load`` in arrays on devices."""

from __future__ import annotations

import json
import socket

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.loader import Shuffle
from tfshards.schemas import OptionsError

from .framework_data import run_together, write_data

pytestmark = pytest.mark.processes

jax = pytest.importorskip("jax")

OPTIONS = {"batch_size": 8, "shuffle": Shuffle(seed=4), "select": ("number", "pixels", "half")}


@pytest.fixture(scope="module")
def data(write_dataset, tmp_path_factory):
    return write_data(write_dataset, tmp_path_factory.mktemp("jax") / "data")


def test_batches_are_arrays_in_the_order_of_load(data):
    batches = loader.jax.batches(data, **OPTIONS)
    expected = [*loader.batches(data, **OPTIONS | {"epochs": 2})]
    found = [batch for _ in range(2) for batch in batches]
    assert (len(batches), batches.steps_per_epoch, len(found)) == (7, 7, 14)
    for one, other in zip(found, expected, strict=True):
        assert all(isinstance(each, jax.Array) for each in one)
        assert all(map(np.array_equal, one, other))
    assert [each.dtype.name for each in found[0]] == ["int32", "uint8", "bfloat16"]
    named = next(
        iter(loader.jax.batches(data, **OPTIONS | {"select": None}, map_fn=lambda e, _: e["ids"].sum()))
    )
    assert named.shape == (8,)


def test_bytes_and_lists_are_refused(data):
    with raises(OptionsError, "batch-objects", name="key", found="bytes"):
        next(iter(loader.jax.batches(data, batch_size=8)))


DEVICES = """
import sys
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding
from tfshards import loader
from tests.loader.test_frameworks_jax import OPTIONS
path, _ = sys.argv[1:]
assert "tensorflow" not in sys.modules
devices = jax.devices()
assert len(devices) == 4
sharding = NamedSharding(jax.make_mesh((4,), ("batch",)), PartitionSpec("batch"))
expected = list(loader.batches(path, **OPTIONS))
for one, other in zip(loader.jax.batches(path, **OPTIONS, sharding=sharding), expected, strict=True):
    assert one[0].sharding == sharding
    assert [each.data.shape for each in one[1].addressable_shards] == [(2, 4, 3)] * 4
    assert all(map(np.array_equal, one, other))
last = SingleDeviceSharding(devices[3])
batch = next(iter(loader.jax.batches(path, **OPTIONS, sharding=last)))
assert [each.devices() for each in batch] == [{devices[3]}] * 3
print("passed")
"""


def test_a_batch_is_sharded_over_devices(data):
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
def test_two_processes_read_the_global_batch_of_load(data):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    printed = run_together(PROCESSES, data, port, count=2, JAX_PLATFORMS="cpu")
    first, second = ([json.loads(line) for line in out.splitlines()] for out in printed)
    expected = [batch[0].tolist() for batch in loader.batches(data, **OPTIONS)]
    union = [sorted(one + other) for one, other in zip(first, second, strict=True)]
    assert union == [sorted(each) for each in expected]
