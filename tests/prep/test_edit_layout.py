"""The shards of a split after some records were removed: balanced, with as few shards written as possible."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.prep.rewriting.layout import SplitLayout, balanced_counts, edited_layout
from tfshards.prep.rewriting.origin import Origin
from tfshards.schemas import Feature, Manifest, Schema, Shard, Split, Totals

SCHEMA = Schema((Feature("x", "int", "int64"),))


def layout_of(sizes: list[int], is_removed: np.ndarray, *, is_balanced: bool) -> SplitLayout:
    digest = f"sha256:{64 * '0'}"
    shards = [
        Shard(
            f"d-train-0123abcd.tfrecord-{index:05d}",
            size,
            16 * size,
            16 * size,
            digest,
            digest,
            16 * "0",
            16 * "0",
            "",
        )
        for index, size in enumerate(sizes)
    ]
    manifest = Manifest("d", "0123abcd", SCHEMA, {"train": Split(tuple(shards))}, Totals(0, 0))
    origin = Origin(Path("d"), manifest)
    return edited_layout(origin, "train", is_removed, None, is_balanced=is_balanced)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("sizes", "left", "wanted", "why"),
    [
        ((5, 5, 5), (5, 4, 5), (5, 4, 5), "one less is balanced: no other shard changes"),
        ((6, 5, 5), (6, 4, 5), (5, 5, 5), "the only shard of 6 gives one"),
        ((5, 5, 5, 5), (5, 5, 5, 2), (5, 4, 4, 4), "two of the others give one each, the last of equal ones"),
        ((5, 5, 5, 5), (0, 5, 5, 5), (3, 4, 4, 4), "an emptied shard is filled"),
        ((5, 5), (1, 1), (1, 1), "all shards have lost as many"),
        ((2, 2, 2), (0, 1, 1), (0, 1, 1), "fewer examples than shards: one shard less"),
        ((2, 2, 2), (2, 0, 0), (1, 1, 0), "the examples that are left are spread"),
    ],
)
def test_the_counts_of_shards_are_balanced_again(sizes, left, wanted, why):
    assert balanced_counts(numbers(*sizes), numbers(*left)).tolist() == list(wanted), why


@given(st.data())
def test_no_assignment_leaves_more_shards_unchanged(data):
    num_shards = data.draw(st.integers(1, 5))
    least = data.draw(st.integers(0, 4))
    sizes = [least + data.draw(st.integers(0, 1)) for _ in range(num_shards)]
    left = [data.draw(st.integers(0, size)) for size in sizes]
    total = sum(left)
    if not total:
        return
    found = balanced_counts(numbers(*sizes), numbers(*left)).tolist()
    held = [count for count in found if count]
    assert sum(held) == total
    assert len(held) == min(num_shards, total)
    assert max(held) - min(held) <= 1
    if total < num_shards:
        return
    low = total // num_shards
    unchanged = max(
        sum(new == old == size for new, old, size in zip(one, left, sizes, strict=True))
        for one in itertools.product((low, low + 1), repeat=num_shards)
        if sum(one) == total
    )
    assert sum(new == old == size for new, old, size in zip(found, left, sizes, strict=True)) == unchanged


@given(st.data(), st.booleans())
def test_the_other_records_keep_their_shard_and_order_except_the_moved_ones(data, is_balanced):
    num_shards = data.draw(st.integers(1, 6))
    if is_balanced:
        least = data.draw(st.integers(1, 8))
        sizes = [least + data.draw(st.integers(0, 1)) for _ in range(num_shards)]
    else:
        sizes = [data.draw(st.integers(0, 9)) for _ in range(num_shards)]
    is_removed = np.array([data.draw(st.booleans()) for _ in range(sum(sizes))], np.bool_)
    if is_removed.all():
        return
    made = layout_of(sizes, is_removed, is_balanced=is_balanced)
    shard_of = np.repeat(np.arange(num_shards), sizes)
    made_records = [made.records_of(index) for index in range(len(made.kept))]
    assert sorted(np.concatenate(made_records).tolist()) == np.flatnonzero(~is_removed).tolist()
    homes = [int(np.bincount(shard_of[each], minlength=num_shards).argmax()) for each in made_records]
    moved = 0
    for records, kept, home in zip(made_records, made.kept, homes, strict=True):
        if kept >= 0:
            assert records.tolist() == np.flatnonzero(shard_of == kept).tolist()
            continue
        own = [number for number in records.tolist() if shard_of[number] == home]
        assert own == sorted(own)
        moved += len(records) - len(own)
    if is_balanced:
        counts = [len(each) for each in made_records]
        assert max(counts) - min(counts) <= 1
        assert made.num_moved <= is_removed.sum() + num_shards
    else:
        assert made.num_moved == moved == 0
