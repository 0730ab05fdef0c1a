"""Files that a user names for output never replace a file of a dataset, or one of another kind."""

import os
import shutil
from pathlib import Path

import pytest

from tests.surface.command import run
from tfshards.prep import ImageFolder, build
from tfshards.schemas import read_manifest

# Each option that names a file, with its content, whose own kind it replaces.
COMMANDS = {
    "report data --no-audit --output {}": "a report",
    "show data --save {}": "the image",
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


def test_keys_that_were_edited_are_replaced_and_lists_of_people_are_not(folder):
    shutil.copytree("photos/a", "photos/c")
    build(ImageFolder("photos"), "more", shards=1)
    assert run("audit more --keys keys --keys-of conflict").status == 0
    Path("keys").write_text('"b/2.png"\n"\\u00e4\\""\n')
    assert run("audit more --keys keys").status == 0
    for mine in ("b/2.png\n", '"b/2.png"', '"b" \n', '"' * 100_000):
        Path("keys").write_text(mine)
        assert run("audit more --keys keys").status == 1
        assert Path("keys").read_text() == mine
