"""Damaged records keep their positions with weight 0; all other examples are delivered unchanged."""

import itertools
import re
import shutil
import struct

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import fault, raises
from tests.tables import mostly_nightly
from tfshards import loader
from tfshards.loader import Position, Shuffle, Worker
from tfshards.loader.integrity import files
from tfshards.schemas import FormatError, InputError, OptionsError
from tfshards.schemas.frames import masked_crc32c_of
from tfshards.schemas.index import index_path

from .conftest import TEXT_SIZES, flip_bit, frames_of, shard_of, text_of

COUNT = sum(TEXT_SIZES)


def flip_some(path):
    for index, record, within in [(0, 0, 14), (0, 1, 3), (1, 7, 14), (1, 8, 9), (1, 24, 20), (3, 3, 14)]:
        flip(path, index, record, within)


def flip(path, index, record, within=14):
    """Flip a bit of a record at the offset ``within`` its frame; the default is in the data."""
    shard = shard_of(path, index)
    flip_bit(shard, int(frames_of(shard).offsets[record]) + within)


def damage_gzip(path):
    flip_bit(shard_of(path, 1), shard_of(path, 1).stat().st_size // 2)


def empty(path):
    shard_of(path, 1).write_bytes(b"")


def remove(path):
    shard_of(path, 0).unlink()


def cut(path):
    shard = shard_of(path, 3)
    shard.write_bytes(shard.read_bytes()[: frames_of(shard).offsets[5] + 20])


def lengthen(path):
    """Give a record a length that has its checksum, but would take all memory."""
    shard = shard_of(path, 1)
    data, length = bytearray(shard.read_bytes()), struct.pack("<Q", 1 << 40)
    start = int(frames_of(shard).offsets[11])
    data[start : start + 12] = length + struct.pack("<I", masked_crc32c_of([length])[0])
    shard.write_bytes(data)


def add_bytes(path):
    shard = shard_of(path, 1)
    shard.write_bytes(shard.read_bytes() + b"x")


def add_member(path):
    shard = shard_of(path, 1)
    shard.write_bytes(shard.read_bytes() + shard.read_bytes()[:60])


# The damage, the compression, and the numbers of the damaged examples (None: from the first one to the end of
# the second shard).
DAMAGE = [
    (flip_some, "none", [0, 1, 13, 14, 30, 34]),
    (empty, "none", list(range(6, 31))),
    (remove, "none", list(range(6))),
    (cut, "none", [36, 37]),
    (damage_gzip, "gzip", None),
    (remove, "gzip", list(range(6))),
    (lengthen, "none", [17]),
    (add_bytes, "none", [30]),
    (add_member, "gzip", [30]),
]


@pytest.fixture
def damaged(request, texts, tmp_path):
    """Return a damaged dataset, the intact one, and the numbers of the damaged examples."""
    change, compression, lost = request.param
    path = shutil.copytree(texts[compression], tmp_path / "copy")
    change(path)
    weights = [batch["sample_weight"] for batch in skipping(path).as_numpy_iterator()]
    numbers = np.flatnonzero(np.concatenate(weights)[:COUNT] == 0).tolist()
    # nothing after the first damage of a compressed shard can be read
    assert numbers == (lost or list(range(numbers[0], 31)))
    return path, texts[compression], numbers


def skipping(path):
    return loader.load(path, batch_size=4, remainder="pad", on_damage="skip")


OPTIONS = [
    {},
    {"shuffle": Shuffle(seed=3)},
    {"shuffle": Shuffle(seed=3, run=2), "epochs": 2},
    {"shuffle": Shuffle(seed=3, lanes=2), "worker": Worker(1, 2), "epochs": 2, "start": Position(1, 1)},
    {"worker": Worker(0, 2), "epochs": 2, "start": Position(0, 2)},
]


@pytest.mark.filterwarnings("ignore:.*records of split 'train' (is|are) damaged")
@pytest.mark.parametrize(
    ("damaged", "options"),
    mostly_nightly(
        itertools.product(DAMAGE, OPTIONS),
        kept=[*zip(DAMAGE, [OPTIONS[i] for i in (3, 0, 1, 2, 2, 4, 1, 0, 3)], strict=True)][::2],
    ),
    indirect=["damaged"],
)
def test_all_other_examples_keep_their_positions_bit_for_bit(damaged, options):
    path, sound, lost = damaged
    options = {"batch_size": 4, "remainder": "pad"} | options
    wanted = list(loader.load(sound, **options).as_numpy_iterator())
    found = list(loader.load(path, on_damage="skip", **options).as_numpy_iterator())
    assert len(found) == len(wanted)
    first = next(number for number in range(COUNT) if number not in lost)
    substitute = text_of(first)
    for batch, right in zip(found, wanted, strict=True):
        bad = np.isin(right["number"], lost)
        assert batch["sample_weight"].tolist() == np.where(bad, 0, right["sample_weight"]).tolist()
        kept = right["sample_weight"] > 0
        assert batch["number"][kept].tolist() == np.where(bad, first, right["number"])[kept].tolist()
        assert batch["text"][kept].tolist() == np.where(bad, substitute, right["text"])[kept].tolist()
        assert set(batch["number"][~kept].tolist()) <= {first}


def test_a_warning_counts_damaged_records_and_names_the_first(texts, tmp_path):
    path = shutil.copytree(texts["none"], tmp_path / "copy")
    flip_some(path)
    name = re.escape(shard_of(path, 0).name)
    message = rf"6 of the {COUNT} records .* weight 0: {name} record 0, {name} record 1, .* and 3 more"
    with pytest.warns(UserWarning, match=message) as caught:
        loader.load(path, batch_size=4, remainder="pad", on_damage="skip")
    # it points to the line that calls load()
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("block_bytes", [4 << 20, 200], ids=["all at once", "in blocks"])
def test_an_intact_dataset_is_read_without_a_warning(texts, recwarn, monkeypatch, block_bytes, compression):
    monkeypatch.setattr(files, "_BLOCK_BYTES", block_bytes)
    batches = skipping(texts[compression]).as_numpy_iterator()
    assert sum(batch["sample_weight"].sum() for batch in batches) == COUNT
    assert not [warning for warning in recwarn if issubclass(warning.category, UserWarning)]


def test_damage_after_load_is_still_an_error(texts, tmp_path):
    path = shutil.copytree(texts["none"], tmp_path / "copy")
    flip(path, 3, 2)
    with pytest.warns(UserWarning, match="1 of the 38 records"):
        dataset = loader.load(path, batch_size=4, remainder="pad", on_damage="skip")
    flip(path, 1, 5)
    with pytest.raises(Exception, match="is damaged at record 5"):
        list(dataset)


def test_a_split_of_only_damaged_records_is_an_error(texts, tmp_path):
    path = shutil.copytree(texts["none"], tmp_path / "copy")
    for shard in path.glob("*.tfrecord-*"):
        shard.unlink()
    with raises(InputError, "all-damaged", number=38, name="train"):
        loader.load(path, batch_size=4, remainder="pad", on_damage="skip")


def test_a_missing_index_is_an_error(texts, tmp_path):
    path = shutil.copytree(texts["none"], tmp_path / "copy")
    (path / index_path(shard_of(path, 1).name)).unlink()
    message = r"indexes of the shards .* 1 problem\n.*cannot be read: No such file"
    with pytest.raises(FormatError, match=message):
        skipping(path)


def test_intact_records_of_a_different_dataset_are_an_error(numbered, tmp_path):
    path = shutil.copytree(numbered([5, 5]), tmp_path / "copy")
    one, two = sorted(path.glob("*.tfrecord-*"))
    one.write_bytes(two.read_bytes())
    with pytest.raises(FormatError, match=f"{one.name}: its records differ from the manifest: .* instead of"):
        loader.load(path, batch_size=2, remainder="pad", on_damage="skip")


def test_distribute_skips_as_load_does(texts, tmp_path):
    path = shutil.copytree(texts["none"], tmp_path / "copy")
    flip(path, 1, 5)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with pytest.warns(UserWarning, match="1 of the 38 records"):
        data = loader.distribute(strategy, path, global_batch_size=4, remainder="pad", on_damage="skip")
    assert sum(float(tf.reduce_sum(batch["sample_weight"])) for batch in data) == 37


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_damage": "skip"}, fault("skip-without-pad", remainder="drop")),
        ({"on_damage": "ignore"}, fault("not-a-choice", name="on_damage")),
    ],
)
def test_contradictory_options_are_rejected(texts, options, message):
    with raises(OptionsError, message):
        loader.load(texts["none"], batch_size=4, **options)
