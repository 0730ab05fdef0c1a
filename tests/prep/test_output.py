"""Where a build and its verbs may write, what they replace and when, and what they refuse by name."""

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.surface.command import run
from tfshards.prep import Arrays, ImageFolder, ImageOptions, Options, append, build, remove, verify
from tfshards.schemas import BuildError, FormatError, InputError, OptionsError, read_manifest

NUMBERS = Arrays({"x": np.arange(40)})


def test_an_output_inside_the_input_is_found_through_links(small_folder, tmp_path, quiet_build):
    (tmp_path / "link").symlink_to(small_folder)
    for source, out in ((small_folder, tmp_path / "link" / "out"), (tmp_path / "link", small_folder / "out")):
        with raises(OptionsError, "is inside the input"):
            quiet_build(ImageFolder(source), out)
    # whose name only starts like that of the input
    quiet_build(ImageFolder(small_folder), tmp_path / "photos2")
    assert verify(tmp_path / "photos2")


def test_a_build_that_cannot_start_leaves_what_was_there(tmp_path, quiet_build):
    for name in ("out", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with raises(InputError, "holds no images", code="no-inputs"):
        quiet_build(ImageFolder(tmp_path / "empty"), tmp_path / "out")
    with raises(InputError, "does not exist"):
        quiet_build(ImageFolder(tmp_path / "gone"), tmp_path / "new" / "deep" / "out")
    outputs = {"file/out": "cannot be written", "dangling": "is a file; the"}
    outputs |= dict.fromkeys(("x" * 300, f"new/{'x' * 300}"), "File name too long")
    for out, code in outputs.items():
        with raises(InputError, code):
            quiet_build(NUMBERS, tmp_path / out, options=Options(name="x"))
    assert {path.name for path in tmp_path.rglob("*")} == {"out", "empty", "file", "dangling"}
    quiet_build(NUMBERS, tmp_path / "out")


def test_a_damaged_manifest_is_reported_and_written_again_on_request(tmp_path, quiet_build, contents):
    out = tmp_path / "out"
    manifest = quiet_build(NUMBERS, out, shards=2)
    whole = contents(out)
    text = (out / "dataset.json").read_text()
    (out / "dataset.json").write_text(text.replace('"totals"', '"total"'))
    with raises(FormatError, code="format"):
        quiet_build(NUMBERS, out, shards=2)
    assert quiet_build(NUMBERS, out, shards=2, overwrite=True) == manifest
    assert contents(out) == whole


def test_what_a_killed_build_left_after_its_commit_goes_with_the_next_command(tmp_path, quiet_build):
    out = tmp_path / "out"
    manifest = quiet_build(NUMBERS, out)
    work = out / manifest.folder / "work"
    work.mkdir()
    (work / "train-00000.plan").touch()
    (work / "mine").touch()
    quiet_build(NUMBERS, out, options=Options(name="other"), overwrite=True)
    assert [path.name for path in work.iterdir()] == ["mine"]


# What a build does with an output that holds another dataset: refuse by name, replace, or keep it


X, Y = np.arange(9), np.arange(9) % 2


@pytest.fixture
def out(tmp_path, quiet_build):
    """A dataset of two arrays."""
    quiet_build(Arrays({"x": X, "label": Y}), tmp_path / "out", shards=2, seed=1, options=Options(name="n"))
    return tmp_path / "out"


# what differs: arrays, shards and seed, name -> words that the refusal has for it
OTHERS = {
    "another name": ({}, {"seed": 1}, "m", ["another name", "'n'"]),
    "a seed": ({}, {"seed": 2}, "n", ["other options", "seed="]),
    "inputs": ({"x": X[::-1]}, {"seed": 1}, "n", ["other inputs"]),
}


@pytest.mark.parametrize(("arrays", "given", "name", "words"), OTHERS.values(), ids=OTHERS)
def test_the_causes_of_another_build_are_named_until_overwrite_is_given(
    arrays, given, name, words, out, quiet_build, contents
):
    before = contents(out)
    source = Arrays({"x": X, "label": Y, **arrays})
    more = {"shards": 2, "options": Options(name=name), **given}
    with raises(InputError, "holds a dataset", code="dataset-differs") as caught:
        quiet_build(source, out, **more)
    assert all(word in str(caught.value) for word in words)
    assert contents(out) == before
    quiet_build(source, out, **more, overwrite=True)


def test_a_build_does_not_undo_edits(image_folder, tmp_path, quiet_build):
    root, out = image_folder({"a/1.png": 1, "b/2.png": 2}), tmp_path / "out"
    quiet_build(ImageFolder(root), out)
    image_folder({"a/3.png": 3})
    append([root], out)
    remove(out, ["a/3.png"])
    with raises(InputError, "another kind of source ('remove')", code="dataset-differs"):
        quiet_build(ImageFolder(root), out)
    assert quiet_build(ImageFolder(root), out, overwrite=True).num_examples == 3


# The result of a build: the same bytes with any runner, and what makes another build


def with_rejects(good: int, bad: int) -> dict[str, int | bytes]:
    """Return files of two classes; the bad ones are spread among the others."""
    files: dict[str, int | bytes] = {f"{'ab'[n % 2]}/{n:03d}.png": n for n in range(good)}
    return files | {f"{'ab'[n % 2]}/{n:03d}-bad.jpg": b"no image" for n in range(bad)}


def test_a_runner_that_runs_nothing_is_detected(tmp_path, quiet_build):
    args = ["--runner=apache_beam.runners.render.RenderRunner", f"--render_output={tmp_path / 'job.dot'}"]
    with raises(BuildError, "the pipeline ended", "shard 0 of split 'train'"):
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", shards=2, beam_args=args)


@pytest.mark.parametrize("wrong", ["FlinkRunner", "--runner=Flonk", "--runner=none.Flonk"])
def test_a_mistake_in_beam_options_is_reported_before_writing(wrong, tmp_path, quiet_build):
    with pytest.raises(OptionsError, match="Apache Beam") as found:
        quiet_build(Arrays({"x": np.arange(4)}), tmp_path / "out", beam_args=[wrong])
    assert "\n" not in str(found.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "fits"), [({}, False), ({"resize": "short=8"}, True), ({"format": "jpeg"}, True)]
)
def test_a_disk_is_full_only_for_images_that_stay_as_they_are(
    options, fits, image_folder, tmp_path, quiet_build, monkeypatch
):
    source = ImageFolder(image_folder(with_rejects(20, 0)), images=ImageOptions(**options))
    usage = shutil.disk_usage(tmp_path)
    # a full disk cannot be arranged here
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with (
        nullcontext()
        if fits
        else raises(InputError, "needs about", "the dataset", "1000 B", code="disk-full")
    ):
        quiet_build(source, tmp_path / "out")


# Files that a user names for output never replace a file of a dataset, or one of another kind


# Each option that names a file, with its content, whose own kind it replaces.
COMMANDS = {
    "report data --output {}": "a report",
    "audit data --keys {}": "a list of keys",
}


@pytest.fixture
def folder(image_folder, tmp_path, monkeypatch):
    """The working directory, with a dataset, ``data``."""
    monkeypatch.chdir(tmp_path)
    image_folder({"a/1.png": 1, "b/2.png": 2}, "photos")
    made = build(ImageFolder("photos"), "data", shards=1)
    os.symlink("data", "link")
    os.symlink(f"data/{made.folder}/labels.txt", "labels.png")
    Path("data/own").symlink_to(tmp_path / "elsewhere.png")
    return tmp_path


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_files_in_a_dataset_are_refused(command, folder):
    made = read_manifest("data")
    before = content(folder)
    names = ("dataset.json", "index/new.png", "new.png")
    inside = (
        made.shards[0].path,
        *(f"{made.folder}/{name}" for name in names),
        "dataset.json",
        "new.png",
        "own",
        "../data/new.png",
    )
    for path in (*(f"data/{name}" for name in inside), "link/new.png", "labels.png"):
        ended = run(command.format(path))
        assert (ended.status, f"{path} is inside the dataset {folder}/data; " in ended.err) == (1, True), path
    assert content(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_the_same_kind_or_without_content_is_replaced_and_others_are_kept(command, folder):
    path = folder / "made.png"
    path.touch()
    for _ in range(2):
        assert run(command.format(path.name)).status == 0
        assert path.stat().st_size or COMMANDS[command] == "a list of keys"
    for mine in (b"mine\n", (folder / "photos" / "a" / "1.png").read_bytes() + b"\0", b'"key"\nmine'):
        path.write_bytes(mine)
        ended = run(command.format(path.name))
        assert (ended.status, f"made.png is not {COMMANDS[command]} " in ended.err) == (1, True)
        assert path.read_bytes() == mine
    os.mkfifo("pipe.png")
    os.symlink("/dev/null", "null.png")
    for name in ("pipe.png", "null.png"):
        ended = run(command.format(name))
        assert (ended.status, f"{name} is not a regular file" in ended.err) == (1, True)
        assert not os.path.isfile(name)
