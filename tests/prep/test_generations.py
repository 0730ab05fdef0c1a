"""A dataset keeps the generations that it replaces, and its views follow the manifest, or are reported."""

import gc
import json
import subprocess

import numpy as np
import pytest

from tests.errors import raises
from tests.prep.derived import quiet
from tests.surface.command import main
from tfshards.prep import Arrays, append, build, generations, relabel, remove, restore, verify
from tfshards.schemas import InputError, Manifest, read_manifest


def arrays(count: int = 24, *, names: tuple[str, ...] = ("cat", "dog", "owl")) -> Arrays:
    return Arrays({"x": np.arange(count), "label": np.arange(count) % len(names)}, class_names=names)


def built(out, source: Arrays | None = None, **options: object) -> Manifest:
    return build(source or arrays(), out, **{"shards": 2, "engine": "local", "log": quiet, **options})


@pytest.fixture
def out(tmp_path):
    """A dataset that was built, appended to, edited twice, and built again: five generations."""
    out = tmp_path / "data"
    built(out)
    append(arrays(30), out, log=quiet)
    remove(out, ["3", "7"], log=quiet)
    relabel(out, {"4": "owl"}, log=quiet)
    built(out, arrays(names=("a", "b")), overwrite=True)
    return out


def test_a_generation_that_lacks_a_shard_is_not_restored(out):
    last = generations(out)[-1].build_id
    manifest = json.loads((out / "generations" / f"{last}.json").read_bytes())
    (out / manifest["splits"]["train"]["shards"][0]["path"]).unlink()
    with raises(InputError, "generation-damaged", build_id=last):
        restore(out, last, log=quiet)
    # the generation after it has the same shard
    assert [one.num_damaged for one in generations(out)] == [0, 0, 0, 1, 1]


def test_a_damaged_manifest_is_replaced_by_that_of_a_generation(out):
    path = out / "dataset.json"
    path.write_bytes(path.read_bytes()[:-30])
    kept = sorted(path.stem for path in (out / "generations").iterdir())
    # nothing names the digests of its views
    with raises(InputError, "foreign-file"):
        restore(out, kept[0], log=quiet)
    for view in (*out.glob("*labels.txt"), *out.glob("features.json"), *out.glob("dataset_info.json")):
        view.unlink()
    restore(out, kept[0], log=quiet)
    assert verify(out, deep=True)


@pytest.fixture
def disk(tmp_path):
    """Return a function that mounts a new file system with room for a number of files."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mounted(num_files: int, option: str = ""):
        command = ["mount", "-t", "tmpfs", "-o", f"{option}nr_inodes={num_files}", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("only root can mount a small file system")
        return folder

    yield mounted
    while subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0:
        continue


def test_a_disk_that_fills_up_after_the_commit_leaves_a_dataset_that_says_so(disk, tmp_path, capsys):
    """At each number of files, the exit status tells what there is."""
    np.save(tmp_path / "x.npy", np.arange(8))
    np.save(tmp_path / "label.npy", np.arange(8) % 2)
    (tmp_path / "old.txt").write_text("cat\ndog\n")
    (tmp_path / "new.txt").write_text("owl\nant\nbee\n")
    statuses = set()
    for num_files in range(26, 50):
        root = disk(200)
        words = ["build", "arrays", f"x={tmp_path}/x.npy", f"label={tmp_path}/label.npy", str(root / "data")]
        assert main([*words, "--class-names", str(tmp_path / "old.txt")]) == 0
        old = read_manifest(root / "data")
        disk(num_files, "remount,")
        status = main([*words, "--class-names", str(tmp_path / "new.txt"), "--overwrite"])
        errors = capsys.readouterr().err
        statuses.add(status)
        now = read_manifest(root / "data")
        assert (now.build_id == old.build_id) == (status == 1), errors
        report = verify(root / "data", deep=True)
        assert bool(report) == (status != 3), (errors, report)
        if status == 3:
            assert f"build {now.build_id} is committed, and all of its examples can be read, but" in errors
            assert "No space left on device; the next command on this dataset completes it" in errors
            disk(200, "remount,")
            assert main(["verify", str(root / "data")]) == 0
            output = capsys.readouterr()
            assert output.err == f"completed {root / 'data'}: build {now.build_id} was committed before\n"
            assert output.out == f"{root / 'data'}: sound\n"
            assert (root / "data" / "labels.txt").read_text() == "owl\nant\nbee\n"
            assert not (root / "data" / ".build").exists()
        # an error keeps the frames of the build, and what they have mapped on the disk
        gc.collect()
        subprocess.run(["umount", str(root)], check=True)
    assert statuses == {0, 1, 3}
