"""Options of a build: splits by ratio, strata, groups, shards, duplicates, and wrong values."""

import hashlib
import re
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from tests.conformance.calls import arrays, images, table
from tests.conformance.inputs import pixels, png
from tests.conformance.rows import by_row, refused, row, stored
from tests.conformance.runner import check
from tests.pixels.corpus.kind import chunk
from tfshards.schemas import BuildError, InputError, OptionsError


def hashed(key, seed):
    """Return the hash of a key as docs/format.md has it."""
    return hashlib.blake2b(
        key.encode(), digest_size=16, key=b"%d" % seed, person=b"tfshards-split"
    ).hexdigest()


def sizes(count, ratios):
    """Return the number of examples of each split, by largest remainder."""
    exact = [count * Fraction(ratio) for ratio in ratios.values()]
    whole = [int(each) for each in exact]
    while sum(whole) < count:
        whole[max(range(len(whole)), key=lambda at: exact[at] - whole[at])] += 1
    return whole


def divided(keys, ratios, seed=0):
    """Return the split of each key, in the order of hashes."""
    ordered = sorted(keys, key=lambda key: hashed(key, seed))
    names = [name for name, size in zip(ratios, sizes(len(keys), ratios), strict=True) for _ in range(size)]
    return dict(zip(ordered, names, strict=True))


def split_rows(split_of, ratios, **columns):
    """Return the rows of arrays in their splits."""
    found = {name: {} for name in ratios}
    for number in range(len(next(iter(columns.values())))):
        values = {name: column[number] for name, column in columns.items()}
        found[split_of(str(number))][str(number)] = values
    return found


X = np.arange(10) * 3
Y = np.array([0, 0, 1, 0, 1, 0, 1, 0, 0, 0])
G = np.array([*"aabbbccdde"])
THREE, HALVES = {"train": "0.7", "val": "0.2", "test": "0.1"}, {"a": "1/2", "b": "1/2"}
FILES = {"x.npy": X, "y.npy": Y, "g.npy": G}
OF_CLASS = {name: divided([str(n) for n in range(10) if Y[n] == name], HALVES) for name in (0, 1)}


def by_group(key, seed=0):
    """Groups in the order of their hashes are cut at the bound that is nearest to the ratio."""
    counts = {
        group: int((group == G).sum()) for group in sorted({*G}, key=lambda each: hashed(str(each), seed))
    }
    bounds = np.cumsum([*counts.values()])
    cut = min(range(len(bounds)), key=lambda at: abs(bounds[at] - 5))
    return "ab"[[*counts].index(G[int(key)]) > cut]


def in_one_group(*names):
    return {f"in/{name}": number for number, name in enumerate(names)}


def small(number):
    size, how = (3, 3), Image.Resampling.LANCZOS
    return np.asarray(Image.fromarray(pixels(number)).resize(size, how))


COMMENT = chunk(b"tEXt", b"Comment\0hello")
TWINS = ("a/1.png", "a/2.png", "b/1.png", "b/2.png")
SAME = {"in/a/1.png": 1, "in/a/2.png": 2, "in/b/1.png": 1, "in/b/3.png": 3}
ROWS = [
    *(row(f"ratios with seed {seed}", FILES, arrays("x.npy", splits=THREE, seed=seed),
        stored(split_rows(divided([*map(str, range(10))], THREE, seed).get, THREE, x=X))) for seed in (0, 1,
        2**40)),
    row("ratios of remainders", FILES, arrays("x.npy", splits={"a": "1/3", "b": "1/3", "c": "1/3"}),
        stored(split_rows(divided([*map(str, range(10))], dict.fromkeys("abc", "1/3")).get, "abc", x=X))),
    row("strata", FILES, arrays("x.npy", "y.npy", roles={"y": "label"},
        splits=HALVES, stratify=True), stored(split_rows(lambda key: OF_CLASS[Y[int(key)]][key], HALVES,
        x=X, y=Y.tolist()))),
    row("groups", FILES, arrays("x.npy", "g.npy", splits=HALVES, group_by="g"), stored(split_rows(by_group,
        HALVES, x=X, g=G.tolist()))),
    row("groups of a dropped column", {"in.csv": "x,g\n" + "".join(f"{a},{b}\n" for a, b in zip(X, G,
        strict=True))}, table(roles={"g": "drop"}, splits=HALVES, group_by="g"), stored(split_rows(by_group,
        HALVES, x=X))),
    *(row(f"groups by {how}", in_one_group(*TWINS), images(splits=HALVES, group_by=how),
        stored({split: {name: {"image": n, "label": name[0]} for n, name in enumerate(TWINS)
        if divided(groups, HALVES)[re.search(how, name)[1] if "(" in how
        else name[0]] == split} for split in HALVES}, "a", "b")) for how, groups in (("folder", "ab"),
        (r"(\d)", "12"))),
    *(row(f"{shards} shards", FILES, arrays("x.npy", shards=shards), stored(by_row(x=X))) for shards in (1, 3,
        10)),
    row("shards of each split", FILES, arrays("x.npy", splits=HALVES, shards={"a": 3, "b": 1}),
        stored(split_rows(divided([*map(str, range(10))], HALVES).get, HALVES, x=X))),
    row("gzip", FILES, arrays("x.npy", "y.npy", compression="gzip"), stored(by_row(x=X, y=Y.tolist()))),
    row("a name", FILES, arrays("x.npy", name="digits"), stored(by_row(x=X))),
    row("duplicates are kept", SAME, images(), stored({"train": {name[3:]: {"image": n, "label": name[3]}
        for name, n in SAME.items()}}, "a", "b")),
    row("duplicates are dropped", SAME, images(duplicates="drop"), stored({"train": {"a/1.png": {"image": 1,
        "label": "a"}, "a/2.png": {"image": 2, "label": "a"}, "b/3.png": {"image": 3, "label": "b"}}}, "a",
        "b", rejected={"duplicate": 1}, warns=("b/1.png",))),
    row("no duplicates to drop", FILES, arrays("x.npy", duplicates="fail"), stored(by_row(x=X))),
    row("duplicates in two splits", {"in/val/1.png": 1, "in/train/2.png": 1, "in/val/3.png": 3},
        images(duplicates="drop"), stored({"train": {"train/2.png": {"image": 1}}, "val": {"val/3.png":
        {"image": 3}}}, rejected={"duplicate": 1})),
    row("the first duplicate by bytes is kept", {"in/\udcff.png": 1, "in/\U0001f600.png": 1, "in/z\n.png": 1},
        images(duplicates="drop"), stored({"train": {"z\n.png": {"image": 1}}}, rejected={"duplicate": 2})),
    row("stored images are compared", {"in/1.png": png(1), "in/2.png": png(1)[:-12] + COMMENT + png(1)[-12:],
        "in/3.png": png(2)}, images(duplicates="drop", resize="3x3"), stored({"train": {"1.png": {"image":
        small(1)}, "3.png": {"image": small(2)}}}, rejected={"duplicate": 1}, conversions={"resized": 2,
        "re-encoded": 2})),
    row("files that show the same are different", {"in/1.png": png(1), "in/2.png": png(1)[:-12] + COMMENT
        + png(1)[-12:]}, images(duplicates="drop"), stored({"train": {"1.png": {"image": png(1)},
        "2.png": {"image": png(1)[:-12] + COMMENT + png(1)[-12:]}}})),
    row("duplicates with other labels", {"in/b/1.png": 1, "in/a/1.png": 1, "in/b/2.png": 2},
        images(duplicates="drop"), stored({"train": {"a/1.png": {"image": 1, "label": "a"}, "b/2.png":
        {"image": 2, "label": "b"}}}, "a", "b", rejected={"duplicate": 1}, warns=("differ in the label",))),
    row("a label of any name is not compared", {"in.csv": "x,species\n1,a\n2,a\n1,b\n"},
        table(roles={"species": "label"}, duplicates="drop"), stored(by_row(x=[1, 2], species=["a", "a"]),
        "a", "b", rejected={"duplicate": 1})),
    row("duplicates are no rejects of the limit", {f"in/{n}.png": 1 for n in range(9)},
        images(duplicates="drop", max_rejected=0), stored({"train": {"0.png": {"image": 1}}},
        rejected={"duplicate": 8})),
    *(row(f"ratios of {name}", FILES, arrays("x.npy", splits=given), stored(split_rows(divided([*map(str,
        range(10))], exact).get, exact, x=X))) for name, given, exact in (("percent", {"a": "90%",
        "b": "10%"}, {"a": "9/10", "b": "1/10"}), ("a fraction of percent", {"a": "33.3%", "b": "66.7%"},
        {"a": "0.333", "b": "0.667"}), ("one split", {"a": 1}, {"a": "1"}))),
    row("rows of equal values are dropped", {"x.npy": np.array([5, 6, 5, 7]), "label.npy": np.array([0, 1, 1,
        0])}, arrays("x.npy", "label.npy", duplicates="drop"),
        stored({"train": {k: {"x": v, "label": n} for k, v, n in (("0", 5, 0), ("1", 6, 1), ("3", 7, 0))}},
        rejected={"duplicate": 1})),
    row("rejected and dropped", SAME | {"in/b/4.png": b"", "in/b/5.png": png(5)[:-30]},
        images(duplicates="drop", max_rejected="50%", shards=3), stored({"train": {"a/1.png": {"image": 1,
        "label": "a"}, "a/2.png": {"image": 2, "label": "a"}, "b/3.png": {"image": 3, "label": "b"}}}, "a",
        "b", rejected={"damaged": 1, "duplicate": 1, "empty": 1})),
    row("balanced without the rejected", {f"in/{n:02}.png": n if n > 4 else b"" for n in range(12)},
        images(max_rejected=1, shards=4, seed=11),
        stored({"train": {f"{n:02}.png": {"image": n} for n in range(5, 12)}}, rejected={"empty": 5})),
    row("as many rejected as allowed", {**{f"in/{n}.png": n for n in range(3)}, "in/x.png": b""},
        images(max_rejected="25%"), stored({"train": {f"{n}.png": {"image": n} for n in range(3)}},
        rejected={"empty": 1})),
]  # fmt: skip
WRONG = {
    "ratios below 1": {"splits": {"a": "0.9"}}, "ratios above 1": {"splits": {"a": "0.9", "b": "0.2"}},
    "a word as a ratio": {"splits": {"a": "most"}}, "a ratio of 0": {"splits": {"a": "1", "b": "0"}},
    "a split with a slash": {"splits": {"a/b": "1"}}, "strata without ratios": {"stratify": True},
    "groups without ratios": {"group_by": "g"}, "another way with duplicates": {"duplicates": "x"},
    "shards of no bytes": {"shard_size": 0}, "a name with a blank": {"name": "a b"},
    "more rejected than all": {"max_rejected": "110%"}, "a word as a share": {"max_rejected": "few"},
    "another compression": {"compression": "zip"}, "no shards": {"shards": 0},
    "no shards of a split": {"shards": {"train": 0}}, "a negative seed": {"seed": -1},
    "a seed of 64 bits": {"seed": 2**63},
    **{f"the ratio {text}": {"splits": {"a": text}} for text in ("nan", "1/0", "-0.5", "150%", "80",
        "1e400")}, "ratios of nearly 1": {"splits": {"a": "0.333", "b": "0.333", "c": "0.333"}},
    **{f"the share {text}": {"max_rejected": text} for text in ("%", "1%%", "1/0%", "inf", "-0.5")},
}  # fmt: skip
REFUSALS = [
    *(row(name, {"in/a.png": 1}, images(**options), refused(OptionsError)) for name,
        options in WRONG.items()),
    row("more shards than examples", FILES, arrays("x.npy", shards=11), refused(InputError, "11",
        "10")),
    row("shards of an unknown split", FILES, arrays("x.npy", shards={"val": 2}), refused(InputError,
        "val")),
    row("a split that would be empty", FILES, arrays("x.npy", splits={"a": "0.99", "b": "0.01"}, shards=1),
        refused(InputError, "b")),
    row("a split of no group", {"x.npy": X, "g.npy": np.array(["a"] * 10)}, arrays("x.npy", "g.npy",
        splits=HALVES, group_by="g"), refused(InputError)),
    row("ratios of a source with splits", in_one_group("train/1.png", "test/2.png"), images(splits=HALVES),
        refused(InputError, "train")),
    row("strata without labels", FILES, arrays("x.npy", splits=HALVES, stratify=True), refused(InputError)),
    row("an expression without a group", in_one_group(*TWINS), images(splits=HALVES, group_by="a"),
        refused(OptionsError)),
    row("an expression that is not valid", in_one_group(*TWINS), images(splits=HALVES, group_by="(a"),
        refused(OptionsError)),
    row("an expression that matches not all", in_one_group(*TWINS), images(splits=HALVES, group_by="(a)"),
        refused(InputError, "b/1.png")),
    row("duplicates that are not allowed", SAME, images(duplicates="fail"), refused(BuildError,
        "b/1.png", "a/1.png")),
    row("fewer examples than shards without duplicates", SAME, images(duplicates="drop", shards=4),
        refused(BuildError, "4", "3")),
    row("only rejected files", {"in/1.png": b"", "in/2.png": b""}, images(duplicates="drop",
        max_rejected="100%"), refused(BuildError, "every input", "train")),
    row("one rejected more than allowed", {**{f"in/{n}.png": n for n in range(3)}, "in/x.png": b""},
        images(max_rejected="24%"), refused(BuildError, "x.png")),
]  # fmt: skip


@pytest.mark.parametrize(("files", "call", "expected"), [*ROWS, *REFUSALS])
def test_options_have_their_effect_or_are_refused(files, call, expected):
    check(files, call, expected)
