"""Damage found while reading raises an error that names file, record, offset and remedy."""

import itertools
import re
import shutil
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import pipeline
from tfshards.loader.integrity.damaged import open_shards
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.source import open_source
from tfshards.loader.records.explain import explained
from tfshards.schemas import Feature, Schema
from tfshards.schemas.index import index_path, parse_index

SIZES = [6, 25, 7]
SCHEMA = Schema((Feature("number", "int", "int64"), Feature("text", "bytes", "bytes")))


@pytest.fixture(autouse=True)
def _without_numbers(monkeypatch):
    """Read without numbers, but with remainder="keep", which needs them."""
    monkeypatch.setattr(pipeline, "FEW_POSITIONS", 0)


@pytest.fixture(scope="module", params=["none", "gzip"])
def made(request, write_dataset, tmp_path_factory):
    """Return a dataset whose records differ in length."""
    bounds = np.cumsum([0, *SIZES])
    shards = [
        [{"number": n, "text": b"x" * (n * 7 % 40)} for n in range(bounds[i], bounds[i + 1])]
        for i in range(len(SIZES))
    ]
    path = tmp_path_factory.mktemp("made") / request.param
    return write_dataset(path, SCHEMA, {"train": shards}, compression=request.param)


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


def second(path):
    (found,) = path.glob("*-00001-of-00003")
    return found


def offsets(shard):
    text = (shard.parent / index_path(shard.name)).read_text()
    index = parse_index(text, "index")
    return index.offsets, index.lengths


def flip(shard, offset):
    data = bytearray(shard.read_bytes())
    data[offset] ^= 16
    shard.write_bytes(data)


# The offset of the fault relative to the frame of record 11, whether it counts from the end, and its meaning.
FLIPS = [
    (0, False, "in the length"),
    (9, False, "in the length's checksum"),
    (20, False, "in the data"),
    (-2, True, "in the data's checksum"),
]
SHUFFLES = [None, loader.Shuffle(seed=2), loader.Shuffle(seed=2, run=2, lanes=1)]


@pytest.mark.parametrize("made", ["none"], indirect=True)
@pytest.mark.parametrize(
    ("fault", "shuffle", "remainder"),
    mostly_nightly(
        itertools.product(FLIPS, SHUFFLES, ["keep", "drop"]),
        [*zip(FLIPS, [*SHUFFLES, None], ["keep", "drop", "drop", "keep"], strict=True)],
    ),
)
def test_error_for_a_flipped_bit_names_file_record_and_offset(copied, fault, shuffle, remainder):
    within, from_end, _ = fault
    shard = second(copied)
    starts, lengths = offsets(shard)
    flip(shard, int(starts[11]) + within + (int(lengths[11]) if from_end else 0))
    message = (
        f"shard {re.escape(str(shard))} is damaged at record 11, offset {starts[11]}; .*verify DATASET --deep"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(loader.load(copied, batch_size=2, remainder=remainder, shuffle=shuffle))


@pytest.mark.parametrize("made", ["none"], indirect=True)
def test_nothing_is_delivered_after_the_damage(copied):
    shard = second(copied)
    flip(shard, int(offsets(shard)[0][11]) + 20)
    batches = loader.load(copied, batch_size=1).as_numpy_iterator()
    seen = []
    with pytest.raises(tf.errors.InvalidArgumentError, match="damaged at record 11"):
        seen.extend(batch["number"].item() for batch in batches)
    assert seen == list(range(len(seen)))
    assert len(seen) <= SIZES[0] + 11


@pytest.mark.parametrize("made", ["none"], indirect=True)
@pytest.mark.parametrize("shuffle", [None, loader.Shuffle(seed=2), loader.Shuffle(seed=2, how="full")])
@pytest.mark.parametrize("record", [0, 24])
def test_each_step_after_a_damaged_one_fails(copied, shuffle, record):
    shard = second(copied)
    flip(shard, int(offsets(shard)[0][record]) + 20)
    iterator = iter(loader.load(copied, batch_size=2, shuffle=shuffle))
    outcomes = []
    for _ in range(sum(SIZES) // 2):
        try:
            next(iterator)
        except tf.errors.OpError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("delivered")
    first = next(i for i, outcome in enumerate(outcomes) if outcome != "delivered")
    assert f"is damaged at record {record}," in outcomes[first]
    assert "delivered" not in outcomes[first:]


def cut(where):
    def change(shard):
        data = shard.read_bytes()
        starts, lengths = offsets(shard)
        shard.write_bytes(data[: int(starts[11]) + where(int(lengths[11]))])

    return change


# The change after loading, the message, and the reason.
CHANGES = [
    (cut(lambda length: 0), r"ends after 11 records instead of 25", "cut between records"),
    (cut(lambda length: 5), r"ends after 11 records|is damaged at record 11", "cut in a header"),
    (cut(lambda length: length - 3), r"is damaged at record 11", "cut in a record"),
    (lambda shard: shard.write_bytes(b""), r"ends after 0 records instead of 25", "emptied"),
    (lambda shard: shard.unlink(), r"cannot be read: it was removed", "removed"),
]


@pytest.mark.parametrize("made", ["none"], indirect=True)
@pytest.mark.parametrize(
    ("changed", "shuffle", "remainder"),
    mostly_nightly(
        itertools.product(CHANGES, SHUFFLES[:2], ["drop", "pad"]),
        [
            (CHANGES[0], None, "drop"),
            (CHANGES[1], SHUFFLES[1], "drop"),
            (CHANGES[2], None, "pad"),
            (CHANGES[3], SHUFFLES[1], "pad"),
            (CHANGES[4], None, "drop"),
        ],
    ),
)
def test_error_names_a_shard_changed_after_load(copied, changed, shuffle, remainder):
    change, message, _ = changed
    dataset = loader.load(copied, batch_size=4, remainder=remainder, shuffle=shuffle)
    shard = second(copied)
    change(shard)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f"{re.escape(str(shard))} ({message}).*verify DATASET --repair SOURCE",
    ):
        list(dataset)


@pytest.mark.parametrize("made", ["gzip"], indirect=True)
@pytest.mark.parametrize(
    ("change", "share"),
    mostly_nightly(
        itertools.product(["flip", "cut"], [0.02, 0.3, 0.6, 0.99]),
        [("flip", 0.3), ("flip", 0.99), ("cut", 0.02), ("cut", 0.6)],
    ),
)
def test_error_names_a_shard_with_damaged_compressed_data(copied, share, change):
    shard = second(copied)
    data = shard.read_bytes()
    offset = int(len(data) * share)
    dataset = loader.load(copied, batch_size=4, remainder="keep")
    flip(shard, offset) if change == "flip" else shard.write_bytes(data[:offset])
    message = f"shard {re.escape(str(shard))} (is damaged at record|ends after|cannot be read)"
    numbers, error = read(dataset)
    # Flipping an unused bit of the gzip header does no harm.
    assert re.search(message, error) if error else numbers == list(range(sum(SIZES)))


@pytest.mark.parametrize("made", ["none"], indirect=True)
def test_records_that_can_be_read_again_are_said_to_be(made):
    options = LoadOptions(path=made, split=None, batch_size=1)
    shards = open_shards(open_source(options), options)
    text = explained(shards, tf.constant([8, 9], tf.int64)).numpy().decode()
    first, *_, last = sorted(made.glob("*.tfrecord-0000?-of-*"))
    assert text.startswith(f"one of the shards {first} to {last}: reading failed, but a second attempt suc")


def read(dataset):
    """Return the numbers that are delivered, and the text of the error that follows, if any."""
    numbers = []
    try:
        for batch in dataset.as_numpy_iterator():
            numbers.extend(batch["number"].tolist())
    except tf.errors.InvalidArgumentError as error:
        return numbers, str(error)
    return numbers, ""


@pytest.mark.parametrize("made", ["none"], indirect=True)
def test_error_names_a_shard_replaced_by_an_intact_one_with_different_records(copied):
    dataset = loader.load(copied, batch_size=4, remainder="keep", shuffle=loader.Shuffle(seed=1))
    shard = second(copied)
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for record in reversed(records):
            writer.write(record)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"shard.* {re.escape(str(shard))}.*was replaced"
    ):
        list(dataset)


REMOVED = """
    import os, sys
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    from pathlib import Path
    from tfshards import loader
    from tfshards.loader import pipeline

    pipeline.FEW_POSITIONS = 0
    dataset = loader.load(sys.argv[1], batch_size=2, epochs=None, shuffle=loader.Shuffle(seed=0))
    iterator = iter(dataset)
    next(iterator)
    for shard in Path(sys.argv[1]).glob("*.tfrecord-*"):
        shard.unlink()
    try:
        while True:
            next(iterator)
    except tf.errors.InvalidArgumentError as error:
        print(error)
"""


def test_an_endless_run_fails_and_names_a_shard_if_the_dataset_is_removed(programs, copied):
    done = programs.run(["-c", textwrap.dedent(REMOVED), copied], timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"shard .*tfrecord-0000\d-of-00003 cannot be read: it was removed", done.stdout)
