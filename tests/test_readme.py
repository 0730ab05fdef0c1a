"""The commands and the Python of the README run unchanged, in order, and print what it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfshards.prep import info

README = Path(__file__).parents[1] / "README.md"
# each with its language
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.M | re.S)
# with the colors of their photos
CLASSES = {"cat": (200, 60, 60), "dog": (60, 200, 60), "owl": (60, 60, 200)}
SIZES = ((72, 96), (96, 72), (64, 64), (120, 80))


def photo(path, color, number):
    """Write a photo that differs from all others and shows its class."""
    noise = np.random.default_rng(number).integers(-50, 51, (*SIZES[number % len(SIZES)], 3))
    Image.fromarray((noise + color).astype(np.uint8)).save(path)


def shape(text):
    """Return the words of each line, with ids, numbers and their units replaced."""
    text = re.sub(r"\b[0-9a-f]{8}\b", "ID", text)
    text = re.sub(r"\d[\d.,]*(?:e[-+]\d+)?", "0", text)
    text = re.sub(r"\b0 to 0\b", "0", text)
    text = re.sub(r"\b0 (?:bytes|[KMG]iB)", "0 MiB", text)
    text = re.sub(r"\b0[mu]?s/step", "0s/step", text)
    return [line.split() for line in text.splitlines()]


@pytest.mark.processes
@pytest.mark.parametrize(
    "classes", [["cat", "dog"], ["cat", "dog", "owl"]], ids=["two classes", "three classes"]
)
def test_every_block_of_the_readme_runs_in_order(programs, tmp_path, classes):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in classes:
        (tmp_path / "photos" / name).mkdir(parents=True)
    for number in range(120):
        name = classes[number % len(classes)]
        photo(tmp_path / "photos" / name / f"{number:04}.jpg", CLASSES[name], number)
    # the input that the build rejects
    complete = (tmp_path / "photos" / "cat" / "0000.jpg").read_bytes()
    (tmp_path / "photos" / "dog" / "cut.jpg").write_bytes(complete[: len(complete) // 2])
    absent = CLASSES.keys() - {*classes}

    skipped, compared, printed = [], [], ""
    for language, block in BLOCKS:
        if language == "text":
            expected = [words for words in shape(block) if words[0] not in absent]
            # of a training only the end is shown
            found = shape(printed)[-len(expected) :] if "accuracy" in block else shape(printed)
            assert found == expected, printed
            compared.append(block)
            continue
        if "pip install" in block:
            skipped.append(block)
            continue
        if "tfshards append" in block:
            photo(tmp_path / "photos" / "cat" / "new.jpg", CLASSES["cat"], 120)
        if language == "sh":
            command = ["bash", "-euc", block]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        else:
            assert language == "python"
            done = programs.run(["-c", block], cwd=tmp_path)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        printed = done.stdout
        if "model.fit" in block:
            accuracies = [float(number) for number in re.findall(r" val_accuracy: ([\d.]+)", printed)]
            assert len(accuracies) == 10
            assert accuracies[-1] > 0.8, printed

    assert (len(skipped), len(compared)) == (1, 2)
    assert (tmp_path / "report.html").exists()
    manifests = {name: info(tmp_path / "data" / name) for name in ("photos", "photos4", "beam")}
    assert {manifest.num_examples for manifest in manifests.values()} == {121}
    assert {manifest.schema.class_names for manifest in manifests.values()} == {tuple(classes)}
    assert [len(split.shards) for split in manifests["photos4"].splits.values()] == [4, 4]


def test_the_readme_is_short_and_its_links_exist():
    text = README.read_text()
    assert len(text.splitlines()) <= 120
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (README.parent / target).exists(), target


@pytest.mark.nightly
def test_make_demo_reaches_an_accuracy_above_90_percent(tmp_path):
    root = README.parent
    copy = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(root), str(copy)], check=True)
    # uses the existing environment; the check from a clean checkout makes a new one
    venv = Path(sys.executable).parents[1]
    command = ["make", "demo", f"VENV={venv}", "-o", str(venv / ".examples")]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"^accuracy: (0\.\d+)", done.stdout, re.M)
    assert accuracy, done.stdout
    assert float(accuracy[1]) > 0.9
