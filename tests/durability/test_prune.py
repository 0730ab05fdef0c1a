"""Unfinished builds: what ``prune`` and the next build do with them; see tests/verbs and tests/crash."""

import fcntl
import json
import os

import pytest

from tests.errors import raises
from tests.reported import logged
from tfshards.prep import ImageFolder, Options, build, prune, verify
from tfshards.schemas import BuildError, InputError, read_manifest

from .commands import contents
from .inputs import write_inputs


@pytest.fixture
def out(tmp_path):
    write_inputs(tmp_path)
    return tmp_path / "data"


def built(out, **options):
    source = ImageFolder(out.parent / "photos")
    given = {
        "shards": 2,
        "options": Options(max_rejected=1),
    }
    return build(source, out, **{**given, **options})


def test_an_earlier_generation_and_an_unfinished_build_are_removed(out):
    old, new = built(out), built(out, seed=1, overwrite=True)
    (out / "notes.txt").write_text("mine")
    after = contents(out)
    with raises(BuildError, "rejected (", code="too-many-rejected"):
        built(out, seed=2, overwrite=True, options=Options())
    (unfinished,) = {path.name for path in out.iterdir() if path.is_dir()} - {old.folder, new.folder}
    before = contents(out)
    removed = prune(out)
    is_removed = {path: path.startswith((f"{old.folder}/", f"{unfinished}/")) for path in before}
    assert sum(one.num_bytes for one in removed) == sum(
        len(data) for path, data in before.items() if is_removed[path] and data != b"a folder"
    )
    assert contents(out) == {
        path: data for path, data in after.items() if path.partition("/")[0] != old.folder
    }
    assert verify(out, deep=True)


def test_nothing_is_removed_while_a_build_runs(out):
    built(out)
    built(out, seed=1, overwrite=True)
    before = contents(out)
    descriptor = os.open(out, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with raises(InputError, "another build is writing", code="build-running"):
        prune(out)
    os.close(descriptor)
    assert contents(out) == before


UNREADABLE = {"of another release": b', "options": []}', "cut": b', "options": {"se'}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
def test_a_note_that_cannot_be_read_prevents_no_build(data, out):
    with raises(BuildError, "rejected (", code="too-many-rejected"):
        built(out, options=Options())
    (record,) = out.glob("*/build.json")
    record.write_bytes(record.read_bytes().partition(b', "options"')[0] + data)
    log: list[str] = []
    logged(built, log.append)(out, seed=1)
    assert log[0].startswith("discarding an unfinished build")
    assert verify(out, deep=True)


def test_a_dataset_of_a_later_release_is_kept_until_it_is_replaced(out):
    built(out)
    document = json.loads((out / "dataset.json").read_bytes())
    (out / "dataset.json").write_text(json.dumps({**document, "format_version": 99}))
    before = contents(out)
    with raises(BuildError, "rejected (", code="too-many-rejected"):
        built(out, seed=1, overwrite=True, options=Options())
    assert before.items() <= contents(out).items()
    assert built(out, seed=1, overwrite=True) == read_manifest(out)
