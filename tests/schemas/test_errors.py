import pickle

import pytest

from tfshards.schemas import FormatError, InputError, Problem, TfshardsError
from tfshards.schemas.errors import MAX_LISTED


def some_problems(number: int) -> list[Problem]:
    return [Problem(f"shards[{index}]", "is wrong") for index in range(number)]


def test_a_format_error_holds_all_problems_but_lists_only_the_first():
    assert str(FormatError("d.json", some_problems(1))) == "d.json: 1 problem\n  shards[0]: is wrong"
    full, over = (FormatError("d.json", some_problems(MAX_LISTED + more)) for more in (0, 3))
    assert "more" not in str(full)
    assert len(over.problems) == MAX_LISTED + 3
    lines = str(over).splitlines()
    assert lines[0] == f"d.json: {MAX_LISTED + 3} problems"
    assert lines[-2:] == [f"  shards[{MAX_LISTED - 1}]: is wrong", "  and 3 more"]


@pytest.mark.parametrize(
    "error", [FormatError("d.json", some_problems(2)), InputError("path-missing", "more", path="x")]
)
def test_an_error_can_be_pickled(error):
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.code) == (type(error), str(error), error.code)
    assert isinstance(back, TfshardsError)
