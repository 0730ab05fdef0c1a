"""``--include`` and ``--exclude``: the keys that a pattern matches, and the counts of excluded files."""

import pytest

from tfshards.prep import ImageFolder
from tfshards.prep.sources.patterns import choose_keys, key_pattern
from tfshards.schemas import OptionsError

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


def test_the_order_of_patterns_does_not_change_the_options():
    one = ImageFolder("x", include=["a", "b", "a"])
    assert one.options() == ImageFolder("x", include=["b", "a"]).options()
    assert one.options()["include"] == ["a", "b"]
