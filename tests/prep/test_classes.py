"""The label map: taken from a file or a dataset, otherwise sorted, and never guessed."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.errors import fault, raises
from tfshards.prep import Arrays, ImageFolder, Options
from tfshards.prep.sources.classes import class_map, class_names_of, read_class_names, twins
from tfshards.prep.views.table import labels_text
from tfshards.schemas import InputError, OptionsError, read_manifest

NAMES = {
    "plain ones, in an order of their own": ("dog", "cat", "ant"),
    "backslashes": ("\\", "a\\b", "\\n", "\\\\", "C:\\x41", "\\u", "ends in \\"),
    "ends of lines of every kind": ("a\nb", "a\rb", "a\r\n", "\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"),
    "what steers a terminal": ("\x1b[31mred", "\u202egnp.", "\t", "\x7f", "\x00"),
    "quotes": ('"', "'", '\\"', "\\'", '"""', "a'b\"c"),
    "spaces": (" ", "a ", " a", "a  b", "\u00a0", "\u3000"),
    "names that are not UTF-8": ("caf\udce9", "\udcff\udc80", "猫"),
    "a mark at the beginning": ("\ufeffcat", "dog"),
    "case and Unicode forms": ("cat", "Cat", "caf\u00e9", "cafe\u0301"),
    "comments and numbers": ("# a", "0", "1", "-"),
    "beyond the first plane": ("\U0001f600", "\U000e0001", "\U0010ffff"),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES.keys())
def test_the_labels_txt_of_a_dataset_is_read_back_unchanged(names, tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes(labels_text(names).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_class_names(path) == names


BY_HAND = {
    "as some editors write it": (b"\xef\xbb\xbfcat\r\ndog\r\n", ("cat", "dog")),
    "without a last newline": (b"cat\ndog", ("cat", "dog")),
    "what labels.txt would have escaped": ("a\tb\n\u00a0\n".encode(), ("a\tb", "\u00a0")),
}


@pytest.mark.parametrize(("text", "names"), BY_HAND.values(), ids=BY_HAND.keys())
def test_a_map_may_be_written_by_hand(text, names, tmp_path):
    (tmp_path / "labels.txt").write_bytes(text)
    assert read_class_names(tmp_path / "labels.txt") == names


LONE = r": has a backslash that is not escaped; write it as \\\\$"
FAULTY = {
    "nothing": (b"", r"labels\.txt, line 1: is empty; write one class per line$"),
    "an empty line": (b"cat\n\ndog\n", r"labels\.txt, line 2: is empty; write one class per line$"),
    "an empty last line": (b"cat\n\n", r"labels\.txt, line 2: is empty"),
    "a name twice": (b"cat\ndog\ncat\n", r"labels\.txt, line 3: repeats 'cat'; write one class per line$"),
    "a name twice, once escaped": (b"a\nb\n\\x61\n", r"line 3: repeats 'a'"),
    "a lone backslash": (b"a\nb\\\n", rf"labels\.txt, line 2{LONE}"),
    "an escape that is none": (b"a\\d\n", rf"line 1{LONE}"),
    "half an escape": (b"\\x4\n", rf"line 1{LONE}"),
    "an escape of Python that labels.txt has not": (b"\\N{BULLET}\n", rf"line 1{LONE}"),
    "a character that there is not": (b"\\U00110000\n", rf"line 1{LONE}"),
    "an odd number of backslashes": (b"\\\\\\\n", rf"line 1{LONE}"),
    "no UTF-8": (
        b"caf\xe9\n",
        r"labels\.txt: is not UTF-8 \(.* at byte 3\); save it as UTF-8$",
    ),
}


@pytest.mark.parametrize(("text", "message"), FAULTY.values(), ids=FAULTY.keys())
def test_a_faulty_line_is_named(text, message, tmp_path):
    (tmp_path / "labels.txt").write_bytes(text)
    with pytest.raises(InputError, match=message):
        read_class_names(tmp_path / "labels.txt")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with raises(InputError, "unreadable"):
        read_class_names(tmp_path / "gone.txt")
    with raises(InputError, "unreadable"):
        read_class_names(tmp_path)


def test_twenty_thousand_names_are_read_quickly(tmp_path):
    names = tuple(f"class {number}" for number in range(20_000))
    (tmp_path / "labels.txt").write_text(labels_text(names))
    assert read_class_names(tmp_path / "labels.txt") == names


MAPS = {
    "a new class": (
        ["cat", "dog", "fox"],
        r"'fox' is not among them; add new classes at their end, and build the dataset again$",
    ),
    "a class that is missing": (
        ["cat"],
        r"'dog' is among them, but there is no folder of",
    ),
    "both": (["cat", "fox"], r"'fox' is not among them; .*; 'dog' is among them, but"),
    "many new ones": (
        ["cat", "dog", *"abcdefg"],
        r"'a', 'b', 'c', 'd', 'e' and 2 more are not among them;",
    ),
    "another case": (["cat", "Dog"], r"'Dog' is not among them; .*'dog' is among them, but"),
    "a name that steers a terminal": (["cat", "dog", "\x1b[1m\n"], r"'\\x1b\[1m\\n' is not among them"),
}


@pytest.mark.parametrize(("found", "message"), MAPS.values(), ids=MAPS.keys())
def test_classes_that_are_not_those_of_the_map_are_named(found, message):
    with pytest.raises(InputError, match=f"^the classes differ from the given class names: {message}"):
        class_map(found, ["dog", "cat"], "there is no folder of that name")


def test_a_label_map_keeps_its_order_and_without_one_names_are_sorted():
    assert class_map(["cat", "dog", "cat"], ["dog", "cat"], "") == ("dog", "cat")
    assert class_map(["dog", "cat", "dog"], None, "") == ("cat", "dog")


TWINS = {
    "none": (["cat", "dog"], []),
    "other case": (["cat", "Cat"], ["'Cat' and 'cat' look alike, but are two classes"]),
    "other Unicode form": (
        ["caf\u00e9", "cafe\u0301"],
        ["'cafe\u0301' and 'caf\u00e9' look alike, but are two classes"],
    ),
    "three": (["a", "A", "\u00c5", "A\u030a"], 2),
}


@pytest.mark.parametrize(("names", "lines"), TWINS.values(), ids=TWINS.keys())
def test_class_names_that_people_may_confuse_are_reported(names, lines):
    assert (len(twins(names)) if isinstance(lines, int) else twins(names)) == lines


WRONG = {
    "text": ("cat", fault("class-names-type", names="cat")),
    "numbers": ([1, 2], "class-names-type"),
    "none": ([], "class-names-empty"),
    "one twice": (["a", "b", "a"], fault("class-name-repeated", twice="a")),
}


@pytest.mark.parametrize(("names", "message"), WRONG.values(), ids=WRONG.keys())
def test_an_invalid_label_map_is_reported_at_once(names, message):
    with raises(OptionsError, message):
        ImageFolder("x", class_names=names)


def test_a_build_uses_the_map_and_the_map_of_its_dataset_gives_the_same_build(
    image_folder, tmp_path, quiet_build
):
    root = image_folder({"a\\b/1.png": 1, "ca\nt/2.png": 2, "caf\udce9 /3.png": 3})
    order = ("caf\udce9 ", "ca\nt", "a\\b")
    first = quiet_build(ImageFolder(root, class_names=order), tmp_path / "1" / "out")
    assert first.schema.class_names == order
    assert list(first.splits["train"].label_counts) == list(order)
    for again in (
        read_class_names(tmp_path / "1" / "out" / "labels.txt"),
        class_names_of(tmp_path / "1" / "out"),
    ):
        assert again == order
        assert quiet_build(ImageFolder(root, class_names=again), tmp_path / "2" / "out") == first
    (root / "ca\nt" / "2.png").unlink()
    (root / "ca\nt").rmdir()
    with raises(InputError, "classes-differ"):
        quiet_build(ImageFolder(root, class_names=order), tmp_path / "3" / "out")


def test_a_dataset_without_named_classes_has_no_label_map(tmp_path, quiet_build):
    quiet_build(Arrays({"label": np.arange(4)}), tmp_path / "out")
    with raises(InputError, "classes-no-names"):
        class_names_of(tmp_path / "out")


def test_a_label_map_works_for_arrays_too(tmp_path, quiet_build):
    source = Arrays({"label": np.array(["b", "a", "b"])}, class_names=("b", "a"))
    assert quiet_build(source, tmp_path / "out").splits["train"].label_counts == {"b": 2, "a": 1}
    with raises(InputError, "array-label-unknown", each="b"):
        quiet_build(Arrays({"label": np.array(["b"])}, class_names=("a",)), tmp_path / "2")


LACKING = {
    "a split folder without one": (
        {"train/cat/1.png": 1, "train/dog/1.png": 2, "val/cat/1.png": 3},
        Options(),
        ["warning: the split 'val' has no examples of 'dog'; the classes keep their numbers"],
    ),
    "a split folder with an empty one": (
        {"train/cat/1.png": 1, "train/dog/1.png": 2, "val/cat/1.png": 3, "val/dog/": b""},
        Options(),
        ["warning: the split 'val' has no examples of 'dog'; the classes keep their numbers"],
    ),
    "each lacks one, of a hostile name": (
        {"train/c\n/1.png": 1, "val/dog/1.png": 2},
        Options(),
        [
            "warning: the split 'train' has no examples of 'dog'; the classes keep their numbers",
            r"warning: the split 'val' has no examples of 'c\n'; the classes keep their numbers",
        ],
    ),
    "a folder without images in any split is reported once": (
        {"train/cat/1.png": 1, "val/cat/1.png": 2, "train/dog/": b""},
        Options(),
        ["warning: the folder 'dog' holds no images and is not a class; class_names= can name it"],
    ),
    "a split by ratio with too few": (
        {"cat/1.png": 1, "cat/2.png": 2, "cat/3.png": 3, "dog/1.png": 4},
        Options(splits={"train": "1/2", "val": "1/2"}, group_by="folder"),
        [
            "warning: the split 'train' has no examples of 'cat'; the classes keep their numbers",
            "warning: the split 'val' has no examples of 'dog'; the classes keep their numbers",
        ],
    ),
}


@pytest.mark.parametrize(("files", "options", "lines"), LACKING.values(), ids=LACKING.keys())
def test_a_class_missing_from_a_split_is_reported_and_keeps_its_number(
    files, options, lines, image_folder, tmp_path, quiet_build, log
):
    manifest = quiet_build(ImageFolder(image_folder(files)), tmp_path / "out", options=options)
    assert [line for line in log if line.startswith("warning")] == lines
    for split in manifest.splits.values():
        assert (
            tuple(split.label_counts)
            == manifest.schema.class_names
            == read_manifest(tmp_path / "out").schema.class_names
        )


def test_many_classes_missing_from_a_split_are_reported_in_one_line(image_folder, tmp_path, quiet_build, log):
    files = {f"train/{name}/1.png": 1 for name in "abcdefgh"} | {"val/a/1.png": 1}
    quiet_build(ImageFolder(image_folder(files)), tmp_path / "out")
    assert log[0] == (
        "warning: the split 'val' has no examples of 'b', 'c', 'd', 'e', 'f' and 2 more; "
        "the classes keep their numbers"
    )


def test_the_command_line_takes_a_label_map_from_a_file_or_a_dataset(small_folder, tmp_path, quiet_build):
    from tfshards.prep.cli import main as cli

    Path(tmp_path / "map.txt").write_text("dog\ncat\n")
    build = ["build", "images", str(small_folder)]
    assert cli.main([*build, str(tmp_path / "one"), "--class-names", str(tmp_path / "map.txt")]) == 0
    from_one = ["--class-names-from", str(tmp_path / "one"), "--name=one"]
    assert cli.main([*build, str(tmp_path / "two"), *from_one]) == 0
    one, two = read_manifest(tmp_path / "one"), read_manifest(tmp_path / "two")
    assert one.schema.class_names == ("dog", "cat")
    assert one == two
    (tmp_path / "map.txt").write_text("dog\n")
    assert cli.main([*build, str(tmp_path / "three"), "--class-names", str(tmp_path / "map.txt")]) == 1


def test_missing_classes_cannot_be_allowed_without_class_names():
    with raises(OptionsError, "allow-missing-useless"):
        ImageFolder("photos", allow_missing_classes=True)


def test_class_names_for_a_folder_without_classes_are_refused(image_folder):
    root = image_folder({"1.png": 1})
    with raises(InputError, "class-names-useless"):
        ImageFolder(root, class_names=["cat"]).listing()
