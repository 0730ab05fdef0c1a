"""``--include`` and ``--exclude``: the keys that a pattern matches, and the counts of excluded files."""

import os

import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder
from tfshards.prep.cli import main as cli
from tfshards.prep.sources.patterns import choose_keys, key_pattern
from tfshards.schemas import InputError, OptionsError, read_manifest

# pattern -> keys that it matches, keys that it does not match
PATTERNS = {
    "*.png": (["a.png", ".png"], ["cat/a.png", "a.PNG", "a.png.jpg"]),
    "**/*.png": (["a.png", "cat/a.png", "cat/b/c/a.png"], ["a.jpg", "cat/png"]),
    "cat/*": (["cat/a.png"], ["cat/b/a.png", "dog/a.png"]),
    "cat/**": (["cat/a.png", "cat/b/a.png"], ["cats/a.png"]),
    "cat/": (["cat/a.png", "cat/b/a.png"], ["cats/a.png"]),
    "cat/**/x.png": (["cat/x.png", "cat/b/c/x.png"], ["cat/ax.png"]),
    "**": (["a.png", "cat/a.png"], []),
    "c**t/a": (["cat/a", "c/x/t/a", "ct/a"], ["c/a"]),
    "**x/a": (["x/a", "b/ax/a"], ["a"]),
    "?.png": (["ä.png", "a.png"], ["ab.png", "/.png"]),
    "[ab].png": (["a.png"], ["c.png"]),
    "[!ab].png": (["c.png"], ["a.png", "/.png"]),
    "[a-c]^.png": (["b^.png"], ["d^.png"]),
    "[^a].png": (["^.png", "a.png"], ["b.png"]),
    "[]].png": (["].png"], ["[.png"]),
    "[a.png": (["[a.png"], ["a.png"]),
    "(a|b)+.png": (["(a|b)+.png"], ["a.png"]),
    "a\n*": (["a\nb\nc"], ["a"]),
}


@pytest.mark.parametrize(("pattern", "matched", "others"), [(p, *k) for p, k in PATTERNS.items()])
def test_a_pattern_matches_whole_keys(pattern, matched, others):
    matches = key_pattern(pattern).fullmatch
    assert [key for key in matched if not matches(key)] == []
    assert [key for key in others if matches(key)] == []


def test_a_pattern_that_is_not_valid_is_reported():
    with pytest.raises(OptionsError, match=r"^the pattern '\[z-a\]' is not valid: bad character range z-a"):
        key_pattern("[z-a]")


def test_a_key_must_match_an_included_and_no_excluded_pattern():
    keys = [b"a/1.png", b"a/2.jpg", b"b/1.png", "ä/\udcff.png".encode("utf-8", "surrogateescape")]
    assert choose_keys(keys, [], [])[0] == set()
    assert choose_keys(keys, ["a/*", "b/*"], [])[0] == {keys[3]}
    assert choose_keys(keys, ["**/*.png"], ["b/**", "a/**"])[0] == {*keys[:3]}
    (warning,) = choose_keys(keys, [], ["*.png"])[1]
    assert warning.startswith("exclude='*.png' matches no image; it is compared with whole paths")


@pytest.mark.parametrize("name", ["include", "exclude"])
def test_patterns_must_be_a_list_of_text(name):
    message = rf"^{name}='\*' must be a list of patterns, such as \['\*\*/\*\.p"
    with pytest.raises(OptionsError, match=message):
        ImageFolder("x", **{name: "*"})
    match = rf"^{name}= contains an empty pattern; '\*\*' matches every file$"
    with pytest.raises(OptionsError, match=match):
        ImageFolder("x", **{name: [""]})


def test_excluded_files_are_skipped_and_counted(image_folder, tmp_path):
    root = image_folder(
        {"cat/1.png": 1, "cat/1_thumb.png": 2, "dog/1.png": 3, "cat/1.jpg": 4, "dog/a/2_thumb.png": 5}
    )
    out = tmp_path / "out"
    command = ["build", "images", str(root), str(out), "--include", "**/*.png", "--exclude", "**/*_thumb.*"]
    assert cli.main(command) == 0
    manifest = read_manifest(out)
    assert manifest.splits["train"].label_counts == {"cat": 1, "dog": 1}
    assert manifest.totals.reasons["skipped"] == {"excluded": 3}
    assert manifest.totals.entries == 5
    assert manifest.options["include"] == ["**/*.png"]
    assert manifest.options["exclude"] == ["**/*_thumb.*"]


def test_a_folder_of_which_all_images_are_excluded_is_no_class_or_split(image_folder):
    root = image_folder({"cat/1.png": 1, "dog/1.png": 2, "empty/": b""})
    assert ImageFolder(root, exclude=["dog/**"], as_is=True).listing().schema.class_names == ("cat",)
    root = image_folder(
        {"train/cat/1.png": 1, "test/cat/1.png": 2, "train/x/1.png": 3, "raw/1.png": 4}, "two"
    )
    listing = ImageFolder(root, exclude=["raw/", "train/x/"]).listing()
    assert [os.fsdecode(key) for key in listing.keys] == ["test/cat/1.png", "train/cat/1.png"]
    assert listing.schema.class_names == ("cat",)
    assert listing.warnings == (
        "the folder 'raw' is not a split and is skipped",
        "the folder 'x' holds no images and is not a class; class_names= can name it",
    )
    root = image_folder({"cat/1.png": 1, "test/1.png": 2}, "three")
    assert ImageFolder(root, exclude=["test/"], as_is=True).listing().schema.class_names == ("cat",)


def test_excluding_every_image_is_an_error(small_folder):
    with raises(InputError, "patterns-leave-none", num_images=13):
        ImageFolder(small_folder, exclude=["**"]).listing()
    with raises(InputError, "patterns-leave-none") as found:
        ImageFolder(small_folder, include=["*.jpg"], exclude=["*.bmp"]).listing()
    assert found.value.lines[0].startswith("include='*.jpg' matches no image")


def test_the_order_of_patterns_does_not_change_the_options():
    one = ImageFolder("x", include=["a", "b", "a"])
    assert one.options() == ImageFolder("x", include=["b", "a"]).options()
    assert one.options()["include"] == ["a", "b"]
