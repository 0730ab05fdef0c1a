"""Keys in files: what is written is read and found again, and damaged files are named."""

import os
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.prep.exported import write_dataset
from tfshards.schemas import Feature, FormatError, Schema, read_manifest
from tfshards.schemas.keys import KeyTable, each_shard, find, keys_at, occurrences
from tfshards.schemas.storage import any_path

SCHEMA = Schema((Feature("key", "bytes", "bytes"),))
KEY = st.binary(max_size=5).map(lambda key: key.replace(b"\0", b"0"))


def written(root, shards):
    rows = [[{"key": key} for key in keys] for keys in shards]
    return write_dataset(root, SCHEMA, {"train": rows}).shards


@given(
    keys=st.lists(KEY, unique=True, max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=4),
    others=st.lists(KEY, max_size=5),
    data=st.data(),
)
def test_examples_are_found_by_their_keys_and_keys_by_their_numbers(
    keys, cuts, others, data, tmp_path_factory
):
    bounds = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    root = any_path(tmp_path_factory.mktemp("keys"))
    shards = written(root, [keys[start:end] for start, end in pairwise(bounds)])
    assert [key for _, held in each_shard(root, shards) for key in held] == keys
    number_of = {key: number for number, key in enumerate(keys)}
    wanted = data.draw(st.permutations([*keys, *others, *keys[:2]]))
    expected = [number_of.get(key, -1) for key in wanted]
    assert find(root, shards, wanted).tolist() == expected
    table = KeyTable(root, shards)
    assert [table.find(key) for key in wanted] == expected
    assert {*occurrences(root, shards, wanted)} == {(number_of[key], key) for key in wanted if key in keys}
    numbers = [number for number in expected if number >= 0]
    assert keys_at(root, shards, np.array(numbers, np.int64)) == [keys[number] for number in numbers]


def test_a_key_that_several_examples_have_is_found_in_each(tmp_path):
    shards = written(tmp_path := any_path(tmp_path), [[b"a", b"b"], [b"a"]])
    assert [*occurrences(tmp_path, shards, [b"a"])] == [(0, b"a"), (2, b"a")]


@pytest.mark.parametrize("content", [None, b"", b"a", b"a\0b\0c", b"a\0c"])
def test_a_missing_or_damaged_file_of_keys_is_named(content, tmp_path):
    shards = written(tmp_path := any_path(tmp_path), [[b"x"], [b"a", b"b"]])
    (path,) = tmp_path.glob("*/index/*00001-of-00002.keys")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert find(tmp_path, read_manifest(tmp_path).shards, [b"x"]).tolist() == [0]
    for call in (lambda: find(tmp_path, shards, [b"a"]), lambda: KeyTable(tmp_path, shards)):
        with pytest.raises(FormatError, match=path.name) as caught:
            call()
        assert "--repair" in str(caught.value)


# Files that are written whole or not at all; tests/crash judges what a crash leaves of them


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_only_the_old_file(tmp_path, monkeypatch, error):
    path = any_path(tmp_path / "file")
    path.put(b"old")

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        path.put(b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"
