"""Where a build may write, what it replaces and when, and how much disk space it needs."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, Options, adopt, merge, prune, reshard, verify
from tfshards.prep.building.output import staged
from tfshards.prep.cli.main import main
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import BuildError, FormatError, InputError, OptionsError, read_manifest
from tfshards.schemas.files import bytes_digest, file_digest, require_space
from tfshards.schemas.storage import any_path

NUMBERS = Arrays({"x": np.arange(40)})


@pytest.mark.parametrize("inside", [".", "cat", "new", "new/deeper", "../photos/new"])
def test_an_output_inside_the_input_is_refused(inside, small_folder, quiet_build, contents):
    before = contents(small_folder)
    with raises(OptionsError, "output-in-input"):
        quiet_build(ImageFolder(small_folder), small_folder / inside)
    assert contents(small_folder) == before


def test_an_output_inside_the_input_is_found_through_links(small_folder, tmp_path, quiet_build):
    (tmp_path / "link").symlink_to(small_folder)
    with raises(OptionsError, "output-in-input"):
        quiet_build(ImageFolder(small_folder), tmp_path / "link" / "out")
    with raises(OptionsError, "output-in-input"):
        quiet_build(ImageFolder(tmp_path / "link"), small_folder / "out")


def test_a_folder_whose_name_only_starts_like_the_input_is_outside_of_it(small_folder, tmp_path, quiet_build):
    quiet_build(ImageFolder(small_folder), tmp_path / "photos2")
    assert verify(tmp_path / "photos2")


def test_an_output_that_is_a_file_is_refused(tmp_path, quiet_build):
    (tmp_path / "out").write_text("mine")
    with raises(InputError, "dataset-is-file"):
        quiet_build(NUMBERS, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_folder_of_other_files_is_refused_and_not_changed(tmp_path, quiet_build, contents):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    for overwrite in (False, True):
        with raises(InputError, "folder-not-empty"):
            quiet_build(NUMBERS, tmp_path / "out", overwrite=overwrite)
    assert contents(tmp_path / "out") == {"thesis.tex": b"mine"}


def test_an_empty_folder_is_accepted_and_stays_if_the_build_cannot_start(tmp_path, quiet_build):
    (tmp_path / "out").mkdir()
    (tmp_path / "empty").mkdir()
    with raises(InputError, "folder-no-images"):
        quiet_build(ImageFolder(tmp_path / "empty"), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    quiet_build(NUMBERS, tmp_path / "out")
    assert verify(tmp_path / "out")


def test_a_build_that_cannot_start_leaves_no_folder(tmp_path, quiet_build):
    with raises(InputError, "folder-problem", problem="does not exist"):
        quiet_build(ImageFolder(tmp_path / "gone"), tmp_path / "new" / "deep" / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_created_is_an_error_and_leaves_nothing(tmp_path, quiet_build):
    (tmp_path / "file").touch()
    with raises(InputError, "output-unwritable"):
        quiet_build(NUMBERS, tmp_path / "file" / "out")
    with raises(InputError, "output-unwritable"):
        quiet_build(NUMBERS, tmp_path / "new" / ("x" * 300), options=Options(name="x"))
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with raises(InputError, "output-unwritable"):
        quiet_build(NUMBERS, tmp_path / "dangling")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "dangling"}


NAMES = {
    "a space": (
        "my photos",
        r"^the output's name 'my photos' must be letters, digits, .*; give another with name=$",
    ),
    "a letter that is not ASCII": ("bücher", r"^the output's name 'bücher' must be letters"),
    "a dot in front": (".photos", r"^the output's name '\.photos' must be letters"),
    "two dashes": ("a--b", r"^the output's name 'a--b' must be letters"),
    "too long": ("x" * 81, r"has 81 characters; at most 80 are allowed; give another with name=$"),
}


@pytest.mark.parametrize(("name", "message"), NAMES.values(), ids=NAMES.keys())
def test_an_output_with_an_invalid_name_requires_the_name_option(name, message, tmp_path, quiet_build):
    with pytest.raises(OptionsError, match=message):
        quiet_build(NUMBERS, tmp_path / name)
    assert not (tmp_path / name).exists()
    manifest = quiet_build(NUMBERS, tmp_path / name, options=Options(name="numbers"))
    assert manifest.name == "numbers"


def test_the_longest_name_fits_the_file_system(tmp_path, quiet_build):
    options = Options(name="n" * 80, splits={"s" * 80: 1})
    manifest = quiet_build(NUMBERS, tmp_path / "out", shards=2, options=options)
    assert verify(tmp_path / "out", deep=True)
    assert len(manifest.shards[0].path) > 180


def test_the_name_is_the_last_part_of_the_resolved_path(tmp_path, quiet_build, monkeypatch):
    (tmp_path / "numbers").mkdir()
    monkeypatch.chdir(tmp_path / "numbers")
    assert quiet_build(NUMBERS, ".").name == "numbers"


def test_a_dataset_with_other_options_is_replaced_only_on_request(tmp_path, quiet_build, contents):
    out = tmp_path / "out"
    old = quiet_build(NUMBERS, out)
    before = contents(out)
    with raises(InputError, "dataset-differs", distinction="with other options (seed=)"):
        quiet_build(NUMBERS, out, seed=1)
    assert contents(out) == before
    new = quiet_build(NUMBERS, out, seed=1, overwrite=True)
    assert read_manifest(out) == new
    assert new.build_id != old.build_id


def test_a_renamed_dataset_is_told_from_one_with_other_inputs(tmp_path, quiet_build):
    quiet_build(NUMBERS, tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    with raises(InputError, "dataset-differs", distinction="with another name ('old')"):
        quiet_build(NUMBERS, tmp_path / "new")
    kept = quiet_build(NUMBERS, tmp_path / "new", options=Options(name="old"))
    assert kept == read_manifest(tmp_path / "new")


def test_a_replaced_dataset_stays_readable_until_it_is_pruned(tmp_path, quiet_build, contents):
    out = tmp_path / "out"
    generations = [quiet_build(NUMBERS, out, shards=2)]
    first = contents(out)
    # a training run that has the old dataset open continues
    shards = {path: data for path, data in first.items() if generations[0].build_id in path}
    assert len(shards) == 2 + 2 + 1
    generations.append(quiet_build(NUMBERS, out, shards=2, seed=1, overwrite=True))
    generations.append(quiet_build(NUMBERS, out, shards=2, seed=2, overwrite=True))
    assert shards.items() <= contents(out).items()
    prune(out)
    ids = {name.split(".tfrecord")[0][-8:] for name in contents(out) if ".tfrecord" in name}
    assert ids == {generations[-1].build_id}
    assert verify(out, deep=True)


def test_a_dataset_does_not_change_if_the_build_that_replaces_it_fails(
    image_folder, tmp_path, quiet_build, contents
):
    out = tmp_path / "out"
    quiet_build(ImageFolder(image_folder({"a/1.png": 1, "a/2.png": 2})), out, shards=2)
    before = contents(out)
    bad = image_folder({"b/1.png": 3, "b/2.png": b"no image"}, name="bad")
    with raises(BuildError, "too-many-rejected", num_rejects=1, inputs=2):
        quiet_build(ImageFolder(bad), out, shards=1, overwrite=True)
    assert before.items() <= contents(out).items()
    assert verify(out, deep=True)


def test_rejects_of_an_older_generation_are_removed_with_it(image_folder, tmp_path, quiet_build):
    out = tmp_path / "out"
    root = image_folder({"a/1.png": 1, "a/2.png": b"no image"})
    options = Options(max_rejected=1)
    old = quiet_build(ImageFolder(root), out, options=options)
    for seed in (1, 2):
        assert (out / f"rejected-{old.build_id}.jsonl").exists()
        new = quiet_build(ImageFolder(root), out, seed=seed, options=options, overwrite=True)
    prune(out)
    assert not (out / f"rejected-{old.build_id}.jsonl").exists()
    assert (out / f"rejected-{new.build_id}.jsonl").exists()


def test_files_that_a_build_did_not_make_are_never_removed(tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(NUMBERS, out)
    mine = ["notes.txt", "old.tfrecord", "a-b-c.tfrecord-0-of-1", "rejected.jsonl", "index/notes.idx"]
    for name in mine:
        (out / name).write_text("mine")
    for seed in (1, 2):
        quiet_build(NUMBERS, out, seed=seed, overwrite=True)
    assert [name for name in mine if (out / name).read_text() == "mine"] == mine


def test_a_dataset_that_lost_a_shard_is_reported_and_rebuilt_on_request(tmp_path, quiet_build, contents):
    out = tmp_path / "out"
    manifest = quiet_build(NUMBERS, out, shards=2)
    whole = contents(out)
    (out / manifest.shards[1].path).unlink()
    with raises(InputError, "dataset-damaged"):
        quiet_build(NUMBERS, out, shards=2)
    assert quiet_build(NUMBERS, out, shards=2, overwrite=True) == manifest
    assert contents(out) == whole


def test_shards_that_lost_their_manifest_are_nobodys(small_folder, tmp_path, quiet_build, contents):
    out = tmp_path / "out"
    quiet_build(ImageFolder(small_folder), out)
    (out / "dataset.json").unlink()
    before = contents(out)
    for overwrite in (False, True):
        with raises(InputError, "folder-not-empty"):
            quiet_build(ImageFolder(small_folder), out, overwrite=overwrite)
    assert contents(out) == before


@pytest.mark.parametrize("other", ["notes.txt", "index/notes.txt", "old.tfrecord", "data/x.tfrecord"])
def test_shards_without_a_manifest_are_not_replaced_if_there_are_other_files(
    other, tmp_path, quiet_build, contents
):
    out = tmp_path / "out"
    quiet_build(NUMBERS, out)
    (out / "dataset.json").unlink()
    (out / other).parent.mkdir(exist_ok=True)
    (out / other).write_text("mine")
    before = contents(out)
    with raises(InputError, "folder-not-empty"):
        quiet_build(NUMBERS, out, overwrite=True)
    assert contents(out) == before


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damaged", ["shard", "index", "labels", "rejects", "missing index"])
def test_overwrite_rebuilds_files_that_were_damaged_without_a_change_of_size(
    damaged, image_folder, tmp_path, quiet_build, contents, log
):
    out = tmp_path / "out"
    root = image_folder({"a/1.png": 1, "a/2.png": 2, "b/3.png": 3, "b/4.png": b"no image"})
    call = functools.partial(quiet_build, ImageFolder(root), out, options=Options(max_rejected=1))
    manifest = call()
    whole = contents(out)
    shard = manifest.shards[0].path
    path = {
        "shard": out / shard,
        "index": out / f"index/{shard}.idx",
        "labels": out / f"index/{shard}.labels",
        "rejects": out / f"rejected-{manifest.build_id}.jsonl",
        "missing index": out / f"index/{shard}.idx",
    }[damaged]
    flip_a_byte(path)
    if damaged.startswith("missing"):
        path.unlink()
    assert call() == manifest
    assert (
        log[-1]
        == f"{out} is up to date (sizes of its files were compared; 'tfshards verify' compares contents)"
    )
    assert contents(out) != whole
    log.clear()
    assert call(overwrite=True) == manifest
    assert log[0].startswith(f"rebuilding {out}, which is damaged: {path.relative_to(out)}: ")
    assert contents(out) == whole
    log.clear()
    assert call(overwrite=True) == manifest
    assert log == [f"{out} is up to date (all bytes were compared)"]


@pytest.mark.parametrize("derive", [reshard, merge])
def test_overwrite_rebuilds_a_derived_dataset_that_was_damaged(
    derive, image_folder, tmp_path, quiet_build, contents
):
    sources = [tmp_path / "one", tmp_path / "two"]
    for source in sources:
        files = {f"a/{source.name}-{number}.png": number for number in range(4)}
        quiet_build(ImageFolder(image_folder(files, name=f"of-{source.name}")), source)
    given = sources[0] if derive is reshard else sources
    out, log = tmp_path / "out", []
    made = derive(given, out, shards=3, log=log.append)
    whole = contents(out)
    flip_a_byte(out / made.shards[0].path)
    log.clear()
    assert derive(given, out, shards=3, overwrite=True, log=log.append) == made
    assert contents(out) == whole
    assert f"rebuilding {out}, which is damaged: {made.shards[0].path}: its bytes have changed" in log[0]


def test_a_manifest_that_cannot_be_read_is_reported_and_replaced_on_request(tmp_path, quiet_build):
    out = tmp_path / "out"
    manifest = quiet_build(NUMBERS, out)
    text = (out / "dataset.json").read_text()
    (out / "dataset.json").write_text(text.replace('"totals"', '"total"'))
    with pytest.raises(FormatError, match=r"dataset\.json: \d+ problems\n"):
        quiet_build(NUMBERS, out)
    assert quiet_build(NUMBERS, out, overwrite=True) == manifest
    assert verify(out, deep=True)


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 400 KiB; ``mount -o remount,size=`` enlarges it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_without_space_is_reported_before_anything_is_written(
    small_disk, tmp_path, array_files, quiet_build
):
    (argument,) = array_files(x=np.zeros((500, 1000), np.uint8))
    source = Arrays({"x": argument.partition("=")[2]})
    with raises(InputError, "disk-full", what="the dataset"):
        quiet_build(source, small_disk / "out")
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_up_ends_the_build_which_can_be_resumed(small_disk, image_folder, quiet_build, log):
    # as PNG they are many times larger, which cannot be predicted
    pixels = np.random.default_rng(0).integers(0, 256, (150, 150, 3), dtype=np.uint8)
    root = image_folder({f"{number}.webp": _webp(pixels) for number in range(12)})
    out = small_disk / "out"
    with pytest.raises(BuildError, match=r"^.*No space left on device.*$"):
        quiet_build(ImageFolder(root), out, shards=6)
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    log.clear()
    quiet_build(ImageFolder(root), out, shards=6)
    assert log[0].startswith("resuming the build: ")
    assert verify(out, deep=True)


def _webp(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", quality=1)
    return file.getvalue()


def test_free_space_is_that_of_the_file_system_of_the_folder(tmp_path):
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    require_space(tmp_path, free // 2, "half of it")
    with raises(InputError, "disk-full", what="twice of it"):
        require_space(tmp_path, free * 2, "twice of it")


def test_a_digest_is_that_of_the_whole_file(tmp_path):
    data = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(data)
    assert file_digest(tmp_path / "file") == bytes_digest(data)
    assert bytes_digest(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_build_area_is_not_part_of_a_committed_dataset(tmp_path, quiet_build):
    manifest = quiet_build(NUMBERS, tmp_path / "out", shards=2)
    assert not (tmp_path / "out" / AREA_NAME).exists()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [
            "dataset.json",
            "dataset_info.json",
            "features.json",
            "index",
            f"inputs-{manifest.build_id}.npz",
            *(shard.path for shard in manifest.shards),
        ]
    )
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["build_id"] == manifest.build_id


def test_records_of_other_tools_are_not_replaced(tmp_path, quiet_build, contents, capsys):
    made, theirs = tmp_path / "made", tmp_path / "theirs"
    quiet_build(NUMBERS, made, shards=2)
    theirs.mkdir()
    for path in made.glob("*.tfrecord-*"):
        (theirs / path.name).write_bytes(path.read_bytes())
    adopt(theirs, log=print)
    before = contents(theirs)
    for overwrite in (False, True):
        with raises(InputError, "dataset-not-ours"):
            quiet_build(NUMBERS, theirs, overwrite=overwrite)
        with raises(InputError, "dataset-not-ours"):
            reshard(made, theirs, shards=3, overwrite=overwrite, log=print)
    np.save(tmp_path / "x.npy", np.arange(9))
    assert main(["plan", "arrays", str(tmp_path / "x.npy"), str(theirs)]) == 0
    assert "did not write; choose another output" in capsys.readouterr().err
    assert contents(theirs) == before


def test_a_build_into_a_store_has_a_local_folder_only_for_copies(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with staged(ImageFolder("photos"), any_path("s3://bucket/out")):
        assert not [*tmp_path.iterdir()]
    with staged(Arrays({"x": np.arange(3)}), any_path("s3://bucket/out")):
        assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["tfshards"]
    assert not [*tmp_path.iterdir()]
