"""Small datasets, and what the order depends on according to their manifests."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from tests.loader.conftest import flip_bit, frames_of, shard_of, write
from tests.order.reference import Stored, mixed
from tfshards import loader, prep
from tfshards.schemas import Feature, Schema

NAMES = ("ant", "bee", "cat")
SCHEMA = Schema((Feature("number", "int", "int64"), Feature("label", "label", "int64")), NAMES)
WIDE = Schema((*SCHEMA.features, Feature("bytes", "raw", "uint8", (1 << 16,))), NAMES)


@dataclass(frozen=True)
class Data:
    """A dataset of one split.

    Attributes:
        stored: the facts of the split; of each one of a mix, ``parts`` has them.
        numbers: the feature ``number`` of the examples in stored order.
        has_names: whether its classes have names.
        damaged: the examples whose records are damaged.
    """

    path: Path | loader.Mix
    stored: Stored
    numbers: list[int]
    has_names: bool = True
    damaged: frozenset[int] = frozenset()
    parts: list[Data] = field(default_factory=list)


def label_of(number):
    return number * number % 7 % 3


def opened(path, numbers, *, is_adopted=False):
    """Return a dataset by the facts of its manifest."""
    manifest = json.loads((path / "dataset.json").read_bytes())
    (split,) = manifest["splits"].values()
    stored = Stored(
        manifest["build_id"],
        tuple(shard["num_examples"] for shard in split["shards"]),
        sum(shard["record_bytes"] for shard in split["shards"]),
        tuple(map(label_of, numbers)),
        is_adopted,
    )
    return Data(path, stored, list(numbers), has_names=not is_adopted)


def written(path, sizes, first=0, schema=SCHEMA, **options):
    """Write shards of these sizes; the numbers of their examples begin at ``first``."""
    ends = (np.cumsum(sizes) + first).tolist()
    rest = {"bytes": np.zeros(1 << 16, np.uint8)}
    shards = [
        [{"number": number, "label": label_of(number), **rest} for number in range(end - size, end)]
        for size, end in zip(sizes, ends, strict=True)
    ]
    write(path, schema, {"train": shards}, **options)
    return opened(path, range(first, first + sum(sizes)))


def built(path, count, shards):
    """Build a dataset, whose stored order is a permutation."""
    arrays = {"number": np.arange(count), "label": [label_of(number) for number in range(count)]}
    prep.build(prep.Arrays(arrays, class_names=list(NAMES)), path, shards=shards)
    return opened(path, read_in_stored_order(path))


def adopted(path, data):
    """Write a manifest for the files of a dataset."""
    path.mkdir()
    for number, shard in enumerate(sorted(data.path.glob("*/*.tfrecord-*"))):
        if shard.stat().st_size:
            shutil.copy(shard, path / f"data-train-{number}.tfrecord")
    prep.adopt(path)
    return opened(path, data.numbers, is_adopted=True)


def read_in_stored_order(path):
    return [int(number) for number in loader.Records(path, select=("number",))[:]["number"]]


def damage(data, folder, damaged):
    """Copy a dataset, and flip a bit in the data of each of these records."""
    path = shutil.copytree(data.path, folder)
    for number in damaged:
        shard = int(np.searchsorted(np.cumsum(data.stored.sizes), number, side="right"))
        record = number - sum(data.stored.sizes[:shard])
        flip_bit(shard_of(path, shard), int(frames_of(shard_of(path, shard)).offsets[record]) + 14)
    return replace(data, path=path, damaged=frozenset(damaged))


def mix(weights, *parts):
    """Return datasets that are read as one."""
    path = loader.Mix({each.path: weight for each, weight in zip(parts, weights, strict=True)})
    numbers = [number for each in parts for number in each.numbers]
    return Data(path, mixed([each.stored for each in parts]), numbers, parts=list(parts))


@pytest.fixture(scope="session")
def datasets(tmp_path_factory):
    """Datasets by what is special about them."""
    root = tmp_path_factory.mktemp("order")
    found = {
        "uneven": written(root / "uneven", [9, 0, 14, 7, 11]),
        "large": written(root / "large", [150], 1000),
        "small": written(root / "small", [1, 2, 3], 2000),
        "wide": written(root / "wide", [13, 14, 13], schema=WIDE),
        "few": written(root / "few", [0, 0]),
    }
    found["damaged"] = damage(found["uneven"], root / "damaged", [0, 1, 11, 40])
    found["built"] = built(root / "built", 97, 5)
    found["adopted"] = adopted(root / "adopted", found["uneven"])
    found["wide and adopted"] = adopted(root / "wide-adopted", found["wide"])
    prep.reshard(root / "adopted", root / "derived", shards=3)
    numbers = read_in_stored_order(root / "derived")
    found["derived from adopted"] = opened(root / "derived", numbers, is_adopted=True)
    return found


def quiet(function, *arguments, **options):
    """Call a function without warnings of damage, and of epochs without steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)
