"""What workers have written is measured from the build area, whichever machine they run on."""

from __future__ import annotations

import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder
from tfshards.prep.progress.lines import Written
from tfshards.prep.writing import tally
from tfshards.prep.writing.area import AREA_NAME, BuildArea, ShardId
from tfshards.prep.writing.tally import AreaMeter, Tally
from tfshards.schemas import BuildError


@pytest.fixture
def area(tmp_path) -> BuildArea:
    area = BuildArea(tmp_path / "out", "0" * 8)
    area.open()
    return area


@pytest.fixture
def meter(area) -> AreaMeter:
    return AreaMeter(area, "first", {f"x-{index}": (ShardId("train", index), 10) for index in range(3)})


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(tally, "_SECONDS", 0.0)


def test_unfinished_shards_count_with_what_their_workers_have_tallied(area, meter):
    assert meter.measure() == Written(0, 0)
    for name in ("x-0.aa", "x-2.bb"):
        one = Tally(area.unfinished_path(name))
        one.add(Written(2, 100))
        one.add(Written(1, 50))
    assert meter.measure() == Written(6, 300)
    one.remove()
    assert meter.measure() == Written(3, 150)


def test_of_two_attempts_at_a_shard_the_further_one_counts(area, meter):
    Tally(area.unfinished_path("x-0.aa")).add(Written(5, 500))
    Tally(area.unfinished_path("x-0.bb")).add(Written(2, 200))
    assert meter.measure() == Written(5, 500)


@pytest.mark.parametrize("text", ["", "12", "12 3", "a b\n"])
def test_a_tally_that_is_being_written_is_left_out(text, area, meter):
    area.unfinished_path("x-0.aa.tally").write_text(text)
    assert meter.measure() == Written(0, 0)


def test_files_of_other_shards_are_left_out(area, meter):
    Tally(area.unfinished_path("x-7.aa")).add(Written(5, 500))
    assert meter.measure() == Written(0, 0)


def test_a_small_shard_has_no_tally(area, monkeypatch):
    monkeypatch.setattr(tally, "_SECONDS", 1000.0)
    Tally(area.unfinished_path("x-0.aa")).add(Written(1, 1))
    assert list(area.unfinished_path("").iterdir()) == []


def test_a_tally_that_cannot_be_written_is_not_an_error(area):
    one = Tally(area.unfinished_path("gone/x-0.aa"))
    one.add(Written(1, 1))
    one.remove()


def test_finished_shards_count_with_their_bytes_and_rejected_examples(image_folder, tmp_path, quiet_build):
    files = {f"a/{number}.png": number for number in range(5)}
    root = image_folder({**files, "a/bad.png": b"no image"})
    with raises(BuildError, "too-many-rejected", num_rejects=1, inputs=6):
        quiet_build(ImageFolder(root), tmp_path / "out", shards=2)
    (plan_id,) = (path.name for path in (tmp_path / "out" / AREA_NAME).iterdir() if path.is_dir())
    area = BuildArea(tmp_path / "out", plan_id)
    shards = {f"x-{index}": (ShardId("train", index), 3) for index in range(2)}
    sizes = [path.stat().st_size for path in area.shards.glob("*.tfrecord-*")]
    assert AreaMeter(area, "first", shards).measure() == Written(6, sum(sizes))
    # a finished shard counts once, even if its worker has left a tally
    area.open()
    Tally(area.unfinished_path("x-0.aa")).add(Written(1, 1))
    assert AreaMeter(area, "first", shards).measure() == Written(6, sum(sizes))


def test_workers_of_an_earlier_attempt_stop_when_the_next_one_begins(area):
    later = BuildArea(area.out, area.plan_id)
    later.open()
    assert area.stop_path.read_text() == "a later run has begun"
    later.open()
    assert not later.stop_path.exists()
