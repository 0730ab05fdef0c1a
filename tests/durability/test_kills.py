"""Builds and edits that are killed repeatedly at any moment end with the same dataset as undisturbed ones.

Kills come before or after a call that changes a name in a folder, since these calls make shards, notes and
manifest appear and old ones disappear. In ``make nightly``, half of them come at random moments.
"""

import random
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.campaigns import SCALE, SEED, cases
from tfshards.prep import prune, verify
from tfshards.prep.building.commit import complete_left
from tfshards.prep.progress.threads import num_writers
from tfshards.prep.writing.shard_names import with_build_id
from tfshards.schemas import read_manifest
from tfshards.schemas.names import MANIFEST_NAME

from .commands import Commands, contents, finished, identity
from .inputs import Scenario, scenarios, write_inputs

pytestmark = [pytest.mark.processes, pytest.mark.campaign]

NAMES = ("images", "arrays", "table", "overwrite", "append", "remove", "relabel")
# Files that are derived from the manifest after it was replaced.
VIEWS = {"labels.txt", "label.labels.txt", "dataset_info.json", "features.json", "tfds"}
# over all scenarios, rounded up to as many of each
KILLS = cases(10, nightly=100)


@dataclass
class Undisturbed:
    """The files of a scenario's output before and after its command, and the steps of the command.

    Attributes:
        command: arguments of the command.
        start: folder with the files before the command; may be missing.
        end: files after the command.
        pruned: files that ``prune`` leaves before and after the command.
        steps: calls that change a name.
        seconds: duration of the command.
    """

    command: tuple[str, ...]
    start: Path
    end: Mapping[str, bytes]
    pruned: tuple[Mapping[str, bytes], Mapping[str, bytes]]
    steps: list[str] = field(default_factory=list)
    seconds: float = 0.0


def undisturbed(commands: Commands, scenario: Scenario, folder: Path) -> Undisturbed:
    start, out, steps = folder / "start" / "data", folder / "whole" / "data", folder / "steps"
    for arguments in scenario.before:
        assert commands.run([*arguments, start]).status == 0
    scenario.change(folder)
    begin(start, out)
    command = (*scenario.arguments, str(out))
    ended = commands.run(command)
    assert ended.status == 0, ended.output
    whole = contents(out)
    begin(start, out)
    again = commands.run(command, limits={"steps": str(steps)})
    seconds = min(ended.seconds, again.seconds)
    assert contents(out) == whole
    left = pruned(start) if start.exists() else {}, pruned(out)
    return Undisturbed(scenario.arguments, start, whole, left, steps.read_text().splitlines(), seconds)


def pruned(folder: Path) -> dict[str, bytes]:
    """Return the files that ``prune`` leaves in a copy of a dataset."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    prune(copy)
    left = contents(copy)
    shutil.rmtree(copy)
    return left


def begin(start: Path, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    if start.exists():
        shutil.copytree(start, out)


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_command_resumes_to_the_same_dataset(name, commands, tmp_path):
    write_inputs(tmp_path)
    expected = undisturbed(commands, scenarios(tmp_path)[name], tmp_path)
    chance = random.Random(f"{SEED} {name}")
    aimed = list(range(len(expected.steps)))
    chance.shuffle(aimed)
    tried: Counter[str] = Counter()
    wanted = -(-KILLS // len(NAMES))
    while tried["at a step"] + tried["at a moment"] < wanted:
        out = tmp_path / f"trial-{tried.total()}" / "data"
        begin(expected.start, out)
        is_killed_again = True
        while is_killed_again:
            is_aimed = not SCALE or tried["at a step"] <= tried["at a moment"]
            step = aimed[tried["at a step"] % len(aimed)] if is_aimed else None
            kept = killed(commands, expected, out, step, chance)
            if kept is None:
                tried["too late"] += 1
                break
            tried["at a step" if is_aimed else "at a moment"] += 1
            is_killed_again = chance.random() < 0.3
            tried["again"] += is_killed_again
        finishes(commands, expected, out, kept or {}, tried)
        shutil.rmtree(out.parent)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(tried.items()))
    print(f"\n{name}, seed {SEED}, {len(aimed)} steps: killed {counts}")
    assert tried["identical"] == tried["resumed"] + tried["restarted"] + tried["of a committed one"]


def killed(commands, expected, out, step, chance):
    """Kill the command at a step or a random moment; return its finished shards, or None if it had ended."""
    if step is None:
        ended = commands.run(
            [*expected.command, out], kill_after=chance.uniform(0.02, 0.9 * expected.seconds)
        )
    else:
        ended = commands.run([*expected.command, out], limits={"die_at": step})
    assert ended.status in (0, -9), ended.output
    is_sound(expected, out)
    return finished(out) if ended.status else None


def is_sound(expected: Undisturbed, out: Path) -> None:
    """Assert that the folder holds the old dataset, the new one, or none if there was none.

    The files of the old one are there in any case, for those who read it, and ``prune`` removes all others.
    """
    is_committed = manifest_of(out) == expected.end[MANIFEST_NAME]
    assert is_committed or manifest_of(out) == manifest_of(expected.start)
    if manifest_of(out):
        # as the next command does
        complete_left(out)
        assert verify(out, deep=True)
    if expected.start.exists():
        old = read_manifest(expected.start)
        for path in [path for shard in old.shards for path in shard.files]:
            assert (out / path).read_bytes() == (expected.start / path).read_bytes(), path
        assert without_views(pruned(out)) == without_views(expected.pruned[is_committed])


def without_views(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path.partition("/")[0] not in VIEWS}


def finishes(commands, expected, out, kept, tried):
    """Run the command to its end; assert that it repeats no finished work and leaves the expected files."""
    is_committed = manifest_of(out) == expected.end[MANIFEST_NAME]
    ended = commands.run([*expected.command, out])
    assert ended.status == 0, ended.output
    manifest = read_manifest(out)
    shards = {shard.path: shard.digest for shard in manifest.shards}
    for unfinished_path, (digest, was) in kept.items():
        path = with_build_id(unfinished_path, manifest.build_id)
        # except those from which rejects were balanced away
        assert identity(out / path) == was or digest != shards[path], path
    resumed = re.search(r"^resuming the \w+: (\d+) of \d+ shards? finished$", ended.output, re.M)
    if resumed and not is_committed:
        # an edit only counts the shards that it writes, not those that it links
        written = {path for path, (digest, _) in kept.items() if digest not in old_digests(expected)}
        # shards being written may have been replaced by their final layout, but not yet noted as such
        assert len(written) - num_writers() <= int(resumed[1]) <= len(written)
    tried["of a committed one" if is_committed else "resumed" if resumed else "restarted"] += 1
    assert contents(out) == expected.end
    assert list(out.rglob(".*")) == []
    assert pruned(out) == expected.pruned[1]
    tried["identical"] += 1


def old_digests(expected: Undisturbed) -> set[str]:
    return {s.digest for s in read_manifest(expected.start).shards} if expected.start.exists() else set()


def manifest_of(folder: Path) -> bytes | None:
    path = folder / MANIFEST_NAME
    return path.read_bytes() if path.exists() else None
