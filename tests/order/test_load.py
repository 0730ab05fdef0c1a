"""``load`` delivers the batches of ``batches``, bit for bit, with each of its options."""

from __future__ import annotations

import os
import random
import shutil

import numpy as np
import pytest

from tests.loader.conftest import write
from tests.loader.scenes import COUNT, SCHEMA, SIZES, check_same, example
from tests.order.conftest import damage, opened, quiet, read_in_stored_order, written
from tests.order.reference import batches_of
from tfshards import prep
from tfshards.loader import (
    Boxes,
    Image,
    Keypoints,
    Mix,
    Part,
    Position,
    Shuffle,
    Worker,
    batches,
    load,
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Datasets of the same features: 63 examples, 20 others, and the first with damaged records."""
    folder, ends = tmp_path_factory.mktemp("scenes"), np.cumsum(SIZES).tolist()
    shards = [[*map(example, range(end - size, end))] for size, end in zip(SIZES, ends, strict=True)]
    write(folder / "scenes", SCHEMA, {"train": shards})
    write(folder / "more", SCHEMA, {"train": [[*map(example, range(70, 90))]]})
    data = opened(folder / "scenes", range(COUNT))
    damage(data, folder / "damaged", [0, 1, 30, 62])
    return folder


def tagged(values, seed):
    return {"key": values["key"], "seed": seed, "pair": (values["label"], values["grid"])}


RUNS, FULL, SHORT = Shuffle(seed=3), Shuffle(seed=2, how="full"), Shuffle(seed=1, run=2, lanes=4)
KEEP, PAD = {"remainder": "keep"}, {"remainder": "pad"}
CROP = Image((12, 10), crop="random", flip="horizontal_and_vertical", seed=3)
MIX = {"path": "mix"}
LATER = {"start": Position(1, 3), "epochs": 2, "shuffle": RUNS}
DAMAGED = {"path": "damaged", "on_damage": "skip", **PAD}
PLAIN = ("key", "label")
IMAGES = ("image", "view", "key")
BOXES = ("image", "boxes", "ids", "points")


def boxed(image, form):
    return {
        "select": BOXES,
        "image": {"image": image},
        "boxes": Boxes("boxes", form, along=["ids"], image="image", normalized=form == "cxcywh"),
        "keypoints": Keypoints("points", format="xyv", flip_pairs=[(0, 1)], image="image"),
    }


ROWS = {
    # orders
    "stored": {},
    "stored, a smaller last step": KEEP,
    "stored, padding": PAD,
    "runs": {"shuffle": RUNS},
    "runs, a smaller last step of each epoch": {"shuffle": RUNS, "epochs": 3, **KEEP},
    "runs, padding in lanes": {"shuffle": SHORT, **PAD},
    "runs that are longer than lanes": {"shuffle": Shuffle(run=50), "epochs": 2},
    "a full permutation": {"shuffle": FULL},
    "a full permutation, a smaller last step": {"shuffle": FULL, **KEEP},
    "a full permutation, padding": {"shuffle": FULL, "epochs": 2, **PAD},
    "a batch that is larger than the split": {"batch_size": 100, "shuffle": RUNS, **PAD},
    "batches of one": {"batch_size": 1, "shuffle": RUNS},
    "a seed below 0": {"shuffle": Shuffle(-(2**63))},
    # workers
    "a worker in stored order": {"worker": Worker(1, 2), **PAD},
    "a worker with lanes": {"worker": Worker(2, 4), "shuffle": RUNS, **PAD},
    "a worker without an example in the last step": {"worker": Worker(3, 4), "batch_size": 5, **KEEP},
    "a worker of a full permutation": {"worker": Worker(0, 3), "shuffle": FULL, **KEEP},
    "workers that do not divide the usual lanes": {"worker": Worker(2, 3), "shuffle": RUNS, **KEEP},
    "a lane for each worker": {"worker": Worker(1, 2), "shuffle": Shuffle(1, lanes=2), **PAD},
    # positions
    "a position in stored order": {"start": Position(0, 3)},
    "a position in a later epoch": {**LATER, "epochs": 3, **PAD},
    "a position in a full permutation": {"start": Position(1, 4), "epochs": 2, "shuffle": FULL, **KEEP},
    "a position inside a run": {**LATER, "worker": Worker(1, 2), **PAD},
    "the last step of all": {"start": Position(2, 7), "epochs": 3, "shuffle": RUNS, **KEEP},
    "a run without an end": {"epochs": None, "shuffle": RUNS, "start": Position(5), "most": 20},
    "a late epoch": {"start": Position(2**40), "epochs": 2**40 + 1, "shuffle": RUNS},
    # choices
    "the first examples": {"take": 21, **PAD},
    "a part": {"take": Part(1, 3), "shuffle": RUNS, **KEEP},
    "all but a part": {"take": Part(1, 3, rest=True), "shuffle": RUNS, **KEEP},
    "classes by name": {"classes": ["cat", "ant"], "shuffle": RUNS, "epochs": 2},
    "a class by number, in part": {"classes": [1], "take": Part(0, 2), **KEEP},
    "ratios": {"classes": {"ant": 1, "bee": 3}, "shuffle": RUNS, "epochs": 2},
    "ratios of a worker in stored order": {
        "classes": {"ant": 1, 2: 2.5},
        "take": 50,
        "worker": Worker(1, 2),
        "epochs": 3,
    },
    "a mix": {**MIX, "shuffle": RUNS, "epochs": 2},
    "a part of each dataset of a mix": {**MIX, "take": Part(0, 2), "shuffle": FULL, **PAD},
    "a mix in stored order": {**MIX, "take": 30, "epochs": 2, **KEEP},
    # damage
    "damage in stored order": DAMAGED,
    "damage in runs": {**DAMAGED, "shuffle": SHORT, "epochs": 2},
    "damage in a full permutation": {**DAMAGED, "shuffle": FULL, "worker": Worker(1, 2)},
    # weights
    "balanced weights": {"sample_weights": "balanced", **PAD},
    "weights of classes": {"sample_weights": {"ant": 1, "bee": 2, "cat": 0.5}, "shuffle": RUNS},
    "weights of a feature": {"sample_weights": "weight", **KEEP},
    # values
    "all features": {"select": None},
    "one feature": {"select": ("grid",), "shuffle": FULL},
    "images": {"select": IMAGES, "image": Image((12, 10), channels=3)},
    "images and a mask, cut and turned": {"select": (*IMAGES, "mask"), "image": CROP, "epochs": 2, **PAD},
    "floats": {
        "select": IMAGES,
        "image": Image((40, 32), crop="center", dtype="float32", normalize="imagenet"),
    },
    "half floats": {"select": IMAGES, "image": Image((8, 8), dtype="bfloat16", normalize=(0.5, 0.25))},
    "gray images": {"select": IMAGES, "image": Image((8, 9), channels=1, method="nearest"), "shuffle": RUNS},
    "arrays of pixels": {
        "select": ("digit", "key"),
        "image": {"digit": Image((16, 12), channels=3, flip="horizontal")},
        "shuffle": Shuffle(),
    },
    "images after a resumed step": {**LATER, "select": IMAGES, "image": CROP},
    "boxes of cut images": boxed(Image((16, 12), crop="random", flip="horizontal", seed=2), "xyxy"),
    "boxes by their centers": boxed(Image((16, 12), crop="random", seed=2), "cxcywh"),
    "boxes of resized images": boxed(Image((30, 40)), "xywh"),
    "boxes of turned images": boxed(Image((16, 12), crop="center", flip="vertical"), "yxyx"),
    "a function of the user": {"select": None, "map_fn": tagged, "shuffle": RUNS, **PAD},
    "a function of a worker": {"select": None, "map_fn": tagged, "worker": Worker(1, 2), "epochs": 2},
    # where bytes are read, and how much is read ahead
    "a cache": {"cache": True, "shuffle": RUNS},
}


@pytest.mark.parametrize("row", ROWS)
def test_load_delivers_what_batches_does(scenes, tmp_path, monkeypatch, row):
    # no order depends on the number of processors
    processors = random.Random(row).choice([1, 2, 3, 6, 64])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    options = {"batch_size": 8, "select": PLAIN, "path": "scenes", **ROWS[row]}
    name = options.pop("path")
    path = Mix({scenes / "scenes": 1, scenes / "more": 3}) if name == "mix" else scenes / name
    if options.get("cache"):
        path, options["cache"] = shutil.copytree(path, tmp_path / "far"), f"disk:{tmp_path / 'near'}"
    assert quiet(check_same, path, **options)


# Compressed shards, which are unpacked into a cache, and a split of several streams


def read(path, workers=1, **options):
    """Return the numbers that ``load`` delivers, by step and worker, without padding."""
    found = []
    for index in range(workers):
        data = quiet(load, path, worker=Worker(index, workers), **options)
        steps = list(data.as_numpy_iterator())
        assert len(steps) == len(data)
        found.append([batch["number"].tolist() for batch in steps])
    return [list(step) for step in zip(*found, strict=True)]


COMPRESSED = [
    (1, None, "keep", Position(), "the stored order"),
    (2, None, "drop", Position(1, 2), "the stored order from a step"),
    (1, Shuffle(5), "keep", Position(), "runs"),
    (2, Shuffle(5, run=3), "drop", Position(1, 2), "runs from a step"),
]


@pytest.mark.parametrize(("workers", "shuffle", "remainder", "start", "reason"), COMPRESSED)
def test_compressed_shards_are_read_in_their_order(tmp_path, workers, shuffle, remainder, start, reason):
    data = written(tmp_path, [6, 25, 0, 7], compression="gzip")
    how = {"batch_size": 4, "shuffle": shuffle, "remainder": remainder}
    found = read(tmp_path, workers, start=start, epochs=2, cache=f"disk:{tmp_path / 'near'}", **how)
    expected = [
        step
        for epoch in (0, 1)
        for step in batches_of(data.stored, [data.numbers], epoch, workers=workers, **how)
    ]
    assert found == expected[start.epoch * len(expected) // 2 + start.step :], reason


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """140,000 examples in 38 MB: an epoch has several chunks."""
    path, numbers = tmp_path_factory.mktemp("large") / "data", np.arange(140_000)
    source = prep.Arrays({"number": numbers, "bytes": np.zeros((len(numbers), 200), np.uint8)})
    prep.build(source, path, shards=3)
    return opened(path, read_in_stored_order(path))


LARGE = [
    ({"batch_size": 3000, "remainder": "keep"}, Position(0, 11)),
    ({"batch_size": 1024, "shuffle": Shuffle(3)}, Position(0, 100)),
    ({"batch_size": 1024, "shuffle": Shuffle(3), "cache": ", 14MB"}, Position(0, 120)),
    ({"batch_size": 1000, "shuffle": Shuffle(3, "full")}, Position(1, 130)),
    ({"batch_size": 500, "shuffle": Shuffle(3, run=50), "take": Part(1, 3, rest=True)}, Position(0, 90)),
]


@pytest.mark.parametrize(("options", "start"), LARGE)
def test_a_large_split_is_read_in_its_order_from_any_step(large, tmp_path, options, start):
    if "cache" in options:
        # one shard is read from its copy
        options = {**options, "cache": f"disk:{tmp_path}{options['cache']}"}
    how, workers = {"shuffle": None, "remainder": "drop", **options}, 2 if "take" in options else 1
    how.pop("cache", None)
    groups = [list(range(len(large.numbers)))]
    expected = batches_of(large.stored, groups, start.epoch, workers=workers, **how)[start.step :]
    where = {"worker": Worker(workers - 1, workers), "start": start, "epochs": start.epoch + 1}
    data = load(large.path, select=("number",), **where, **options)
    found = [numbers for (numbers,) in data.as_numpy_iterator()]
    assert len(found) == len(expected)
    for batch, shares in zip(found, expected, strict=True):
        assert np.array_equal(batch, np.take(large.numbers, shares[-1]))


@pytest.mark.parametrize(("workers", "shuffle"), [(3, None), (3, Shuffle(seed=3))])
def test_no_worker_reads_the_records_of_another(tmp_path, workers, shuffle):
    data = written(tmp_path / "data", [9, 9, 9, 0, 9, 9, 8, 8])
    how = {"batch_size": 2, "shuffle": shuffle, "remainder": "drop"}
    steps = batches_of(data.stored, [data.numbers], 0, workers=workers, **how)
    for index in range(workers):
        own = [step[index] for step in steps]
        others = set(data.numbers).difference(*own)
        # the shards are compared with the manifest before they are damaged
        options = {"worker": Worker(index, workers), "select": ("number",), **how}
        readers = [function(data.path, **options) for function in (load, batches)]
        spoiled = damage(data, tmp_path / f"of {index}", others)
        for shard in sorted(spoiled.path.glob("*/*.tfrecord-*")):
            shutil.copyfile(shard, data.path / shard.relative_to(spoiled.path))
        for reader in readers:
            assert [np.asarray(numbers).tolist() for (numbers,) in reader] == own
        written(data.path, [9, 9, 9, 0, 9, 9, 8, 8])
