"""reshard: numbers of shards, and what is refused; see tests/verbs for the examples."""

import shutil
from pathlib import Path

import pytest

from tests.errors import raises
from tfshards.prep import ShardOptions, reshard
from tfshards.schemas import BuildError, InputError, read_manifest

from . import derived
from .derived import first_shard


@pytest.fixture
def old(tmp_path) -> Path:
    """Arrays that a test may damage: 101 examples in 3 shards."""
    derived.build_arrays(tmp_path)
    return tmp_path / "old"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"shards": 102}, ("exceeds the", "shards=102", "101 examples")),
        ({"shards": {"val": 2}}, 'shards={"val": 2} must name one of train'),
        ({"shards": {"train": 2}, "options": ShardOptions(shard_size=9)}, "shard_size= has"),
    ],
)
def test_shards_that_the_dataset_does_not_allow_are_refused(asked, message, old, tmp_path):
    with raises(InputError, message):
        reshard(old, tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


def test_records_that_are_not_those_of_the_dataset_are_not_resharded(old, tmp_path):
    derived.repeat_a_record(first_shard(old))
    with raises(BuildError, "with digest", "'train'"):
        reshard(old, tmp_path / "out", shards=7)
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_a_damaged_list_of_rejects_is_refused(tmp_path):
    rejects = tmp_path / "old" / derived.build_images(tmp_path).rejects_path
    rejects.write_text("")
    with pytest.raises(InputError, match=rejects.name):
        reshard(tmp_path / "old", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_without_space_is_refused_before_anything_is_written(old, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    # a full disk cannot be arranged here
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with raises(InputError, "needs about", "the dataset", "1000 B", code="disk-full"):
        reshard(old, tmp_path / "plain", shards=2)
    # the size is not known
    reshard(old, tmp_path / "gzip", options=ShardOptions(compression="gzip"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with raises(InputError, "needs about", "the dataset", code="disk-full"):
        reshard(tmp_path / "gzip", tmp_path / "again", shards=2)


def test_a_damaged_dataset_is_not_up_to_date(old):
    reshard(old, old, shards=4, overwrite=True)
    assert reshard(old, old, shards=4, overwrite=True) == read_manifest(old)
    path = derived.flip(first_shard(old), -1)
    with pytest.raises(InputError, match=path.name):
        reshard(old, old, shards=4, overwrite=True)


def test_a_damaged_shard_is_not_kept_in_place(old):
    path = derived.flip(first_shard(old), -1)
    with pytest.raises(InputError, match=path.name):
        reshard(old, old, overwrite=True)
