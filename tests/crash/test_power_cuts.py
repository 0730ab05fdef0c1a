"""Each state that a power cut may leave is the old dataset or the new one; exit status 0 means the new one.

The model is in crash_states.py, which enumerates more states than are tried; the seed chooses. Only here is
it found that something was not synced: other tests lose nothing that was written.
"""

import random
import shutil
import sys

import pytest

from tests.campaigns import SEED, cases
from tests.crash.places import judge
from tests.tables import mostly_nightly

from .commands import COMMANDS
from .crash_states import State, record, states, write_state
from .places import Folder, undisturbed

pytestmark = [pytest.mark.processes, pytest.mark.campaign]

NUM_STATES = cases(60, nightly=200)
# the command with most kinds of steps
OFTEN = ["build images"]


@pytest.mark.skipif(not shutil.which("strace"), reason="strace, which records system calls, is not installed")
@pytest.mark.parametrize("name", mostly_nightly(COMMANDS, OFTEN))
def test_every_state_after_a_power_cut_is_the_old_dataset_or_the_new_one(name, inputs, tmp_path):
    place = Folder(tmp_path / "out")
    case = undisturbed(COMMANDS[name], place, inputs)
    place.start(case.old)
    program = [sys.executable, "-m", "tfshards", *case.words(case.command.line)]
    trace = record(program, place.out, tmp_path / "strace")
    assert place.files() == case.new
    found = [*states(trace, num_random=4, seed=SEED)]
    tried = random.Random(SEED).sample(found, min(NUM_STATES, len(found)))
    # the last ones are those after exit status 0
    tried += [one for one in found if one[0] == trace.num_calls and one not in tried][:NUM_STATES]
    for call, tree in tried:
        place.start({})
        write_state(tree, place.out)
        try:
            check(case, tree, has_ended=call == trace.num_calls)
        except (AssertionError, ValueError) as error:
            pytest.fail(f"{name}, after call {call} of {trace.num_calls}, {sorted(tree)}: {error}")
    print(f"\n{name}: {len(tried)} of {len(found)} states after {trace.num_calls} calls")
    assert len(found) > 10


def check(case, tree: State, *, has_ended: bool) -> None:
    """Assert that a state is the old dataset or the new one, and that the command resumes."""
    files = {path: b"a folder" if data is None else data for path, data in tree.items()}
    if has_ended:
        assert {path: files.get(path) for path in case.new} == case.new
    judge(case.command, files, case.old, case.new)
    case.run(case.command.line)
    assert case.place.files() == case.new
