"""A writer of small datasets, so that the tests of the loader do not need ``prep``."""

import gzip
import hashlib
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

from tfshards.schemas import Feature, Manifest, Schema, Shard, Split, Totals
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.index import RecordIndex, index_path, labels_bytes, labels_path, parse_index
from tfshards.schemas.manifest_file import write_manifest

Example = Mapping[str, object]
Writer = Callable[..., Path]

BUILD_ID = "0123abcd"


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


def wire(feature: Feature, value: object) -> tf.train.Feature:
    """Return ``value`` as it is stored according to ``KINDS`` of ``schemas.feature``."""
    if feature.is_encoded or feature.kind == "bytes":
        values = [value] if isinstance(value, bytes) else np.asarray(value, object).ravel().tolist()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    array = np.asarray(value)
    if feature.kind == "raw":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[array.tobytes()]))
    if feature.wire == "int64":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=array.ravel().astype(np.int64)))
    return tf.train.Feature(float_list=tf.train.FloatList(value=array.ravel().astype(np.float32)))


def serialize(schema: Schema, example: Example) -> bytes:
    features = {feature.name: wire(feature, example[feature.name]) for feature in schema.features}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write_shard(root, name, records, compression="none", labels=None) -> Shard:
    """Write a shard, its index and, if ``labels`` are given, its labels."""
    with tf.io.TFRecordWriter(str(root / name)) as writer:
        for record in records:
            writer.write(record)
    index = root / index_path(name)
    index.parent.mkdir(exist_ok=True)
    lengths = np.array([len(record) + 16 for record in records], np.int64)
    index.write_text(RecordIndex(lengths).to_text())
    data = (root / name).read_bytes()
    ends = np.cumsum(lengths)
    checksums = np.array([int.from_bytes(data[end - 4 : end], "little") for end in ends], np.uint32)
    if compression == "gzip":
        # several members, as builds write them
        bounds = [0, *ends[2::3].tolist(), len(data)]
        members = [data[low:high] for low, high in itertools.pairwise(bounds) if low < high]
        (root / name).write_bytes(b"".join(gzip.compress(member, mtime=0) for member in members))
    data = (root / name).read_bytes()
    if labels is not None:
        (root / labels_path(name)).write_bytes(labels_bytes(labels))
    return Shard(
        name,
        len(records),
        len(data),
        int(lengths.sum()),
        digest(data),
        digest(index.read_bytes()),
        examples_digest(lengths - 16, checksums),
        data[-8:].hex(),
        "" if labels is None else digest(labels_bytes(labels)),
    )


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def write(root, schema, splits, label_counts=None, compression="none") -> Path:
    """Write the dataset whose splits hold these shards of examples, and return ``root``.

    Without ``label_counts``, the labels of the examples are counted.
    """
    root.mkdir(parents=True, exist_ok=True)
    # an example may occur many times
    different = {id(example): example for shards in splits.values() for shard in shards for example in shard}
    records = {key: serialize(schema, example) for key, example in different.items()}
    written = {}
    for split, shards in splits.items():
        written[split] = Split(
            tuple(
                write_shard(
                    root,
                    f"d-{split}-{BUILD_ID}.tfrecord-{index:05d}-of-{len(shards):05d}",
                    [records[id(example)] for example in examples],
                    compression,
                    labels_of(schema, examples),
                )
                for index, examples in enumerate(shards)
            ),
            count_labels(schema, shards) if label_counts is None else label_counts.get(split, {}),
        )
    total = sum(split.num_examples for split in written.values())
    totals = Totals(total, total)
    write_manifest(Manifest("d", BUILD_ID, schema, written, totals, compression=compression), root)
    return root


def labels_of(schema: Schema, examples: Sequence[Example]) -> list[int] | None:
    label = schema.label
    return None if label is None else [int(example[label.name]) for example in examples]


def count_labels(schema: Schema, shards: Sequence[Sequence[Example]]) -> dict[str, int]:
    counts = Counter(label for examples in shards for label in labels_of(schema, examples) or ())
    if schema.class_names:
        # as builds do, which count nothing where an example has no class
        names = schema.class_names if counts and -1 not in counts else ()
        return {name: counts[number] for number, name in enumerate(names)}
    return {str(number): count for number, count in sorted(counts.items())}


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
            bounds = np.cumsum([0, *sizes])
            shards = [[{"number": n} for n in range(low, high)] for low, high in itertools.pairwise(bounds)]
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
    folder, bounds = tmp_path_factory.mktemp("texts"), np.cumsum([0, *TEXT_SIZES])
    shards = [
        [{"number": number, "text": text_of(number)} for number in range(low, high)]
        for low, high in itertools.pairwise(bounds)
    ]
    return {how: write(folder / how, TEXTS, {"train": shards}, compression=how) for how in ("none", "gzip")}


def shard_of(path: Path, index: int) -> Path:
    """Return the shard of a dataset of one split with this index."""
    return sorted(path.glob("*.tfrecord-*"))[index]


def frames_of(shard: Path) -> RecordIndex:
    """Return where the records of a shard are according to its index."""
    return parse_index((shard.parent / index_path(shard.name)).read_text(), "index")


def flip_bit(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 16
    path.write_bytes(data)
