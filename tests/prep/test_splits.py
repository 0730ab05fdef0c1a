"""Splits by ratio and by group, and the shard of each example, as docs/format.md says."""

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.prep.table_files import examples, write_text
from tfshards import loader
from tfshards.prep import Arrays, ImageFolder, Options, append, build, limited_jobs, plan
from tfshards.schemas import InputError, read_manifest

SEEDS = st.integers(0, 2**63 - 1)
PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=50)
# rows of ten groups, since short lists of few groups leave splits empty
TEN_GROUPS = st.builds(
    lambda random, count: [(random.randrange(10), random.randrange(4)) for _ in range(count)],
    st.randoms(use_true_random=False),
    st.integers(20, 80),
)


@st.composite
def ratios(draw: st.DrawFn) -> dict[str, Fraction]:
    parts = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    return {f"s{index}": Fraction(part, sum(parts)) for index, part in enumerate(parts)}


def hashed(key: str, seed: int) -> str:
    """Return the hash of a key as in docs/format.md."""
    given = {"digest_size": 16, "key": str(seed).encode(), "person": b"tfshards-split"}
    return hashlib.blake2b(key.encode(), **given).hexdigest()


def divide(pairs, ratios, seed, **options):
    """Plan rows with a group and a class each; return split of each row and recorded cuts, or the error."""
    groups, classes = (np.array(each) for each in zip(*pairs, strict=True))
    arrays = {"label": classes, "group": groups}
    try:
        found = plan(Arrays(arrays), "out", seed=seed, options=Options(splits=ratios, **options))
    except InputError as error:
        return error, None
    names = [""] * len(pairs)
    for name, numbers in found.membership.examples.items():
        for number in numbers.tolist():
            assert not names[number], "a row is in two splits"
            names[number] = name
    assert all(names), "a row is in no split"
    return names, json.loads(json.dumps(found.membership.cuts))


def largest_remainder(count: int, ratios: dict[str, Fraction]) -> Counter:
    """Assign examples one by one, each to the split that is furthest below its target."""
    sizes = {name: int(ratio * count) for name, ratio in ratios.items()}
    while sum(sizes.values()) < count:
        sizes[max(sizes, key=lambda name: ratios[name] * count - sizes[name])] += 1
    return Counter(sizes)


def by_cuts(key: str, seed: int, names, cuts: list[str]) -> str:
    """Return the split as in docs/format.md: the number of cuts not greater than the hash of the key."""
    return [*names][sum(cut <= hashed(key, seed) for cut in cuts)]


@given(PAIRS, ratios(), SEEDS, st.booleans())
def test_each_class_has_its_sizes_and_each_key_is_where_the_cuts_say(pairs, ratios, seed, stratify):
    names, recorded = divide(pairs, ratios, seed, stratify=stratify)
    strata = {}
    for number, (_, kind) in enumerate(pairs):
        strata.setdefault(str(kind) if stratify else "all", []).append(number)
    expected = {stratum: largest_remainder(len(rows), ratios) for stratum, rows in strata.items()}
    if recorded is None:
        assert "would be empty" in str(names)
        assert not all(sum(expected.values(), Counter())[name] for name in ratios)
        return
    assert (recorded["splits"], recorded["seed"]) == ([*ratios], seed)
    assert recorded["cuts"].keys() == strata.keys()
    for stratum, rows in strata.items():
        assert Counter(names[row] for row in rows) == expected[stratum]
        for row in rows:
            # so that keys added later follow the same rule, and no old key moves
            assert by_cuts(str(row), seed, ratios, recorded["cuts"][stratum]) == names[row]


def with_all(pairs):
    """Return the pairs with all examples as one more class."""
    return [(str(group), kind) for group, kind in pairs] + [(str(group), "all") for group, _ in pairs]


def unevenness(pairs, split_of, ratios):
    """Return the sum of the squared excess of splits in classes, by the sizes of the classes."""
    totals = Counter(kind for _, kind in with_all(pairs))
    held = Counter((split_of[group], kind) for group, kind in with_all(pairs))
    terms = (
        (held[split, kind] - ratios[split] * totals[kind]) ** 2 / totals[kind]
        for split in ratios
        for kind in totals
    )
    return sum(terms)


def limit(pairs, ratios):
    """Return the limit of the sum."""
    totals = Counter(kind for _, kind in with_all(pairs))
    counts = Counter(with_all(pairs)).items()
    random = sum(Fraction(count**2, totals[kind]) for (_, kind), count in counts)
    # quotients are compared with 64 bits after the point
    return (1 - sum(ratio**2 for ratio in ratios.values())) * random + Fraction(1, 10**12)


@given(PAIRS | TEN_GROUPS, ratios(), SEEDS, st.booleans())
def test_a_group_is_in_one_split_and_classes_are_as_even_as_promised(pairs, ratios, seed, stratify):
    names, recorded = divide(pairs, ratios, seed, stratify=stratify, group_by="group")
    if recorded is None:
        assert "would be empty" in str(names)
        # what an empty split lacks of each class and of all examples
        lacking = 2 * len(pairs) * ratios[re.search("split '(.*)' would", str(names))[1]] ** 2
        assert not stratify or lacking <= limit(pairs, ratios)
        return
    chosen = {str(group): name for (group, _), name in zip(pairs, names, strict=True)}
    assert [chosen[str(group)] for group, _ in pairs] == names
    cuts = {group: by_cuts(group, seed, ratios, recorded["cuts"]["all"]) for group in chosen}
    moved = {hashed(group, seed): name for group, name in chosen.items() if cuts[group] != name}
    assert moved == recorded.get("moved", {})
    if stratify:
        assert unevenness(pairs, chosen, ratios) <= limit(pairs, ratios)
    else:
        assert not moved


def test_hashes_that_end_with_zeros_are_compared_in_full():
    # NumPy drops zeros at the end of its strings of bytes
    ordered = sorted(map(str, range(3000)), key=lambda key: hashed(key, 0))
    ends = [place for place, key in enumerate(ordered) if hashed(key, 0).endswith("00")]
    assert len(ends) > 5
    for end in ends[:6]:
        share = Fraction(end, 3000)
        names, recorded = divide([(0, 0)] * 3000, {"a": share, "b": 1 - share}, 0)
        assert recorded["cuts"]["all"] == [hashed(ordered[end], 0)]
        assert [names[int(key)] for key in ordered] == ["a"] * end + ["b"] * (3000 - end)


def test_membership_of_classes_and_groups_never_changes_between_releases():
    parts = [(4, 1), (3, 1), (8, 1, 1), (6, 2, 2), (1, 1, 1), (5, 3, 2, 2)]
    results = []
    for number in range(24):
        # its numbers are the same in each release of NumPy
        random = np.random.RandomState(number)
        num_groups, num_classes = random.randint(4, 13), random.randint(1, 5)
        size = num_groups * random.randint(2, 6)
        pairs = [*zip(random.randint(0, num_groups, size), random.randint(0, num_classes, size), strict=True)]
        shares = parts[number % len(parts)]
        wanted = {f"s{index}": Fraction(part, sum(shares)) for index, part in enumerate(shares)}
        found = divide(pairs, wanted, number, stratify=True, group_by="group")
        results.append(json.dumps(found[1]) if found[1] else "would be empty")
    digest = hashlib.sha256("\n".join(results).encode()).hexdigest()
    assert digest == "72d47519e7136c215aa71a933af97dce88e3e5b5810973706ce67d8e2887958b"


def test_appended_images_of_a_known_patient_stay_in_its_split(image_folder, tmp_path, quiet_build):
    # every third patient is in both folders
    kinds = {p: ("ill", "well") if p % 3 == 0 else (("ill", "well")[p % 2],) * 2 for p in range(12)}
    files = {f"{kind}/p{p:02d}_{n}.png": 10 * p + n for p in kinds for n, kind in enumerate(kinds[p])}
    given = Options(splits={"train": "3/4", "val": "1/4"}, stratify=True, group_by=r"/(p\d+)_")
    out, source = tmp_path / "out", ImageFolder(image_folder(files))
    before = plan(source, out, options=given)
    assert before.membership.cuts["moved"]
    manifest = quiet_build(source, out, options=given)
    assert manifest.splits["train"].label_counts == {"ill": 9, "well": 9}
    assert manifest.splits["val"].label_counts == {"ill": 3, "well": 3}
    patients = {
        split: {before.listing.keys[number].split(b"/")[1][:3] for number in numbers}
        for split, numbers in before.membership.examples.items()
    }
    more = image_folder({f"well/p{patient:02d}_9.png": 200 + patient for patient in kinds}, name="more")
    grown = append(more, out)
    for split, held in grown.splits.items():
        assert held.num_examples - manifest.splits[split].num_examples == len(patients[split])


# Several captions per image: rows that name the same image stay in one split, by ``group_by``


RATIOS = {"train": "1/2", "val": "1/2"}


BY_IMAGE = Options(splits=RATIOS, group_by="file_name")


def captions_by_split(out):
    """Return the captions of each split, which begin with the number of their image."""
    return {
        split: {values["caption"][0].decode() for values in examples(out, split).values()}
        for split in read_manifest(out).splits
    }


def images_of(captions):
    return {caption.split()[0] for caption in captions}


def check_apart(out, num_captions, num_images):
    """Check that each image is in one split."""
    splits = captions_by_split(out).values()
    assert sum(map(len, splits)) == num_captions
    assert sum(len(images_of(captions)) for captions in splits) == num_images


def rows_of(spellings, numbers):
    """Return lines of a table with one caption for each spelling of each image."""
    return [f"{spelling.format(n)},{n} {k}" for n in numbers for k, spelling in enumerate(spellings)]


@pytest.fixture
def photos(image_folder):
    return image_folder({f"a/{number}.png": number for number in range(20)})


def test_rows_of_one_image_stay_in_one_split(photos, build_table, tmp_path):
    (photos / "link").symlink_to("a")
    for number in range(14):
        os.symlink(f"{number}.png", photos / f"a/{number}-link.png")
    spellings = ["a/../a//{}.png", "link/{}-link.png", f"{photos}/link/{{}}.png"]
    table = write_text(photos / "rows.csv", "file_name,caption", *rows_of(spellings, range(12)))
    with pytest.raises(InputError, match="group_by='file_name'"):
        build_table(table, build={"options": Options(splits=RATIOS)})
    manifest = build_table(table, build={"options": BY_IMAGE})
    check_apart(tmp_path / "out", 36, 12)
    assert manifest.splits["train"].num_examples == 18


# Which example is where: balanced shards, with and without rejects, in the order of docs/format.md


def splitmix64(state: int) -> int:
    """Return one value as in the paper; ``state`` is already advanced."""
    mask = 2**64 - 1
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
    return state ^ (state >> 31)


def stored(out) -> list[int]:
    return [int(row["x"]) for row in loader.Records(out)]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 12), min_size=6, max_size=40), st.integers(1, 6), st.integers(0, 9))
def test_shards_stay_balanced_without_rejects_and_as_few_examples_as_possible_move(values, num_shards, seed):
    assume(len({*values}) >= num_shards)
    source, dropped = Arrays({"x": np.array(values)}), Options(duplicates="drop")
    planned = [shard.tolist() for shard in plan(source, "out", shards=num_shards, seed=seed).layouts["train"]]
    with tempfile.TemporaryDirectory() as folder, limited_jobs(1):
        out = f"{folder}/out"
        manifest = build(source, out, shards=num_shards, seed=seed, options=dropped)
        rows = iter([int(row["key"]) for row in loader.Records(out)])
    final = [[*islice(rows, shard.num_examples)] for shard in manifest.shards]
    kept = [[row for row in shard if row == values.index(values[row])] for shard in planned]
    share, extra = divmod(len({*values}), num_shards)
    assert sorted(map(len, final)) == [share] * (num_shards - extra) + [share + 1] * extra
    # no example of a shard that has too few moves, and none moves inside of a shard
    assert all(now[: len(old)] == old[: len(now)] for now, old in zip(final, kept, strict=True))
    fullest = sorted(map(len, kept), reverse=True)
    moved = sum(max(0, len(old) - len(now)) for now, old in zip(final, kept, strict=True))
    assert moved == sum(max(0, size - share - (rank < extra)) for rank, size in enumerate(fullest))


@pytest.mark.parametrize(("count", "seed"), [(1, 0), (2, 2**63 - 1), (12, 1), (101, 0)])
def test_examples_are_in_the_order_of_splitmix64s_values(count, seed, tmp_path, quiet_build):
    start = int.from_bytes(hashlib.blake2b(f"{seed}/train".encode(), digest_size=8).digest(), "little")
    values = [splitmix64((start + place * 0x9E3779B97F4A7C15) % 2**64) for place in range(1, count + 1)]
    num_shards = min(count, 3)
    with limited_jobs(1):
        manifest = quiet_build(
            Arrays({"x": np.arange(count)}), tmp_path / "out", shards=num_shards, seed=seed
        )
    assert stored(tmp_path / "out") == sorted(range(count), key=values.__getitem__)
    sizes = [shard.num_examples for shard in manifest.shards]
    assert sizes == [count // num_shards + (n < count % num_shards) for n in range(num_shards)]
