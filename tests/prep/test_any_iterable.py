"""``prep.Examples``: datasets from any Python iterable, compared with TensorFlow's own reader."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import webdataset as wds
from PIL import Image

from tests.errors import raises
from tests.pictures import image_file
from tfshards import prep
from tfshards.schemas import InputError, read_manifest

Values = dict[str, object]

COUNT = 9
KEYS = [f"{number:010d}" for number in range(COUNT)]


def encoded(number: int, form: str = "PNG", **options: object) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (5 + number % 3, 9, 3), dtype=np.uint8)
    return image_file(pixels, form, **options)


def example(number: int) -> Values:
    return {"image": encoded(number), "label": ("cat", "dog")[number % 2], "n": number, "x": number / 4}


def stored(out: Path, split: str = "train") -> dict[str, dict[str, list]]:
    """Return the values of the records of a split by key and name, read by TensorFlow alone."""
    found = {}
    for path in sorted(map(str, out.glob(f"*-{split}-*.tfrecord-*"))):
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            values = {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}
            found[values.pop("key")[0].decode()] = values
    return found


@pytest.fixture
def build(tmp_path, quiet_build):
    """Build a dataset from examples in the folder ``name``, and return the folder."""

    def run(examples: object, name: str = "out", build: Values | None = None, **given: object) -> Path:
        quiet_build(prep.Examples(examples, **given), tmp_path / name, **(build or {}))
        return tmp_path / name

    return run


class MapStyle:
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Values:
        # never an IndexError
        return example(number % COUNT)


def hugging_face() -> datasets.Dataset:
    columns = {name: [example(number)[name] for number in range(COUNT)] for name in example(0)}
    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "n": datasets.Value("int64"),
        "x": datasets.Value("float64"),
    }
    columns["image"] = [{"bytes": image, "path": None} for image in columns["image"]]
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def tensors() -> tf.data.Dataset:
    columns = {name: [example(number)[name] for number in range(COUNT)] for name in example(0)}
    return tf.data.Dataset.from_tensor_slices(
        {**columns, "n": np.array(columns["n"]), "x": np.array(columns["x"])}
    )


ITERABLES = {
    "list": lambda: [*map(example, range(COUNT))],
    "generator": lambda: map(example, range(COUNT)),
    "function": lambda: lambda: map(example, range(COUNT)),
    "map-style": MapStyle,
    "pandas": lambda: pd.DataFrame([*map(example, range(COUNT))]),
    "Hugging Face": hugging_face,
    "streamed by Hugging Face": lambda: hugging_face().to_iterable_dataset(),
    "tf.data": tensors,
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> dict[str, int | str]:
    """The digests of the shards of the examples in a list."""
    out = tmp_path_factory.mktemp("reference") / "out"
    manifest = prep.build(prep.Examples(ITERABLES["list"]()), out, shards=2, log=lambda _: None)
    assert stored(out).keys() == {*KEYS}
    for number, key in enumerate(KEYS):
        assert stored(out)[key] == {
            "image": [encoded(number)],
            "label": [number % 2],
            "n": [number],
            "x": [np.float64(number / 4).tobytes()],
        }
    assert manifest.schema.class_names == ("cat", "dog")
    return {"shards": [shard.digest for shard in manifest.shards], "schema": manifest.schema}


@pytest.mark.parametrize("name", ITERABLES)
def test_the_same_examples_of_any_iterable_are_the_same_dataset(name, build, reference):
    out = build(ITERABLES[name](), build={"shards": 2})
    manifest = read_manifest(out)
    found = {"shards": [shard.digest for shard in manifest.shards], "schema": manifest.schema}
    assert found == reference
    assert not (out / ".build").exists()


def test_samples_of_webdataset_are_read_decoded_or_not(build, tmp_path):
    with tarfile.open(tmp_path / "samples.tar", "w") as tar:
        for number in range(COUNT):
            files = {"png": encoded(number), "cls": b"%d\n" % (number % 3), "json": b'{"w": %d}' % number}
            for extension, data in files.items():
                member = tarfile.TarInfo(f"train/{number:03d}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    samples = wds.WebDataset(str(tmp_path / "samples.tar"), shardshuffle=False)
    out = build(samples)
    assert read_manifest(out).schema.label.name == "cls"
    for number in range(COUNT):
        values = {"png": [encoded(number)], "cls": [number % 3], "json/w": [number]}
        assert stored(out)[f"train/{number:03d}"] == values
    decoded = build(samples.decode("pil"), "decoded")
    for key, values in stored(decoded).items():
        image = np.asarray(Image.open(io.BytesIO(values.pop("png")[0])))
        whole = stored(out)[key]
        np.testing.assert_array_equal(image, np.asarray(Image.open(io.BytesIO(whole.pop("png")[0]))))
        assert values == whole


def test_a_million_numbers_would_fit_since_values_wait_on_disk(tmp_path):
    """The examples held at once are those that show the kinds, whatever their number."""
    alive: set[int] = set()
    most = 0

    class Counted(dict):
        def __del__(self) -> None:
            alive.discard(self["n"])

    def some():
        nonlocal most
        for number in range(1_000):
            alive.add(number)
            most = max(most, len(alive))
            yield Counted(n=number)

    (tmp_path / "staged").mkdir()
    reader = prep.Examples(some()).stage(tmp_path / "staged")
    assert reader.listing().num_examples == 1_000
    assert most < 110


SCRIPT = """
import os, sys
import numpy as np
from tfshards import prep
from tfshards.prep.writing import shard

out, moment, reads = sys.argv[1:]

def examples():
    for number in range(300):
        if moment == "reading" and number == 200:
            os.kill(os.getpid(), 9)
        with open(reads, "a") as file:
            print(number, file=file)
        pixels = np.random.default_rng(number).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        yield {"image": pixels, "label": number % 3}

if moment == "writing":
    write = shard.write_shard
    def killed(task, which):
        write(task, which)
        os.kill(os.getpid(), 9)
    from tfshards.prep.building import planned_build
    planned_build.write_shard = killed
with prep.limited_jobs(1):
    prep.build(prep.Examples(examples, {"image": "image"}), out, shards=4, seed=3)
"""


@pytest.mark.processes
def test_a_killed_build_resumes_with_the_same_bytes(tmp_path, contents):
    reads = tmp_path / "reads"

    def run(name: str, moment: str) -> subprocess.CompletedProcess[str]:
        reads.write_text("")
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / name / "out"), moment, str(reads)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("whole", "never").returncode == 0
    for moment, line in (("reading", ""), ("writing", "resuming the build")):
        assert run(moment, moment).returncode == -9
        assert len([*tmp_path.glob(f"{moment}/out/.build/staged-*/*.spill")]) == 1
        again = run(moment, "never")
        assert again.returncode == 0, again.stderr
        assert line in again.stderr
        assert len(reads.read_text().split()) == 300
        assert contents(tmp_path / moment / "out") == contents(tmp_path / "whole" / "out")


def test_nothing_is_kept_of_examples_that_are_at_fault(build, tmp_path):
    with raises(InputError, "element-keys-repeated"):
        build([("a", {"n": 1}), ("a", {"n": 2})], "twice")
    assert not (tmp_path / "twice").exists()


def test_repair_and_append_take_the_examples_again(build, tmp_path):
    given = [*map(example, range(COUNT))]
    out = build(given, build={"shards": 3})
    shard = out / read_manifest(out).shards[1].path
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    with raises(InputError, "examples-of-python"):
        prep.repair(out, str(tmp_path))
    with raises(InputError, "examples-none"):
        # a class may be new, so the examples are read twice
        prep.repair(out, prep.Examples(iter(given)))
    assert prep.repair(out, prep.Examples(given), log=lambda _: None)
    assert shard.read_bytes() == whole
    with raises(InputError, "examples-of-python"):
        prep.append(str(tmp_path), out)
    with raises(InputError, "append-row-differs"):
        prep.append(prep.Examples([example(number) for number in (5, 6)]), out)
    grown = prep.append(prep.Examples([*given, example(20)]), out, log=lambda _: None)
    assert grown.num_examples == COUNT + 1
    keyed = build([(f"k{number}", example(number)) for number in range(3)], "keyed")
    new = prep.Examples([("k1", example(7)), ("k9", example(9))])
    assert prep.append(new, keyed, log=lambda _: None).num_examples == 4


def test_a_hugging_face_dataset_with_a_format_is_taken_as_it_is(build):
    out = build(hugging_face().with_format("numpy"), schema={"image": "image"})
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(stored(out)[KEYS[1]]["image"][0]))),
        np.asarray(Image.open(io.BytesIO(encoded(1)))),
    )
    splits = datasets.DatasetDict(train=hugging_face(), val=hugging_face())
    assert read_manifest(build(splits, "splits")).schema.class_names == ("cat", "dog")
