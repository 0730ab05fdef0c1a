"""What docs/architecture.md says of changes is true: each is made on a copy, in the files of its row."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]


class Copy:
    """A copy of the code, which tests change and run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("prep", "loader", "schemas"):
            shutil.copytree(
                ROOT / name, folder / "tfshards" / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copytree(ROOT / ".namespace" / "tfshards", folder / "tfshards", dirs_exist_ok=True)

    def change(self, path: str, before: str, after: str) -> None:
        """Replace a text that occurs once in a file."""
        file = self.folder / "tfshards" / path
        text = file.read_text()
        assert text.count(before) == 1, (path, before)
        file.write_text(text.replace(before, after))

    def run(self, *arguments: str, cwd: Path) -> str:
        """Return what Python prints, which must succeed."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=cwd, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(self, line: str, cwd: Path) -> str:
        """Return what the command ``tfshards`` prints."""
        return self.run("-m", "tfshards", *line.split(), cwd=cwd)


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path / "copy")


@pytest.fixture
def photos(tmp_path):
    for number in range(6):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3), (number, 0, 0)).save(path)
    return tmp_path


READ = "import sys; from tfshards import prep; print(prep.info(sys.argv[1]).options['toy'])"


BUILD_ID = "import sys; from tfshards import prep; print(prep.info(sys.argv[1]).build_id)"


@pytest.mark.parametrize(
    ("path", "before", "after", "flag", "value"),
    [
        (
            "prep/planning/options.py",
            "    stratify: bool = option(",
            '    toy: int = option(3, "a toy", metavar="N", parse=int)\n    stratify: bool = option(',
            "--toy 5",
            5,
        ),
        (
            "prep/imaging/options.py",
            "    animation: Animation = option(",
            '    toy: str = option("x", "a toy", choices=("x", "y"))\n    animation: Animation = option(',
            "--toy y",
            "y",
        ),
        (
            "prep/sources/images/folder.py",
            "    include: Sequence[str] = option(",
            '    toy: Sequence[str] = option((), "a toy", is_repeatable=True)\n'
            "    include: Sequence[str] = option(",
            "--toy a --toy b",
            ["a", "b"],
        ),
    ],
    ids=["of builds", "of images", "of folders"],
)
def test_a_new_option_of_build_is_one_field(path, before, after, flag, value, copy, photos):
    copy.change(path, before, after)
    assert "--toy" in copy.command("build images --help", photos)
    for name, given in (("plain", ""), ("made", flag)):
        copy.command(f"build images photos {name} --name made --shards 2 {given}", photos)
    assert copy.run("-c", READ, "made", cwd=photos) == f"{value}\n"
    ids = {copy.run("-c", BUILD_ID, name, cwd=photos) for name in ("plain", "made")}
    assert len(ids) == 2
    # a file of options, and the options of another dataset
    (photos / "c.toml").write_text(f"toy = {value!r}")
    copy.command("build images photos configured --shards 2 --name made --config c.toml", photos)
    copy.command("build --from made photos again", photos)
    made = (photos / "made" / "dataset.json").read_bytes()
    assert (photos / "configured" / "dataset.json").read_bytes() == made
    assert (photos / "again" / "dataset.json").read_bytes() == made
    # repair and append build with the recorded options
    shard = next((photos / "made").glob("*.tfrecord-*"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    copy.command("verify made --repair photos", photos)
    assert shard.read_bytes() == content
    Image.new("RGB", (4, 3), (9, 0, 0)).save(photos / "photos" / "a" / "9.png")
    copy.command("append photos made", photos)
    assert copy.run("-c", READ, "made", cwd=photos) == f"{value}\n"
