"""Where a build may write, and what it replaces and when."""

import numpy as np

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, Options, verify
from tfshards.schemas import FormatError, InputError, OptionsError

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


def test_an_output_with_an_invalid_name_requires_the_name_option(tmp_path, quiet_build, monkeypatch):
    # the longest names fit the file system
    options = Options(name="n" * 80, splits={"s" * 80: 1})
    for name in ("my photos", ".photos", "a--b", "x" * 81):
        with raises(OptionsError, "the output's name"):
            quiet_build(NUMBERS, tmp_path / name)
        assert not (tmp_path / name).exists()
        assert quiet_build(NUMBERS, tmp_path / name, options=options).name == "n" * 80
    for name in ("", b""):
        with raises(OptionsError, "the path of the"):
            quiet_build(NUMBERS, name)
    (tmp_path / "numbers").mkdir()
    monkeypatch.chdir(tmp_path / "numbers")
    assert quiet_build(NUMBERS, ".").name == "numbers"


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
