"""Every example runs unchanged and does what the guide describes."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tfshards.prep import ImageFolder, build, verify
from tfshards.schemas import read_manifest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return a dataset of digits; in the split ``train`` three of them are rare, in ``test`` none."""
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
    build(ImageFolder(root / "folder"), root / "data", shards=2)
    return root / "data"


@pytest.fixture
def run(programs):
    """Return a function that runs an example and returns what it printed."""

    def run(name, *arguments, returncode=0, **variables):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables}
        if name.startswith("with_"):
            package = name.removeprefix("with_").removesuffix(".py")
            if find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
            # not in a process that has imported TensorFlow
            command = [sys.executable, EXAMPLES / name, *arguments]
            done = subprocess.run(command, env=environment, timeout=300, capture_output=True, text=True)
        else:
            done = programs.run([EXAMPLES / name, *arguments], env=environment, timeout=300)
        assert done.returncode == returncode, done.stderr
        return done.stdout

    return run


# An example with its arguments, what it prints, and what must hold of the numbers in it.
PRINTED = [
    (
        ["same_losses.py", "DATA", "--steps", "60"],
        r"(?s)loss from ([\d.]+) to ([\d.]+).*between the frameworks: (\S+)",
        lambda first, last, difference: last < 0.9 * first and difference < 1e-3,
    ),
    (
        ["static_tensor.py", "DATA"],
        r"(?s)CPU:0.*CPU:1.*loss: ([\d.]+) in the first step, ([\d.]+) in step",
        lambda first, last: last < 0.8 * first,
    ),
    (
        ["parameter_server.py", "DATA"],
        r"loss: ([\d.]+) in the first step, ([\d.]+) in step",
        lambda first, last: last < 0.8 * first,
    ),
    # three digits are rare in the training split
    (["with_jax.py", "DATA"], r"on 4 devices\naccuracy: ([\d.]+) on", lambda a: a > 0.6),
    (["with_lightning.py", "DATA"], r"^accuracy: ([\d.]+) on", lambda a: a > 0.6),
    (["with_grain.py", "DATA"], r"labels, (\d+)% in the order of load", lambda percent: percent == 100),
    (["mirrored_fit.py", "DATA"], r"^accuracy: ([\d.]+)", lambda a: a > 0.6),
    (["larger_than_memory.py", "DATA", "FAST"], r"^accuracy: ([\d.]+)$", lambda a: a > 0.6),
    (
        ["separate_models.py", "DATA"],
        r"^CPU:0: accuracy ([\d.]+)$\n(?:.*\n)*?^CPU:1: accuracy ([\d.]+)$",
        lambda a, b: min(a, b) > 0.5,
    ),
    # these start each of their workers
    (["mirrored_custom_loop.py", "DATA"], r"^accuracy: ([\d.]+) on", lambda a: a > 0.6),
    (
        ["multiworker.py", "DATA"],
        r"(?s)worker . of 2: accuracy: ([\d.]+) on.*worker . of 2: accuracy: ([\d.]+) on",
        lambda one, other: one == other > 0.6,
    ),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("words", "pattern", "holds"), PRINTED, ids=lambda value: str(value)[:20])
def test_an_example_prints_what_the_guide_promises(words, pattern, holds, run, digits, tmp_path):
    output = run(*({"DATA": digits, "FAST": tmp_path / "fast"}.get(word, word) for word in words))
    found = re.search(pattern, output, re.M)
    assert found, output
    assert holds(*map(float, found.groups())), output


@pytest.mark.nightly
def test_keras_resumes_on_another_backend(run, digits, tmp_path):
    for epochs, backend in enumerate(("jax", "torch", "tensorflow"), 10):
        if find_spec(backend) is None:
            pytest.skip(f"{backend} is not installed")
        output = run("with_keras.py", digits, tmp_path / "checkpoints", KERAS_BACKEND=backend)
        found = re.search(rf"^{backend}: {epochs} epochs, accuracy: ([\d.]+)$", output, re.M)
        assert float(found[1]) > 0.6, output


@pytest.mark.nightly
def test_imbalanced_recognizes_rare_classes_better_with_weights_and_resampling(run, digits):
    output = run("imbalanced.py", digits)
    recall = {name: float(value) for name, value in re.findall(r"^(.+): mean recall ([\d.]+)$", output, re.M)}
    assert min(recall["class_weight"], recall["resampled"]) > recall["as they are"] + 0.05, output
    assert recall["sample_weights"] == pytest.approx(recall["class_weight"], abs=0.02), output


# test_write_shards.py and test_pages.py write from pipelines more often
@pytest.mark.nightly
def test_write_shards_writes_balanced_shards_from_a_pipeline(run, digits, tmp_path):
    output = run("write_shards.py", digits.parent / "all", tmp_path / "quarters")
    num_images = len(list((digits.parent / "all").rglob("*.png")))
    assert re.findall(r"^(train|test) +[\d,]+ +(\d+) ", output, re.M) == [("train", "8"), ("test", "2")]
    manifest = read_manifest(tmp_path / "quarters")
    assert manifest.num_examples == 4 * num_images
    for split in manifest.splits.values():
        counts = [shard.num_examples for shard in split.shards]
        assert max(counts) - min(counts) <= 1


@pytest.mark.processes
def test_embed_shards_writes_the_embeddings_of_a_dataset(run, digits, tmp_path):
    run("embed_shards.py", digits, tmp_path / "embeddings")
    images, embeddings = (read_manifest(path) for path in (digits, tmp_path / "embeddings"))
    assert embeddings.num_examples == images.splits["train"].num_examples
    assert embeddings.schema.class_names == images.schema.class_names
    assert embeddings.schema["embedding"].shape == (32,)
    assert verify(tmp_path / "embeddings", deep=True)


# test_resume.py kills training more often
@pytest.mark.nightly
def test_resume_continues_after_a_crash_as_without_one(run, digits, tmp_path):
    whole = run("resume.py", digits, tmp_path / "whole")
    run("resume.py", digits, tmp_path / "crashed", "--crash-at", 8, returncode=-signal.SIGKILL)
    resumed = run("resume.py", digits, tmp_path / "crashed")
    assert re.findall("epoch (.), step (.)", whole + resumed) == [("0", "0"), ("0", "5")]
    assert whole.splitlines()[-1] == resumed.splitlines()[-1]
