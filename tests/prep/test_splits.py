"""Splits by ratio: exact sizes, stable membership, strata, groups."""

import hashlib
import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import fault, raises
from tfshards.prep.planning import splits
from tfshards.prep.planning.splits import cut_groups, key_hash, parse_ratios, split_by_cuts, split_by_ratio
from tfshards.schemas import InputError, OptionsError

KEYS = st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=60, unique=True)
SEEDS = st.integers(0, 2**63 - 1)


@st.composite
def ratios(draw: st.DrawFn) -> dict[str, Fraction]:
    parts = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    return {f"s{index}": Fraction(part, sum(parts)) for index, part in enumerate(parts)}


def place(key: bytes, seed: int, cuts: list[str]) -> int:
    """Return the split as in docs/format.md: the number of cuts not greater than the hash of the key."""
    own = hashlib.blake2b(key, digest_size=16, key=str(seed).encode(), person=b"tfshards-split").hexdigest()
    return sum(cut <= own for cut in cuts)


def split_of(membership: splits.Membership, count: int) -> list[str]:
    names = [""] * count
    for name, numbers in membership.examples.items():
        for number in numbers.tolist():
            assert not names[number], "an example is in two splits"
            names[number] = name
    assert all(names), "an example is in no split"
    return names


def largest_remainder(count: int, ratios: dict[str, Fraction]) -> dict[str, int]:
    """Assign groups one by one, each to the split that is furthest below its target."""
    sizes = {name: int(ratio * count) for name, ratio in ratios.items()}
    while sum(sizes.values()) < count:
        sizes[max(sizes, key=lambda name: ratios[name] * count - sizes[name])] += 1
    return sizes


@given(KEYS, ratios(), SEEDS)
def test_sizes_are_the_ratios_by_largest_remainder(keys, ratios, seed):
    expected = largest_remainder(len(keys), ratios)
    if 0 in expected.values():
        with raises(InputError, "split-empty"):
            split_by_ratio(keys, ratios, seed)
        return
    membership = split_by_ratio(keys, ratios, seed)
    assert {name: len(numbers) for name, numbers in membership.examples.items()} == expected
    assert list(membership.examples) == list(ratios)
    for numbers in membership.examples.values():
        assert numbers.tolist() == sorted(numbers.tolist())


@given(KEYS, ratios(), SEEDS)
def test_every_key_is_in_the_split_of_the_recorded_cuts(keys, ratios, seed):
    try:
        membership = split_by_ratio(keys, ratios, seed)
    except InputError:
        return
    recorded = membership.cuts
    assert (recorded["splits"], recorded["seed"]) == (list(ratios), seed)
    names = split_of(membership, len(keys))
    # so that keys added later follow the same rule, and no old key moves
    assert [recorded["splits"][place(key, seed, recorded["cuts"]["all"])] for key in keys] == names


@given(KEYS, ratios(), SEEDS, st.data())
def test_each_class_has_its_own_sizes_and_cuts(keys, ratios, seed, data):
    strata = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys))))
    try:
        membership = split_by_ratio(keys, ratios, seed, strata=strata)
    except InputError:
        return
    names = split_of(membership, len(keys))
    for stratum in set(strata.tolist()):
        members = [number for number in range(len(keys)) if strata[number] == stratum]
        sizes = Counter(names[number] for number in members)
        assert sizes == Counter(largest_remainder(len(members), ratios))
        cuts = membership.cuts["cuts"][str(stratum)]
        assert len(cuts) == len(ratios) - 1
        for number in members:
            assert list(ratios)[place(keys[number], seed, cuts)] == names[number]
    assert set(membership.cuts["cuts"]) == {str(stratum) for stratum in strata.tolist()}


@given(KEYS, ratios(), SEEDS, st.data())
def test_a_group_is_never_divided(keys, ratios, seed, data):
    groups = data.draw(
        st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=len(keys), max_size=len(keys))
    )
    try:
        membership = split_by_ratio(keys, ratios, seed, groups=groups)
    except InputError:
        return
    names = split_of(membership, len(keys))
    assert len({(group, name) for group, name in zip(groups, names, strict=True)}) == len(set(groups))
    cuts = membership.cuts["cuts"]["all"]
    assert [list(ratios)[place(group, seed, cuts)] for group in groups] == names


@pytest.mark.parametrize(
    ("sizes", "train", "bound"), [((4, 4), "0.2", 0), ((4, 4), "0.3", 4), ((1, 1, 6), "0.5", 2)]
)
def test_groups_are_cut_at_the_bound_that_is_nearest_to_the_ratio(sizes, train, bound):
    ranks = np.repeat([b"a", b"b", b"c"][: len(sizes)], sizes)
    assert cut_groups(ranks, {"train": Fraction(train), "val": 1 - Fraction(train)}) == [0, bound, 8]


def test_hashes_that_end_with_zeros_are_compared_in_full():
    # NumPy drops zeros at the end of its strings of bytes
    keys = [b"%d" % number for number in range(3000)]
    keys = [key for key in keys if key_hash(key, 0).endswith("00")]
    assert len(keys) > 5
    for share in range(1, len(keys)):
        ratios = {"train": Fraction(share, len(keys)), "val": 1 - Fraction(share, len(keys))}
        membership = split_by_ratio(keys, ratios, 0)
        (cut,) = membership.cuts["cuts"]["all"]
        assert cut == sorted(key_hash(key, 0) for key in keys)[share]
        assert [["train", "val"][place(key, 0, [cut])] for key in keys] == split_of(membership, len(keys))


def test_membership_never_changes_between_releases():
    keys = [b"%d.png" % number for number in range(10)]
    membership = split_by_ratio(keys, {"train": Fraction("0.7"), "val": Fraction("0.3")}, 0)
    assert membership.examples["val"].tolist() == [0, 2, 9]
    assert membership.cuts["cuts"] == {"all": ["bd81fb850f2e9b30740ca536478c9b98"]}


@given(
    st.sets(st.binary(min_size=1, max_size=4), min_size=12, max_size=60),
    st.sampled_from([("1/2", "1/2"), ("0.6", "0.2", "0.2"), ("0.9", "0.1")]),
    st.integers(0, 1 << 40),
    st.sampled_from(["all", "strata", "groups"]),
)
def test_no_key_leaves_its_split(found, parts, seed, by):
    held = sorted(found)
    ratios = {f"s{place}": Fraction(part) for place, part in enumerate(parts)}
    strata = np.arange(len(held)) % 2 if by == "strata" else None
    groups = [key[:1] for key in held] if by == "groups" else None
    try:
        made = split_by_ratio(held, ratios, seed, strata=strata, groups=groups)
    except InputError:
        # too few examples for the number of splits
        return
    # classes have no effect if the cuts are not by class
    again = split_by_cuts(held, made.cuts, ratios, strata=np.arange(len(held)) % 2, groups=groups)
    assert {name: members.tolist() for name, members in again.examples.items()} == {
        name: members.tolist() for name, members in made.examples.items()
    }
    assert again.cuts == made.cuts
    assert sorted(itertools.chain(*again.examples.values())) == list(range(len(held)))


def test_a_class_that_had_no_examples_is_cut_at_the_ratios():
    keys, third = [b"%d" % number for number in range(20)], Fraction(1, 3)
    ratios, cuts = {"a": third, "b": third, "c": third}, ["5" * 32, "a" * 32]
    made = split_by_cuts(keys, {"splits": [*ratios], "seed": 3, "cuts": {}}, ratios, strata=np.full(20, 7))
    assert made.cuts == {"splits": ["a", "b", "c"], "seed": 3, "cuts": {"7": cuts}}
    assert split_of(made, 20) == ["abc"[place(key, 3, cuts)] for key in keys]
    # a split without an example is left out
    one = split_by_cuts(keys[:1], made.cuts, ratios, strata=np.array([7]))
    assert {name: members.tolist() for name, members in one.examples.items()} == {split_of(made, 20)[0]: [0]}


def test_a_class_too_small_for_all_splits_has_a_cut_at_the_end():
    keys = [b"a", b"b", b"c", b"d"]
    three = {"train": Fraction(1, 2), "val": Fraction(1, 4), "test": Fraction(1, 4)}
    membership = split_by_ratio(keys, three, 0, strata=np.array([0, 0, 0, 1]))
    assert membership.cuts["cuts"]["1"] == ["f" * 32] * 2
    assert [*map(len, membership.examples.values())] == [2, 1, 1]
    assert 3 in membership.examples["train"]


EMPTY = {
    "too few examples": (
        {"train": Fraction("0.9"), "val": Fraction("0.1")},
        None,
        fault("split-empty", name="val", share="0.1 of 3 examples"),
    ),
    "one group": (
        {"train": Fraction("0.5"), "val": Fraction("0.5")},
        [b"same"] * 3,
        fault("split-empty", share="0.5 of 1 groups"),
    ),
}


@pytest.mark.parametrize(("ratios", "groups", "message"), EMPTY.values(), ids=EMPTY)
def test_a_split_that_would_be_empty_is_an_error(ratios, groups, message):
    with raises(InputError, message):
        split_by_ratio([b"a", b"b", b"c"], ratios, 0, groups=groups)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["train=1"], {"train": Fraction(1)}),
        (["train=0.9", "val=0.1"], {"train": Fraction(9, 10), "val": Fraction(1, 10)}),
        (["train=90%", "val=10%"], {"train": Fraction(9, 10), "val": Fraction(1, 10)}),
        (["a=1/3", "b=1/3", "c=1/3"], dict.fromkeys("abc", Fraction(1, 3))),
        (["a=33.3%", "b=66.7%"], {"a": Fraction(333, 1000), "b": Fraction(667, 1000)}),
    ],
)
def test_ratios_are_read_exactly(texts, expected):
    assert parse_ratios(texts) == expected


WRONG = {
    "no number": (["train"], r"^splits='train' must be NAME=RATIO, such as train=0\.9 or val=10%$"),
    "a word": (["train=most"], r"^splits='train=most' must be NAME=RATIO"),
    "nothing of nothing": (["train=1/0"], r"^splits='train=1/0' must be NAME=RATIO"),
    "no number that is one": (["train=nan"], r"^splits='train=nan' must be NAME=RATIO"),
    "a name twice": (
        ["train=0.5", "train=0.5"],
        r"^splits='train=0\.5' gives the ratio of split 'train' a second time$",
    ),
    "no name": (["=1"], r"^the split name '' must be letters, digits"),
    "a name with a slash": (["a/b=1"], r"^the split name 'a/b' must be letters, digits"),
    "nothing": (["train=1", "val=0"], r"^split 'val': the ratio 0 must be above 0 and at most 1,"),
    "less than nothing": (["train=-0.5"], r"^split 'train': the ratio -0\.5 must be above 0"),
    "more than all": (["train=150%"], r"^split 'train': the ratio 1\.5 must be above 0 and at most 1,"),
    "a percentage without its sign": (
        ["train=80"],
        r"^split 'train': the ratio 80 must be above 0 and at most 1, such as 80%$",
    ),
    "far more": (["train=1e400"], r"^split 'train': the ratio of more than 300 digits must be above 0"),
    "too little together": (
        ["train=0.8", "val=0.1"],
        r"^the split ratios train=0\.8 \+ val=0\.1 add up to 0\.9; they must add up to 1$",
    ),
    "nearly": (["a=0.333", "b=0.333", "c=0.333"], r"add up to 0\.999; they must add up to 1$"),
}


@pytest.mark.parametrize(("texts", "message"), WRONG.values(), ids=WRONG)
def test_wrong_ratios_are_reported(texts, message):
    with pytest.raises(OptionsError, match=message):
        parse_ratios(texts)


def test_empty_ratios_are_allowed():
    splits.check_ratios({})
