"""No command changes or removes a file that tfshards did not write, whatever its name.

Folders are filled with files, folders and links whose names are those of tfshards, or nearly so, in addition
to a dataset, an unfinished build, or nothing; then each verb that writes runs.
"""

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.campaigns import SEED, cases
from tests.errors import raises
from tests.tables import mostly_nightly
from tfshards import prep
from tfshards.prep import Arrays, adopt, build, export, generations, merge, prune, remove, reshard, verify
from tfshards.prep.sources.staging_folder import make_staged
from tfshards.schemas import BuildError, InputError, Manifest, TfshardsError
from tfshards.schemas.storage import LocalPath

pytestmark = pytest.mark.campaign

NUM_FOLDERS = cases(200, nightly=1_000)
NAMES = ("cat", "dog", "owl")


def arrays(count: int = 24) -> Arrays:
    return Arrays({"x": np.arange(count), "label": np.arange(count) % 3}, class_names=NAMES)


def built(out: Path, **options: object) -> Manifest:
    return build(arrays(), out, **{"shards": 2, **options})


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    """Folders in which commands begin: nothing, a dataset, three generations, unfinished builds."""
    root = tmp_path_factory.mktemp("starts")
    (root / "nothing" / "data").mkdir(parents=True)
    built(root / "dataset" / "data")
    for seed in range(3):
        built(root / "generations" / "data", seed=seed, overwrite=True)
    for name, step in STEPS.items():
        built(root / f"{name}, and a dataset" / "data")
        for out in (root / name / "data", root / f"{name}, and a dataset" / "data"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(step, fail)
                with pytest.raises(BuildError):
                    built(out, seed=5, overwrite=True)
    return {path.name: path / "data" for path in root.iterdir()}


# unfinished builds, by the steps that fail
STEPS = {
    "plans": "tfshards.prep.building.write.run_work",
    "shards": "tfshards.prep.building.commit.finish",
    "all but the manifest": "tfshards.schemas.storage.LocalPath.put",
    "a complete build": "tfshards.schemas.storage.LocalPath.replace_if",
}


def fail(*arguments: object, put=LocalPath.put) -> None:
    if arguments and isinstance(arguments[0], LocalPath) and arguments[0].name != "dataset.json":
        return put(*arguments)
    raise OSError(28, "No space left on device")


def names_near_ours(chance: random.Random, folders: list[str]) -> str:
    """Return the path of a file that tfshards could have written, but did not.

    ``folders`` are those that tfshards made, or would make. In these, files have names that no build gives.
    """
    digits = "".join(chance.choices("0123456789abcdef", k=8))
    number = f"{chance.randrange(3):05d}-of-{chance.choice(['00002', '00003', '00001'])}"
    shard = f"{chance.choice(['data', 'out', 'x'])}-{chance.choice(['train', 'val'])}.tfrecord-{number}"
    folder = chance.choice([digits, f"{digits}-2", "0" * 8 + "-0", ".", f".staged-{digits}", ".staged-x"])
    names = f"""{shard} index/{shard}.idx index/{shard}.labels index/{shard}.keys rejected.jsonl removed.txt
        labels.txt label.labels.txt dataset_info.json features.json build.json work/train-00000.done
        work/train-00000.plan work/rejected.json work/{shard}.{digits}{digits} export.json"""
    mine = f"notes.txt index/notes.txt index/{shard} {shard}.idx work.txt photos/{shard} dataset.json.bak"
    if chance.random() < 0.4:
        return f"{chance.choice(folders)}/{chance.choice(mine.split())}"
    if folder != "." and chance.random() < 0.1:
        return f"{folder}/dataset.json"
    return os.path.normpath(f"{folder}/{chance.choice([*names.split(), *mine.split()])}")


def fill(chance: random.Random, out: Path, elsewhere: Path, folders: list[str]) -> None:
    """Add files of a user to a folder, and links to a folder elsewhere."""
    elsewhere.mkdir()
    (elsewhere / "precious.bin").write_bytes(b"precious")
    for _ in range(chance.randint(1, 4)):
        path = out / names_near_ours(chance, folders)
        in_the_way = [folder for folder in path.parents if folder.is_symlink() or folder.is_file()]
        if os.path.lexists(path) or in_the_way:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.choice([b"mine", b"{}", b'{"options": {}}', b"\0" * 12 + b"mine"]))
    for name in (chance.choice(folders), "index", ".staged-01234567", ".tfshards-lock"):
        if chance.random() < 0.06 and not os.path.lexists(out / name):
            (out / name).symlink_to(elsewhere)


def snapshot(*roots: Path) -> dict[Path, tuple[bytes | str, int]]:
    """Return the content, or the target, and the inode of every file and link."""
    found: dict[Path, tuple[bytes | str, int]] = {}
    for root in roots:
        for folder, names, files in os.walk(root):
            for name in [*names, *files]:
                path = Path(folder, name)
                if path.is_symlink():
                    found[path] = os.readlink(path), path.lstat().st_ino
                elif path.is_file():
                    found[path] = path.read_bytes(), path.stat().st_ino
    return found


def commands(out: Path, inputs: Path, chance: random.Random):
    """Return every command that writes into a dataset or makes one, by name."""
    known = [one.folder for one in generations(out)] if (out / "dataset.json").exists() else ["00000000"]
    return {
        "build": lambda: built(out, overwrite=chance.random() < 0.7, seed=chance.randrange(7)),
        "build again": lambda: built(out),
        "reshard into": lambda: reshard(inputs, out, shards=3, overwrite=chance.random() < 0.7),
        "reshard": lambda: reshard(out, out, shards=3, overwrite=True),
        "merge into": lambda: merge([inputs], out, overwrite=chance.random() < 0.7),
        "append": lambda: prep.append(arrays(30), out),
        "remove": lambda: remove(out, ["3", "7"]),
        "relabel": lambda: prep.relabel(out, {"5": "owl", "6": "owl"}),
        "repair": lambda: verify(out, repair=True),
        "restore": lambda: prep.restore(out, chance.choice(known)),
        "prune": lambda: prune(out),
        "adopt": lambda: adopt(out, overwrite=chance.random() < 0.5),
        "export into": lambda: export(inputs, out, to="webdataset"),
    }


# In as many parts as the processes of the tests can share.
@pytest.mark.parametrize("part", mostly_nightly(range(4), [0, 1]))
def test_no_file_that_tfshards_did_not_write_ever_changes(part, starts, tmp_path):
    chance = random.Random(f"{SEED} {part}")
    inputs = starts["dataset"]
    folders = sorted({path.parent.name for start in starts.values() for path in start.glob("*/build.json")})
    done = refused = 0
    for number in range(NUM_FOLDERS // 4):
        root = tmp_path / str(number)
        out = Path(shutil.copytree(starts[chance.choice([*starts])], root / "data", symlinks=True))
        ours = {path.relative_to(out) for path in snapshot(out)}
        fill(chance, out, root / "elsewhere", folders)
        theirs = {
            path: found
            for path, found in snapshot(out, root / "elsewhere").items()
            if not path.is_relative_to(out) or path.relative_to(out) not in ours
        }
        for name in chance.sample([*commands(out, inputs, chance)], 3):
            try:
                commands(out, inputs, chance)[name]()
                done += 1
            except TfshardsError:
                refused += 1
            now = snapshot(out, root / "elsewhere")
            changed = [str(path) for path, found in theirs.items() if now.get(path) != found]
            assert not changed, f"{name} (seed {SEED}, part {part}, folder {number}) changed {changed}"
            assert [path for path in now if path.is_relative_to(root / "elsewhere")] == [
                path for path in theirs if path.is_relative_to(root / "elsewhere")
            ], name
        shutil.rmtree(root)
    print(f"\n{done} commands ran, {refused} were refused")
    # neither all nor none
    assert min(done, refused) > NUM_FOLDERS // 40


def test_a_folder_of_the_user_with_the_name_of_ours_is_kept(tmp_path):
    elsewhere = built(tmp_path / "a" / "data", seed=1)
    out = tmp_path / "b" / "data"
    built(out)
    theirs = out / elsewhere.folder / elsewhere.shards[0].path.rpartition("/")[2]
    theirs.parent.mkdir()
    theirs.write_bytes(b"mine")
    with raises(InputError, "was not written", str(theirs.parent), code="foreign-file"):
        built(out, seed=1, overwrite=True)
    assert [*theirs.parent.iterdir()] == [theirs]
    assert theirs.read_bytes() == b"mine"
    shutil.rmtree(theirs.parent)
    assert built(out, seed=1, overwrite=True) == elsewhere


def test_a_pointer_that_cannot_be_read_is_replaced_by_the_complete_build(tmp_path):
    made = built(tmp_path / "data")
    manifest = tmp_path / "data" / "dataset.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    paths = [tmp_path / "data" / shard.path for shard in made.shards]
    # not the time of access: the build may read them
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in paths]
    assert built(tmp_path / "data", overwrite=True) == made
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in paths] == before


@pytest.mark.parametrize("name", ["", "index", "work", "dataset.json"])
@pytest.mark.parametrize("ends", [False, True], ids=["complete", "unfinished"])
def test_no_command_follows_a_link_out_of_the_folder(name, ends, tmp_path, starts):
    out, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    shutil.copytree(starts["a complete build" if ends else "dataset"], out)
    (folder,) = (path.parent for path in out.glob("*/build.json"))
    linked = out / name if name == "dataset.json" else folder / name
    if linked.exists():
        linked.rename(elsewhere)
    else:
        elsewhere.mkdir()
    for lost in [*elsewhere.rglob("*.labels")][:1]:
        lost.unlink()
    linked.symlink_to(elsewhere)
    before = snapshot(elsewhere)
    for command in (
        lambda: built(out, seed=5, overwrite=True),
        lambda: built(out, overwrite=True),
        lambda: verify(out, repair=True),
        lambda: prune(out),
    ):
        with suppress(InputError):
            command()
        assert snapshot(elsewhere) == before
    assert linked.is_symlink()


def test_a_staged_folder_whose_record_was_torn_by_a_power_failure_is_ours(tmp_path):
    out = tmp_path / "data"
    area = LocalPath(out, ".staged-12345678")
    make_staged(area)
    whole = (area / "build.json").read_bytes()
    for torn in (b"", whole[:20], bytes(len(whole)), whole[:9] + bytes(40)):
        (area / "build.json").write_bytes(torn)
        built(out)
        assert not area.exists()
        shutil.rmtree(out)
        make_staged(area)
    for other in (b"mine", whole[:20] + b"mine", bytes(9) + b"x"):
        (area / "build.json").write_bytes(other)
        with raises(InputError, "holds files", repr(area.name), code="foreign-file"):
            built(out)
    # with anything else in it, a record that is not whole proves nothing
    (area / "build.json").write_bytes(whole[:20])
    (area / "mine").touch()
    with raises(InputError, "holds files", repr(area.name), code="foreign-file"):
        built(out)


def test_data_files_of_an_adopted_dataset_are_not_ours(tmp_path):
    (tmp_path / "data").mkdir()
    for shard in built(tmp_path / "built").shards:
        shutil.copy(tmp_path / "built" / shard.path, tmp_path / "data")
    adopt(tmp_path / "data")
    before = snapshot(tmp_path)
    with raises(InputError, "records of another program", code="foreign-file"):
        built(tmp_path / "data", options=prep.Options(name="data"), overwrite=True)
    assert snapshot(tmp_path) == before
