"""Clean environments that the built wheel is installed into, and what each extra must do in them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.storage import servers
from tfshards.schemas.storage import any_path

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"

# Programs, run in an environment without tests and without a clone; each prints what is compared.
MAKE_PHOTOS = """
from pathlib import Path
from PIL import Image
for name in ("cat", "dog"):
    Path("photos", name).mkdir(parents=True)
    for number in range(6):
        Image.new("RGB", (8, 8), (40 * number, 90, 20)).save(f"photos/{name}/{number}.png")
"""
MAKE_HEIC = """
import pillow_heif
from pathlib import Path
from PIL import Image
pillow_heif.register_heif_opener()
Path("heic/cat").mkdir(parents=True)
for number in range(3):
    Image.new("RGB", (64, 64), (80 * number, 90, 20)).save(f"heic/cat/{number}.heic")
"""
LOAD = """
from tfshards import loader
image = loader.Image(size=(8, 8))
examples = loader.load("data", "train", batch_size=4, select=("image", "label"), image=image)
print(sum(1 for images, labels in examples), "batches of shape", tuple(next(iter(examples))[0].shape))
"""
OPEN_BUCKET = """
from tfshards.schemas import read_manifest
try:
    read_manifest("s3://bucket/data")
except Exception as error:
    print(error)
"""


def new_environment(folder: Path, python: str, extra: str, wheel: Path, others: Sequence[str] = ()) -> Path:
    """Install the wheel with an extra, and others, into a new environment, and return its programs' folder.

    Skips the test, with uv's reason, if this Python cannot be had.
    """
    made = subprocess.run(
        [UV, "venv", "-q", "--python", _interpreter(python), folder], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no Python {python}: {made.stderr.strip().splitlines()[-1].strip()}")
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    run([UV, "pip", "install", "-q", "--python", folder / "bin" / "python", requirement, *others])
    run([UV, "pip", "check", "-q", "--python", folder / "bin" / "python"])
    return folder / "bin"


def _interpreter(python: str) -> str:
    # the programs that pyenv puts on PATH only start the versions that were made global
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(versions.glob(f"{python}.*/bin/python"))
    return str(found[-1]) if found else python


def run(command: list[object], where: Path | None = None, status: int = 0, **variables: str) -> str:
    """Run a command without this environment's path of modules; return what it prints to both streams."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    done = subprocess.run(
        [str(part) for part in command], cwd=where, env=environment, capture_output=True, text=True
    )
    assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


# The wheel in clean environments: one per Python, one per extra


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
    run([programs / "python", "-c", MAKE_PHOTOS], folder)
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


# The ends of the ranges of versions in pyproject.toml: they build the same bytes and deliver the same


# What is installed besides the newest releases, and on which Python.
FOR_BUILDS = {
    "newest": ([], THIS),
    "oldest Beam": (["apache-beam==2.76.0"], "3.10"),
    "NumPy 1": (["numpy==1.26.4", "pyarrow==16.1.0"], "3.11"),
    "Python 3.13": ([], "3.13"),
}
# The newest NumPy, Keras and protobuf that each allows; Keras 2 belongs to 2.15.
RELEASES = {"2.15.1": "3.11", "2.16.2": "3.12", "2.18.1": "3.10", "2.20.0": "3.13", "2.21.0": THIS}


DIGESTS = """
import hashlib
import warnings
import keras
import tensorflow as tf
from tfshards import loader

warnings.filterwarnings("error", "TensorFlow .* has no")
crop = loader.Image(size=(8, 8), crop="random", flip="horizontal")
every = {
    "stored": {},
    "shuffled": {"shuffle": loader.Shuffle(seed=3), "epochs": 2},
    "padded": {"remainder": "pad", "sample_weights": "balanced"},
    "decoded": {"image": loader.Image(size=(8, 8)), "shuffle": loader.Shuffle(seed=1)},
    "cropped": {"image": crop, "shuffle": loader.Shuffle(seed=1), "epochs": 2},
}
for name, options in every.items():
    digest = hashlib.sha256()
    for batch in loader.load("data", "train", batch_size=4, **options):
        for part in tf.nest.flatten(batch):
            values = part.numpy()
            digest.update(repr((values.shape, str(values.dtype), values.tolist())).encode())
    print("delivered", name, digest.hexdigest())
resume = loader.Resume("state", every=3)
options = {"image": crop, "select": ("image", "label"), "epochs": None, "start": resume.progress}
train = loader.load("data", "train", batch_size=4, **options)
layers = keras.layers
layers = [layers.Input((8, 8, 3)), layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(2)]
model = keras.Sequential(layers)
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(train, epochs=2, steps_per_epoch=resume.progress.steps_per_epoch, verbose=0, callbacks=[resume])
print("trained", model.optimizer.iterations.numpy(), "steps")
"""


@pytest.fixture(scope="module")
def built(wheel, tmp_path_factory):
    """The manifest of a dataset that the local engine of this Python has built."""
    folder = tmp_path_factory.mktemp("expected")
    build(new_environment(folder / "env", THIS, "prep", wheel), folder)
    return (folder / "data" / "dataset.json").read_bytes()


@pytest.mark.parametrize("versions", FOR_BUILDS)
def test_both_ends_of_each_range_build_the_same_bytes(wheel, built, tmp_path, versions):
    requirements, python = FOR_BUILDS[versions]
    programs = new_environment(tmp_path / "env", python, "prep", wheel, requirements)
    build(programs, tmp_path)
    assert (tmp_path / "data" / "dataset.json").read_bytes() == built
    command = [programs / "tfshards", "build", "images", "photos", "by_beam", "--shards", 2]
    run([*command, "--name", "data", "--", "--runner=DirectRunner"], tmp_path)
    assert (tmp_path / "by_beam" / "dataset.json").read_bytes() == built
    run([programs / "tfshards", "audit", "data"], tmp_path)


@pytest.fixture(scope="module")
def delivered(wheel, tmp_path_factory):
    """A folder with a dataset ``data``, and a function that returns what a release delivers from it."""
    folder = tmp_path_factory.mktemp("tensorflow")
    build(new_environment(folder / "env", THIS, "prep", wheel), folder)

    @cache
    def deliver(release, python):
        requirements = [f"tensorflow=={release}"]
        programs = new_environment(folder / release, python, "loader", wheel, requirements)
        printed = run([programs / "python", "-c", DIGESTS.replace('"state"', f'"state-{release}"')], folder)
        return [line for line in printed.splitlines() if line.startswith(("delivered ", "trained "))]

    return deliver


@pytest.fixture(scope="module")
def expected(delivered):
    return delivered("2.21.0", THIS)


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_delivers_the_same_and_trains(delivered, expected, release):
    assert len(expected) == 6
    assert delivered(release, RELEASES[release]) == expected


# Beam's own Dataflow runner, with Google's libraries, translates pipelines and stages a job in a bucket


IMAGE = "europe-docker.pkg.dev/project/images/tfshards-prep:0.1.0"


PROGRAM = f"""
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from tfshards import prep

prep.build(prep.Examples([{{"x": number}} for number in range(20)]), "gs://bucket/small")
arguments = ["--runner=DataflowRunner", "--project=project", "--region=europe-west1", "--no_auth",
    "--temp_location=gs://bucket/temp", "--sdk_container_image={IMAGE}", "--sdk_location=container"]
for name, option in (("dry", "--dry_run=true"), ("staged", "--template_location=gs://bucket/job.json")):
    pipeline = beam.Pipeline(options=PipelineOptions([*arguments, option]))
    examples = pipeline | prep.ReadShards("gs://bucket/small")
    written, rejected = examples | prep.WriteShards(f"gs://bucket/{{name}}", shards=2)
    pipeline.run()
print("translated")
"""


def test_the_dataflow_runner_translates_the_transforms_and_stages_their_job(tmp_path):
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = ("apache-beam[gcp]==2.77.0", "pip")
    programs = new_environment(tmp_path / "env", python, "prep,remote", ROOT, others)
    with servers.fake_gcs(tmp_path / "store") as server, pytest.MonkeyPatch.context() as patch:
        servers.create_bucket(server, "bucket")
        printed = run([programs / "python", "-c", PROGRAM], tmp_path, **server.environment)
        assert "\ntranslated\n" in printed
        for name, value in server.environment.items():
            patch.setenv(name, value)
        job = json.loads(any_path("gs://bucket/job.json").read_bytes())
        staged = [path.name for path, _ in any_path("gs://bucket/temp").files_below()]
    assert [
        each["containerImage"] for each in job["environment"]["workerPools"][0]["sdkHarnessContainerImages"]
    ] == [IMAGE]
    assert "pipeline.pb" in " ".join(staged)
