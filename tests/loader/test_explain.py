"""Damage found while reading raises an error that names file, record, offset and remedy."""

import itertools
import re
import shutil

import pytest
import tensorflow as tf

from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import pipeline
from tfshards.loader.integrity.damaged import open_shards
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.source import open_source
from tfshards.loader.records.intervals import explained

from .conftest import TEXT_SIZES, flip_bit, frames_of, shard_of


@pytest.fixture(autouse=True)
def _without_numbers(monkeypatch):
    """Read without numbers, but with remainder="keep", which needs them."""
    monkeypatch.setattr(pipeline, "FEW_POSITIONS", 0)


@pytest.fixture
def copied(request, texts, tmp_path):
    return shutil.copytree(texts[getattr(request, "param", "none")], tmp_path / "copy")


def second(path):
    return shard_of(path, 1)


# The offset of the fault relative to the frame of record 11, whether it counts from the end, and its meaning.
FLIPS = [
    (0, False, "in the length"),
    (9, False, "in the length's checksum"),
    (20, False, "in the data"),
    (-2, True, "in the data's checksum"),
]
SHUFFLES = [None, loader.Shuffle(seed=2), loader.Shuffle(seed=2, run=2, lanes=1)]


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
    starts, lengths = frames_of(shard).offsets, frames_of(shard).lengths
    flip_bit(shard, int(starts[11]) + within + (int(lengths[11]) if from_end else 0))
    message = (
        f"shard {re.escape(str(shard))} is damaged at record 11, offset {starts[11]}; .*verify DATASET --deep"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(loader.load(copied, batch_size=2, remainder=remainder, shuffle=shuffle))


ORDERS = [None, loader.Shuffle(seed=2), loader.Shuffle(seed=2, how="full")]


@pytest.mark.parametrize("shuffle", mostly_nightly(ORDERS, ORDERS[1:2]))
@pytest.mark.parametrize("record", [0, 24])
def test_each_step_after_a_damaged_one_fails(copied, shuffle, record):
    shard = second(copied)
    flip_bit(shard, int(frames_of(shard).offsets[record]) + 20)
    iterator = iter(loader.load(copied, batch_size=2, shuffle=shuffle))
    outcomes = []
    for _ in range(sum(TEXT_SIZES) // 2):
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
        starts, lengths = frames_of(shard).offsets, frames_of(shard).lengths
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


@pytest.mark.parametrize("copied", ["gzip"], indirect=True)
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
    flip_bit(shard, offset) if change == "flip" else shard.write_bytes(data[:offset])
    message = f"shard {re.escape(str(shard))} (is damaged at record|ends after|cannot be read)"
    numbers, error = read(dataset)
    # Flipping an unused bit of the gzip header does no harm.
    assert re.search(message, error) if error else numbers == list(range(sum(TEXT_SIZES)))


def test_records_that_can_be_read_again_are_said_to_be(texts):
    options = LoadOptions(path=texts["none"], split=None, batch_size=1)
    shards = open_shards(open_source(options), options)
    text = explained(shards, tf.constant([8, 9], tf.int64)).numpy().decode()
    first, *_, last = sorted(texts["none"].glob("*.tfrecord-*"))
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


def test_error_names_a_shard_replaced_by_an_intact_one_with_different_records(copied):
    dataset = loader.load(copied, batch_size=4, remainder="keep", shuffle=loader.Shuffle(seed=1))
    shard = second(copied)
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for record in reversed(records):
            writer.write(record)
    message = rf"shard.* {re.escape(str(shard))}.*was replaced"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(dataset)


def test_an_endless_run_fails_and_names_a_shard_if_the_dataset_is_removed(copied):
    iterator = iter(loader.load(copied, batch_size=2, epochs=None, shuffle=loader.Shuffle(seed=0)))
    next(iterator)
    for shard in copied.glob("*.tfrecord-*"):
        shard.unlink()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"tfrecord-0000\d-of-00004 cannot be read: it"):
        list(itertools.islice(iterator, 10_000))
