"""A program: many faults, one after another, in one dataset; prints their outcomes as JSON.

Run by test_faults.py, so that a fault that ends the process is detected. A dataset that passes the checks of
``load`` has the same manifest, indexes and sizes as before, so that an existing graph reads it as a new one
would.
"""

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from tfshards import loader
from tfshards.loader import pipeline
from tfshards.loader.integrity.files import inspect_shards
from tfshards.schemas import TfshardsError, read_manifest
from tfshards.schemas.index import index_path


def refused_at_load(root, name):
    """Return whether the checks of ``load`` name the file ``name``."""
    try:
        manifest = read_manifest(root)
    except TfshardsError as error:
        return name in str(error)
    found = inspect_shards(root, manifest.splits["train"])
    problems = [problem for seen in found for problem in (*seen.file_problems, *seen.index_problems)]
    return any(name in problem.place for problem in problems)


def read(dataset):
    """Return the rows that are delivered, and the text of the error that ends them."""
    rows = []
    try:
        for numbers, texts in dataset:
            rows.extend(zip(numbers.numpy().tolist(), texts.numpy().tolist(), strict=True))
    except tf.errors.InvalidArgumentError as error:
        return rows, str(error)
    return rows, ""


def outcome(root, name, dataset, wanted):
    rows, error = read(dataset)
    if rows != wanted[: len(rows)]:
        return "missed"
    if error:
        return "refused while reading" if str(root / name) in error else "missed"
    return "delivered unharmed" if rows == wanted else "missed"


def faults(data, chance, number):
    """Yield the kind of each fault, and the damaged bytes."""
    for _ in range(number):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        yield "flips", bytes(changed)
        yield "truncations", data[: chance.randrange(len(data))]


def loaded(root, name):
    """Return the dataset that ``load`` returns, None if it names the fault, or "missed"."""
    try:
        dataset = load(root)
    except TfshardsError as error:
        return None if name in str(error) else "missed"
    return dataset


def load(root):
    return loader.load(root, batch_size=15, remainder=REMAINDER, select=("number", "text"))


def main(root, number, number_read):
    manifest, chance = read_manifest(root), random.Random(0)
    shards = [shard.path for shard in manifest.shards]
    dataset = load(root)
    wanted, _ = read(dataset)
    counts = {"flips": Counter(), "truncations": Counter(), "truncations after load": Counter()}
    files = [*shards, *map(index_path, shards), "dataset.json"]
    for name in files:
        path = root / name
        data = path.read_bytes()
        for tried, (kind, changed) in enumerate(
            faults(data, chance, number_read if name in shards else number)
        ):
            path.write_bytes(changed)
            if not refused_at_load(root, Path(name).name):
                counts[kind][outcome(root, name, dataset, wanted)] += 1
            else:
                counts[kind]["refused at load"] += 1
                if name in shards and kind == "truncations" and tried % 6 == 1:
                    counts["truncations after load"][outcome(root, name, dataset, wanted)] += 1
            if name in shards and tried < 2:
                again = loaded(root, Path(name).name)
                if again == "missed" or (
                    again is not None and outcome(root, name, again, wanted) == "missed"
                ):
                    counts[kind]["missed"] += 1
            path.write_bytes(data)
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    # "keep" reads the records with their numbers, "drop" without
    REMAINDER, pipeline.FEW_POSITIONS = sys.argv[4], 0
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
