"""Errors have codes and values; texts.json of each room has one text for each code."""

import ast
import json
import pickle
import string
from pathlib import Path

import pytest

from tfshards.schemas import BuildError, FormatError, OptionsError, Problem
from tfshards.schemas.errors import texts

ROOT = Path(__file__).parents[1]
ROOMS = ("schemas", "prep", "loader")
# Their constructors have parameters of their own, and name the code themselves.
OF_CLASSES = {"format", "record-damaged", "usage"}
CLASSES = {"InputError", "OptionsError", "BuildError", "TfshardsError"}


def raised():
    """Yield where an error is made, its code, the names of its values."""
    for folder in (*ROOMS, "src"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def names_in(text):
    return {name.split(".")[0] for _, name, _, _ in string.Formatter().parse(text) if name}


def test_every_error_has_a_code_of_the_table_and_its_values():
    wrong, used = [], set(OF_CLASSES)
    for where, call in raised():
        # a text at the raise is no code
        if isinstance(call.args[0], (ast.Name, ast.JoinedStr)):
            continue
        codes = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
        for code in [code for code in codes if " " not in str(code)]:
            used.add(code)
            given = {keyword.arg for keyword in call.keywords}
            if given != names_in(texts().get(code, "{missing}")):
                wrong.append(f"{where}: {code} has {sorted(given)}, its text {texts().get(code)}")
    assert wrong == []
    assert {code for code in texts() if code not in used and not is_named(code)} == set()


def is_named(code):
    """Return whether a code stands in the source in another place than the call."""
    return any(f'"{code}"' in path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_the_table_of_a_room_is_sorted_and_no_code_is_in_two(room):
    table = json.loads((ROOT / room / "texts.json").read_text())
    assert [*table] == sorted(table)
    others = [json.loads((ROOT / other / "texts.json").read_text()) for other in ROOMS if other != room]
    assert not set(table) & set().union(*others)


@pytest.mark.parametrize(
    "error",
    [
        OptionsError("size-invalid", name="shard_size", text="1XB"),
        BuildError("build-failed", "more", text="why"),
        FormatError("x.json", [Problem("a", "is wrong")]),
    ],
)
def test_errors_pass_between_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code) == (type(error), str(error), error.code)
