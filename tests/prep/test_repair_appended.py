"""Shards of a dataset that was appended to are rebuilt from each of its parts; see tests/verbs for all."""

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, Options, append, repair, reshard
from tfshards.schemas import InputError

from .derived import build_quietly as build
from .derived import flip, quiet, write_images

append = partial(append, engine="local", log=quiet)


@pytest.fixture
def parts(tmp_path) -> list[Path]:
    """Two folders of images, which together made ``out``."""
    folders = [
        write_images(tmp_path / f"{name}", numbers)
        for name, numbers in {"a": range(12), "b": range(20, 27)}.items()
    ]
    build(ImageFolder(folders[0]), tmp_path / "out", shards=2)
    append(folders[1], tmp_path / "out", shards=2)
    return folders


def test_damage_in_two_parts_is_repaired_from_all_inputs_or_from_those_of_each_part(
    parts, tmp_path, contents
):
    out = tmp_path / "out"
    before = contents(out)
    shards = [out / path for path in sorted(before) if path.startswith("out-") and "00001-of" in path]
    assert len(shards) == 2
    both = shutil.copytree(parts[0], tmp_path / "both")
    shutil.copytree(parts[1], both, dirs_exist_ok=True)
    for sources in ([both], parts):
        for shard in shards:
            flip(shard)
        made = [repair(out, source) for source in sources]
        assert [len(report.repaired) for report in made] == [2 // len(sources)] * len(sources)
        assert made[-1]
        assert contents(out) == before


def test_groups_and_options_are_those_of_the_build(tmp_path, contents):
    def source(count: int) -> Arrays:
        return Arrays({"x": np.arange(count * 3).reshape(count, 3), "who": np.arange(count) % 9})

    out, options = tmp_path / "out", Options(splits={"train": "0.7", "val": "0.3"}, group_by="who")
    build(source(20), out, shards=2, options=options)
    append(source(45), out, shards=2)
    before = contents(out)
    for path in before:
        if path.startswith("out-"):
            (out / path).unlink()
    assert repair(out, source(45))
    assert contents(out) == before


def test_without_the_record_of_the_inputs_of_a_part_it_is_refused(parts, tmp_path, contents):
    out = tmp_path / "out"
    shard = flip(next(out.glob("out-*.tfrecord-00001-of-*")))
    (out / f"inputs-{shard.name.partition('.')[0][-8:]}.npz").unlink()
    before = contents(out)
    both = shutil.copytree(parts[0], tmp_path / "both")
    shutil.copytree(parts[1], both, dirs_exist_ok=True)
    with raises(InputError, "inputs-differ"):
        repair(out, both)
    assert contents(out) == before


def test_a_dataset_that_was_resharded_and_appended_to_is_refused(tmp_path):
    photos = write_images(tmp_path / "photos", range(8))
    build(ImageFolder(photos), tmp_path / "old", shards=1)
    reshard(tmp_path / "old", tmp_path / "out", log=quiet)
    write_images(photos, range(8, 12))
    made = append(photos, tmp_path / "out")
    flip(tmp_path / "out" / made.shards[0].path)
    with raises(InputError, "not-a-build", how="was made by reshard"):
        repair(tmp_path / "out", photos)
