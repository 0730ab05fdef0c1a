"""The label map: taken from a file or a dataset, otherwise sorted, and never guessed."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.errors import fault, raises
from tfshards.prep import Arrays, ImageFolder, Options
from tfshards.prep.sources.classes import class_map, class_names_of, read_class_names, twins
from tfshards.prep.sources.keys import to_text
from tfshards.prep.views.table import labels_text
from tfshards.schemas import InputError, OptionsError, read_manifest

# names of folders are any bytes
ANY_NAME = st.one_of(st.text(min_size=1), st.binary(min_size=1).map(to_text))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ANY_NAME, min_size=1, unique=True))
@example(["\ufeffcat", "\\n", "ends in \\", "\x85", "\u2028", "caf\udce9", "\U0010ffff", "\u202egnp.", " a "])
@example([f"class {number}" for number in range(20_000)])
def test_the_labels_txt_of_a_dataset_is_read_back_unchanged(tmp_path, names):
    (tmp_path / "labels.txt").write_bytes(labels_text(names).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_class_names(tmp_path / "labels.txt") == tuple(names)


BY_HAND = {
    "as some editors write it": (b"\xef\xbb\xbfcat\r\ndog\r\n", ("cat", "dog")),
    "without a last newline": (b"cat\ndog", ("cat", "dog")),
    "what labels.txt would have escaped": ("a\tb\n\u00a0\n".encode(), ("a\tb", "\u00a0")),
}


@pytest.mark.parametrize(("text", "names"), BY_HAND.values(), ids=BY_HAND)
def test_a_map_may_be_written_by_hand(text, names, tmp_path):
    (tmp_path / "labels.txt").write_bytes(text)
    assert read_class_names(tmp_path / "labels.txt") == names


FAULTY = {
    "nothing": (b"", "class-name-line", 1),
    "an empty line": (b"cat\n\ndog\n", "class-name-line", 2),
    "an empty last line": (b"cat\n\n", "class-name-line", 2),
    "a name twice": (b"cat\ndog\ncat\n", "class-name-line", 3),
    "a name twice, once escaped": (b"a\nb\n\\x61\n", "class-name-line", 3),
    "a lone backslash": (b"a\nb\\\n", "class-name-backslash", 2),
    "an escape that is none": (b"a\\d\n", "class-name-backslash", 1),
    "half an escape": (b"\\x4\n", "class-name-backslash", 1),
    "an escape of Python that labels.txt has not": (b"\\N{BULLET}\n", "class-name-backslash", 1),
    "a character that does not exist": (b"\\U00110000\n", "class-name-backslash", 1),
    "an odd number of backslashes": (b"\\\\\\\n", "class-name-backslash", 1),
}


@pytest.mark.parametrize(("text", "code", "number"), FAULTY.values(), ids=FAULTY)
def test_a_faulty_line_is_named(text, code, number, tmp_path):
    (tmp_path / "labels.txt").write_bytes(text)
    with raises(InputError, code, number=number):
        read_class_names(tmp_path / "labels.txt")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path in (tmp_path / "gone.txt", tmp_path):
        with raises(InputError, "unreadable"):
            read_class_names(path)
    (tmp_path / "labels.txt").write_bytes(b"caf\xe9\n")
    with raises(InputError, "text-not-utf8", start=3):
        read_class_names(tmp_path / "labels.txt")


ADD = "; add new classes at their end, and build the dataset again"
MAPS = {
    "a new class": (["cat", "dog", "fox"], f"without 'fox'{ADD}"),
    "a class that is missing": (["cat"], "with 'dog', but there is none"),
    "both": (["cat", "fox"], f"without 'fox'{ADD}; with 'dog', but there is none"),
    "many new ones": (["cat", "dog", *"abcdefg"], f"without 'a', 'b', 'c', 'd', 'e' and 2 more{ADD}"),
}


@pytest.mark.parametrize(("found", "faults"), MAPS.values(), ids=MAPS)
def test_classes_that_are_not_those_of_the_map_are_named(found, faults):
    with raises(InputError, "classes-differ", faults=faults):
        class_map(found, ["dog", "cat"], "there is none")


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


@pytest.mark.parametrize(("names", "lines"), TWINS.values(), ids=TWINS)
def test_class_names_that_people_may_confuse_are_reported(names, lines):
    assert (len(twins(names)) if isinstance(lines, int) else twins(names)) == lines


WRONG = {
    "text": ("cat", fault("class-names-type", names="cat")),
    "numbers": ([1, 2], "class-names-type"),
    "none": ([], "class-names-empty"),
    "one twice": (["a", "b", "a"], fault("class-name-repeated", twice="a")),
}


@pytest.mark.parametrize(("names", "message"), WRONG.values(), ids=WRONG)
def test_an_invalid_label_map_is_reported_at_once(names, message):
    with raises(OptionsError, message):
        ImageFolder("x", class_names=names)


def test_a_build_uses_the_map_and_that_of_its_dataset_gives_the_same(image_folder, tmp_path, quiet_build):
    root = image_folder({"a\\b/1.png": 1, "ca\nt/2.png": 2, "caf\udce9 /3.png": 3})
    order = ("caf\udce9 ", "ca\nt", "a\\b")
    first = quiet_build(ImageFolder(root, class_names=order), tmp_path / "1" / "out")
    assert first.schema.class_names == order
    assert list(first.splits["train"].label_counts) == list(order)
    for again in (read_class_names(tmp_path / "1/out/labels.txt"), class_names_of(tmp_path / "1" / "out")):
        assert again == order
        assert quiet_build(ImageFolder(root, class_names=again), tmp_path / "2" / "out") == first
    (root / "ca\nt" / "2.png").unlink()
    (root / "ca\nt").rmdir()
    with raises(InputError, "classes-differ"):
        quiet_build(ImageFolder(root, class_names=order), tmp_path / "3" / "out")


def test_a_label_map_works_for_arrays_too(tmp_path, quiet_build):
    source = Arrays({"label": np.array(["b", "a", "b"])}, class_names=("b", "a"))
    assert quiet_build(source, tmp_path / "out").splits["train"].label_counts == {"b": 2, "a": 1}
    with raises(InputError, "array-label-unknown", each="b"):
        quiet_build(Arrays({"label": np.array(["b"])}, class_names=("a",)), tmp_path / "2")
    quiet_build(Arrays({"label": np.arange(4)}), tmp_path / "numbers")
    with raises(InputError, "classes-no-names"):
        class_names_of(tmp_path / "numbers")


LACKS = "warning: the split {!r} has no examples of {}; the classes keep their numbers"
LACKING = {
    "a split folder with an empty one": (
        {"train/cat/1.png": 1, "train/dog/1.png": 2, "val/cat/1.png": 3, "val/dog/": b""},
        Options(),
        [LACKS.format("val", "'dog'")],
    ),
    "each lacks one, of a hostile name": (
        {"train/c\n/1.png": 1, "val/dog/1.png": 2},
        Options(),
        [LACKS.format("train", "'dog'"), LACKS.format("val", r"'c\n'")],
    ),
    "many classes in one line": (
        {f"train/{name}/1.png": 1 for name in "abcdefgh"} | {"val/a/1.png": 1},
        Options(),
        [LACKS.format("val", "'b', 'c', 'd', 'e', 'f' and 2 more")],
    ),
    "a folder without images in any split is reported once": (
        {"train/cat/1.png": 1, "val/cat/1.png": 2, "train/dog/": b""},
        Options(),
        ["warning: the folder 'dog' holds no images and is not a class; class_names= can name it"],
    ),
    "a split by ratio with too few": (
        {"cat/1.png": 1, "cat/2.png": 2, "cat/3.png": 3, "dog/1.png": 4},
        Options(splits={"train": "1/2", "val": "1/2"}, group_by="folder"),
        [LACKS.format("train", "'cat'"), LACKS.format("val", "'dog'")],
    ),
}


@pytest.mark.parametrize(("files", "options", "lines"), LACKING.values(), ids=LACKING)
def test_a_class_missing_from_a_split_is_reported_and_keeps_its_number(
    files, options, lines, image_folder, tmp_path, quiet_build, log
):
    manifest = quiet_build(ImageFolder(image_folder(files)), tmp_path / "out", options=options)
    warnings = [line for line in log if line.startswith("warning")]
    assert lines == [line for line in warnings if "no examples of" in line or "holds no images" in line]
    for split in manifest.splits.values():
        assert tuple(split.label_counts) == manifest.schema.class_names


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


def test_class_names_that_do_not_apply_are_refused(image_folder):
    with raises(OptionsError, "allow-missing-useless"):
        ImageFolder("photos", allow_missing_classes=True)
    with raises(InputError, "class-names-useless"):
        ImageFolder(image_folder({"1.png": 1}), class_names=["cat"]).listing()
