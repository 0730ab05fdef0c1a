"""Small datasets for the tests of the loader, which do not need ``prep``."""

import itertools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest
import tensorflow as tf

from tests.prep.exported import write_dataset as write_counted
from tfshards.schemas import Feature, Schema, read_manifest
from tfshards.schemas.index import RecordIndex, companion_path, parse_index

Writer = Callable[..., Path]


@pytest.fixture(autouse=True, scope="session")
def _traced_functions() -> Iterator[None]:
    """Let coverage see functions that TensorFlow's threads call: it is set up for threads of Python only."""
    numpy_function = tf.numpy_function

    def traced_numpy_function(function: Callable[..., object], *arguments: object) -> object:
        def call(*values: object) -> object:
            sys.settrace(threading.gettrace())
            return function(*values)

        return numpy_function(call if threading.gettrace() else function, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf, "numpy_function", traced_numpy_function)
        yield


def write(root, schema, splits, label_counts=None, compression="none") -> Path:
    """Write the dataset whose splits hold these shards of examples, and return ``root``.

    Without ``label_counts``, the labels of the examples are counted.
    """
    counts = {split: count_labels(schema, shards) for split, shards in splits.items()}
    counts = counts if label_counts is None else label_counts
    write_counted(root, schema, splits, label_counts=counts, compression=compression)
    return root


def count_labels(schema: Schema, shards: Sequence[Sequence[Mapping]]) -> dict[str, int]:
    label = schema.label
    counts = Counter(int(each[label.name]) for shard in shards for each in shard) if label else {}
    if schema.class_names:
        # as builds do, which count nothing where an example has no class
        names = schema.class_names if counts and -1 not in counts else ()
        return {name: counts[number] for number, name in enumerate(names)}
    return {str(number): count for number, count in sorted(counts.items())}


def in_shards(example: Callable[[int], Mapping], sizes: Sequence[int]) -> list[list[Mapping]]:
    """Return the examples of numbers from 0, divided into shards of these sizes."""
    bounds = np.cumsum([0, *sizes]).tolist()
    return [[*map(example, range(low, high))] for low, high in itertools.pairwise(bounds)]


NUMBERS = Schema((Feature("number", "int", "int64"),))


@pytest.fixture(scope="session")
def write_dataset() -> Writer:
    return write


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[int]], Path]:
    """Return the dataset with shards of these sizes whose example ``i`` holds the number ``i``."""
    made: dict[tuple[int, ...], Path] = {}

    def make(sizes: Sequence[int]) -> Path:
        key = tuple(sizes)
        if key not in made:
            shards = in_shards(lambda number: {"number": number}, sizes)
            made[key] = write(tmp_path_factory.mktemp("numbered"), NUMBERS, {"train": shards})
        return made[key]

    return make


TEXTS = Schema((Feature("number", "int", "int64"), Feature("text", "bytes", "bytes")))
TEXT_SIZES = [6, 25, 0, 7]


def text_of(number: int) -> bytes:
    return b"x" * (number * 7 % 40)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return datasets of the same examples by compression; their records differ in length."""
    folder = tmp_path_factory.mktemp("texts")
    shards = in_shards(lambda number: {"number": number, "text": text_of(number)}, TEXT_SIZES)
    return {how: write(folder / how, TEXTS, {"train": shards}, compression=how) for how in ("none", "gzip")}


def shard_of(path: Path, index: int) -> Path:
    """Return the shard of a dataset of one split with this index."""
    return shards_of(path)[index]


def shards_of(path: Path) -> list[Path]:
    """Return the shards of a dataset."""
    return [path / shard.path for shard in read_manifest(path).shards]


def frames_of(shard: Path) -> RecordIndex:
    """Return where the records of a shard are according to its index."""
    return parse_index((shard.parent / companion_path(shard.name, "idx")).read_bytes(), "index")


def flip_bit(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 16
    path.write_bytes(data)
