"""``--retry-rejected``: mended files come in, and the result is what a build of the mended folder makes."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.prep.test_resume import build_command, killed_when
from tfshards.prep import ImageFolder, ImageOptions, Options, verify
from tfshards.prep.area import AREA_NAME
from tfshards.schemas import BuildError, InputError, Manifest, OptionsError, read_manifest

ANY = Options(max_rejected=1)
BAD = ("ant/bad.png", "bee/bad.png", "cat/bad.jpg")


@pytest.fixture
def half_bad(image_folder) -> Path:
    """Sixty images of three classes, and three files that are none."""
    files: dict[str, int | bytes] = {f"{('ant', 'bee', 'cat')[n % 3]}/{n:02}.png": n for n in range(60)}
    return image_folder({**files, **dict.fromkeys(BAD, b"no image")})


def mend(root: Path, name: str, mode: str = "RGB") -> None:
    """Put an image in the file's place; one of mode L is converted when it is built."""
    pixels = np.random.default_rng(len(name)).integers(0, 256, (9, 9, len(mode)), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "PNG")
    (root / name).write_bytes(file.getvalue())


def spoil(root: Path, name: str) -> None:
    (root / name).write_bytes(b"")


def inodes(out: Path, manifest: Manifest) -> list[int]:
    return [(out / shard.path).stat().st_ino for shard in manifest.shards]


def of_build(files: dict[str, bytes], build_id: str) -> dict[str, bytes]:
    """Return the files of a dataset without those of the generation before."""
    return {
        name: data
        for name, data in files.items()
        if build_id in name or (".tfrecord-" not in name and not name.startswith("rejected-"))
    }


def mend_all(root: Path) -> None:
    for name in BAD:
        mend(root, name)


def mend_one(root: Path) -> None:
    mend(root, BAD[0])


def mend_one_and_spoil_another(root: Path) -> None:
    mend(root, BAD[1], "L")
    spoil(root, BAD[2])


def only_touch(root: Path) -> None:
    os.utime(root / BAD[1], ns=(5, 5))


MENDED = {
    "all": (mend_all, 0),
    "one of three": (mend_one, 2),
    "one, that is converted, and another is bad in another way": (mend_one_and_spoil_another, 2),
    "none, but one has another time": (only_touch, 3),
}
SPLITS = {"train": "0.7", "val": "0.3"}
BUILDS = {
    "by count": ({"shards": 8}, ANY),
    "by bytes": ({"shards": 8}, Options(max_rejected=1, balance="bytes")),
    "splits by ratio": ({"shards": 4}, Options(max_rejected=1, splits=SPLITS)),
    "strata": (
        {"seed": 3},
        Options(max_rejected=1, splits=SPLITS, stratify=True, shards_by_split={"val": 2}),
    ),
    "shards by size": ({}, Options(max_rejected=1, shard_size=600)),
}


@pytest.mark.parametrize(("settings", "options"), BUILDS.values(), ids=BUILDS.keys())
@pytest.mark.parametrize(("change", "num_left"), MENDED.values(), ids=MENDED.keys())
def test_it_makes_what_a_build_of_the_mended_folder_makes(
    change, num_left, settings, options, half_bad, tmp_path, quiet_build, contents
):
    out, fresh = tmp_path / "out", tmp_path / "fresh" / "out"
    before = quiet_build(ImageFolder(half_bad), out, options=options, **settings)
    assert before.totals.rejected == 3
    change(half_bad)
    after = quiet_build(ImageFolder(half_bad), out, options=options, retry_rejected=True, **settings)
    assert quiet_build(ImageFolder(half_bad), fresh, options=options, **settings) == after
    assert after.build_id != before.build_id
    assert after.totals.rejected == num_left
    assert of_build(contents(out), after.build_id) == contents(fresh)
    assert verify(out, deep=True) == []
    # who has the old one open goes on: its files stay until the next build
    for shard in before.shards:
        assert (out / shard.path).stat().st_size == shard.num_bytes
        assert all((out / path).is_file() for path in shard.beside)


def test_shards_that_stay_as_they_are_are_the_same_files(half_bad, tmp_path, quiet_build, talk):
    out = tmp_path / "out"
    before = quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY)
    mend(half_bad, BAD[0])
    talk.clear()
    after = quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY, retry_rejected=True)
    same = [one.digest == two.digest for one, two in zip(before.shards, after.shards, strict=True)]
    assert 5 <= sum(same) < 8
    linked = [one == two for one, two in zip(inodes(out, before), inodes(out, after), strict=True)]
    assert linked == same
    assert talk == [
        "1 of 3 rejected inputs can be taken in now",
        f"balancing after rejects: {8 - sum(same)} of 8 shards to write again",
    ]


def test_only_what_was_rejected_and_what_changes_place_is_read(half_bad, tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY)
    mend(half_bad, BAD[0])
    log = tmp_path / "read.txt"

    class Watched(ImageFolder):
        """Notes the keys that are read, in a file, since workers have copies of it."""

        def read(self, rows, schema):
            with log.open("a") as file:
                file.writelines(f"{row.key}\n" for row in rows)
            return super().read(rows, schema)

    quiet_build(Watched(half_bad), out, shards=8, options=ANY, retry_rejected=True)
    read = log.read_text().splitlines()
    assert read.count(BAD[0]) == 2
    assert BAD[1] not in read
    # of 63, those in the few shards that change
    assert len(read) <= 25


def test_a_second_try_follows_the_first(half_bad, tmp_path, quiet_build, contents):
    out, fresh = tmp_path / "out", tmp_path / "fresh" / "out"
    builds = [quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY)]
    for name in BAD:
        mend(half_bad, name)
        builds.append(quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY, retry_rejected=True))
        assert verify(out, deep=True) == []
        # the last generation is kept, the one before it is not
        assert {path.name.split("-")[2].split(".")[0] for path in out.glob("*.tfrecord-*")} == {
            build.build_id for build in builds[-2:]
        }
    assert quiet_build(ImageFolder(half_bad), fresh, shards=8) == builds[-1]
    assert of_build(contents(out), builds[-1].build_id) == contents(fresh)
    assert builds[-1].totals.rejected == 0


def test_nothing_mended_is_up_to_date(half_bad, tmp_path, quiet_build, talk, contents):
    out = tmp_path / "out"
    manifest = quiet_build(ImageFolder(half_bad), out, options=ANY)
    whole = contents(out)
    talk.clear()
    assert quiet_build(ImageFolder(half_bad), out, options=ANY, retry_rejected=True) == manifest
    assert talk == [f"{out} is up to date"]
    assert contents(out) == whole


def another_input(root: Path) -> None:
    mend(root, "ant/00.png")


def a_new_input(root: Path) -> None:
    mend(root, "ant/new.png")


def a_reject_gone(root: Path) -> None:
    (root / BAD[1]).unlink()


def a_reject_renamed(root: Path) -> None:
    (root / BAD[1]).rename(root / "bee/mended.png")


def another_skipped(root: Path) -> None:
    (root / "notes.txt").touch()


CHANGED = {
    "another input": (
        another_input,
        {},
        ANY,
        "holds a dataset of other inputs, and --retry-rejected takes in",
    ),
    "a new input": (a_new_input, {}, ANY, "out holds a dataset of other inputs, and"),
    "another skipped file": (another_skipped, {}, ANY, "out holds a dataset of other inputs, and"),
    "a reject that is gone": (
        a_reject_gone,
        {},
        ANY,
        r"^'bee/bad\.png', which .*out has rejected, is no longer among the inputs; put its mended",
    ),
    "a reject that was renamed": (
        a_reject_renamed,
        {},
        ANY,
        r"^'bee/bad\.png', which .*out has rejected, is no",
    ),
    "another seed": (
        mend_one,
        {"seed": 9},
        ANY,
        r"of other options \(seed\), and --retry-rejected takes in not",
    ),
    "another balance": (
        mend_one,
        {},
        Options(max_rejected=1, balance="bytes"),
        r"of other options \(balance\)",
    ),
    "other shards": (mend_one, {"shards": 5}, ANY, r"of other options \(shards\), and"),
}


@pytest.mark.parametrize(("change", "settings", "options", "message"), CHANGED.values(), ids=CHANGED.keys())
def test_anything_else_that_changed_is_told_and_nothing_is_touched(
    change, settings, options, message, half_bad, tmp_path, quiet_build, contents
):
    out = tmp_path / "out"
    quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY)
    whole = contents(out)
    mend(half_bad, BAD[0])
    change(half_bad)
    with pytest.raises(InputError, match=message):
        quiet_build(
            ImageFolder(half_bad), out, **{"shards": 8, **settings}, options=options, retry_rejected=True
        )
    assert contents(out) == whole


def test_a_dataset_that_has_rejected_nothing_is_told(small_folder, tmp_path, quiet_build):
    quiet_build(ImageFolder(small_folder), tmp_path / "out")
    mend(small_folder, "cat/00.png")
    with pytest.raises(
        InputError, match=r"out has rejected nothing; give --overwrite to build it of other inputs$"
    ):
        quiet_build(ImageFolder(small_folder), tmp_path / "out", retry_rejected=True)


def test_where_no_dataset_is_nothing_is_made(half_bad, tmp_path, quiet_build):
    with pytest.raises(
        InputError, match=r"out holds no dataset that has rejected anything; leave out --retry-rej"
    ):
        quiet_build(ImageFolder(half_bad), tmp_path / "out", retry_rejected=True)
    assert not (tmp_path / "out").exists()


def test_options_that_exclude_it_are_told_before_anything_is_read(tmp_path, quiet_build):
    gone = ImageFolder(tmp_path / "gone")
    with pytest.raises(
        OptionsError, match=r"^--retry-rejected and --overwrite exclude each other: give one$"
    ):
        quiet_build(gone, tmp_path / "out", retry_rejected=True, overwrite=True)
    with pytest.raises(
        OptionsError, match=r"^--retry-rejected reads only what was rejected, so that it cannot"
    ):
        quiet_build(gone, tmp_path / "out", retry_rejected=True, options=Options(duplicates="drop"))


def cut_manifest(out: Path) -> None:
    (out / "dataset.json").write_text("{")


def cut_shard(out: Path) -> None:
    next(out.glob("*.tfrecord-*")).write_bytes(b"")


def no_list(out: Path) -> None:
    next(out.glob("rejected-*")).unlink()


def cut_list(out: Path) -> None:
    next(out.glob("rejected-*")).write_text('{"key": "a"}\n')


DAMAGED = {
    "the manifest": (cut_manifest, "not readable as JSON"),
    "a shard": (
        cut_shard,
        r"out is damaged: .* has 0 bytes, the manifest says \d+; give --overwrite to build it",
    ),
    "no list of rejects": (
        no_list,
        r"rejected-[0-9a-f]{8}\.jsonl: cannot be read: No such file or directory$",
    ),
    "the list of rejects": (
        cut_list,
        r"rejected-[0-9a-f]{8}\.jsonl: is no list of rejected inputs: KeyError",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_dataset_is_no_base_and_loses_nothing(
    damage, message, half_bad, tmp_path, quiet_build, contents
):
    out = tmp_path / "out"
    quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY)
    damage(out)
    left = contents(out)
    mend(half_bad, BAD[0])
    with pytest.raises(Exception, match=message):
        quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY, retry_rejected=True)
    assert contents(out) == left


def without(path: Path) -> None:
    path.unlink()


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


UNSOUND = {
    "a shard with a flipped bit": (flipped, "{shard}"),
    "an index with a flipped bit": (flipped, "index/{shard}.idx"),
    "an index that is gone": (without, "index/{shard}.idx"),
    "labels with a flipped bit": (flipped, "index/{shard}.labels"),
}


@pytest.mark.parametrize(("damage", "place"), UNSOUND.values(), ids=UNSOUND.keys())
def test_a_shard_that_is_not_sound_is_written_again_not_taken_over(
    damage, place, half_bad, tmp_path, quiet_build
):
    out, fresh = tmp_path / "out", tmp_path / "fresh" / "out"
    before = quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY)
    mend(half_bad, BAD[0])
    wanted = quiet_build(ImageFolder(half_bad), fresh, shards=8, options=ANY)
    same = [one for one, two in zip(before.shards, wanted.shards, strict=True) if one.digest == two.digest]
    damage(out / place.format(shard=same[0].path))
    assert quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY, retry_rejected=True) == wanted
    assert verify(out, deep=True) == []


def test_too_many_that_are_still_bad_end_the_build_before_its_commit(
    half_bad, tmp_path, quiet_build, contents
):
    out = tmp_path / "out"
    before = quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY)
    mend(half_bad, BAD[0])
    spoil(half_bad, BAD[1])
    with pytest.raises(
        BuildError,
        match=r"^2 of 63 inputs are rejected \(1 unreadable, 1 empty\), more than .* \(1\.000%\)\n",
    ):
        quiet_build(ImageFolder(half_bad), out, shards=8, retry_rejected=True)
    assert read_manifest(out) == before
    assert verify(out, deep=True) == []
    listed = [json.loads(line) for line in next(out.glob(f"{AREA_NAME}/*/rejected.jsonl")).open()]
    assert [(reject["key"], reject["reason"]) for reject in listed] == [
        ("bee/bad.png", "empty"),
        ("cat/bad.jpg", "unreadable"),
    ]


@pytest.mark.parametrize("again", ["--retry-rejected", "--overwrite"])
def test_what_was_killed_ends_the_same_either_way(again, slow_folder, tmp_path, quiet_build, contents):
    out, fresh = tmp_path / "out", tmp_path / "fresh" / "out"
    first = quiet_build(ImageFolder(slow_folder), out, shards=8, options=ANY)
    good = (slow_folder / "00.bmp").read_bytes()
    for number in range(3):
        (slow_folder / f"{number:02d}-bad.bmp").write_bytes(good)
    command = build_command(slow_folder, out, "--retry-rejected")
    process = killed_when(f"{AREA_NAME}/*/final/*.done", command, out, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    # the old dataset is what there is
    assert read_manifest(out) == first
    assert verify(out, deep=True) == []
    settings = {again.removeprefix("--").replace("-", "_"): True}
    after = quiet_build(ImageFolder(slow_folder), out, shards=8, options=ANY, **settings)
    assert quiet_build(ImageFolder(slow_folder), fresh, shards=8, options=ANY) == after
    assert sum(after.totals.conversions.values()) >= 17
    assert of_build(contents(out), after.build_id) == contents(fresh)
    assert verify(out, deep=True) == []


def no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_without_hard_links_shards_are_copied(half_bad, tmp_path, quiet_build, contents, monkeypatch):
    out, fresh = tmp_path / "out", tmp_path / "fresh" / "out"
    before = quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY)
    mend_one_and_spoil_another(half_bad)
    monkeypatch.setattr(os, "link", no_links)
    after = quiet_build(ImageFolder(half_bad), out, shards=8, options=ANY, retry_rejected=True)
    assert not set(inodes(out, before)) & set(inodes(out, after))
    assert quiet_build(ImageFolder(half_bad), fresh, shards=8, options=ANY) == after
    assert of_build(contents(out), after.build_id) == contents(fresh)


def test_what_is_done_to_images_is_counted_over_both_builds(image_folder, tmp_path, quiet_build):
    out, fresh = tmp_path / "out", tmp_path / "fresh" / "out"
    root = image_folder({f"{n:02}.png": n for n in range(20)} | {"bad.png": b""})
    for name in ("03.png", "07.png"):
        mend(root, name, "L")
    source = ImageFolder(root, ImageOptions(resize="short=5"))
    before = quiet_build(source, out, shards=4, options=ANY)
    mend(root, "bad.png", "L")
    after = quiet_build(source, out, shards=4, options=ANY, retry_rejected=True)
    assert after.totals.conversions == quiet_build(source, fresh, shards=4).totals.conversions
    more = {name: count - before.totals.conversions[name] for name, count in after.totals.conversions.items()}
    assert set(more.values()) == {1}
