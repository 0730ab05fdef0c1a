"""Datasets of a release that recorded neither the conversion of images nor defaults.

``golden/earlier`` has photos, and two datasets that were built from them with ``resize="4x4"`` and
``check="none"``.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.errors import raises
from tests.prep.derived import quiet
from tfshards import loader, prep
from tfshards.prep import ImageFolder, ImageOptions, append, build, diff, merge, remove, repair, verify
from tfshards.prep.cli.main import main
from tfshards.prep.imaging.options import CONVERSION
from tfshards.schemas import InputError, read_manifest

EARLIER = Path(__file__).parent / "golden" / "earlier"
OPTIONS = prep.Options(max_rejected=1)
RESIZED = ImageOptions(resize="4x4")


@pytest.fixture
def here(tmp_path, monkeypatch):
    shutil.copytree(EARLIER, tmp_path / "all")
    monkeypatch.chdir(tmp_path / "all")
    for path in Path("photos").rglob("*.png"):
        os.utime(path, (1e9, 1e9))


@pytest.mark.parametrize("name", ["resized", "unchanged"])
def test_they_are_read_edited_and_repaired(here, name):
    first = read_manifest(name)
    assert "conversion" not in first.options
    assert verify(name, deep=True)
    assert sum(1 for _ in loader.load(name, batch_size=1)) == first.num_examples
    remove(name, ["cat/0.png"], log=quiet)
    prep.relabel(name, {"dog/1.png": "cat"}, log=quiet)
    shutil.copy("photos/cat/2.png", "photos/cat/9.png")
    append(["photos"], name, max_rejected=1, log=quiet)
    assert read_manifest(name).num_examples == first.num_examples
    prep.restore(name, first.build_id, log=quiet)
    Path(name, first.shards[0].path).unlink()
    assert not verify(name)
    Path("photos/cat/9.png").unlink()
    repair(name, ["photos"])
    assert verify(name, deep=True)
    prep.reshard(name, "one", shards=1, log=quiet)
    assert diff(name, "one").num_same == first.num_examples


def test_what_was_built_with_an_unknown_conversion_is_not_up_to_date(here, capsys):
    # unless nothing was converted
    source = ImageFolder("photos", ImageOptions(check="none"))
    assert build(source, "unchanged", shards=2, options=OPTIONS, log=quiet) == read_manifest("unchanged")
    with raises(InputError, "dataset-differs"):
        build(ImageFolder("photos", RESIZED), "resized", shards=2, options=OPTIONS, log=quiet)
    arguments = ["photos", "resized", "--resize", "4x4", "--shards", "2", "--max-rejected", "1"]
    assert main(["build", "images", *arguments]) == 1
    assert "give --overwrite to replace it" in capsys.readouterr().err
    built = build(
        ImageFolder("photos", RESIZED), "resized", shards=2, options=OPTIONS, overwrite=True, log=quiet
    )
    assert built.options["conversion"] == CONVERSION
    assert verify("resized", deep=True)


def test_with_builds_of_this_release_they_merge_and_differ_in_the_conversion_alone(here):
    build(ImageFolder("photos", RESIZED), "now", shards=2, options=OPTIONS, log=quiet)
    found = diff("resized", "now")
    assert found.num_same == 8
    assert [one.name for one in found.options] == ["conversion"]
    merge({"train": "resized", "test": "now"}, "both", log=quiet)
    shutil.copy("photos/cat/2.png", "photos/cat/9.png")
    append(["photos"], "now", max_rejected=1, log=quiet)


def test_another_default_of_the_program_is_another_build(here):
    build(ImageFolder("photos", RESIZED), "now", shards=2, options=OPTIONS, log=quiet)
    code = """
import sys
from tfshards.prep.imaging import options
assert options.JPEG_QUALITY == 95
options.JPEG_QUALITY = 60
from tfshards.prep.cli.main import main
sys.exit(main("build images photos now --resize 4x4 --shards 2 --max-rejected 100%".split()))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "now holds a dataset with other options (quality); give --overwrite to replace it" in ended.stderr


def test_a_build_from_its_recorded_options_is_the_same(here, capsys):
    build(ImageFolder("photos", RESIZED), "now", shards=2, options=OPTIONS, log=quiet)
    for name in ("resized", "now"):
        arguments = ["photos", f"from-{name}", "--from", name, "--max-rejected", "100%", "--name", "now"]
        assert main(["build", *arguments]) == 0, capsys.readouterr().err
        assert read_manifest(f"from-{name}").options == read_manifest("now").options
