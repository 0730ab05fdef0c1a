"""Run by test_budget.py in a separate process, whose memory it measures: writes or reads a dataset.

Usage: bounded.py write FOLDER
       bounded.py read FOLDER BUDGET [CACHE]
       bounded.py least FOLDER CASE: within the least budget that is accepted
"""

import json
import os
import re
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

from tfshards import loader
from tfshards.schemas import OptionsError

COUNT, SHARDS, SIDE, LENGTH, RECORDS = 1600, 4, 400, 240_000, 48_000
# decoded to 73 MiB a batch
PHOTOS = {"batch_size": 128, "image": loader.Image(size=(224, 224), dtype="float32")}
SHUFFLED = loader.Shuffle(seed=0)
# the dataset and the options
CASES = {
    "stored": ("records", {"batch_size": 256}),
    "runs": ("records", {"batch_size": 256, "shuffle": SHUFFLED}),
    "full": ("records", {"batch_size": 256, "shuffle": loader.Shuffle(how="full", seed=0)}),
    "ratios": (
        "records",
        {"batch_size": 256, "shuffle": SHUFFLED, "classes": {0: 0.5, 1: 0.5}, "take": 30_000},
    ),
    "photos": ("photos", {**PHOTOS, "shuffle": SHUFFLED}),
    "one batch": ("photos", {**PHOTOS, "take": 128}),
}


def write(folder):
    sys.path.insert(0, str(Path(__file__).parent))
    import conftest

    from tfshards.schemas import Feature, Schema

    schema = Schema((Feature("image", "image", "uint8", (None, None, 3)), Feature("label", "label", "int64")))
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(4)]
    # zeros after the end of a picture, which decoders ignore: the dataset is large and quick to decode
    pictures = [tf.io.encode_jpeg(each, quality=10).numpy().ljust(LENGTH, b"\0") for each in pixels]
    # a few examples, each many times
    examples = [{"image": pictures[i % 4], "label": i % 10} for i in range(20)]
    shards = [[examples[i % 20] for i in range(shard, COUNT, SHARDS)] for shard in range(SHARDS)]
    conftest.write(folder / "large", schema, {"train": shards})
    photo = tf.io.encode_jpeg(random.integers(0, 256, (224, 224, 3), dtype=np.uint8), quality=50).numpy()
    examples = [{"image": photo, "label": i} for i in range(10)]
    shards = [[examples[i % 10] for i in range(shard, 512, SHARDS)] for shard in range(SHARDS)]
    conftest.write(folder / "photos", schema, {"train": shards})
    dot = tf.io.encode_jpeg(np.zeros((8, 8, 3), np.uint8)).numpy()
    conftest.write(folder / "small", schema, {"train": [[{"image": dot, "label": 0}] * 64]})
    schema = Schema((Feature("data", "raw", "uint8", (784,)), Feature("label", "label", "int64")))
    rows = [{"data": np.full(784, i % 256, np.uint8), "label": i % 10} for i in range(1280)]
    shards = [[rows[i % 1280] for i in range(shard, RECORDS, SHARDS)] for shard in range(SHARDS)]
    conftest.write(folder / "records", schema, {"train": shards})


def resident(name):
    """Return VmRSS or VmHWM in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def read(folder, budget, cache=None):
    options = {
        "batch_size": 16,
        "image": loader.Image(size=(64, 64), crop="random"),
        "shuffle": loader.Shuffle(seed=0, run=2),
    }
    # memory that TensorFlow uses for any pipeline of this form
    for _ in loader.load(folder / "small", **options, memory_budget="200MiB"):
        pass
    base = resident("VmHWM")
    labels = 0
    data = loader.load(folder / "large", **options, memory_budget=budget, cache=cache)
    for batch in data:
        labels += int(tf.reduce_sum(batch["label"]))
    print(json.dumps({"base": base, "peak": resident("VmHWM"), "labels": labels}))


def least(folder, case):
    name, options = CASES[case]
    # memory that TensorFlow uses for any pipeline of this form
    if name == "photos":
        tiny = {**options, "image": loader.Image(size=(8, 8), dtype="float32"), "batch_size": 8}
        for _ in loader.load(folder / "small", **{**tiny, "take": 64}):
            pass
    else:
        for _ in loader.load(folder / name, **{**options, "take": 512}):
            pass
    base = resident("VmHWM")
    try:
        loader.load(folder / name, **options, memory_budget="1MiB")
    except OptionsError as error:
        (budget,) = re.findall(r'use memory_budget="(\d+MiB)"', str(error))
    steps = sum(1 for _ in loader.load(folder / name, **options, memory_budget=budget))
    peak = resident("VmHWM") - base
    print(json.dumps({"steps": steps, "budget": int(budget.removesuffix("MiB")) << 20, "peak": peak}))


if __name__ == "__main__":
    if sys.argv[1] == "least":
        least(Path(sys.argv[2]), sys.argv[3])
    elif sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        read(Path(sys.argv[2]), *sys.argv[3:])
