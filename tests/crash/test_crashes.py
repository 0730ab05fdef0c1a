"""A command that ends at any step leaves the old dataset or the new one, and the same command completes it.

Every step of every command is tried in ``make nightly``, evenly chosen ones in ``make test``.
"""

import errno
import os
from collections import Counter

import pytest

from tests.campaigns import SCALE, cases

from .commands import COMMANDS, run
from .judge import judge
from .places import Case, Folder, chosen, undisturbed
from .steps import Crash, Moment, on_disk

pytestmark = pytest.mark.campaign

NUM_MOMENTS = cases(14, nightly=1000)
NUM_OTHERS = cases(5, nightly=1000)
NAMES = [*COMMANDS]


@pytest.fixture(scope="module")
def case_of(inputs, tmp_path_factory):
    """Return a function that returns a row of the table with what it leaves undisturbed."""
    made: dict[str, Case] = {}

    def case(name: str) -> Case:
        if name not in made:
            folder = tmp_path_factory.mktemp("out") / "out"
            made[name] = undisturbed(COMMANDS[name], Folder(folder), inputs)
        return made[name]

    return case


def ended(case: Case, moment: Moment) -> str:
    """Run the command until it ends at a moment, and return which dataset is left."""
    case.place.start(case.old)
    with case.place.steps(moment), pytest.raises(Crash):
        case.run(case.command.line)
    return judge(case.command, case.place.files(), case.old, case.new)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_that_ends_at_any_step_is_completed_by_the_same_command(name, case_of):
    case, tried = case_of(name), 0
    before = Folder(case.inputs).files()
    for moment in chosen(case, NUM_MOMENTS, NAMES.index(name)):
        try:
            ended(case, moment)
            finished = case.place.identities()
            case.run(case.command.line)
            assert case.place.files() == case.new
            check_kept(case, finished)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}, ended before {moment}: {error}") from error
        tried += 1
    assert Folder(case.inputs).files() == before
    print(f"\n{name}: {tried} of {len(case.moments)} moments")
    assert tried == len(case.moments) or not SCALE
    assert tried >= 8


def check_kept(case: Case, finished: dict[bytes, set[int]]) -> None:
    """Assert that at most one shard, the last one, was written again although it was complete."""
    now = case.place.identities()
    written = {*case.new.values()} - {*case.old.values()}
    shards = {
        data for path, data in case.new.items() if "-of-" in path.rpartition(".")[2] and data in written
    }
    again = [data for data in shards if data in finished and not finished[data] & now[data]]
    assert len(again) <= 1, f"{len(again)} finished shards were written again"


@pytest.mark.parametrize("name", NAMES)
def test_a_command_whose_step_fails_reports_it_or_completes(name, case_of):
    case, found = case_of(name), Counter[int]()
    for moment in chosen(case, NUM_OTHERS, NAMES.index(name) + 2):
        if moment.torn:
            continue
        case.place.start(case.old)
        with on_disk(case.place.out, moment, OSError(errno.EIO, os.strerror(errno.EIO))):
            status, printed = run(case.words(case.command.line))
        found[status] += 1
        try:
            files = case.place.files()
            judge(case.command, files, case.old, case.new)
            assert (status, printed.count("Traceback")) in ((0, 0), (1, 0)), printed
            if status == 0:
                # what could not be removed may be left
                assert {path: files.get(path) for path in case.new} == case.new
            case.run(case.command.line)
            files = case.place.files()
            assert {path: files.get(path) for path in case.new} == case.new
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}, failed at {moment}: {error}") from error
    print(f"\n{name}: exit status {dict(found)}")
    assert found[1]


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.then])
def test_another_command_after_one_that_ended_takes_nothing_of_it(name, case_of):
    case = case_of(name)
    expected = case.thens
    for moment in chosen(case, NUM_OTHERS, NAMES.index(name) + 1):
        try:
            left = ended(case, moment)
            assert case.then() == expected[left]
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}, ended before {moment}: {error}") from error
