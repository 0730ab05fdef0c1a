import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfshards.schemas import FormatError
from tfshards.schemas.json_reader import ObjectReader, parse_json, shown

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
def test_any_json_value_is_read_back_unchanged(value):
    parsed = parse_json(json.dumps(value), "d.json")
    assert parsed == value
    # True == 1 == 1.0 in Python
    assert json.dumps(parsed) == json.dumps(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "Expecting value", id="an empty file"),
        pytest.param('{"a": 1', "Expecting ',' delimiter", id="a cut file"),
        pytest.param("{} {}", "Extra data", id="two documents"),
        pytest.param("\ufeff{}", "BOM", id="a byte order mark is not JSON"),
        pytest.param(
            '{"a": 1, "b": 2, "a": 3}', "the name 'a' is repeated in an object", id="a repeated name"
        ),
        pytest.param('[{"a": {"b\\n": 1, "b\\n": 1}}]', r"the name 'b\n' is repeated", id="also deep inside"),
        pytest.param("[NaN]", "NaN is not JSON", id="Python would accept it"),
        pytest.param("[-Infinity]", "-Infinity is not JSON", id="and this"),
        pytest.param("[1e999]", "the number '1e999' is too large", id="and make infinity of this"),
        pytest.param("[" * 100_000, "recursion", id="nested too deeply"),
        pytest.param("9" * 5000, "integer string conversion", id="too many digits"),
    ],
)
def test_text_that_is_not_strict_json_is_refused(text, message):
    with pytest.raises(
        FormatError, match=r"^d.json: 1 problem\n  \(document\): not readable as JSON: "
    ) as error:
        parse_json(text, "d.json")
    assert message in str(error.value)


def test_a_repeated_name_is_found_in_linear_time():
    text = "{" + "".join(f'"{index}":0,' for index in range(100_000)) + '"99999":0}'
    start = time.process_time()
    with pytest.raises(FormatError, match="the name '99999' is repeated"):
        parse_json(text, "d.json")
    # 0.05 s; minutes if every name were counted
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "null", id="as JSON spells it"),
        pytest.param("a\n\udc80\x1b", r"'a\n\udc80\x1b'", id="on one line, printable"),
        pytest.param("größe", "'größe'", id="letters stay"),
        pytest.param([1, 2, 3, 4, 5, 6], "[1, 2, 3, 4, 5, 6]", id="a short list is whole"),
        pytest.param([1, 2, 3, 4, 5, 6, 7], "[1, 2, 3, 4, 5, 6, ...]", id="a long one is cut"),
        pytest.param([[[[]]]], "[[[...]]]", id="so is a deep one"),
        pytest.param({}, "{}", id="an object"),
    ],
)
def test_a_value_is_shown_in_one_short_line(value, text):
    assert shown(value) == text


@given(JSON)
def test_any_value_is_shown_in_one_short_line(value):
    assert shown(value).isprintable()
    assert len(shown(value)) < 3000


def test_a_long_string_is_shown_by_its_ends():
    spelled = shown("a" * 5000 + "z")
    assert len(spelled) <= 100
    assert spelled.startswith("'aaa")
    assert spelled.endswith("aaz'")


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        pytest.param("3", int, "is '3', must be an integer", id="digits in a string"),
        pytest.param(True, int, "is True, must be an integer", id="Python's bool is an int, JSON's is not"),
        pytest.param(3.0, int, "is 3.0, must be an integer", id="nor is a float"),
        pytest.param(None, str, "is null, must be a string", id="null is not left out"),
        pytest.param(1, bool, "is 1, must be true or false", id="a number is not a boolean"),
        pytest.param({}, list, "is {}, must be a list", id="an object"),
        pytest.param([], dict, "is [], must be an object", id="a list"),
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


def test_a_missing_field_is_noted_once_and_the_default_returned():
    reader = ObjectReader({})
    assert reader.take("a", str, "default") == "default"
    assert noted(reader) == [("a", "is missing")]


@pytest.mark.parametrize(
    ("number", "least", "sound"),
    [
        (0, 0, True),
        (-1, 0, False),
        (0, 1, False),
        (1, 1, True),
        (2**63 - 1, 0, True),
        (2**63, 0, False),
    ],
)
def test_a_count_is_between_its_least_and_the_largest_int64(number, least, sound):
    reader = ObjectReader({"a": number})
    assert reader.count("a", least) == (number if sound else least)
    message = f"is {number}, must lie between {least} and 2^63 - 1"
    assert noted(reader) == ([] if sound else [("a", message)])


@pytest.mark.parametrize("document", [{}, {"a": "1"}], ids=["missing", "a string"])
def test_a_count_that_is_not_an_integer_is_one_problem(document):
    reader = ObjectReader(document)
    assert reader.count("a", least=1) == 1
    assert len(reader.problems) == 1


def test_the_rule_of_a_string_applies_only_to_strings():
    def fault(text):
        return None if text == "good" else f"is {text}, must be good"

    reader = ObjectReader({"a": "good", "b": "bad", "c": 3})
    assert [reader.text(name, fault) for name in "abcd"] == ["good", "bad", "", ""]
    assert noted(reader) == [
        ("b", "is bad, must be good"),
        ("c", "is 3, must be a string"),
        ("d", "is missing"),
    ]


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
    ("name", "place"),
    [
        pytest.param("train", "splits.train", id="as it is"),
        pytest.param("a\nb", r"splits.'a\nb'", id="no name breaks a report's line"),
        pytest.param("\udc80", r"splits.'\udc80'", id="or cannot be printed"),
        pytest.param("", "splits.''", id="or is not seen"),
    ],
)
def test_a_place_is_printable(name, place):
    assert ObjectReader({}, "splits").at(name) == place
