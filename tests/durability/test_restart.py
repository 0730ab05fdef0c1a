"""What a build says about an unfinished one in the same output: that it goes on, or why it starts over."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tfshards.prep import Arrays, ImageFolder, Options, build, verify
from tfshards.prep.area import AREA_NAME
from tfshards.schemas import BuildError, InputError, read_manifest

from .commands import contents
from .inputs import image, write, write_inputs

ALL = Options(max_rejected=1)


@pytest.fixture
def stopped(tmp_path) -> Path:
    """An output in which a build ended after its last shard, since inputs are rejected."""
    write_inputs(tmp_path)
    with pytest.raises(BuildError, match="more than --max-rejected allows"):
        build_photos(tmp_path, [], options=Options(max_rejected=0))
    return tmp_path / "data"


def build_photos(folder, talk, *, shards=4, seed=0, overwrite=False, options=ALL):
    return build(
        ImageFolder(folder / "photos"),
        folder / "data",
        shards=shards,
        seed=seed,
        overwrite=overwrite,
        options=options,
        talk=talk.append,
    )


def only_build(out: Path) -> str:
    (area,) = (out / AREA_NAME).iterdir()
    return area.name


def add(folder: Path) -> None:
    for name in ("cat/new.bmp", "dog/new.bmp"):
        write(folder / "photos" / name, image(30))


def remove(folder: Path) -> None:
    (folder / "photos" / "cat" / "02.bmp").unlink()


def grow(folder: Path) -> None:
    for name in ("cat/02.bmp", "dog/03.bmp", "dog/05.bmp"):
        write(folder / "photos" / name, image(31))


def touch(folder: Path) -> None:
    os.utime(folder / "photos" / "cat" / "02.bmp")


def move(folder: Path) -> None:
    (folder / "photos" / "cat" / "02.bmp").rename(folder / "photos" / "dog" / "02.bmp")


def all_of_it(folder: Path) -> None:
    for change in (add, grow, remove):
        change(folder)


def add_class(folder: Path) -> None:
    # after the others, so that these keep their numbers
    write(folder / "photos" / "emu" / "01.bmp", image(1))


def add_class_in_front(folder: Path) -> None:
    write(folder / "photos" / "ant" / "01.bmp", image(1))


def add_hidden(folder: Path) -> None:
    write(folder / "photos" / ".hidden", b"")


INPUTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "two more": (add, "inputs changed (2 added)"),
    "one less": (remove, "inputs changed (1 removed)"),
    "three are of other sizes": (grow, "inputs changed (3 of other size or time)"),
    "one is of another time": (touch, "inputs changed (1 of other size or time)"),
    "one is of another class": (move, "inputs changed (1 added, 1 removed)"),
    "all of it": (all_of_it, "inputs changed (2 added, 1 removed, 2 of other size or time)"),
    "a class more": (add_class, "features or class names changed, inputs changed (1 added)"),
    "a class more, in front": (
        add_class_in_front,
        "features or class names changed, inputs changed (1 added, 27 of another label)",
    ),
    "a file that is skipped": (add_hidden, "skipped entries changed"),
}


@pytest.mark.parametrize(("change", "why"), INPUTS.values(), ids=INPUTS.keys())
def test_a_build_says_which_inputs_are_others(change, why, stopped, tmp_path):
    talk, given_up = [], only_build(stopped)
    change(tmp_path)
    manifest = build_photos(tmp_path, talk)
    assert talk[0] == f"giving up build {given_up}, 4 of 4 shards finished: {why}"
    assert talk[1].startswith(f"starting build {manifest.build_id}: ")
    assert verify(stopped, deep=True) == []
    assert not [path for path in contents(stopped) if given_up in path]


def test_a_build_says_which_options_are_others(stopped, tmp_path):
    talk, given_up = [], only_build(stopped)
    build_photos(tmp_path, talk, shards=3, seed=1)
    assert talk[0] == f"giving up build {given_up}, 4 of 4 shards finished: options changed (seed, shards)"


def test_a_build_says_that_both_are_others_and_the_name(stopped, tmp_path):
    talk, given_up = [], only_build(stopped)
    add(tmp_path)
    build_photos(tmp_path, talk, seed=1, options=Options(max_rejected=1, name="photos"))
    why = "options changed (seed), the dataset's name changed, inputs changed (2 added)"
    assert talk[0] == f"giving up build {given_up}, 4 of 4 shards finished: {why}"


def test_arrays_are_told_by_their_content(tmp_path):
    talk: list[str] = []

    class Vanishing(Arrays):
        """The file goes after it was listed."""

        def stage(self, folder, *, preview=False):
            reader = super().stage(folder, preview=preview)
            (tmp_path / "x.npy").unlink()
            return reader

    out = tmp_path / "data"
    np.save(tmp_path / "x.npy", np.arange(40))
    with pytest.raises(BuildError):
        build(Vanishing({"x": tmp_path / "x.npy"}), out, shards=2, talk=talk.append)
    given_up = only_build(out)
    np.save(tmp_path / "x.npy", np.arange(41))
    build(Arrays({"x": tmp_path / "x.npy"}), out, shards=2, talk=talk.append)
    why = "the inputs' content changed, inputs changed (1 added)"
    assert talk[1] == f"giving up build {given_up}, no shard finished: {why}"


DAMAGE = {
    "of another release": ("build.json", b'{"options": []}', "it is of another release"),
    "cut": ("build.json", b'{"options": ', "it is of another release"),
    "a plan that is cut": ("first/train-00001.plan", b"[[", "it is of another release"),
}


@pytest.mark.parametrize(("place", "data", "why"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_note_that_cannot_be_read_keeps_no_build_from_starting(place, data, why, stopped, tmp_path):
    talk, given_up = [], only_build(stopped)
    (stopped / AREA_NAME / given_up / place).write_bytes(data)
    build_photos(tmp_path, talk, seed=1)
    assert talk[0] == f"giving up build {given_up}, 4 of 4 shards finished: {why}"
    assert verify(stopped, deep=True) == []


def test_inputs_are_not_counted_where_not_all_were_written_down(stopped, tmp_path):
    talk, given_up = [], only_build(stopped)
    remove(tmp_path)
    for suffix in ("plan", "done"):
        (stopped / AREA_NAME / given_up / "first" / f"train-00001.{suffix}").unlink()
    build_photos(tmp_path, talk)
    assert talk[0] == f"giving up build {given_up}, 3 of 3 shards finished: inputs changed"


def test_a_build_that_had_not_begun_is_not_worth_a_word(stopped, tmp_path):
    talk: list[str] = []
    (stopped / AREA_NAME / only_build(stopped) / "build.json").unlink()
    manifest = build_photos(tmp_path, talk, seed=1)
    assert talk[0].startswith(f"starting build {manifest.build_id}: ")


def test_a_build_that_is_asked_for_something_impossible_gives_up_nothing(stopped, tmp_path):
    before = contents(stopped)
    with pytest.raises(InputError, match="exceeds the 27 examples"):
        build_photos(tmp_path, [], shards=40)
    assert contents(stopped) == before


def test_what_would_replace_a_dataset_goes_when_that_is_asked_for_again(tmp_path):
    write_inputs(tmp_path)
    talk: list[str] = []
    out = tmp_path / "data"
    build_photos(tmp_path, talk)
    whole = contents(out)
    with pytest.raises(BuildError, match="more than --max-rejected allows"):
        build_photos(tmp_path, talk, seed=1, overwrite=True, options=Options(max_rejected=0))
    given_up = only_build(out)
    talk.clear()
    build_photos(tmp_path, talk)
    assert talk == [
        f"giving up build {given_up}, 4 of 4 shards finished: options changed (seed)",
        f"{out} is up to date",
    ]
    assert contents(out) == whole


def test_what_a_build_that_was_committed_left_is_no_other_build(tmp_path):
    write_inputs(tmp_path)
    talk: list[str] = []
    out = tmp_path / "data"
    old = build_photos(tmp_path, talk)
    before = contents(out)
    # as after a kill between the manifest and the clean-up
    area = out / AREA_NAME / old.build_id
    area.mkdir(parents=True)
    (area / "build.json").write_text("{}")
    talk.clear()
    new = build_photos(tmp_path, talk, seed=1, overwrite=True)
    assert talk[0].startswith(f"starting build {new.build_id}: ")
    assert {path: data for path, data in before.items() if old.build_id in path}.items() <= contents(
        out
    ).items()


def test_a_dataset_of_a_later_release_stays_whole_until_it_is_replaced(tmp_path):
    write_inputs(tmp_path)
    out = tmp_path / "data"
    build_photos(tmp_path, [])
    document = json.loads((out / "dataset.json").read_bytes())
    document["format_version"] = 99
    (out / "dataset.json").write_text(json.dumps(document))
    before = contents(out)
    with pytest.raises(BuildError, match="more than --max-rejected allows"):
        build_photos(tmp_path, [], seed=1, overwrite=True, options=Options(max_rejected=0))
    assert before.items() <= contents(out).items()
    new = build_photos(tmp_path, [], seed=1, overwrite=True)
    assert read_manifest(out) == new
