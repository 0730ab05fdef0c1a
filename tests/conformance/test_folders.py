"""Folders of images: classes, splits, lists, patterns, and what is skipped and counted."""

import pytest

from tests.conformance.calls import images
from tests.conformance.inputs import Link, encoded
from tests.conformance.rows import refused, row, stored
from tests.conformance.runner import check
from tfshards.schemas import BuildError, InputError, OptionsError


def files(*names, **more):
    """Return files below ``in``: pictures that are numbered as they are named here."""
    return {f"in/{name}": number for number, name in enumerate(names)} | more


def also(*names, **others):
    """Return such files and others, by name below ``in``."""
    return files(*names) | {f"in/{name}": content for name, content in others["others"].items()}


def flat(*names, split="train"):
    """Return examples without classes; pictures are numbered as they are named here."""
    return {split: {name: {"image": number} for number, name in enumerate(names)}}


def labeled(*names, at=0):
    """Return examples whose class is the part of their path at an index."""
    return {"train": {name: {"image": n, "label": name.split("/")[at]} for n, name in enumerate(names)}}


def in_splits(*names, at=None, order=("train", "val", "test")):
    """Return examples whose split is their first folder, and whose class is the part at an index, if any."""
    splits = {}
    for number, name in enumerate(names):
        label = {} if at is None else {"label": name.split("/")[at] if name.count("/") >= at + 1 else None}
        splits.setdefault(name.split("/")[0].lower(), {})[name] = {"image": number, **label}
    return {split: splits[split] for split in [*order, *splits] if split in splits}


TWO = ("cat/1.png", "dog/1.png", "cat/2.png", "dog/3.png")
BYTES = ("a/b.png", "a.b/1.png", "a b/1.png", "ä/1.png", "z/1.png")
ODD = ("100%/a%20b.png", "100%/a+b.png", "x'\"y/[1]*?.png", "caf\udce9/\udcff.png", "caf\udce9/n\nl.png")
SPLIT = ("train/dog/1.png", "train/cat/1.png", "val/ant/1.png", "test/dog/1.png")
EIGHT = (
    "training/1.png",
    "valid/2.png",
    "dev/3.png",
    "testing/4.png",
    "train/5.png",
    "val/6.png",
    "test/7.png",
)
ORDER = ("train", "training", "val", "valid", "dev", "test", "testing")
KAGGLE = ("train/cat/1.png", "train/dog/2.png", "train/cat/3.png", "test/a.png", "test/b.png")
NOT_IMAGES = {"cat/notes.txt": "no image", "cat/none": "no suffix", "cat/.hidden.png": 1, ".git/config": "x"}
# folders and files of network storages and systems, some of them with images
OF_SYSTEMS = {
    "Synology": ("cat/@eaDir/1.png/SYNO_THUMB.png", "@eaDir/x.png", "#recycle/9.png", "#snapshot/a/1.png"),
    "QNAP": ("@Recycle/cat/3.png", "@Recently-Snapshot/1/cat/1.png", "cat/.@__thumb/1.png"),
    "Windows": ("$RECYCLE.BIN/S-1-5/$R1.png", "$Recycle.Bin/2.png", "RECYCLER/3.png", "FOUND.000/4.png",
                "System Volume Information/x.png",
                "cat/Thumbs.db", "desktop.ini"),
    "Unix": ("lost+found/#123.png", "dog/lost+found/a.png", "~snapshot/daily/cat/1.png"),
    "macOS": ("__MACOSX/cat/1.png", "cat/__MACOSX/._1.png", ".DS_Store", ".Trashes/501/1.png"),
}  # fmt: skip
CUT = encoded(".png", 3)[:-20]

LAYOUTS = [
    row("no folders", files("b.png", "a.png"), images(), stored(flat("b.png", "a.png"))),
    row("class folders", files(*TWO), images(), stored(labeled(*TWO), "cat", "dog")),
    row("folders in classes", files("cat/a/b/1.png", "cat/1.png", "dog/x/1.png"), images(),
        stored(labeled("cat/a/b/1.png", "cat/1.png", "dog/x/1.png"), "cat", "dog")),
    row("names sorted by bytes", files(*BYTES), images(), stored(labeled(*BYTES), "a", "a b", "a.b", "z",
        "ä")),
    row("names of any bytes", files(*ODD), images(), stored(labeled(*ODD), "100%", "caf\udce9", "x'\"y")),
    row("LabelMe", also("1.png", "2.png", others={"1.json": {"shapes": []}, "2.json": {"shapes": []}}),
        images(), stored(flat("1.png", "2.png"), skipped={"not an image": 2},
        warns=("1.json is not read; see docs/datasets.md#other-layouts",))),
    row("LabelMe in classes", also(*TWO, others={"dog/1.json": {"shapes": []}}), images(),
        stored(labeled(*TWO), "cat", "dog", skipped={"not an image": 1}, warns=("dog/1.json is not read",))),
    row("one class", files("cat/1.png", "cat/2.png"), images(as_is=True), stored(labeled("cat/1.png",
        "cat/2.png"), "cat")),
    row("class names that look alike", files("Cat/1.png", "cat/2.png"), images(), stored(labeled("Cat/1.png",
        "cat/2.png"), "Cat", "cat", warns=("'Cat'",))),
    row("names of classes that are numbers", files("2/1.png", "10/2.png"), images(), stored(labeled("2/1.png",
        "10/2.png"), "10", "2", warns=("'10'",))),
    row("splits with classes", files(*SPLIT), images(), stored(in_splits(*SPLIT, at=1), "ant", "cat", "dog")),
    row("all names of splits", files(*EIGHT), images(), stored(in_splits(*EIGHT, order=ORDER))),
    row("splits in any case", files("Train/1.png", "VAL/2.png", "Test/3.png"), images(),
        stored(in_splits("Train/1.png", "VAL/2.png", "Test/3.png"))),
    row("one split folder", files("train/1.png", "train/2.png"), images(), stored(in_splits("train/1.png",
        "train/2.png"))),
    row("a split without classes", files(*KAGGLE), images(), stored(in_splits(*KAGGLE, at=1), "cat", "dog",
        warns=("'test'",))),
    row("a class that a split lacks", files("train/cat/1.png", "train/dog/2.png", "val/cat/3.png"), images(),
        stored(in_splits("train/cat/1.png", "train/dog/2.png", "val/cat/3.png", at=1), "cat", "dog",
        warns=("'val' has no examples of 'dog'",))),
    row("splits by declaration", files("Fold/1.png", "rest/2.png", "old/3.png"),
        images(split_folders={"train": "Fold", "final": "rest"}),
        stored({"train": {"Fold/1.png": {"image": 0}}, "final": {"rest/2.png": {"image": 1}}},
        skipped={"outside the folders": 1}, warns=("old/3.png",))),
    row("names of splits as classes", files("train/1.png", "test/2.png"), images(split_folders={}),
        stored(labeled("train/1.png", "test/2.png"), "test", "train")),
    row("a folder next to splits", also("train/1.png", "test/2.png", others={"labels/a.txt": "x"}), images(),
        stored(in_splits("train/1.png", "test/2.png"), skipped={"not an image": 1})),
    row("an empty split folder", also("train/cat/1.png", others={"test": None}), images(),
        stored(in_splits("train/cat/1.png", at=1), "cat")),
    row("an empty class folder", also("bee/1.png", "bee/2.png", others={"ant": None}), images(as_is=True),
        stored(labeled("bee/1.png", "bee/2.png"), "bee", warns=("1 empty folder, such as 'ant/'",))),
    row("class names in their order", files(*TWO), images(class_names=["dog", "cat"]), stored(labeled(*TWO),
        "dog", "cat")),
    row("a given class without a folder", files(*TWO), images(class_names=["ant",
        "dog", "cat"]), stored(labeled(*TWO), "ant", "dog", "cat", warns=("'ant'",))),
    row("class names of odd text", files("a\\b/1.png", "ca\nt/2.png"), images(class_names=["ca\nt", "a\\b"]),
        stored(labeled("a\\b/1.png", "ca\nt/2.png"), "ca\nt", "a\\b")),
    row("what is no image", also("cat/1.png", "dog/2.png", others=NOT_IMAGES), images(),
        stored(labeled("cat/1.png", "dog/2.png"), "cat", "dog", skipped={"hidden": 2, "not an image": 2})),
    *(row(f"what is left by {name}", also("cat/1.png", "dog/2.png", others=dict.fromkeys(others, 9)),
        images(), stored(labeled("cat/1.png", "dog/2.png"), "cat", "dog", skipped={"hidden": len(others)}))
        for name, others in OF_SYSTEMS.items()),
    row("a link out of the folder",
        also("cat/1.png", "cat/2.png", others={"cat/3.png": Link("../../secret.png")}) | {"secret.png": 9},
        images(as_is=True),
        stored(labeled("cat/1.png", "cat/2.png"), "cat", skipped={"link out of the root": 1})),
    row("links that are followed", also("cat/1.png", others={"cat/3.png": Link("../../secret.png"),
        "dog": Link("../more")}) | {"secret.png": 8, "more/4.png": 9}, images(follow_links=True),
        stored({"train": {"cat/1.png": {"image": 0, "label": "cat"}, "cat/3.png": {"image": 8,
        "label": "cat"}, "dog/4.png": {"image": 9, "label": "dog"}}}, "cat", "dog")),
    row("a link as the folder", files("a.png", "b.png") | {"link": Link("in")}, images("link"),
        stored(flat("a.png", "b.png"))),
    row("an image next to class folders", also("cat/1.png", "dog/2.png", others={"top.png": 9}), images(),
        stored(labeled("cat/1.png", "dog/2.png"), "cat", "dog", skipped={"outside the folders": 1},
        warns=("top.png",))),
    row("images next to classes of a split",
        also("train/cat/1.png", "test/dog/2.png", others={"train/9.png": 9}), images(),
        stored(in_splits("train/cat/1.png", "test/dog/2.png", at=1), "cat", "dog",
        skipped={"outside the folders": 1})),
    row("suffixes in capitals", {"in/a.PNG": encoded(".png", 0), "in/b.Png": encoded(".png", 1)}, images(),
        stored(flat("a.PNG", "b.Png"))),
    row("damaged files are counted", also("cat/1.png", "dog/2.png", others={"dog/bad.png": "text",
        "dog/no.jpg": b""}), images(max_rejected="50%"), stored(labeled("cat/1.png", "dog/2.png"), "cat",
        "dog", rejected={"unreadable": 1, "empty": 1})),
    row("a cut file is counted", also("1.png", "2.png", others={"3.png": CUT}), images(max_rejected=1),
        stored(flat("1.png", "2.png"), rejected={"damaged": 1})),
    row("unchecked files are stored as they are", {"in/a.png": CUT, "in/b.png": 1}, images(check="none"),
        stored({"train": {"a.png": {"image": CUT}, "b.png": {"image": 1}}})),
]  # fmt: skip

EX = ("cat/1.png", "cat/1_thumb.png", "dog/1.png", "dog/a/2_thumb.png")
# pattern -> the files of MANY that it matches
MANY = ("a.png", "cat/a.png", "cat/b/c/a.png", "cats/a.png", "ä.png", "[a.png", "x/cat/b.png")
MATCHED = {
    "*.png": (0, 4, 5), "**/*.png": (0, 1, 2, 3, 4, 5, 6), "cat/*": (1,), "cat/**": (1, 2), "cat/": (1, 2),
    "?.png": (0, 4), "[!b].png": (0, 4), "[ab].png": (0,), "[[]a.png": (5,), "**/a.png": (0, 1, 2, 3),
    "*/*/b.png": (6,), "c*/a.png": (1, 3), "cat/**/a.png": (1, 2),
    "c**/a.png": (1, 2, 3),
}  # fmt: skip


# names with characters that have a meaning in patterns
NAMES = ("b^.png", "^.png", "].png", "(a|b)+.png", "a\nb\nc.png", ".x.png", "a.PNG")
OF_NAMES = {
    "[a-c]^.png": (0,), "[^a].png": (1,), "[]].png": (2,), "(a|b)+.png": (3,), "a\n*": (4,),
    "**": (0, 1, 2, 3, 4, 6), "*.PNG": (6,),
}  # fmt: skip


def chosen(numbers, names=MANY):
    found = {names[number]: number for number in numbers}
    has_classes = all("/" in name for name in found)
    classes = sorted({name.split("/")[0] for name in found}) if has_classes else []
    values = {
        n: {"image": c, **({"label": n.split("/")[0]} if has_classes else {})} for n, c in found.items()
    }
    return {"train": values}, classes


def of_patterns():
    for pattern, numbers in MATCHED.items():
        splits, classes = chosen(numbers)
        if all("/" in MANY[n] for n in numbers) or not any("/" in MANY[n] for n in numbers):
            skipped = {"excluded": len(MANY) - len(numbers)} if len(numbers) < len(MANY) else {}
            yield row(f"include {pattern}", files(*MANY), images(include=[pattern], as_is=True),
                      stored(splits, *classes, skipped=skipped))  # fmt: skip
    for pattern, numbers in OF_NAMES.items():
        left = len(NAMES) - 1 - len(numbers)
        skipped = {"hidden": 1} | ({"excluded": left} if left else {})
        yield row(f"include odd {pattern}", files(*NAMES), images(include=[pattern], split_folders={}),
                  stored(flat_of(numbers), skipped=skipped))  # fmt: skip


def flat_of(numbers):
    return {"train": {NAMES[number]: {"image": number} for number in numbers}}


PATTERNS = [
    *of_patterns(),
    row("exclude", files(*EX), images(exclude=["**/*_thumb.*", "x/"]),
        stored({"train": {"cat/1.png": {"image": 0, "label": "cat"}, "dog/1.png": {"image": 2,
        "label": "dog"}}}, "cat", "dog", skipped={"excluded": 2}, warns=("'x/'",))),
    row("exclude a class", files(*EX), images(as_is=True, exclude=["dog/"]), stored(labeled("cat/1.png",
        "cat/1_thumb.png"), "cat", skipped={"excluded": 2})),
    row("include and exclude", files(*EX), images(as_is=True, include=["cat/*"], exclude=["*/*_*"]),
        stored(labeled("cat/1.png"), "cat", skipped={"excluded": 3})),
]  # fmt: skip

FOOD = ("cat/a.png", "cat/b b.png", "dog/c.png", "dog/d.png", "x.png")


def food(train, test=None, folder="meta"):
    lists = {f"in/{folder}/train.txt": train} | ({f"in/{folder}/test.txt": test} if test else {})
    return files(*FOOD) | lists


def listed(train=(0, 2), test=(1,)):
    splits = {"train": train, "test": test}
    return {s: {FOOD[n]: {"image": n, "label": FOOD[n][:3]} for n in of} for s, of in splits.items() if of}


BOTH = {"train": "meta/train.txt", "test": "meta/test.txt"}
COMPOSED, APART = "caf\xe9/\xe4.png", "cafe\u0301/a\u0308.png"


def of_macos(name, file, entry):
    """Return a row of a list that has another Unicode form of the path of a file."""
    return row(f"a list of macOS {name}", files(file, "cafe/b.png") | {"in/v.txt": f"{entry}\ncafe/b"},
               images(split_list={"val": "v.txt"}, as_is=True), stored({"val": labeled(file, "cafe/b.png")[
               "train"]}, "cafe", file.split("/")[0], skipped={"not an image": 1}))  # fmt: skip


LISTS = [
    row("lists of paths", food("cat/a.png\ndog/c.png\n", "cat/b b.png\n"), images(split_list=BOTH),
        stored(listed(), "cat", "dog", skipped={"in no split list": 2, "not an image": 2})),
    row("lists relative to themselves", food("a.png\n../dog/c.png\n", "b b.png", "cat"),
        images(split_list={"train": "cat/train.txt", "test": "cat/test.txt"}), stored(listed(), "cat", "dog",
        skipped={"in no split list": 2, "not an image": 2})),
    of_macos("with files apart", APART, COMPOSED),
    of_macos("with files composed", COMPOSED, APART),
    of_macos("without a suffix", APART, COMPOSED.removesuffix(".png")),
]  # fmt: skip

OF_TRAIN = {"split_list": {"train": "meta/train.txt"}}
REFUSALS = [
    row("no images", {"in/a.txt": "", "in/b.nef": "II*", "in/.c.png": 1}, images(), refused(InputError,
        "in")),
    row("a hidden folder alone", {"in/.a/1.png": 1, "in/.a/2.png": 2}, images(), refused(InputError,
        "1 hidden")),
    row("an empty folder", {"in": None}, images(), refused(InputError, "in")),
    row("empty classes", {"in/cat": None, "in/dog": None}, images(), refused(InputError, "in")),
    row("no folder", {}, images(), refused(InputError, "in does not exist")),
    row("a file as the folder", {"in": 1}, images(), refused(InputError, "in is not a folder")),
    row("an empty path", {}, images(""), refused(OptionsError)),
    row("a folder with images next to splits", files("train/1.png", "test/2.png", "extra/3.png"), images(),
        refused(InputError, "extra", "train")),
    *(row(f"CamVid with {name}", files("train/1.png", "val/2.png", *others), images(),
        refused(InputError, "cannot, and", "docs/datasets.md#images-and-masks")) for name,
        others in (("annot", ("trainannot/1.png", "valannot/2.png")), ("Masks", ("train_Masks/1.png",)),
        ("labels", ("labels_train/1.png", "labels_val/2.png")))),
    row("two folders of a split", files("TRAIN/1.png", "train/2.png", "test/3.png"), images(),
        refused(InputError, "'TRAIN'", "'train'")),
    row("a folder of splits that is missing", files("Train/1.png"), images(split_folders={"train": "train"}),
        refused(InputError, "'train'", "'Train'")),
    *(row(f"split folders {name}", files("a/1.png"), images(split_folders=given), refused(OptionsError))
        for name,
        given in {"a blank in a name": {"a b": "a"}, "no folder": {"train": ""},
        "two parts": {"train": "a/b"}, "hidden": {"train": ".a"}, "one folder twice": {"train": "a",
        "test": "a"}}.items()),
    row("classes that are not in the names", files(*TWO), images(class_names=["cat"]), refused(InputError,
        "'dog'")),
    row("class names without classes", files("1.png"), images(class_names=["cat"]), refused(InputError)),
    row("everything excluded", files(*TWO), images(exclude=["**"]), refused(InputError, "4")),
    row("nothing included", files(*TWO), images(include=["*.bmp"]), refused(InputError, "*.bmp")),
    row("a pattern that is not valid", files(*TWO), images(include=["[z-a]"]), refused(OptionsError,
        "[z-a]")),
    row("an empty pattern", files(*TWO), images(exclude=[""]), refused(OptionsError, "exclude")),
    row("a list that is missing", files(*FOOD), images(split_list={"train": "gone.txt"}), refused(InputError,
        "gone.txt")),
    row("a list of a file that is missing", food("cat/a.png\ncat/gone.png\n"),
        images(split_list=OF_TRAIN["split_list"]), refused(InputError, "cat/gone.png")),
    row("a list without lines", food("\n"), images(split_list=OF_TRAIN["split_list"]), refused(InputError,
        "train.txt")),
    row("a list of UTF-16", food("cat/a.png\n".encode("utf-16")), images(split_list=OF_TRAIN["split_list"]),
        refused(InputError, "train.txt", "UTF-16", "UTF-8")),
    row("a list of UTF-16, big-endian", food("\ufeffcat/a.png\n".encode("utf-16-be")),
        images(split_list=OF_TRAIN["split_list"]), refused(InputError, "train.txt", "UTF-16")),
    row("a list with a byte order mark and a missing file", food("\ufeffgone.png\n"),
        images(split_list=OF_TRAIN["split_list"]), refused(InputError, "'gone.png'")),
    row("a list with a file twice", food("cat/a.png\ncat/./a.png\n"),
        images(split_list=OF_TRAIN["split_list"]), refused(InputError, "cat/a.png")),
    row("a file in two lists", food("cat/a.png\n", "cat/a.png\n"), images(split_list=BOTH),
        refused(InputError, "cat/a.png")),
    *(row(f"a list with labels after a {name}", food(f"cat/a.png{mark}1\n"), images(**OF_TRAIN),
        refused(InputError, "cat/a.png", "table")) for name, mark in {"space": " ", "tab": "\t",
        "comma": ","}.items()),
    row("a list of an absolute path", files(*FOOD), images(split_list={"train": "/x"}),
        refused(OptionsError)),
    row("a list in a bucket", files(*FOOD), images(split_list={"train": "s3://b/x"}), refused(OptionsError)),
    row("a list of an empty path", files(*FOOD), images(split_list={"train": ""}), refused(OptionsError)),
    row("a list of no split", files(*FOOD), images(split_list={"a b": "x"}), refused(OptionsError)),
    row("lists and split folders", files(*FOOD),
        images(split_list={"train": "x"}, split_folders={"train": "cat"}), refused(OptionsError)),
    row("too many damaged files", also("a.png", others={"b.png": "text"}), images(), refused(BuildError,
        "b.png")),
]  # fmt: skip


@pytest.mark.parametrize(("files", "call", "expected"), [*LAYOUTS, *PATTERNS, *LISTS, *REFUSALS])
def test_a_folder_becomes_what_it_holds_or_is_refused(files, call, expected):
    check(files, call, expected)
