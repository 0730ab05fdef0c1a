"""Other tools read shards and indexes as they are: the PyTorch reader tfrecord, DALI, TFDS's converter."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from tests.format_reader import companion
from tests.pictures import write
from tests.surface.conftest import picture
from tfshards.prep import ImageFolder, build, verify
from tfshards.schemas import read_manifest

pytestmark = pytest.mark.processes

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


def test_what_tfds_changes_in_the_folder_of_a_build_is_repaired(photos, tmp_path):
    from tensorflow_datasets.scripts.cli.convert_format_utils import convert_dataset

    root = shutil.copytree(photos, tmp_path / "data")
    folder = read_manifest(root).folder
    convert_dataset(out_dir=None, out_file_format="array_record", dataset_version_dir=str(root / folder))
    assert [problem.place for problem in verify(root, deep=True).problems] == [f"{folder}/dataset_info.json"]
    assert verify(root, repair=True).repaired == (f"{folder}/dataset_info.json",)
    assert verify(root, deep=True)
