"""One order in every framework: random cases by digest, and runs that are killed and change framework."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from tests.campaigns import cases
from tfshards.loader import Image, Mix, Part, Position, Shuffle, Worker, batches
from tfshards.schemas import Feature, Schema

from .conftest import flip_bit, frames_of, shard_of
from .readers import READERS, lines_of, rows_of

pytestmark = [pytest.mark.campaign, pytest.mark.nightly]
CASES, RUNS = cases(60, nightly=60), cases(4, nightly=4)
# Cases of one process of each framework, which takes seconds to start.
CHUNK = 250
SCHEMA = Schema(
    (
        Feature("number", "int", "int64"),
        Feature("image", "image", "uint8", (None, None, 3)),
        Feature("label", "label", "int64"),
    ),
    ("a", "b", "c"),
)
IMAGE = Image((6, 5), crop="random", flip="horizontal", seed=5)
READ = {"select": ("number", "image", "label"), "image": IMAGE}
ROOT = Path(__file__).parents[2]


def example(number):
    pixels = np.random.default_rng(number).integers(0, 256, (9, 8 + number % 3, 3), dtype=np.uint8)
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "PNG")
    return {"number": number, "image": file.getvalue(), "label": number * number % 3}


@pytest.fixture(scope="module")
def made(write_dataset, tmp_path_factory):
    """Datasets of different numbers of shards and examples; the last one has damaged records."""
    paths = []
    for number, sizes in enumerate([[9, 0, 14, 7, 11], [90], [1, 2, 3, 60], [20, 20, 21, 20]]):
        ends = np.cumsum(sizes) + 1000 * number
        shards = [[*map(example, range(end - size, end))] for size, end in zip(sizes, ends, strict=True)]
        folder = tmp_path_factory.mktemp("made") / f"d{number}"
        paths.append(write_dataset(folder, SCHEMA, {"train": shards}))
    for shard, record in ((0, 0), (0, 1), (2, 20)):
        file = shard_of(paths[-1], shard)
        flip_bit(file, int(frames_of(file).offsets[record]) + 14)
    return paths


def case(rng: random.Random, paths: list[Path]) -> dict[str, object]:
    """Return random options: order, worker, choice of examples, mix, damage, and where a run is resumed."""
    path = rng.choice(paths)
    count = rng.choice([1, 1, 2, 3, 4])
    lanes = rng.choice([None, None, count * rng.choice([1, 2])])
    options = {**READ, "worker": Worker(rng.randrange(count), count)}
    options["batch_size"] = rng.choice([1, 2, 3, 5, 8]) * (lanes or 1)
    options["shuffle"] = rng.choice(
        [
            None,
            Shuffle(seed=rng.randrange(99)),
            Shuffle(seed=rng.randrange(99), run=rng.choice([None, 2, 7]), lanes=lanes),
            Shuffle(seed=rng.randrange(99), how="full"),
        ]
    )
    options["remainder"] = rng.choice(["drop", "keep", "pad"])
    which = rng.randrange(6)
    if path == paths[-1]:
        options |= {"on_damage": "skip", "remainder": "pad"}
    elif which == 0:
        options["classes"] = rng.choice([["a"], ["a", "c"], {"a": 1, "b": 2.5}, {0: 3, 1: 1}])
    elif which == 1:
        options["take"] = rng.choice([3, 17, Part(1, 3), Part(0, 2, rest=True)])
    elif which == 2:
        path = Mix({paths[0]: 1, paths[2]: rng.choice([0.5, 3])})
    options["path"] = path
    with warnings.catch_warnings():
        # of damage, and of epochs without steps
        warnings.simplefilter("ignore")
        steps = batches(epochs=None, **options).steps_per_epoch
    start = Position(rng.choice([0, 0, 3]), rng.randrange(steps) if steps else 0)
    return {**options, "start": start, "epochs": start.epoch + rng.choice([1, 1, 2])}


def started(*arguments):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.loader.readers", *map(str, arguments)]
    # with a group, since a DataLoader's process that starts when its parent is killed would not end
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize("chunk", range(-(-CASES // CHUNK)))
def test_every_batch_has_the_same_digest(made, tmp_path, chunk):
    rng = random.Random(chunk)
    cases = [case(rng, made) for _ in range(min(CHUNK, CASES - chunk * CHUNK))]
    (tmp_path / "cases").write_bytes(pickle.dumps(cases))
    found = {}
    for reader in READERS:
        process = started("compare", reader, tmp_path / "cases", tmp_path / "digests")
        _, printed = process.communicate()
        assert process.returncode == 0, printed
        found[reader] = json.loads((tmp_path / "digests").read_text())
    assert sum(map(len, found["load"])) > len(cases)
    for reader, digests in found.items():
        for number, options in enumerate(cases):
            assert digests[number] == found["load"][number], (reader, options)


GLOBAL_BATCH, EPOCHS = 12, 3


@pytest.mark.parametrize("run", range(RUNS))
def test_a_run_is_killed_and_goes_on_in_other_frameworks(made, tmp_path, run):
    rng = random.Random(run)
    shuffle, remainder = Shuffle(seed=run), rng.choice(["drop", "pad"])
    options = {
        **READ,
        "path": made[rng.randrange(3)],
        "shuffle": shuffle,
        "remainder": remainder,
        "epochs": EPOCHS,
    }
    expected = {}
    whole = batches(batch_size=GLOBAL_BATCH, **options)
    for index, batch in enumerate(whole):
        expected[divmod(index, whole.steps_per_epoch)] = rows_of(batch)
    progress, taken = tmp_path / "progress", []
    last, leg = Position(EPOCHS, 0), 0
    while True:
        begun = Position.from_json(json.loads(progress.read_text())) if progress.exists() else Position()
        if (begun.epoch, begun.step) == (last.epoch, last.step):
            break
        leg, count = leg + 1, rng.choice([1, 2, 3])
        readers = rng.sample(list(READERS), 1) * count
        logs = [tmp_path / f"log-{leg}-{index}" for index in range(count)]
        processes = []
        for index, reader in enumerate(readers):
            own = {**options, "batch_size": GLOBAL_BATCH // count, "worker": Worker(index, count)}
            (tmp_path / f"options-{index}").write_bytes(pickle.dumps(own))
            processes.append(started("follow", reader, tmp_path / f"options-{index}", progress, logs[index]))
        # after some steps; the fourth time, it ends
        steps = rng.randrange(1, 9) if leg < 4 else 10**9
        while sum(1 for _ in lines_of(logs[0])) < steps and any(each.poll() is None for each in processes):
            time.sleep(0.005)
        if leg < 4:
            for process in processes:
                # it may have ended
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        errors = [process.communicate()[1] for process in processes]
        assert all(each.returncode in (0, -9) for each in processes), (readers, errors)
        parts = [{(epoch, step): rows for epoch, step, rows in lines_of(log)} for log in logs]
        for part in parts:
            for step, rows in part.items():
                assert rows.items() <= expected[step].items(), (readers, step)
        for step in set.intersection(*map(set, parts)):
            union = {number: each for part in parts for number, each in part[step].items()}
            assert union == expected[step], (readers, step)
        taken.append([*parts[0]])
    # each leg begins where the one before it saved its progress: nothing is left out
    assert {step for steps in taken for step in steps} == set(expected)
    assert taken[0][0] == (0, 0)
