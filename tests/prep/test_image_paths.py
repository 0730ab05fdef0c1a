"""Paths of images that differ from those of their files, and JSON next to them."""

import pytest

from tests.errors import raises
from tests.prep.table_files import encoded, write_jsonl
from tests.surface.command import main
from tfshards.prep import Table
from tfshards.schemas import InputError, read_manifest


@pytest.fixture
def photos(tmp_path):
    """Write images with these paths; the number in a name is that of its content."""

    def write(*paths):
        for number, path in enumerate(paths):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(encoded(number))

    return write


def test_paths_that_fit_no_file_are_rejected_by_name(photos, tmp_path):
    photos("a.png", "c.png", "../b.png", "d/e.png")
    names = ["a.png", "a", "d\\e.png", "../b", "gone/b", "gone\\b.png", "", "a\0"]
    path = write_jsonl(tmp_path / "t.jsonl", [{"file_name": name} for name in names if ".." not in name])
    flags = ["--max-rejected", "90%", "--quiet"]
    assert main(["build", "table", str(path), str(tmp_path / "out"), *flags]) == 0
    assert read_manifest(tmp_path / "out").totals.rejected == 6
    path = write_jsonl(tmp_path / "t.jsonl", [{"file_name": "a.png"}, {"file_name": "../b"}])
    with raises(InputError, "outside"):
        Table(path).stage(tmp_path)
