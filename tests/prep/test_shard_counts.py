"""The numbers of shards: what may be asked for, and what splits get."""

import re
from dataclasses import FrozenInstanceError

import pytest

from tests.errors import raises
from tfshards.prep.planning.options import ShardCounts
from tfshards.schemas import InputError, OptionsError


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        pytest.param(3, {"train": 3, "val": 3}, id="a number for all"),
        pytest.param({"train": 10, "val": 2}, {"train": 10, "val": 2}, id="a number for each"),
        pytest.param({"val": 1}, {"train": 5, "val": 1}, id="a number for one"),
        pytest.param(None, {"train": 5, "val": 4}, id="none: by size, one example each at most"),
        pytest.param(ShardCounts(2), {"train": 2, "val": 2}, id="the value itself"),
    ],
)
def test_splits_get_the_number_asked_for_or_that_of_their_size(shards, expected):
    counts = ShardCounts.of(shards).of_splits({"train": 10, "val": 4}, {"train": 5, "val": 9}, None)
    assert counts == expected


def test_numbers_of_shards_cannot_be_changed():
    asked = ShardCounts(2)
    with pytest.raises(FrozenInstanceError):
        asked.default = 3


@pytest.mark.parametrize("shards", [None, 1])
def test_a_split_without_examples_gets_one_shard(shards):
    assert ShardCounts.of(shards).of_splits({"val": 0}, {"val": 7}, None) == {"val": 1}


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        pytest.param(0, "shards=0 must be at least 1", id="none"),
        pytest.param(True, "shards=True must be an integer, or a dict such as", id="a bool"),
        pytest.param(1.0, "shards=1.0 must be an integer, or a dict such as", id="a float"),
        pytest.param({"val": 0}, 'shards={"val": 0} must be at least 1', id="none of a split"),
        pytest.param({"val": "2"}, "shards={\"val\": '2'} must be an integer", id="text"),
    ],
)
def test_a_number_of_shards_that_is_not_one_is_refused(shards, message):
    with pytest.raises(OptionsError, match=f"^{re.escape(message)}"):
        ShardCounts.of(shards)


@pytest.mark.parametrize(
    ("shards", "examples", "message"),
    [
        pytest.param(
            3, {"train": 2}, "shards=3 exceeds the 2 examples of split 'train'; use at most 2", id="one split"
        ),
        pytest.param(
            2,
            {"train": 1},
            "shards=2 exceeds the 1 example of split 'train'; use at most 1",
            id="one example",
        ),
        pytest.param(
            3,
            {"train": 3, "val": 0},
            "shards=3 exceeds the 0 examples of split 'val'; use at most 0, "
            'for example shards={"train": 3, "val": 1}',
            id="no example",
        ),
        pytest.param(
            {"val": 4},
            {"train": 9, "val": 3},
            "shards={\"val\": 4} exceeds the 3 examples of split 'val'; use at most 3, "
            'for example shards={"train": 9, "val": 3}',
            id="one of two splits",
        ),
        pytest.param(
            {"b": 1, "a": 2},
            {"train": 9},
            'shards={"a": 2} names an unknown split; the only split is train',
            id="an unknown split",
        ),
        pytest.param(
            {"a": 2},
            {"train": 9, "val": 9},
            'shards={"a": 2} names an unknown split; the splits are train, val',
            id="an unknown split among two",
        ),
    ],
)
def test_numbers_that_do_not_fit_the_splits_are_refused(shards, examples, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        ShardCounts.of(shards).of_splits(examples, dict.fromkeys(examples, 99), None)


def test_a_size_is_refused_only_where_it_has_no_effect():
    with raises(OptionsError, "shards-and-size"):
        ShardCounts(2).check_shard_size(100)
    ShardCounts(2).check_shard_size(None)
    ShardCounts(None, {"val": 2}).check_shard_size(100)
    examples, by_size = {"train": 9, "val": 9}, {"train": 3, "val": 3}
    with raises(InputError, "shard-size-useless"):
        ShardCounts(None, {"val": 2, "train": 2}).of_splits(examples, by_size, 100)
    assert ShardCounts(None, {"val": 2}).of_splits(examples, by_size, 100) == {"train": 3, "val": 2}
    assert ShardCounts(None, {"val": 2, "train": 2}).of_splits(examples, by_size, None) == {
        "train": 2,
        "val": 2,
    }
