"""Every example runs unchanged and does what the guide describes."""

import importlib.util
import os
import re
import shutil
import signal
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
    build(ImageFolder(root / "folder"), root / "data", shards=2, log=lambda _: None)
    return root / "data"


@pytest.fixture
def run(programs):
    """Return a function that runs an example and returns what it printed."""

    def run(name, *arguments, returncode=0):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        done = programs.run([EXAMPLES / name, *arguments], env=environment, timeout=300)
        assert done.returncode == returncode, done.stderr
        return done.stdout

    return run


@pytest.mark.nightly
def test_three_frameworks_have_the_same_losses_on_the_same_batches(run, digits):
    output = run("same_losses.py", digits, "--steps", "60")
    first, last = map(float, re.search(r"loss from ([\d.]+) to ([\d.]+)", output).groups())
    assert last < 0.9 * first
    assert float(re.search(r"between the frameworks: (\S+)", output)[1]) < 1e-3


@pytest.mark.nightly
def test_static_tensor_is_on_each_device_and_the_loss_falls(run, digits):
    output = run("static_tensor.py", digits)
    assert re.findall(r"mean on .*CPU:(\d)", output) == ["0", "1"], output
    first, last = map(
        float, re.search(r"loss: ([\d.]+) in the first step, ([\d.]+) in step", output).groups()
    )
    assert last < 0.8 * first


# test_sample_weights.py and tests/order check the weights and the ratios more often
@pytest.mark.nightly
def test_imbalanced_recognizes_rare_classes_better_with_weights_and_resampling(run, digits):
    output = run("imbalanced.py", digits)
    recall = {name: float(value) for name, value in re.findall(r"^(.+): mean recall ([\d.]+)$", output, re.M)}
    assert recall["class_weight"] > recall["as they are"] + 0.05, output
    assert recall["resampled"] > recall["as they are"] + 0.05, output
    assert recall["sample_weights"] == pytest.approx(recall["class_weight"], abs=0.02), output


@pytest.mark.nightly
def test_larger_than_memory_learns_from_the_copies(run, digits, tmp_path):
    output = run("larger_than_memory.py", digits, tmp_path / "fast")
    assert float(re.search(r"^accuracy: ([\d.]+)$", output, re.M)[1]) > 0.6, output
    assert len(list((tmp_path / "fast").rglob("*.tfrecord-*"))) == 2


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


# test_distribute.py trains on two replicas more often, and make demo runs this example
@pytest.mark.nightly
def test_mirrored_fit_recognizes_digits(run, digits):
    output = run("mirrored_fit.py", digits)
    # three digits are rare in the training split
    assert float(re.search(r"^accuracy: ([\d.]+)", output, re.M)[1]) > 0.6, output


# tests/order reads parts of a split more often
@pytest.mark.nightly
def test_separate_models_are_evaluated_on_examples_that_they_have_not_seen(run, digits):
    output = run("separate_models.py", digits)
    accuracies = {n: float(value) for n, value in re.findall(r"^(CPU:\d): accuracy ([\d.]+)$", output, re.M)}
    assert set(accuracies) == {"CPU:0", "CPU:1"}, output
    assert all(accuracy > 0.5 for accuracy in accuracies.values()), output


# test_resume.py kills training more often
@pytest.mark.nightly
def test_resume_continues_after_a_crash_as_without_one(run, digits, tmp_path):
    whole = run("resume.py", digits, tmp_path / "whole")
    run("resume.py", digits, tmp_path / "crashed", "--crash-at", 8, returncode=-signal.SIGKILL)
    resumed = run("resume.py", digits, tmp_path / "crashed")
    assert re.findall("epoch (.), step (.)", whole + resumed) == [("0", "0"), ("0", "5")]
    assert whole.splitlines()[-1] == resumed.splitlines()[-1]
