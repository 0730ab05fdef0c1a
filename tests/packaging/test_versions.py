"""The ends of the ranges of versions in pyproject.toml: they build the same bytes and deliver the same."""

from functools import cache

import pytest

from tests.packaging.installations import new_environment, run
from tests.packaging.test_installations import THIS, build, wheel

pytestmark = pytest.mark.nightly

__all__ = ["wheel"]

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
