"""Other readers of a build: TFDS and its view, the PyTorch reader tfrecord, DALI."""

import logging
import os
import re

import ml_dtypes
import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file
from tests.surface.command import run
from tfshards.prep import Arrays, Examples, ImageFolder, Options, append, build, reshard, restore
from tfshards.schemas import read_manifest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import json
import shutil
import subprocess
import sys
from collections import Counter

import tensorflow as tf
import tensorflow_datasets as tfds

from tests.format_reader import companion
from tests.pictures import write
from tests.surface.conftest import picture
from tfshards.prep import verify

logging.getLogger("absl").setLevel(logging.ERROR)
VIEW = {"dataset_info.json", "features.json"}


def folder_of(root):
    """Return the folder of the build that is the dataset."""
    return root / read_manifest(root).folder


def opened(root, split: str = "train") -> list[dict]:
    builder = tfds.builder_from_directory(folder_of(root))
    return [
        {n: np.asarray(v) for n, v in e.items()} for e in builder.as_dataset(split=split).as_numpy_iterator()
    ]


def values_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    bits = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    raw = np.random.default_rng(len(dtype)).bytes(int(np.prod((4, *shape))) * bits.itemsize)
    if dtype == "bool":
        return np.frombuffer(raw, np.uint8).reshape(4, *shape) > 100
    return np.frombuffer(raw, bits).reshape(4, *shape)


def rows(numbers):
    return Examples([{"key": f"k{n}", "x": n, "split": "val" if n >= 20 else "train"} for n in numbers])


def test_every_dtype_is_read_exactly_in_every_shape(tmp_path):
    # TFDS cannot decode uint32
    numbers = [f"int{bits}" for bits in (8, 16, 32, 64)] + [f"uint{bits}" for bits in (8, 16, 64)]
    numbers += [f"float{bits}" for bits in (16, 32, 64)]
    columns = {
        f"{dtype}_{name}": values_of(dtype, shape)
        for dtype in (*numbers, "bool", "bfloat16", "complex64", "complex128")
        for name, shape in {"scalar": (), "matrix": (2, 3), "empty": (2, 0)}.items()
    }
    lists = {f"list_{dtype}": values_of(dtype, (3,)) for dtype in ("int8", "uint32", "bool")}
    texts = {"text": np.array([b"caf\xe9/\xff.jpg", b"a", b"\x80", b"c"]), "label": np.arange(4) % 2}
    wanted = {**columns, **lists, **texts}
    build(
        Arrays(wanted, dict.fromkeys(lists, "list"), class_names=("cat", "dog")),
        tmp_path / "d",
        shards=2,
    )
    found = opened(tmp_path / "d")
    assert len(found) == 4
    for example in found:
        for name, column in wanted.items():
            value, got = column[int(example["key"])], example[name]
            if name == "text":
                assert got.item() == value
            else:
                wanted_facts = (value.dtype, value.shape, value.tobytes())
                assert (got.dtype, got.shape, got.tobytes()) == wanted_facts, name
    # with the data sources of TFDS, without TensorFlow
    (path, *_) = folder_of(tmp_path / "d").glob("*.tfrecord-*")
    data = next(iter(tf.data.TFRecordDataset(str(path)))).numpy()
    features = tfds.builder_from_directory(folder_of(tmp_path / "d")).info.features
    assert features["label"].names == ["cat", "dog"]
    assert features.deserialize_example_np(data)["text"] in wanted["text"]


ENCODED = {
    "color": [("RGB", "JPEG"), ("L", "JPEG"), ("RGB", "PNG"), ("P", "PNG")],
    "grey": [("L", "JPEG"), ("L", "PNG")],
    "alpha": [("RGBA", "PNG"), ("RGB", "PNG")],
}


@pytest.mark.parametrize("encoded", ENCODED.values(), ids=ENCODED)
def test_images_of_either_encoding_have_the_channels_of_the_schema(encoded, tmp_path, image_folder):
    pixels = np.arange(5 * 7 * 4, dtype=np.uint8).reshape(5, 7, 4)
    files = {
        f"{'ab'[n % 2]}/{n}.{kind.lower()}": image_file(
            Image.fromarray(pixels, "RGBA").convert("RGB").convert(mode), kind
        )
        for n, (mode, kind) in enumerate(encoded)
    }
    manifest = build(ImageFolder(image_folder(files)), tmp_path / "d")
    channels = manifest.schema["image"].shape[2]
    examples = opened(tmp_path / "d")
    assert {example["key"].item().decode() for example in examples} == {*files}
    for example in examples:
        data = files[example["key"].item().decode()]
        np.testing.assert_array_equal(example["image"], tf.io.decode_image(data, channels=channels or 0))
    builder = tfds.builder_from_directory(folder_of(tmp_path / "d"))
    ((image, label), *_) = builder.as_dataset(split="train", as_supervised=True)
    assert (image.shape[2], int(label) in (0, 1)) == (channels, True)


CLASS_NAMES = (
    *("cat", "Straßenbahn", "日本 猫", "#", "0", "\u3000cat", "two\nlines", "cat\r"),
    *("\x1c", "\u2028", "\ufeffcat", "a\0b", "ca\udce9", "\\x20cat", "\\empty", "a\\nb", "a\\\nb"),
)


def test_every_class_name_keeps_its_own_line(tmp_path):
    source = Arrays({"label": np.arange(len(CLASS_NAMES))}, class_names=CLASS_NAMES)
    build(source, tmp_path / "d", shards=1)
    label = tfds.builder_from_directory(folder_of(tmp_path / "d")).info.features["label"]
    assert label.num_classes == len(label.names) == len(set(label.names)) == len(CLASS_NAMES)
    assert label.names[:3] == list(CLASS_NAMES[:3])
    lines = (folder_of(tmp_path / "d") / "label.labels.txt").read_text("utf-8").removesuffix("\n").split("\n")
    for name, line in zip(CLASS_NAMES, lines, strict=True):
        literal = "".join(c if c.isascii() else c.encode("unicode_escape").decode("ascii") for c in line)
        assert literal.encode("ascii").decode("unicode_escape") == name


@pytest.mark.parametrize(
    ("name", "shown", "label"),
    [("photos", "photos", "a/b"), ("ImageNet.v2-SMALL", "image_net_v2_small", "ä b"),
     ("9lives", "dataset_9lives", "..")],
)  # fmt: skip
def test_any_name_opens_as_the_nearest_that_tfds_allows_and_any_feature_is_read(name, shown, label, tmp_path):
    source = Arrays(
        {label: np.arange(2), "x": np.arange(2)}, roles={label: "label"}, class_names=("cat", "dog")
    )
    build(source, tmp_path / "d", shards=1, options=Options(name=name))
    builder = tfds.builder_from_directory(folder_of(tmp_path / "d"))
    assert builder.name == shown
    # TFDS parses names when a dataset is requested by name, not when a directory is opened
    assert tfds.core.naming.is_valid_dataset_name(builder.name)
    assert sorted(int(example[label]) for example in opened(tmp_path / "d")) == [0, 1]
    assert builder.info.features[label].names == ["cat", "dog"]


UNREAD = {
    "a name of a split": (Arrays({"x": np.arange(9)}), Options(splits={"val.2": 1})),
    "a reserved name of a split": (Arrays({"x": np.arange(9)}), Options(splits={"all": 1})),
    "uint32": (Arrays({"x": np.zeros((9, 2), np.uint32)}), Options()),
    "a class name that ends with a space": (
        Arrays({"label": np.arange(2)}, class_names=("a", "a ")),
        Options(),
    ),
    "gzip": (Arrays({"x": np.arange(9)}), Options(compression="gzip")),
}


@pytest.mark.parametrize(("source", "options"), UNREAD.values(), ids=UNREAD)
def test_a_dataset_that_tfds_cannot_read_has_no_files_of_it(source, options, tmp_path):
    build(source, tmp_path / "d", options=options)
    assert not VIEW & {*os.listdir(folder_of(tmp_path / "d"))}
    assert "TensorFlow Datasets" not in run(["info", str(tmp_path / "d")]).out


def test_info_prints_the_call_that_reads_what_one_build_has_written(tmp_path):
    out = tmp_path / "d"
    first = build(rows([*range(5), 20, 21]), out, shards={"train": 2, "val": 1})

    def read_by_info() -> dict[str, list[int]] | None:
        calls = re.findall(r"^TensorFlow Datasets: (tfds\..*)$", run(["info", str(out)]).out, re.MULTILINE)
        if not calls:
            return None
        builder = eval(calls[0], {"tfds": tfds})
        return {
            split: sorted(int(each["x"]) for each in builder.as_dataset(split=split))
            for split in builder.info.splits
        }

    assert read_by_info() == {"train": [*range(5)], "val": [20, 21]}
    append(rows([5, 6, 22]), out)
    assert not VIEW & {*os.listdir(folder_of(out))}
    assert read_by_info() is None
    # the folder of the first build stays as it was
    assert len(list(tfds.builder_from_directory(out / first.folder).as_dataset(split="train"))) == 5
    reshard(out, out, shards={"train": 2, "val": 1}, overwrite=True)
    assert read_by_info() == {"train": [*range(7)], "val": [20, 21, 22]}
    restore(out, first.folder)
    assert read_by_info() == {"train": [*range(5)], "val": [20, 21]}


# Other tools read shards and indexes as they are: the PyTorch reader tfrecord, DALI, TFDS's converter


NUMBER = 23


KEYS = Counter(f"{('cat', 'dog')[number % 2]}/{number:03d}.png".encode() for number in range(NUMBER))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """23 images of two classes in three shards."""
    folder = tmp_path_factory.mktemp("other")
    for number in range(NUMBER):
        write(folder / "photos" / ("cat", "dog")[number % 2] / f"{number:03d}.png", picture(number))
    build(ImageFolder(folder / "photos"), folder / "data", shards=3)
    return folder / "data"


# A process of its own, because the package registers messages with the names of TensorFlow's.
READ_BY_TFRECORD = """
import json, sys
from tfrecord.reader import tfrecord_loader

kinds = {"image": "byte", "label": "int", "key": "byte"}
found = {}
for workers in (1, 2, 5):
    found[workers] = [
        [bytes(row["key"]).decode(), int(row["label"][0]), bytes(row["image"][:4]).hex()]
        for data, index in json.loads(sys.argv[1])
        for worker in range(workers)
        for row in tfrecord_loader(data, index, kinds, shard=(worker, workers))
    ]
print(json.dumps(found))
"""


@pytest.mark.processes
def test_the_pytorch_reader_divides_shards_by_our_index(photos):
    shards = read_manifest(photos).shards
    paths = [[str(photos / shard.path), str(photos / companion(shard.path, "idx"))] for shard in shards]
    command = [sys.executable, "-c", READ_BY_TFRECORD, json.dumps(paths)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for workers, rows in json.loads(done.stdout).items():
        assert Counter(key.encode() for key, _, _ in rows) == KEYS, workers
        assert all((label, head) == (key.startswith("dog"), "89504e47") for key, label, head in rows)


READ_BY_DALI = """
import json, sys
from nvidia.dali import fn, pipeline_def, tfrecord

@pipeline_def(batch_size=23, num_threads=1, device_id=None)
def pipeline(paths, indexes):
    features = {
        "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        "key": tfrecord.FixedLenFeature((), tfrecord.string, ""),
    }
    read = fn.readers.tfrecord(path=paths, index_path=indexes, features=features, name="reader")
    return read["label"], read["key"]

made = pipeline(*json.loads(sys.argv[1]))
made.build()
labels, keys = made.run()
rows = [[int(labels.at(n)[0]), bytes(keys.at(n)).decode()] for n in range(23)]
print(json.dumps([made.epoch_size()["reader"], rows]))
"""


@pytest.mark.processes
@pytest.mark.nightly
def test_dali_reads_all_records_by_our_index(photos, tmp_path):
    packages = tmp_path / "packages"
    # its other requirements are for GPUs
    names = ("nvidia-dali-cuda120", "nvtx", "makefun", "libcst")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages), *names]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"DALI cannot be installed: {done.stderr.splitlines()[-1]}")
    shards = [shard.path for shard in read_manifest(photos).shards]
    both = (shards, [companion(path, "idx") for path in shards])
    paths = [[str(photos / path) for path in each] for each in both]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = [sys.executable, "-c", READ_BY_DALI, json.dumps(paths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    shutil.rmtree(packages)
    assert done.returncode == 0, done.stderr
    size, rows = json.loads(done.stdout.splitlines()[-1])
    assert size == NUMBER
    assert Counter(key.encode() for _, key in rows) == KEYS
    assert all(label == key.startswith("dog") for label, key in rows)


@pytest.mark.processes
def test_tfds_converts_a_copy_of_the_folder_and_reads_both_formats(photos, tmp_path):
    import tensorflow_datasets as tfds
    from tensorflow_datasets.scripts.cli.convert_format_utils import convert_dataset

    # it writes into the folder that it converts
    root = shutil.copytree(photos / read_manifest(photos).folder, tmp_path / "data")
    convert_dataset(out_dir=None, out_file_format="array_record", dataset_version_dir=str(root))
    builder = tfds.builder_from_directory(root)
    # random access, which TFRecord files do not have
    source = builder.as_data_source("train")
    assert Counter(source[number]["key"] for number in range(len(source))) == KEYS
    assert builder.info.features["label"].names == ["cat", "dog"]
    examples = tfds.builder_from_directory(root).as_dataset(split="train").as_numpy_iterator()
    assert Counter(example["key"] for example in examples) == KEYS


@pytest.mark.processes
def test_what_tfds_changes_in_the_folder_of_a_build_is_repaired(photos, tmp_path):
    from tensorflow_datasets.scripts.cli.convert_format_utils import convert_dataset

    root = shutil.copytree(photos, tmp_path / "data")
    folder = read_manifest(root).folder
    convert_dataset(out_dir=None, out_file_format="array_record", dataset_version_dir=str(root / folder))
    assert [problem.place for problem in verify(root, deep=True).problems] == [f"{folder}/dataset_info.json"]
    assert verify(root, repair=True).repaired == (f"{folder}/dataset_info.json",)
    assert verify(root, deep=True)
