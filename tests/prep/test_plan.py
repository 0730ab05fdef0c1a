"""Assignment of examples to shards: exact, even, complete, and the same in every release."""

import hashlib
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.prep.test_splits import split_of
from tfshards import prep
from tfshards.prep import Arrays, ImageFolder, Table
from tfshards.prep.planning.balance import lay_out, permutation, rebalance
from tfshards.prep.planning.plan import plan_id_of
from tfshards.schemas import OptionsError

SEEDS = st.integers(0, 2**63 - 1)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[np.ndarray], np.ndarray]:
    """Draw a first layout, and a mask of rejects that leaves at least one example per shard."""
    count = draw(st.integers(1, 40))
    num_shards = draw(st.integers(1, min(6, count)))
    layout = lay_out(np.arange(count), num_shards, seed=draw(SEEDS), split="train")
    kept = draw(st.integers(num_shards, count))
    rejected = np.ones(count, dtype=np.bool_)
    rejected[draw(st.permutations(range(count)))[:kept]] = False
    return layout, rejected


def as_lists(layout: list[np.ndarray]) -> list[list[int]]:
    return [shard.tolist() for shard in layout]


@pytest.mark.parametrize("keys_at_once", [1, 2, 3, 7])
def test_the_digest_of_inputs_is_the_same_for_any_buffer(keys_at_once, image_folder, tmp_path, monkeypatch):
    source = ImageFolder(image_folder({f"{number}.png": number for number in range(6)}))
    expected = prep.plan(source, tmp_path / "out").inputs_digest
    monkeypatch.setattr("tfshards.prep.sources.keys._KEYS_AT_ONCE", keys_at_once)
    assert prep.plan(source, tmp_path / "out").inputs_digest == expected


def test_the_plan_id_depends_on_all_options_but_not_on_their_order(tmp_path):
    found = prep.plan(Arrays({"x": np.arange(4)}), tmp_path / "out", seed=3)
    schema, options, digest = found.listing.schema, dict(found.options), found.inputs_digest
    # a manifest may list its options in any order
    other = dict(reversed(options.items()))
    assert list(other) != list(options)
    assert (
        plan_id_of("out", schema, other, digest)
        == plan_id_of("out", schema, options, digest)
        == found.plan_id
    )
    different = [
        plan_id_of("out", schema, options | {"seed": 4}, digest),
        plan_id_of("in", schema, options, digest),
        plan_id_of("out", schema, options, digest + "0"),
    ]
    assert len({found.plan_id, *different}) == 4


def test_a_seed_fits_in_int64_and_is_not_negative(tmp_path):
    source = Arrays({"x": np.arange(4)})
    for seed in (0, 2**63 - 1):
        assert prep.plan(source, tmp_path / "out", seed=seed).options["seed"] == seed
    for seed in (-1, 2**63):
        with pytest.raises(OptionsError, match=rf"^seed={seed} must lie between 0 and 2\^63 - 1$"):
            prep.plan(source, tmp_path / "out", seed=seed)


def test_each_example_of_a_source_with_splits_is_in_one_of_them(image_folder, tmp_path):
    files = {"beside.png": 0, "train/a/1.png": 1, "val/a/2.png": 2}
    files |= {"val/b/3.png": 3, "val/4.png": 4, "more/5.png": 5}
    (tmp_path / "table.csv").write_text("text,split\nred,val\ngreen,train\nblue,test\npink,train\n")
    number, rows = np.arange(5), ["b", "a", "b", "b", "a"]
    for source in (
        ImageFolder(image_folder(files), split_folders={"train": "train", "val": "val"}),
        Arrays({"x": number, "part": np.array(rows)}, split="part"),
        Arrays({"x_train": number, "x_test": number[:2], "x_val": number[:0]}),
        Table(tmp_path / "table.csv"),
    ):
        found = prep.plan(source, tmp_path / "out")
        assert len(set(split_of(found.membership, found.listing.num_examples))) > 1


def splitmix64(state: int) -> int:
    """Return one value as in the paper; ``state`` is already advanced."""
    mask = 2**64 - 1
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
    return state ^ (state >> 31)


@given(count=st.integers(0, 100), seed=SEEDS)
def test_a_permutation_is_the_order_of_splitmix64s_values(count, seed):
    start = int.from_bytes(hashlib.blake2b(f"{seed}/val".encode(), digest_size=8).digest(), "little")
    values = [splitmix64((start + place * 0x9E3779B97F4A7C15) % 2**64) for place in range(1, count + 1)]
    assert permutation(count, seed, "val").tolist() == sorted(range(count), key=values.__getitem__)


# Every later release builds existing datasets the same way: these values never change.
FROZEN = [
    (0, "train", [0, 8, 5, 10, 2, 1, 6, 7, 4, 11, 3, 9]),
    (1, "train", [8, 11, 5, 9, 7, 2, 4, 10, 1, 0, 3, 6]),
    (0, "val", [9, 7, 10, 11, 8, 3, 2, 4, 6, 1, 0, 5]),
    (2**63 - 1, "train", [5, 6, 2, 9, 3, 0, 8, 11, 7, 1, 10, 4]),
]


@pytest.mark.parametrize(("seed", "split", "expected"), FROZEN)
def test_permutations_never_change_between_releases(seed, split, expected):
    assert permutation(12, seed, split).tolist() == expected


def test_layouts_never_change_between_releases():
    by_count = lay_out(np.arange(0, 20, 2), 3, seed=7, split="train")
    assert as_lists(by_count) == [[8, 12, 14, 0], [2, 4, 18], [6, 10, 16]]


@given(count=st.integers(1, 500), data=st.data(), seed=SEEDS)
def test_shards_by_count_differ_by_at_most_one_and_hold_each_example_once(count, data, seed):
    num_shards = data.draw(st.integers(1, count))
    examples = np.cumsum(data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count)))
    layout = lay_out(examples, num_shards, seed=seed, split="train")
    sizes = [len(shard) for shard in layout]
    assert len(sizes) == num_shards
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    order = examples[permutation(count, seed, "train")]
    assert np.concatenate(layout).tolist() == order.tolist()


@given(layouts())
def test_after_rejects_shards_are_even_and_complete_again(made):
    layout, rejected = made
    final = rebalance(layout, rejected)
    sizes = [len(shard) for shard in final]
    assert len(sizes) == len(layout)
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate(final).tolist()) == np.flatnonzero(~rejected).tolist()


@given(layouts())
def test_after_rejects_no_more_examples_move_than_necessary(made):
    layout, rejected = made
    kept = [sum(not rejected[number] for number in shard) for shard in layout]
    share, extra = divmod(sum(kept), len(kept))
    fewest = min(
        sum(max(0, size - share - (index in larger)) for index, size in enumerate(kept))
        for larger in combinations(range(len(kept)), extra)
    )
    final = rebalance(layout, rejected)
    moved = sum(
        len(set(after) - set(before)) for before, after in zip(as_lists(layout), as_lists(final), strict=True)
    )
    assert moved == fewest


@given(layouts())
def test_after_rejects_examples_that_stay_keep_their_order_and_come_first(made):
    layout, rejected = made
    for before, after in zip(as_lists(layout), as_lists(rebalance(layout, rejected)), strict=True):
        stays = [number for number in before if not rejected[number]]
        common = [number for number in after if number in stays]
        assert after[: len(common)] == common == stays[: len(common)]


def test_rejects_of_other_splits_change_nothing():
    layout = lay_out(np.arange(0, 30, 2), 4, seed=3, split="train")
    rejected = np.arange(30) % 2 == 1
    assert as_lists(rebalance(layout, rejected)) == as_lists(layout)
