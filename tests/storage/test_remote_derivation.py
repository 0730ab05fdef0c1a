"""Verbs in an object store: failures, other runs, and origins on a disk; see tests/verbs for the bytes."""

from pathlib import Path

import pytest

from tests.durability.inputs import image
from tests.errors import raises
from tests.pictures import write
from tests.prep.derived import first_shard, flip, quiet
from tfshards import prep
from tfshards.prep import Options, append, build, merge, verify
from tfshards.prep.building import commit as building
from tfshards.schemas import BuildError
from tfshards.schemas.storage import any_path


def photos(folder, numbers: range):
    for number in numbers:
        write(folder / ("cat", "dog")[number % 2] / f"{number:02}.bmp", image(number))
    write(folder / "cat" / f"bad-{numbers[0]}.bmp", b"no image")
    return folder


def built(folder, out: object, numbers: range, **options: object) -> str:
    """Build photos into a folder or a bucket, and return it."""
    source = prep.ImageFolder(photos(folder, numbers))
    build(source, str(out), log=quiet, shards=2, options=Options(max_rejected="50%", **options))
    return str(out)


RANGES = {"a": range(6), "b": range(10, 16)}


def test_damage_is_named_in_a_bucket_and_the_same_call_resumes(bucket, tmp_path):
    roots = [built(tmp_path / f"photos-{name}", tmp_path / name, of) for name, of in RANGES.items()]
    out, damaged = f"{bucket.url}/merged", flip(first_shard(Path(roots[1])), -1)
    with pytest.raises(BuildError, match=damaged.name):
        merge(roots, out, log=quiet)
    flip(damaged, -1)
    # another command that ends meanwhile
    build(prep.Arrays({"x": [1, 2]}), out, log=quiet)
    folder = merge(roots, out, overwrite=True, log=quiet).folder
    assert not (any_path(out) / folder / "work").exists()
    assert prep.info(out).num_examples == 12
    assert verify(out, deep=True)


@pytest.mark.processes
def test_two_appends_at_the_same_time_do_not_lose_each_other(bucket, tmp_path, monkeypatch):
    out = built(tmp_path / "photos", f"{bucket.url}/data", range(8))
    ours, theirs = photos(tmp_path / "ours", range(20, 23)), photos(tmp_path / "theirs", range(30, 33))
    commit = building.commit

    def late(*arguments: object, **options: object) -> object:
        monkeypatch.setattr(building, "commit", commit)
        append(str(theirs), out, max_rejected="50%", log=quiet)
        return commit(*arguments, **options)

    monkeypatch.setattr(building, "commit", late)
    with raises(BuildError, "build-overtaken"):
        append(str(ours), out, max_rejected="50%", log=quiet)
    assert verify(out, deep=True)
    manifest = append(str(ours), out, max_rejected="50%", log=quiet)
    assert manifest.num_examples == 8 + 3 + 3
    assert verify(out, deep=True)
