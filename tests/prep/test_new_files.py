"""Files that a user names for output never replace a file of a dataset, or one of another kind."""

import os
import shutil
from pathlib import Path

import pytest

from tfshards.prep import ImageFolder, build
from tfshards.prep.cli.main import main
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
    build(ImageFolder("photos"), "data", shards=1, log=lambda _: None)
    os.symlink("data", "link")
    os.symlink("data/labels.txt", "labels.png")
    Path("data/own").symlink_to(tmp_path / "elsewhere.png")
    return tmp_path


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_files_in_a_dataset_are_refused(command, folder, capsys):
    shard = read_manifest("data").shards[0].path
    before = content(folder)
    inside = ("dataset.json", shard, "index/new.png", "new.png", "own", "../data/new.png")
    for path in (*(f"data/{name}" for name in inside), "link/new.png", "labels.png"):
        assert main(command.format(path).split()) == 1, path
        assert (
            f"tfshards: {path} is inside the dataset {folder}/data; name a file for {COMMANDS[command]}"
            in (capsys.readouterr().err)
        )
    assert content(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_the_same_kind_or_without_content_is_replaced_and_others_are_kept(command, folder, capsys):
    path = folder / "made.png"
    path.touch()
    for _ in range(2):
        assert main(command.format(path.name).split()) == 0
        assert path.stat().st_size or COMMANDS[command] == "a list of keys"
    for mine in (b"mine\n", (folder / "photos" / "a" / "1.png").read_bytes() + b"\0", b'"key"\nmine'):
        path.write_bytes(mine)
        assert main(command.format(path.name).split()) == 1
        message = f"made.png is not {COMMANDS[command]} that tfshards wrote; move it away, or name a file for"
        assert message in capsys.readouterr().err
        assert path.read_bytes() == mine


def test_keys_that_were_edited_are_replaced_and_lists_of_people_are_not(folder):
    shutil.copytree("photos/a", "photos/c")
    build(ImageFolder("photos"), "more", shards=1, log=lambda _: None)
    assert main(["audit", "more", "--keys", "keys", "--keys-of", "conflict"]) == 0
    Path("keys").write_text('"b/2.png"\n"\\u00e4\\""\n')
    assert main(["audit", "more", "--keys", "keys"]) == 0
    for mine in ("b/2.png\n", '"b/2.png"', '"b" \n', '"' * 100_000):
        Path("keys").write_text(mine)
        assert main(["audit", "more", "--keys", "keys"]) == 1
        assert Path("keys").read_text() == mine


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_or_a_pipe_is_refused(command, folder, capsys):
    os.mkfifo("pipe.png")
    os.symlink("/dev/null", "null.png")
    for path in ("pipe.png", "null.png"):
        assert main(command.format(path).split()) == 1
        assert f"{path} is not a regular file; name a file for" in capsys.readouterr().err
        assert not os.path.isfile(path)
