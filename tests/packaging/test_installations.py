"""The wheel in clean environments: one per Python, one per extra."""

import os
import re
import subprocess
import sys

import pytest

from tests.packaging import installations
from tests.packaging.installations import LOAD, MAKE_HEIC, OPEN_BUCKET, ROOT, UV, new_environment, run

pytestmark = pytest.mark.nightly

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
THIS = f"3.{sys.version_info.minor}"
# make packages; TensorFlow alone takes 2 GB in each environment
ALL = os.environ.get("TFSHARDS_PACKAGES") == "all"
EVERYWHERE = PYTHONS if ALL else (THIS,)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the sdist, and the wheel from it, as ``python -m build`` does."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build"]
    subprocess.run([*build, "-t", "sdist", "-d", folder], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", sdist, "-C", folder], check=True)
    source = folder / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*build, "-t", "wheel", "-d", folder], cwd=source, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def dataset(wheel, tmp_path_factory):
    """A folder that holds a dataset ``data`` that this Python's environment has built."""
    folder = tmp_path_factory.mktemp("built")
    build(new_environment(folder / "env", THIS, "prep", wheel), folder)
    return folder


def build(programs, folder):
    run([programs / "python", "-c", installations.MAKE_PHOTOS], folder)
    run([programs / "tfshards", "build", "images", "photos", "data", "--shards", 2], folder)
    assert "data: sound" in run([programs / "tfshards", "verify", "data", "--deep"], folder)


@pytest.mark.parametrize("python", PYTHONS)
def test_prep_builds_and_verifies_a_dataset_on_each_python(wheel, tmp_path, python):
    programs = new_environment(tmp_path / "env", python, "prep", wheel)
    version = re.search(r"tfshards-([\w.]+)-py3", wheel.name)[1]
    assert run([programs / "tfshards", "--version"]) == f"tfshards {version}\n"
    assert run([programs / "python", "-m", "tfshards", "--version"]) == f"tfshards {version}\n"
    build(programs, tmp_path)
    loading = run([programs / "python", "-c", "from tfshards.loader import load"], status=1)
    assert "tfshards.loader needs tensorflow: pip install 'tfshards[loader]'" in loading


@pytest.mark.parametrize("python", PYTHONS)
def test_without_an_extra_datasets_are_read_and_verbs_name_what_they_need(wheel, dataset, tmp_path, python):
    programs = new_environment(tmp_path / "env", python, "", wheel)
    listed = run([UV, "pip", "freeze", "-q", "--python", programs / "python"])
    assert set(re.findall(r"^[\w-]+", listed, re.M)) == {
        "google-crc32c",
        "numpy",
        "protobuf",
        "tfshards",
        "tqdm",
    }
    for command in ([programs / "tfshards"], [programs / "python", "-m", "tfshards"]):
        assert "entries: 12 = 12 accepted" in run([*command, "info", "data"], dataset)
    command = programs / "tfshards"
    assert "data: sound" in run([command, "verify", "data", "--deep"], dataset)
    assert "image: PNG, " in run([command, "show", "data", "cat/1.png"], dataset)
    assert run([command, "diff", "data", "data"], dataset) == "12 examples are the same\n"
    assert " current\n" in run([command, "generations", "data"], dataset)
    run([command, "prune", "data"], dataset)
    needs = "tfshards: images need PIL: pip install 'tfshards[prep]'\n"
    assert run([command, "build", "images", "photos", "other"], dataset, status=1) == needs
    assert run([command, "verify", "data", "--decode"], dataset, status=1) == needs
    needs = "tfshards: tfshards.loader needs tensorflow: pip install 'tfshards[loader]'\n"
    assert run([command, "bench", "data", "--batch-size", 4], dataset, status=1) == needs
    assert "install it: pip install 'tfshards[remote]'" in run([programs / "python", "-c", OPEN_BUCKET])


@pytest.mark.parametrize("python", EVERYWHERE)
def test_loader_alone_loads_a_dataset(wheel, dataset, tmp_path, python):
    programs = new_environment(tmp_path / "env", python, "loader", wheel)
    assert "3 batches of shape (4, 8, 8, 3)\n" in run([programs / "python", "-c", LOAD], dataset)


@pytest.mark.parametrize("python", EVERYWHERE)
def test_remote_alone_reaches_for_the_bucket(wheel, tmp_path, python):
    programs = new_environment(tmp_path / "env", python, "remote", wheel)
    # nothing listens there
    variables = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_REGION": "us-east-1"}
    variables |= {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ALLOW_HTTP": "true"}
    printed = run([programs / "python", "-c", OPEN_BUCKET], **variables)
    assert "s3://bucket/data" in printed
    assert "pip install" not in printed


VERBS = {
    "report": ["report", "data", "--output", "report.html"],
}


@pytest.mark.parametrize("python", EVERYWHERE)
@pytest.mark.parametrize("extra", VERBS)
def test_an_extra_alone_is_enough_for_its_verb(wheel, tmp_path, extra, python):
    programs = new_environment(tmp_path / "env", python, extra, wheel)
    build(programs, tmp_path)
    run([programs / "tfshards", *VERBS[extra]], tmp_path)


@pytest.mark.parametrize("python", EVERYWHERE)
def test_heic_alone_builds_from_heic(wheel, tmp_path, python):
    programs = new_environment(tmp_path / "env", python, "heic", wheel)
    run([programs / "python", "-c", MAKE_HEIC], tmp_path)
    run([programs / "tfshards", "build", "images", "heic", "data", "--as-is", "--shards", 1], tmp_path)
    assert "data: sound" in run([programs / "tfshards", "verify", "data", "--deep"], tmp_path)


@pytest.mark.skipif(not ALL, reason="make packages installs all extras together")
@pytest.mark.parametrize("python", PYTHONS)
def test_all_extras_install_together(wheel, tmp_path, python):
    programs = new_environment(tmp_path / "env", python, "all", wheel)
    build(programs, tmp_path)
    for arguments in VERBS.values():
        run([programs / "tfshards", *arguments], tmp_path)
    assert "3 batches of shape (4, 8, 8, 3)\n" in run([programs / "python", "-c", LOAD], tmp_path)
