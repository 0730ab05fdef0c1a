"""``--stratify`` together with ``--group-by``: whole groups, and classes as even as these allow."""

import hashlib
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
    assert sorted(chosen[g] for g in chosen if by_cuts[g] != chosen[g]) == sorted(moved.values())


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
            f"{kind}/p{p:02d}_{number}.png": 10 * p + number
            for p in range(12)
            for number, kind in enumerate(("ill", "well") if p % 3 == 0 else (("ill", "well")[p % 2],) * 2)
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
