"""``--stratify`` together with ``--group-by``: whole groups, and classes as even as these allow."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raises
from tests.prep.test_splits import SEEDS, place, ratios, split_of
from tfshards.prep import ImageFolder, Options, append, plan
from tfshards.prep.planning import group_splits
from tfshards.prep.planning.group_splits import split_groups_by_class
from tfshards.prep.planning.splits import key_hash, split_by_cuts, split_by_ratio
from tfshards.schemas import InputError

KINDS = ("ill", "well")
HALVES = {"train": Fraction(1, 2), "val": Fraction(1, 2)}
GROUPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=50)


def unevenness(groups, classes, split_of_group, ratios):
    """The sum of squares that is minimized, as docs/reference.md has it."""
    totals = Counter(classes)
    counts = Counter((split_of_group[group], kind) for group, kind in zip(groups, classes, strict=True))
    return sum(
        (counts[split, kind] - ratio * total) ** 2 / total
        for split, ratio in ratios.items()
        for kind, total in totals.items()
    )


def grouped(pairs, ratios, seed):
    """The groups, classes and splits of examples; None if a split would be empty."""
    groups, classes = [b"%d" % group for group, _ in pairs], [kind for _, kind in pairs]
    try:
        return groups, classes, split_groups_by_class(groups, ratios, seed, np.array(classes))
    except InputError:
        return None


@given(GROUPS, ratios(), SEEDS)
def test_a_group_is_in_the_one_split_that_the_manifest_records(pairs, ratios, seed):
    found = grouped(pairs, ratios, seed)
    if found is None:
        return
    groups, _, membership = found
    names = split_of(membership, len(groups))
    assert len(set(zip(groups, names, strict=True))) == len(set(groups))
    again = split_by_cuts(groups, membership.cuts, ratios, groups=groups)
    assert split_of(again, len(groups)) == names
    assert again.cuts == membership.cuts
    cuts, moved = membership.cuts["cuts"]["all"], membership.cuts["moved"]
    by_cuts = {group: list(ratios)[place(group, seed, cuts)] for group in groups}
    chosen = dict(zip(groups, names, strict=True))
    assert sorted(chosen[group] for group in chosen if by_cuts[group] != chosen[group]) == sorted(
        moved.values()
    )


@given(GROUPS, ratios(), SEEDS, st.randoms())
def test_the_order_of_examples_has_no_effect(pairs, ratios, seed, random):
    found = grouped(pairs, ratios, seed)
    shuffled = random.sample(pairs, len(pairs))
    other = grouped(shuffled, ratios, seed)
    assert (found is None) == (other is None)
    if found and other:
        assert found[2].cuts == other[2].cuts
        splits = (
            dict(zip(groups, split_of(membership, len(groups)), strict=True))
            for groups, _, membership in (found, other)
        )
        assert next(splits) == next(splits)


@given(GROUPS, ratios(), SEEDS)
def test_no_move_and_no_exchange_of_groups_is_more_even(pairs, ratios, seed):
    found = grouped(pairs, ratios, seed)
    if found is None:
        return
    groups, classes, membership = found
    chosen = dict(zip(groups, split_of(membership, len(groups)), strict=True))
    least = unevenness(groups, classes, chosen, ratios)
    sizes = Counter(chosen.values())
    for group, own in chosen.items():
        for split in ratios:
            if sizes[own] > 1:
                assert unevenness(groups, classes, {**chosen, group: split}, ratios) >= least - Fraction(
                    1, 10**8
                )
        for other, its in chosen.items():
            exchanged = {**chosen, group: its, other: own}
            assert unevenness(groups, classes, exchanged, ratios) >= least - Fraction(1, 10**8)


@given(GROUPS, ratios(), SEEDS)
def test_classes_are_at_least_as_even_as_without_stratify(pairs, ratios, seed):
    groups, classes = [b"%d" % group for group, _ in pairs], [kind for _, kind in pairs]
    try:
        plain = split_by_ratio(groups, ratios, seed, groups=groups)
    except InputError:
        return
    even = split_groups_by_class(groups, ratios, seed, np.array(classes))
    first, second = (
        unevenness(groups, classes, dict(zip(groups, split_of(each, len(groups)), strict=True)), ratios)
        for each in (plain, even)
    )
    assert second <= first + Fraction(1, 10**8)


def test_patients_with_pictures_of_several_classes_are_divided_evenly():
    random = np.random.default_rng(1)
    # 60 patients, each with 1 to 9 pictures; of the rare class only ten have any
    pairs = []
    for patient in range(60):
        main = 2 if patient % 6 == 0 else patient % 2
        pairs += [(patient, main if random.random() < 0.8 else int(random.integers(2)))] * int(
            random.integers(1, 10)
        )
    groups, classes = [b"patient%d" % patient for patient, _ in pairs], np.array([kind for _, kind in pairs])
    wanted = {"train": Fraction(8, 10), "val": Fraction(1, 10), "test": Fraction(1, 10)}
    membership = split_groups_by_class(groups, wanted, 0, classes)
    for split, members in membership.examples.items():
        share = np.bincount(classes[members], minlength=3) / np.bincount(classes)
        assert np.abs(share - float(wanted[split])).max() < 0.025, (split, share)


def least_of_all(table, ratios):
    """The lowest sum of squares of all assignments in which no split is empty."""
    assigned = np.array([*itertools.product(range(len(ratios)), repeat=len(table))])
    full = np.all([(assigned == split).any(axis=1) for split in range(len(ratios))], axis=0)
    totals, sums = table.sum(axis=0), 0
    for split, ratio in enumerate(ratios.values()):
        sums += (((assigned[full] == split) @ table - float(ratio) * totals) ** 2 / totals).sum(axis=1)
    return sums.min()


@pytest.mark.parametrize("number", range(40))
def test_few_groups_are_divided_as_evenly_as_possible(number):
    random = np.random.default_rng(number)
    num_groups, num_classes = int(random.integers(5, 10 if number % 2 else 13)), int(random.integers(2, 5))
    table = random.integers(0, 9, (num_groups, num_classes)) + 1
    if number % 3 == 0:
        # each group has one class
        table *= random.integers(0, num_classes, num_groups)[:, None] == np.arange(num_classes)
        table = table[:, table.sum(axis=0) > 0]
    wanted = {"train": Fraction(8, 10), "val": Fraction(2, 10)}
    if number % 2:
        wanted = {"train": Fraction(6, 10), "val": Fraction(2, 10), "test": Fraction(2, 10)}
    group, kind = (np.repeat(index.ravel(), table.ravel()) for index in np.indices(table.shape))
    groups = [b"%d" % each for each in group]
    membership = split_groups_by_class(groups, wanted, number, kind)
    chosen = dict(zip(groups, split_of(membership, len(groups)), strict=True))
    found = unevenness(groups, kind.tolist(), chosen, wanted)
    assert float(found) <= least_of_all(table.astype(float), wanted) + 1e-8


def test_many_groups_are_split_without_comparing_pairs():
    random = np.random.default_rng(0)
    groups = [b"%d" % number for number in random.integers(0, 2000, 6000)]
    classes = random.integers(0, 20, 6000)
    membership = split_groups_by_class(groups, HALVES, 0, classes)
    share = np.bincount(classes[membership.examples["val"]], minlength=20) / np.bincount(classes)
    assert np.abs(share - 0.5).max() < 0.01


def test_the_time_is_limited(monkeypatch):
    random = np.random.default_rng(0)
    groups, classes = [b"%d" % group for group in random.integers(0, 60, 300)], random.integers(0, 9, 300)
    unlimited = split_groups_by_class(groups, HALVES, 0, classes)
    monkeypatch.setattr(group_splits, "_MAX_STARTS", 1)
    monkeypatch.setattr(group_splits, "_MAX_TERMS", 0)
    monkeypatch.setattr(group_splits, "_MIN_STEPS", 1)
    limited = split_groups_by_class(groups, HALVES, 0, classes)
    # one step moves a group, or exchanges two
    assert len(limited.cuts["moved"]) <= 2 < len(unlimited.cuts["moved"])


def test_membership_of_stratified_groups_never_changes_between_releases():
    groups = [b"%d" % (number // 3) for number in range(30)]
    classes = np.arange(30) // 4 % 3
    membership = split_groups_by_class(groups, HALVES, 0, classes)
    assert membership.examples["val"].tolist() == [0, 1, 2, 9, 10, 11, 15, 16, 17, 18, 19, 20, 27, 28, 29]
    assert membership.cuts["moved"] == {
        "4e1ae46274137f85f0aca41328e12cd7": "val",
        "d1052eebf3e09a8d1901d48928f1a221": "train",
    }


def drawn(seed, num_groups, num_classes, num_examples):
    """The arguments of a split into halves."""
    random = np.random.default_rng(seed)
    groups = [b"%d" % number for number in random.integers(0, num_groups, num_examples)]
    return groups, HALVES, 0, random.integers(0, num_classes, num_examples)


@pytest.fixture
def moved_with(monkeypatch):
    """The groups that are moved if these numbers are the limits of the search."""

    def moved(arguments, **limits):
        with monkeypatch.context() as patch:
            for name, number in limits.items():
                patch.setattr(group_splits, name, number)
            return split_groups_by_class(*arguments).cuts["moved"]

    return moved


def test_the_best_of_32_starts_is_used(moved_with):
    # the start after these would be better, and the last of these is better than those before
    for seed, other in ((12, 33), (104, 31)):
        arguments = drawn(seed, 40, 60, 600)
        many = {"_MAX_START_TERMS": 10**8}
        found = moved_with(arguments, **many)
        assert found == moved_with(arguments, _MAX_STARTS=32, **many)
        assert found != moved_with(arguments, _MAX_STARTS=other, **many)


def test_many_groups_and_classes_have_fewer_starts(moved_with):
    # 100 * 100 pairs of groups, and 100 classes: 2 starts have two million terms
    arguments = drawn(0, 100, 100, 1500)
    first, second, third = (
        moved_with(arguments, _MAX_STARTS=number, _MAX_START_TERMS=10**8) for number in (1, 2, 3)
    )
    assert first != second != third
    assert moved_with(arguments) == second
    assert moved_with(arguments, _MAX_START_TERMS=0) == first


def test_the_number_of_steps_is_that_of_the_terms(moved_with):
    arguments = drawn(0, 60, 9, 300)
    groups, _, _, classes = arguments
    terms = 2 * len(set(zip(groups, classes.tolist(), strict=True)))
    one = {"_MAX_STARTS": 1, "_MIN_STEPS": 0}
    steps = [moved_with(arguments, **one, _MAX_TERMS=terms * number) for number in (0, 1, 2, 3)]
    assert [len(moved) for moved in steps[:2]] == [0, 1]
    assert steps[2] != steps[1] != steps[3] != steps[2]
    assert moved_with(arguments, _MAX_STARTS=1, _MIN_STEPS=2, _MAX_TERMS=0) == steps[2]


@pytest.mark.parametrize(("num_groups", "are_exchanged"), [(512, True), (513, False)])
def test_pairs_of_up_to_512_groups_are_exchanged(num_groups, are_exchanged, moved_with):
    random = np.random.default_rng(0)
    sizes = random.integers(10, 40, num_groups)
    groups = [b"%d" % number for number in np.repeat(np.arange(num_groups), sizes)]
    arguments = (groups, HALVES, 0, random.integers(0, 4, len(groups)))
    found = moved_with(arguments, _MAX_STARTS=1)
    with_pairs, without = (
        moved_with(arguments, _MAX_STARTS=1, _MOST_FOR_PAIRS=most) for most in (num_groups, 0)
    )
    assert with_pairs != without
    assert found == (with_pairs if are_exchanged else without)


def evened(sizes, splits):
    """The splits of groups of one class after the search; the ratios are equal."""
    numbers = np.arange(len(sizes))
    table = group_splits._Table(numbers, 0 * numbers, np.array(sizes), np.array([sum(sizes)]), len(sizes))
    count = max(splits) + 1
    return group_splits._evened(table, np.array(splits), [1 / count] * count).tolist()


def test_a_step_exchanges_two_groups_of_the_first_pair_of_splits(monkeypatch):
    monkeypatch.setattr(group_splits, "_MAX_TERMS", 0)
    monkeypatch.setattr(group_splits, "_MIN_STEPS", 1)
    # no move helps, and exchanges with the last split help as much
    assert evened([4.0, 3.0, 3.0, 2.0, 3.0, 2.0], [0, 0, 1, 1, 2, 2]) == [1, 0, 0, 1, 2, 2]


@pytest.mark.parametrize(("size", "splits"), [(1e9, [0, 0, 0, 1]), (1e8, [0, 1, 0, 1])])
def test_a_change_of_a_billionth_is_a_rounding_error(size, splits):
    assert evened([size - 1, 1.0, 1.0, size - 1], [0, 0, 0, 1]) == splits


def test_changes_are_rounded_so_that_equal_ones_compare_as_equal():
    table = group_splits._table(np.array([0, 0, 1]), np.zeros(3, dtype=np.int64))
    excess = group_splits._excess(table, np.arange(2), [0.5, 0.5])
    changes = group_splits._changes(table, np.arange(2), excess)
    assert changes.tolist() == [[2.666666667, 1.333333333], [1.333333333, 0.666666667]]


def test_a_split_after_the_last_group_has_the_highest_cut():
    ratios = {"train": Fraction(4, 5), "val": Fraction(1, 5)}
    membership = split_groups_by_class([b"one"] + [b"nine"] * 9, ratios, 6, np.zeros(10, dtype=np.int64))
    assert membership.cuts["cuts"] == {"all": ["f" * 32]}
    assert membership.cuts["moved"] == {key_hash(b"one", 6): "val"}


def test_membership_of_many_small_datasets_never_changes_between_releases():
    parts = [(4, 1), (3, 1), (8, 1, 1), (6, 2, 2), (1, 1, 1), (5, 3, 2, 2)]
    results = []
    for number in range(48):
        # its numbers are the same in each release of NumPy
        random = np.random.RandomState(number)
        num_groups, num_classes = random.randint(4, 13), random.randint(1, 5)
        size = num_groups * random.randint(2, 6)
        groups = [b"%d" % group for group in random.randint(0, num_groups, size)]
        classes = random.randint(0, num_classes, size)
        shares = parts[number % len(parts)]
        wanted = {f"s{index}": Fraction(part, sum(shares)) for index, part in enumerate(shares)}
        try:
            results.append(json.dumps(split_groups_by_class(groups, wanted, number, classes).cuts))
        except InputError as error:
            results.append(str(error))
    digest = hashlib.sha256("\n".join(results).encode()).hexdigest()
    assert digest == "ed427f32e60c07c2ae3c5485c265dd6856424078dfbc9e32123b4a5bdf9decde"


def test_a_split_without_a_group_is_an_error():
    with raises(InputError, "split-empty", share="0.5 of 1 groups"):
        split_groups_by_class([b"one"] * 4, HALVES, 0, np.arange(4) % 2)


@pytest.fixture
def patients(image_folder):
    """Images of 12 patients in two class folders; every third patient is in both."""
    return image_folder(
        {
            f"{kind}/p{patient:02d}_{number}.png": 10 * patient + number
            for patient in range(12)
            for number, kind in enumerate(
                ("ill", "well") if patient % 3 == 0 else (("ill", "well")[patient % 2],) * 2
            )
        }
    )


def test_appended_images_of_a_known_patient_stay_in_its_split(patients, image_folder, tmp_path, quiet_build):
    given = Options(splits={"train": "3/4", "val": "1/4"}, stratify=True, group_by=r"/(p\d+)_")
    out = tmp_path / "out"
    before = plan(ImageFolder(patients), out, options=given)
    assert before.membership.cuts["moved"]
    manifest = quiet_build(ImageFolder(patients), out, options=given)
    assert manifest.splits["train"].label_counts == {"ill": 9, "well": 9}
    assert manifest.splits["val"].label_counts == {"ill": 3, "well": 3}
    split_of_patient = {
        before.listing.keys[number].split(b"/")[1][:3].decode(): split
        for split, numbers in before.membership.examples.items()
        for number in numbers
    }
    more = image_folder({f"well/p{patient:02d}_9.png": 200 + patient for patient in range(12)}, name="more")
    grown = append(more, out, log=lambda _: None, engine="local")
    added = Counter(split_of_patient.values())
    for split, held in grown.splits.items():
        assert held.num_examples - manifest.splits[split].num_examples == added[split]
