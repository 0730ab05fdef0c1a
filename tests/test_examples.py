"""Every example runs as it stands, and does what the guide says where it links it."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfshards.prep import ImageFolder, build

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return a dataset of digits whose split ``train`` has few of three of them, and ``test`` of none."""
    root = tmp_path_factory.mktemp("digits")
    spec = importlib.util.spec_from_file_location("digits_folder", EXAMPLES / "digits_folder.py")
    digits_folder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits_folder)
    digits_folder.main(root / "all")
    for digit in sorted((root / "all").iterdir()):
        for place, path in enumerate(sorted(digit.iterdir())):
            split = "test" if place % 3 == 0 else "train"
            if split == "test" or digit.name not in "389" or place < 12:
                copy = root / "folder" / split / digit.name / path.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
    build(ImageFolder(root / "folder"), root / "data", shards=2, talk=lambda _: None)
    return root / "data"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_static_tensor_lies_on_each_device_and_the_loss_falls(digits):
    said = run("static_tensor.py", digits)
    assert re.findall(r"mean on .*CPU:(\d)", said) == ["0", "1"], said
    first, last = map(float, re.search(r"loss: ([\d.]+) in the first step, ([\d.]+) in step", said).groups())
    assert last < 0.8 * first


def test_imbalanced_recognises_rare_classes_better_with_weights_and_resampled(digits):
    said = run("imbalanced.py", digits)
    recall = {name: float(value) for name, value in re.findall(r"^(.+): mean recall ([\d.]+)$", said, re.M)}
    assert recall["class_weight"] > recall["as they are"] + 0.05, said
    assert recall["resampled"] > recall["as they are"] + 0.05, said
    assert recall["sample_weights"] == pytest.approx(recall["class_weight"], abs=0.02), said


def test_larger_than_memory_learns_from_the_copies_and_says_what_it_waited_for(digits, tmp_path):
    said = run("larger_than_memory.py", digits, tmp_path / "fast")
    assert float(re.search(r"^accuracy: ([\d.]+)$", said, re.M)[1]) > 0.6, said
    assert re.search(r"^input: \d+% of the steps' time was waited for it", said, re.M), said
    assert len(list((tmp_path / "fast").rglob("*.tfrecord-*"))) == 2


def test_separate_models_are_tried_on_what_they_have_not_seen(digits):
    said = run("separate_models.py", digits)
    accuracies = {
        name: float(value) for name, value in re.findall(r"^(CPU:\d): accuracy ([\d.]+)$", said, re.M)
    }
    assert set(accuracies) == {"CPU:0", "CPU:1"}, said
    assert all(accuracy > 0.5 for accuracy in accuracies.values()), said


def test_resume_goes_on_after_a_crash_as_if_there_had_been_none(digits, tmp_path):
    whole = run("resume.py", digits, tmp_path / "whole")
    command = [sys.executable, str(EXAMPLES / "resume.py"), str(digits), str(tmp_path / "crashed")]
    crashed = subprocess.run([*command, "--crash-at", "8"], check=False, timeout=300, capture_output=True)
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    resumed = run("resume.py", digits, tmp_path / "crashed")
    assert re.findall("epoch (.), step (.)", whole + resumed) == [("0", "0"), ("0", "5")]
    assert whole.splitlines()[-1] == resumed.splitlines()[-1]
