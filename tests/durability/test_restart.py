"""What a build reports about an unfinished build in the same output: it is resumed or discarded."""

import json
import os
import shutil

import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder, Options, build, verify
from tfshards.prep.building.output_state import up_to_date
from tfshards.prep.writing.area import AREA_NAME
from tfshards.prep.writing.shard_names import with_build_id
from tfshards.schemas import BuildError, read_manifest

from .commands import contents, finished, identity
from .inputs import write, write_inputs

ALL = Options(max_rejected=1)


@pytest.fixture
def stopped(tmp_path):
    """An output in which a build ended after its last shard because inputs were rejected."""
    write_inputs(tmp_path)
    with raises(BuildError, "too-many-rejected"):
        build_photos(tmp_path, [], options=Options(max_rejected=0))
    return tmp_path / "data"


def build_photos(folder, log, *, shards=4, seed=0, overwrite=False, options=ALL):
    return build(
        ImageFolder(folder / "photos"),
        folder / "data",
        engine="local",
        shards=shards,
        seed=seed,
        overwrite=overwrite,
        options=options,
        log=log.append,
    )


def only_build(out) -> str:
    (area,) = (out / AREA_NAME).iterdir()
    return area.name


def remove(folder) -> None:
    (folder / "photos" / "cat" / "02.bmp").unlink()


def touch(folder) -> None:
    os.utime(folder / "photos" / "cat" / "02.bmp")


def move(folder) -> None:
    (folder / "photos" / "cat" / "02.bmp").rename(folder / "photos" / "dog" / "02.bmp")


def add_hidden(folder) -> None:
    write(folder / "photos" / ".hidden", b"")


@pytest.mark.parametrize("change", [remove, move])
def test_an_unfinished_build_of_other_inputs_is_discarded_in_one_line(change, stopped, tmp_path):
    log, discarded = [], only_build(stopped)
    change(tmp_path)
    build_photos(tmp_path, log)
    assert log[0] == "discarding an unfinished build: its inputs or options differ"
    assert log[1].startswith("starting build: ")
    assert verify(stopped, deep=True)
    assert not [path for path in contents(stopped) if discarded in path]


@pytest.mark.parametrize("change", [touch, add_hidden])
def test_an_unfinished_build_of_inputs_of_the_same_content_is_resumed(change, stopped, tmp_path):
    log, unfinished = [], finished(stopped)
    assert len(unfinished) == 4
    change(tmp_path)
    manifest = build_photos(tmp_path, log)
    compared = ["comparing the contents of 1 input, whose modification times differ"]
    assert log[: 2 if change is touch else 1] == [
        *(compared if change is touch else []),
        "resuming the build: 4 of 4 shards finished",
    ]
    shards = {shard.path: shard.digest for shard in manifest.shards}
    for unfinished_path, (digest, was) in unfinished.items():
        path = with_build_id(unfinished_path, manifest.build_id)
        # except those from which rejects were balanced away
        assert identity(stopped / path) == was or digest != shards[path], path
    assert verify(stopped, deep=True)


UNREADABLE = {"of another release": b', "options": []}', "cut": b', "options": {"se'}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
def test_a_note_that_cannot_be_read_prevents_no_build(data, stopped, tmp_path):
    log, discarded = [], only_build(stopped)
    record = stopped / AREA_NAME / discarded / "build.json"
    record.write_bytes(record.read_bytes().partition(b', "options"')[0] + data)
    build_photos(tmp_path, log, seed=1)
    assert log[0] == "discarding an unfinished build: its inputs or options differ"
    assert verify(stopped, deep=True)


def test_a_build_that_had_not_started_is_discarded_without_a_line(stopped, tmp_path):
    log: list[str] = []
    shutil.rmtree(stopped / AREA_NAME / only_build(stopped) / "first")
    build_photos(tmp_path, log, seed=1)
    assert log[0].startswith("starting build: ")


def test_a_replacement_is_discarded_when_the_dataset_is_built_again(tmp_path):
    write_inputs(tmp_path)
    log: list[str] = []
    out = tmp_path / "data"
    build_photos(tmp_path, log)
    whole = contents(out)
    with raises(BuildError, "too-many-rejected"):
        build_photos(tmp_path, log, seed=1, overwrite=True, options=Options(max_rejected=0))
    log.clear()
    build_photos(tmp_path, log)
    assert log == [
        "discarding an unfinished build: its inputs or options differ (seed=)",
        up_to_date(out, is_compared=False),
    ]
    assert contents(out) == whole


def test_a_dataset_of_a_later_release_is_kept_until_it_is_replaced(tmp_path):
    write_inputs(tmp_path)
    out = tmp_path / "data"
    build_photos(tmp_path, [])
    document = json.loads((out / "dataset.json").read_bytes())
    document["format_version"] = 99
    (out / "dataset.json").write_text(json.dumps(document))
    before = contents(out)
    with raises(BuildError, "too-many-rejected"):
        build_photos(tmp_path, [], seed=1, overwrite=True, options=Options(max_rejected=0))
    assert before.items() <= contents(out).items()
    new = build_photos(tmp_path, [], seed=1, overwrite=True)
    assert read_manifest(out) == new
