"""Commands whose processes are killed repeatedly, at any step or at a random moment, end as undisturbed ones.

Kills come before or after a call that changes a name in a folder. In ``make nightly``, half of them come at
random moments.
"""

import random
from collections import Counter

import pytest

from tests.campaigns import SCALE, SEED, cases
from tests.tables import mostly_nightly

from .commands import COMMANDS
from .judge import judge
from .places import Folder, undisturbed

pytestmark = [pytest.mark.processes, pytest.mark.campaign]

# of each command
KILLS = cases(3, nightly=12)
OFTEN = ["build images", "build other options", "append", "export to Parquet"]


@pytest.mark.parametrize("name", mostly_nightly(COMMANDS, OFTEN))
def test_a_killed_command_is_completed_by_the_same_command(name, inputs, commands, tmp_path):
    place = Folder(tmp_path / "out")
    case = undisturbed(COMMANDS[name], place, inputs)
    words, log = case.words(case.command.line), tmp_path / "steps"
    place.start(case.old)
    ended = commands.run(words, limits={"steps": str(log)})
    assert ended.status == 0, ended.output
    assert place.files() == case.new
    chance, tried = random.Random(f"{SEED} {name}"), Counter()
    steps = [*range(len(log.read_text().splitlines()))]
    chance.shuffle(steps)
    while tried["at a step"] + tried["at a moment"] < KILLS:
        place.start(case.old)
        is_killed = True
        while is_killed:
            is_aimed = not SCALE or tried["at a step"] <= tried["at a moment"]
            how = {"limits": {"die_at": steps[tried["at a step"] % len(steps)]}}
            if not is_aimed:
                how = {"kill_after": chance.uniform(0.02, 0.9 * ended.seconds)}
            status, output, _ = commands.run(words, **how)
            assert status in (0, -9), output
            judge(case.command, place.files(), case.old, case.new)
            tried["too late" if status == 0 else "at a step" if is_aimed else "at a moment"] += 1
            is_killed = status != 0 and chance.random() < 0.3
        status, output, _ = commands.run(words)
        assert status == 0, output
        assert place.files() == case.new
        tried["completed"] += 1
    print(f"\n{name}, seed {SEED}, {len(steps)} steps: {dict(tried)}")
