"""Campaign against the loader: a store that fails, readers that are killed, objects that are replaced.

What is delivered is always what a local copy delivers, from the first batch to the last or to an error.
"""

import gc
import os
import random
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import pytest
import tensorflow as tf

from tests.campaigns import SEED, cases
from tests.storage import conftest
from tests.storage.faults import Answer, Cut, Delay, LoseAnswer, Shorten, Stall
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.schemas import Feature, FormatError, InputError, Schema, read_manifest
from tfshards.schemas.storage import any_path, stores

pytestmark = [pytest.mark.processes, pytest.mark.campaign]

server, proxy, bucket = conftest.server, conftest.proxy, conftest.bucket

TRIALS = cases(2, nightly=30)
SCHEMA = Schema((Feature("number", "int", "int64"), Feature("payload", "bytes", "bytes")))
COUNT, SHARDS = 1500, 4
OPTIONS = {"batch_size": 32, "shuffle": loader.Shuffle(seed=3, run=20, lanes=8), "epochs": 2}
FAULTS = {
    "is cut": lambda chance: Cut(chance.randrange(30_000), reset=chance.random() < 0.5),
    "answers 503": lambda chance: Answer(503, "SlowDown"),
    "answers 500": lambda chance: Answer(500, "InternalError"),
    "is truncated": lambda chance: Shorten(chance.randrange(30_000)),
    "stalls": lambda chance: Stall(chance.randrange(30_000)),
    "is lost": lambda chance: LoseAnswer(),
    "is late": lambda chance: Delay(chance.random() / 5),
}
# the first ones are tried by default
KINDS = list(dict.fromkeys(["is cut", "answers 503", "object is replaced", "reader is killed", *FAULTS]))
KINDS.append("object is removed")
READING = """
import sys
from tfshards import loader
shuffle = loader.Shuffle(seed=3, run=20, lanes=8)
cache = sys.argv[2] or None
for step, _ in enumerate(loader.load(sys.argv[1], batch_size=32, shuffle=shuffle, epochs=2, cache=cache)):
    print(step, flush=True)
"""


@contextmanager
def impatient():
    """Let clients wait for a second rather than for fifteen, and give up after three attempts."""
    backoff = {"init_backoff": timedelta(milliseconds=20), "max_backoff": timedelta(seconds=1), "base": 2}
    retries = {"max_retries": 3, "retry_timeout": timedelta(seconds=20), "backoff": backoff}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_RETRIES", retries)
        patch.setattr(stores, "_CLIENT", {"connect_timeout": "5s", "read_timeout": "1s", "timeout": "1h"})
        stores._store.cache_clear()
        yield
    stores._store.cache_clear()


def batches(path, **options):
    """Yield the numbers and the lengths of each batch."""
    for batch in loader.load(path, **OPTIONS, **options):
        numbers = batch["number"].numpy().tolist()
        yield numbers, [hash(payload) for payload in batch["payload"].numpy().tolist()]


def trial(programs, kind, chance, url, shards, proxy, cache):
    """Read two epochs while something happens; return what was delivered, and the error that ended it."""
    if kind in FAULTS:
        rate = chance.choice([0.02, 0.1, 0.4])
        proxy.add(FAULTS[kind](chance), "^get .*tfrecord", rate=rate, seed=chance.randrange(1 << 30))
    if kind == "reader is killed":
        reading, writing = os.pipe()
        with open(writing, "wb") as stdout:
            reader = programs.start(["-c", READING, url, cache or ""], stdout=stdout, stderr=sys.__stderr__)
        with open(reading) as steps:
            for _ in range(chance.randrange(1, 70)):
                assert steps.readline()
            reader.kill()
            reader.wait()
    delivered = []
    after = chance.randrange(100)
    try:
        for batch in batches(url, cache=cache):
            delivered.append(batch)
            if len(delivered) == after and kind.startswith("object"):
                path = any_path(url) / chance.choice(shards).path
                if kind == "object is removed":
                    path.unlink()
                else:
                    # sound records of the same lengths, of another dataset
                    path.write_bytes(path.read_bytes()[:-1] + b"x")
    except (tf.errors.InvalidArgumentError, FormatError, InputError) as error:
        return delivered, str(error)
    return delivered, None


@pytest.mark.parametrize("cached", mostly_nightly([False, True], [True]), ids=["no cache", "cache"])
def test_a_store_that_fails_changes_no_batch(programs, cached, write_dataset, bucket, proxy, tmp_path):
    content = np.random.default_rng(0)
    examples = [{"number": i, "payload": content.bytes(900 + i % 200)} for i in range(COUNT)]
    local = write_dataset(tmp_path / "local", SCHEMA, {"train": np.array_split(examples, SHARDS)})
    shards = read_manifest(local).shards
    expected = list(batches(local))
    counts = {kind: Counter() for kind in KINDS}
    for number in range(TRIALS):
        # of few trials, those with a cache are of other kinds than those without one
        kind = KINDS[(2 * number + cached if len(KINDS) > TRIALS else number) % len(KINDS)]
        chance = random.Random(f"{SEED} {number} {cached}")
        url = f"{bucket.url}/{number}"
        for path in local.rglob("*"):
            if path.is_file():
                (any_path(url) / path.relative_to(local).as_posix()).write_bytes(path.read_bytes())
        cache = f"disk:{tmp_path / str(number)}, {chance.choice([500, 1500, 50_000])}KB" if cached else None
        with impatient():
            delivered, error = trial(programs, kind, chance, url, shards, proxy, cache)
        context = f"trial {number}: {kind}, {cache}, {len(delivered)} batches, {error}"
        assert delivered == expected[: len(delivered)], context
        assert error or len(delivered) == len(expected), context
        assert error is None or f"{url}/{local.name}" in error or url in error, context
        counts[kind]["error" if error else "whole"] += 1
        counts[kind]["requests with a fault"] += sum(bool(each.fault) for each in proxy.requests)
        proxy.clear()
        gc.collect()
        if error is not None and not kind.startswith("object"):
            # the store is sound again: the same cache gives everything
            assert list(batches(url, cache=cache)) == expected, context
    for kind, outcomes in counts.items():
        print(f"{kind}: {dict(outcomes)}")
    assert sum(outcomes["error"] + outcomes["whole"] for outcomes in counts.values()) == TRIALS
