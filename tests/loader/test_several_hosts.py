"""``loader.distribute`` over several hosts: real processes on loopback, real collectives."""

import json
import re

import pytest

from tests.loader.cluster import run_cluster
from tfshards import loader

pytestmark = pytest.mark.processes

# shards, global batch size, remainder, shuffled
TWO = [
    ([23], 4, "drop", True, "one shard serves both, three examples are left out"),
    ([23], 4, "pad", True, "one shard, one example is padded"),
    ([4, 3, 4, 3, 4, 3, 2], 8, "pad", False, "seven shards, stored order"),
    ([1], 8, "pad", False, "the second worker has padding only"),
    ([3], 8, "pad", True, "fewer examples than a batch"),
]


@pytest.fixture(scope="module")
def two(programs, numbered, tmp_path_factory):
    """Return what each of two workers found, and what both wrote to stderr."""
    given = [
        (str(numbered(sizes)), size, {"remainder": remainder, "shuffled": shuffled})
        for sizes, size, remainder, shuffled, _ in TWO
    ]
    arguments, folder, tasks = [json.dumps(given)], tmp_path_factory.mktemp("two"), {"worker": 2}
    read = run_cluster(programs, folder, "mirrored_worker.py", arguments, tasks, until="worker", timeout=600)
    return [json.loads(stdout) for stdout, _ in read], "".join(stderr for _, stderr in read)


@pytest.mark.parametrize(("number", "case"), enumerate(TWO))
def test_the_steps_are_even_and_each_example_comes_exactly_once(two, numbered, number, case):
    sizes, global_batch_size, remainder, shuffled, reason = case
    found, _ = two
    read = [worker["cases"][number] for worker in found]
    steps = len(loader.batches(numbered(sizes), batch_size=global_batch_size, remainder=remainder))
    assert {len(each) for each in read} == {steps}, reason
    examples = []
    for step in zip(*read, strict=True):
        assert len({tuple(each["all"]) for each in step}) == 1, "an all-reduce has one result"
        real = []
        for each in step:
            numbers, *weights = each["own"]
            assert len(numbers) == global_batch_size // len(found)
            kept = weights[0] if weights else [1] * len(numbers)
            real += [number for number, weight in zip(numbers, kept, strict=True) if weight]
        assert step[0]["all"] == [sum(real), len(real)]
        examples += real
    assert len(set(examples)) == len(examples), reason
    assert len(examples) == (steps * global_batch_size if remainder == "drop" else sum(sizes)), reason
    if not shuffled:
        assert sorted(examples) == list(range(len(examples)))


def test_workers_read_their_index_and_reading_everything_on_each_raises_a_warning(two):
    found, stderr = two
    assert [worker["worker"] for worker in found] == [[index, len(found)] for index in range(len(found))]
    for worker in found:
        outside, in_scope = worker["warned"]
        message = r" 2 workers, but load\(\) without worker= .* use loader\.distribute"
        assert re.search("TF_CONFIG names" + message, outside)
        assert re.search("scope of a MultiWorkerMirroredStrategy of" + message, in_scope)
    assert not re.search("auto.?shard|sharding policy", stderr, re.IGNORECASE)
