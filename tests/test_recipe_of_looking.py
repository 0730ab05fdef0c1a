"""The recipe of docs/how-to.md for looking at a dataset runs as it is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
from PIL import Image

from tfshards.prep.cli import main as cli

HOW_TO = (Path(__file__).parents[1] / "docs" / "how-to.md").read_text()


def test_the_recipe_of_looking_at_a_dataset_prints_classes_and_examples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    classes = ["cat", *(f"class{number:02}" for number in range(24))]
    for split in ("train", "val"):
        for name in classes:
            path = Path("photos", split, name, "0001.jpg")
            path.parent.mkdir(parents=True)
            Image.fromarray(np.full((4, 4, 3), len(name), np.uint8)).save(path)
    assert cli.main(["build", "images", "photos", "data/photos"]) == 0
    section = HOW_TO.partition("\n### How do I look at a dataset?\n")[2].partition("\n#")[0]
    printed = []
    for line in re.findall(r"^    tfshards (.+)$", section, re.M):
        # keys are relative to the source, here with the split
        command = [word.replace("cat/0001", "train/cat/0001") for word in shlex.split(line)]
        capsys.readouterr()
        assert cli.main(command) == 0, line
        printed.append(capsys.readouterr().out)
    few, every, by_key, by_number, first = printed
    assert "\nand 5 more classes\n" in few
    assert "class23" not in few.partition("and 5 more")[0]
    assert all(f"\n{name} " in every for name in classes)
    assert "\nkey: train/cat/0001.jpg\n" in by_key
    assert Path("seen.jpg").read_bytes() == Path("photos/train/cat/0001.jpg").read_bytes()
    assert by_number.startswith("split train, example 5, record 5 of ")
    assert re.findall(r"^split val, example (\d),", first, re.M) == ["0", "1", "2"]


def test_the_recipe_of_a_page_writes_pages_and_a_contact_sheet(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("photos/cat").mkdir(parents=True)
    for number in range(5):
        Image.fromarray(np.full((40, 40, 3), 9 * number, np.uint8)).save(f"photos/cat/{number}.jpg")
    assert cli.main(["build", "images", "photos", "data/photos"]) == 0
    section = HOW_TO.partition("\n### How do I get a page that shows a dataset?\n")[2].partition("\n#")[0]
    capsys.readouterr()
    for line in re.findall(r"^    tfshards (.+)$", section, re.M):
        assert cli.main(shlex.split(line)) == 0, line
    files = capsys.readouterr().out.splitlines()
    assert files == ["photos-report.html", "photos.html", "sheet.png", "photos-report.html"]
    assert all(Path(file).stat().st_size > 10_000 for file in files if file.endswith(".html"))
    with Image.open("sheet.png") as sheet:
        assert sheet.width > 5 * 40
