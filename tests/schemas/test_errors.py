import pickle

import pytest

from tfshards.schemas import BuildError, FormatError, InputError, OptionsError, Problem, TfshardsError
from tfshards.schemas.errors import MAX_LISTED


def some_problems(number: int) -> list[Problem]:
    return [Problem(f"shards[{index}]", "is wrong") for index in range(number)]


def test_a_problem_is_printed_with_its_place_first():
    assert str(Problem("splits.train", "is missing")) == "splits.train: is missing"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        pytest.param(1, "d.json: 1 problem\n  shards[0]: is wrong", id="one problem, singular"),
        pytest.param(
            2, "d.json: 2 problems\n  shards[0]: is wrong\n  shards[1]: is wrong", id="all of them, plural"
        ),
    ],
)
def test_a_format_error_lists_its_problems(number, text):
    assert str(FormatError("d.json", some_problems(number))) == text


def test_a_format_error_holds_all_problems_but_lists_only_the_first():
    full, over = (FormatError("d.json", some_problems(MAX_LISTED + more)) for more in (0, 3))
    assert "more" not in str(full)
    assert len(over.problems) == MAX_LISTED + 3
    lines = str(over).splitlines()
    assert lines[0] == f"d.json: {MAX_LISTED + 3} problems"
    assert lines[-2:] == [f"  shards[{MAX_LISTED - 1}]: is wrong", "  and 3 more"]


def test_a_format_error_can_be_pickled():
    error = FormatError("d.json", some_problems(2))
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.problems) == (FormatError, str(error), error.problems)


@pytest.mark.parametrize("error", [OptionsError, InputError, BuildError, FormatError])
def test_every_error_is_a_tfshards_error(error):
    assert issubclass(error, TfshardsError)
