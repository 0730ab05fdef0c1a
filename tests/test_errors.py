"""Errors have texts, and codes where a program can act on them; both pass between processes."""

import pickle
import re
from pathlib import Path

import pytest

from tests.errors import raises
from tfshards.schemas import BuildError, FormatError, InputError, OptionsError, Problem

ROOT = Path(__file__).parents[1]
MOST_CODES = 60


def test_the_rules_list_the_codes_that_are_raised():
    rooms = ("schemas", "prep", "loader", "src")
    source = "".join(path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py"))
    raised = {*re.findall(r'\bcode="([a-z-]+)"', source)}
    table = (ROOT / "docs/rules.md").read_text().partition("\n| code | ")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `([a-z-]+)` \|", table, re.M)
    assert listed == sorted(listed)
    assert {*listed} == raised
    assert len(listed) <= MOST_CODES


ERRORS = [
    OptionsError("shards=0 must be at least 1"),
    BuildError("2 of 3 inputs are rejected", "  'a'", code="too-many-rejected"),
    FormatError("x.json", [Problem("a", "is wrong")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_pass_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code) == (type(error), str(error), error.code)


def test_what_a_file_name_holds_is_printed_on_one_line():
    with raises(InputError, r"a\nb\x1b: is empty" + "\n  1 line"):
        raise InputError("a\nb\x1b: is empty", "  1 line")


def test_beam_makes_an_error_of_the_same_class():
    found = type(ERRORS[0])(ERRORS[0].args[0] + " [while running 'Write']", *ERRORS[0].args[1:])
    assert str(found) == "shards=0 must be at least 1 [while running 'Write']"
