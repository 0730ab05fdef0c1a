"""Each state that a power cut may leave is the old dataset or the new one; exit status 0 means the new one.

The model is in crash_states.py, which enumerates more states than are tried; the seed chooses.
"""

import os
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.campaigns import SEED, cases
from tests.pictures import image_file
from tests.prep.derived import quiet
from tests.tables import mostly_nightly
from tfshards import prep
from tfshards.prep import Arrays, ImageFolder, Options, build, generations, merge, prune, remove, verify
from tfshards.prep.building.commit import complete_left
from tfshards.schemas import InputError, TfshardsError, read_manifest
from tfshards.schemas.generations import kept_manifests
from tfshards.schemas.manifest_file import file_problems

from .crash_states import State, on_disk, record, states, write_state

pytestmark = [pytest.mark.processes, pytest.mark.campaign]

NUM_STATES = cases(30, nightly=100)
MINE = "mine.txt"


BY_RATIO = Options(splits={"train": 0.8, "test": 0.2}, compression="gzip")


def arrays(count: int = 12, names: tuple[str, ...] = ("a", "b")) -> Arrays:
    return Arrays({"x": np.arange(count), "label": np.arange(count) % len(names)}, class_names=names)


def built(out: Path, source: Arrays | ImageFolder | None = None, **options: object) -> None:
    given = {"shards": 2, "engine": "local", "log": quiet, "options": Options(max_rejected=1), **options}
    build(source or arrays(), out, **given)


def photos(root: Path, count: int) -> ImageFolder:
    """A folder of images, one of which is damaged; they are made once, with the same times."""
    for number in range(count):
        path = root / "photos" / "ab"[number % 2] / f"{number}.png"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            file = image_file(Image.new("RGB", (4, 4), (number, 0, 0)))
            path.write_bytes(file[: 20 if number == 3 else None])
        os.utime(path, (1e9, 1e9))
    return ImageFolder(root / "photos")


def a_dataset(root: Path) -> None:
    built(root / "data")


def with_photos(root: Path) -> None:
    built(root / "data", photos(root, 8))
    photos(root, 12)


def with_generations(root: Path) -> None:
    built(root / "data")
    remove(root / "data", ["3"], log=quiet)
    built(root / "data", seed=1, overwrite=True)
    (root / "first").write_text(generations(root / "data")[-1].build_id)


def damaged(root: Path) -> None:
    built(root / "data")
    manifest = read_manifest(root / "data")
    for path in (manifest.shards[0].path, manifest.shards[1].files[0], "labels.txt"):
        (root / "data" / path).write_bytes(b"damaged")


@dataclass(frozen=True)
class Command:
    """A command that writes.

    Attributes:
        start: makes the folder in which it begins.
        run: runs it; running it again resumes it, or finds it done.
        out: the dataset, below the folder.
        repairs: whether the dataset is damaged until the command has ended.
        prunes: whether generations of the start are removed.
        most: the most states that are tried, of a larger build; None for no limit.
    """

    start: Callable[[Path], object]
    run: Callable[[Path], object]
    out: str = "data"
    repairs: bool = False
    prunes: bool = False
    most: int | None = None


COMMANDS = {
    "build": Command(Path.exists, lambda root: built(root / "new" / "data"), "new/data"),
    "build of images": Command(
        lambda root: photos(root, 9), lambda root: built(root / "data", photos(root, 9))
    ),
    "overwrite": Command(
        a_dataset, lambda root: built(root / "data", arrays(14, ("c", "d", "e")), overwrite=True, seed=1)
    ),
    "append": Command(
        with_photos, lambda root: prep.append(photos(root, 12), root / "data", max_rejected=1, log=quiet)
    ),
    "remove": Command(a_dataset, lambda root: remove(root / "data", ["3", "4"], log=quiet)),
    "relabel": Command(a_dataset, lambda root: prep.relabel(root / "data", {"3": "a"}, log=quiet)),
    "reshard": Command(
        a_dataset,
        lambda root: prep.reshard(root / "data", root / "data", shards=3, overwrite=True, log=quiet),
    ),
    "merge": Command(
        lambda root: (built(root / "data"), built(root / "more")),
        lambda root: merge({"train": root / "data", "test": root / "more"}, root / "new", log=quiet),
        "new",
    ),
    "restore": Command(
        with_generations, lambda root: prep.restore(root / "data", (root / "first").read_text(), log=quiet)
    ),
    "prune": Command(with_generations, lambda root: prune(root / "data"), prunes=True),
    "repair": Command(damaged, lambda root: prep.repair(root / "data", arrays()), repairs=True),
    "larger build": Command(
        Path.exists, lambda root: built(root / "data", arrays(600), shards=5, options=BY_RATIO), most=2000
    ),
    "larger overwrite": Command(
        lambda root: built(root / "data", photos(root, 60), shards=5),
        lambda root: built(root / "data", photos(root, 60), shards=7, overwrite=True, seed=1),
        most=2000,
    ),
}
# the command with most kinds of steps, and the change of records in place
OFTEN = ["build of images"]


@pytest.mark.skipif(not shutil.which("strace"), reason="strace, which records system calls, is not installed")
@pytest.mark.parametrize("name", mostly_nightly(COMMANDS, OFTEN))
def test_every_state_after_a_power_cut_is_the_old_dataset_or_the_new_one(name, tmp_path, monkeypatch):
    command = COMMANDS[name]
    start, traced, trial = tmp_path / "start", tmp_path / "traced", tmp_path / "trial"
    start.mkdir()
    command.start(start)
    if (start / "data").exists():
        (start / "data" / MINE).write_text("mine")
    shutil.copytree(start, traced)
    monkeypatch.chdir(Path(__file__).parents[2])
    trace = record([sys.executable, "-m", __name__, name, traced], traced, tmp_path / "strace")
    old, new = on_disk(start), on_disk(traced)
    found = [*states(trace, num_random=4, seed=SEED)]
    num_all = len(found)
    most = min(NUM_STATES, num_all, command.most or num_all)
    # the last ones are those after exit status 0
    ended = [one for one in found if one[0] == trace.num_calls]
    tried = random.Random(SEED).sample(found, most)
    found = tried + [one for one in ended if one not in tried][:most]
    for call, tree in found:
        trial.mkdir()
        write_state(tree, trial)
        # what the recorded times of inputs are compared with
        for path in trial.glob("photos/*/*.png"):
            os.utime(path, (1e9, 1e9))
        try:
            check(command, trial, old, new, has_ended=call == trace.num_calls)
        except (AssertionError, TfshardsError) as error:
            pytest.fail(f"after call {call} of {trace.num_calls}, {sorted(tree)}: {error}")
        shutil.rmtree(trial)
    print(f"\n{name}: {len(found)} of {num_all} states after {trace.num_calls} calls")
    assert num_all > 40


def check(command: Command, root: Path, old: State, new: State, *, has_ended: bool) -> None:
    """Assert that a state is the old dataset or the new one, and that the command resumes."""
    out, manifest = root / command.out, f"{command.out}/dataset.json"
    now = on_disk(root)
    assert now.get(manifest) in ([new[manifest]] if has_ended else [old.get(manifest), new[manifest]])
    if has_ended:
        assert {path: now.get(path, 0) for path in new} == new
    if manifest in now:
        if not command.prunes:
            for kept in kept_manifests(out):
                assert file_problems(kept, out) == []
        # what the next command on the dataset does first
        complete_left(out)
        report = verify(out, deep=True)
        assert report or (command.repairs and not has_ended), report
    command.run(root)
    assert on_disk(root) == new
    assert verify(out, deep=True)


if __name__ == "__main__":
    try:
        COMMANDS[sys.argv[1]].run(Path(sys.argv[2]))
    except InputError as error:
        sys.exit(str(error))
