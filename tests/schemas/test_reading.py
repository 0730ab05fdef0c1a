import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.schemas import FormatError
from tfshards.schemas.json_reader import ObjectReader, load_json, parse_json, shown

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner))


def noted(reader):
    return [(problem.place, problem.message) for problem in reader.problems]


@given(JSON)
def test_any_json_value_is_read_back_unchanged_and_shown_in_one_short_line(value):
    parsed = parse_json(json.dumps(value), "d.json")
    # True == 1 == 1.0 in Python
    assert (parsed, json.dumps(parsed)) == (value, json.dumps(value))
    assert shown(value).isprintable()
    assert len(shown(value)) < 3000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ('{"a": 1', "Expecting ',' delimiter"),
        ("{} {}", "Extra data"),
        ("\ufeff{}", "BOM"),
        ('{"a": 1, "b": 2, "a": 3}', "the name 'a' is repeated in an object"),
        ('[{"a": {"b\\n": 1, "b\\n": 1}}]', r"the name 'b\n' is repeated"),
        # Python would accept these
        ("[NaN]", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[1e999]", "the number '1e999' is too large"),
        ("[" * 100_000, "recursion"),
        ("9" * 5000, "integer string conversion"),
    ],
)
def test_text_that_is_not_strict_json_is_refused(text, message):
    with pytest.raises(FormatError, match=r"^d.json: 1 problem\n  \(document\): not readable ") as error:
        parse_json(text, "d.json")
    assert message in str(error.value)


def test_json_of_others_that_is_nested_too_deeply_is_refused():
    with pytest.raises(ValueError, match="nested too deeply"):
        load_json("[" * 100_000)


def test_a_repeated_name_is_found_in_linear_time():
    text = "{" + "".join(f'"{index}":0,' for index in range(100_000)) + '"99999":0}'
    # 0.05 s; minutes if every name were counted
    with pytest.raises(FormatError, match="the name '99999' is repeated"):
        parse_json(text, "d.json")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("a\n\udc80\x1b", r"'a\n\udc80\x1b'"),
        ("größe", "'größe'"),
        ([1, 2, 3, 4, 5, 6], "[1, 2, 3, 4, 5, 6]"),
        ([1, 2, 3, 4, 5, 6, 7], "[1, 2, 3, 4, 5, 6, ...]"),
        ([[[[]]]], "[[[...]]]"),
        ("a" * 5000 + "z", f"'{'a' * 47}...{'a' * 47}z'"),
    ],
)
def test_a_value_is_shown_in_one_short_line(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("3", int, "is '3', must be an integer"),
        # Python's bool is an int, JSON's is not
        (True, int, "is True, must be an integer"),
        (3.0, int, "is 3.0, must be an integer"),
        (None, str, "is null, must be a string"),
        (1, bool, "is 1, must be true or false"),
        ({}, list, "is {}, must be a list"),
        ([], dict, "is [], must be an object"),
    ],
)
def test_a_value_of_another_type_is_noted_and_the_default_returned(value, kind, message):
    reader, default = ObjectReader({"a": value}, "top"), kind()
    assert reader.take("a", kind, default) is default
    assert noted(reader) == [("top.a", message)]


@pytest.mark.parametrize("value", [0, True, "", [], {}])
def test_a_value_of_the_right_type_is_returned_unchanged(value):
    reader = ObjectReader({"a": value})
    assert reader.take("a", type(value), type(value)(1) if value == 0 else value) is value
    assert noted(reader) == []


@pytest.mark.parametrize(
    ("document", "least", "number", "problems"),
    [
        ({"a": 0}, 0, 0, 0),
        ({"a": -1}, 0, 0, 1),
        ({"a": 0}, 1, 1, 1),
        ({"a": 1}, 1, 1, 0),
        ({"a": 2**63 - 1}, 0, 2**63 - 1, 0),
        ({"a": 2**63}, 0, 0, 1),
        ({}, 1, 1, 1),
        ({"a": "1"}, 1, 1, 1),
    ],
)
def test_a_count_is_between_its_least_and_the_largest_int64(document, least, number, problems):
    reader = ObjectReader(document)
    assert reader.count("a", least) == number
    assert [place for place, _ in noted(reader)] == ["a"] * problems


def test_the_rule_of_a_string_applies_only_to_strings():
    reader = ObjectReader({"a": "good", "b": "bad", "c": 3})
    fault = {"good": None, "bad": "must be good"}.get
    assert [reader.text(name, fault) for name in "abcd"] == ["good", "bad", "", ""]
    problems = [("b", "must be good"), ("c", "is 3, must be a string"), ("d", "is missing")]
    assert noted(reader) == problems


def test_readers_of_inner_objects_share_the_problems_and_add_their_path():
    reader = ObjectReader({"a": {"b": [{}, {"c": {}}]}})
    first, second = reader.object("a").objects("b")
    first.note("x", "one")
    second.object("c").note("y", "two")
    assert noted(reader) == [("a.b[0].x", "one"), ("a.b[1].c.y", "two")]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({}, ("a", "is missing")),
        ({"a": 3}, ("a", "is 3, must be an object")),
        ({"a": {"b": None}}, ("a.b", "is null, must be a list")),
        ({"a": {"b": ["x"]}}, ("a.b[0]", "is 'x', must be an object")),
    ],
)
def test_fields_of_a_missing_object_are_not_reported(document, problem):
    reader = ObjectReader(document)
    for inner in reader.object("a").objects("b"):
        inner.object("c").count("d")
    assert noted(reader) == [problem]


def test_wrong_items_are_left_out_of_lists_and_are_zero_in_counts():
    reader = ObjectReader({"names": ["a", 1, "b"], "counts": {"x": 2, "y": -1, "z": "1"}})
    assert reader.strings("names") == ("a", "b")
    assert reader.counts("counts") == {"x": 2, "y": 0, "z": 0}
    assert [place for place, _ in noted(reader)] == ["names[1]", "counts.y", "counts.z"]


def test_unknown_fields_are_noted_in_order():
    reader = ObjectReader({"z": 0, "a": 0, "b": 0})
    reader.only(("a",))
    assert noted(reader) == [("b", "is not a field of this format"), ("z", "is not a field of this format")]


@pytest.mark.parametrize(
    ("name", "place"), [("train", "train"), ("a\nb", r"'a\nb'"), ("\udc80", r"'\udc80'"), ("", "''")]
)
def test_a_place_is_printable(name, place):
    assert ObjectReader({}, "splits").at(name) == f"splits.{place}"
