"""Commands whose processes are killed repeatedly, at random moments, end as undisturbed ones.

test_crashes.py ends them at each of their steps, in this process.
"""

import random
from collections import Counter

import pytest

from tests.campaigns import SEED, cases
from tests.crash.places import judge
from tests.tables import mostly_nightly

from .commands import COMMANDS
from .places import Folder, undisturbed

pytestmark = [pytest.mark.processes, pytest.mark.campaign]

# of each command
KILLS = cases(3, nightly=12)
OFTEN = ["build images", "build other options", "append", "export to Parquet"]


@pytest.mark.parametrize("name", mostly_nightly(COMMANDS, OFTEN))
def test_a_killed_command_is_completed_by_the_same_command(name, inputs, commands, tmp_path):
    place = Folder(tmp_path / "out")
    case = undisturbed(COMMANDS[name], place, inputs)
    words = case.words(case.command.line)
    place.start(case.old)
    whole = commands.run(words)
    assert whole.status == 0, whole.output
    assert place.files() == case.new
    chance, tried, latest = random.Random(f"{SEED} {name}"), Counter(), 0.9 * whole.seconds
    while tried["killed"] < KILLS:
        place.start(case.old)
        is_killed = True
        while is_killed:
            kill_after = chance.uniform(0.02, latest)
            status, output, _ = commands.run(words, kill_after=kill_after)
            assert status in (0, -9), output
            judge(case.command, place.files(), case.old, case.new)
            is_killed = status != 0
            tried["killed" if is_killed else "too late"] += 1
            latest = latest if is_killed else kill_after
            is_killed = is_killed and chance.random() < 0.3
        status, output, _ = commands.run(words)
        assert status == 0, output
        assert place.files() == case.new
        tried["completed"] += 1
    print(f"\n{name}, seed {SEED}: {dict(tried)}")
