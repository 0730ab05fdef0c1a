"""What a build reports about an unfinished build in the same output: it is resumed or discarded."""

import json
import os

import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder, Options, build, verify
from tfshards.schemas import BuildError, read_manifest

from .commands import contents
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
    (area,) = (out / ".build").iterdir()
    return area.name


def touch(folder) -> None:
    os.utime(folder / "photos" / "cat" / "02.bmp")


def add_hidden(folder) -> None:
    write(folder / "photos" / ".hidden", b"")


@pytest.mark.parametrize("change", [touch, add_hidden])
def test_an_unfinished_build_of_inputs_of_the_same_content_is_resumed(change, stopped, tmp_path):
    log: list[str] = []
    change(tmp_path)
    build_photos(tmp_path, log)
    assert "resuming the build: 4 of 4 shards finished" in log
    assert verify(stopped, deep=True)


UNREADABLE = {"of another release": b', "options": []}', "cut": b', "options": {"se'}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
def test_a_note_that_cannot_be_read_prevents_no_build(data, stopped, tmp_path):
    log, discarded = [], only_build(stopped)
    record = stopped / ".build" / discarded / "build.json"
    record.write_bytes(record.read_bytes().partition(b', "options"')[0] + data)
    build_photos(tmp_path, log, seed=1)
    assert log[0].startswith("discarding an unfinished build")
    assert verify(stopped, deep=True)


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
