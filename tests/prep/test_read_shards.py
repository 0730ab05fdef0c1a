"""``prep.ReadShards``: a dataset as a PCollection, on Beam's local runner."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import apache_beam as beam
import ml_dtypes
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from tests.pictures import image_file
from tfshards import prep
from tfshards.loader import Records
from tfshards.prep.engines.read_shards import Element
from tfshards.schemas import Feature, Schema, read_manifest

from .exported import write_dataset, write_everything

NUMBER = Feature("number", "int", "int64")
KEY = Feature("key", "bytes", "bytes")
# bytes of the frame of an example with both
FRAME = 51


def read(transform: prep.ReadShards, *arguments: str, check: Callable[[list[Element]], None]) -> None:
    """Run a pipeline on Beam's local runner, and check its elements."""
    with beam.Pipeline(FnApiRunner(), PipelineOptions(list(arguments))) as pipeline:
        assert_that(pipeline | transform, check)


def all_of(dataset: Path, split: str = "train", select=None, num_bytes: int = 1 << 20) -> list[Element]:
    """Return the elements in stored order, without a runner."""
    opened = prep.ReadShards(dataset, split, select=select)._stored
    return [element for run in opened.runs(num_bytes=num_bytes) for element in opened.read(run)]


def assert_same(found: list[Element], expected: list[Element]) -> None:
    assert sorted(key for key, _ in found) == sorted(key for key, _ in expected)
    by_key = dict(expected)
    for key, features in found:
        assert [*features] == [*by_key[key]]
        for name, value in features.items():
            assert_same_value(value, by_key[key][name], f"{key}: {name}")


def assert_same_value(value: Any, expected: Any, what: str) -> None:
    assert type(value) is type(expected), what
    if isinstance(value, np.ndarray):
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape), what
        assert value.flags.writeable, what
    np.testing.assert_array_equal(value, expected, what)


@pytest.fixture
def numbers(tmp_path) -> Path:
    """A dataset of 40 numbers in one shard, with keys."""
    return write_numbers(tmp_path / "numbers", [40])


def write_numbers(root: Path, sizes: list[int], features=(NUMBER, KEY)) -> Path:
    starts = np.cumsum([0, *sizes]).tolist()
    shards = [
        [{"number": number, "key": b"%03d" % number} for number in range(start, stop)]
        for start, stop in pairwise(starts)
    ]
    write_dataset(root, Schema(features), {"train": shards})
    return root


def test_elements_are_the_examples_as_records_deliver_them(tmp_path):
    given = write_everything(tmp_path / "data")
    records = [*Records(tmp_path / "data", "train")]
    expected = [(each.pop("key").decode(), each) for each in map(dict, records)]
    assert [key for key, _ in expected] == [values["key"].decode() for values in given]
    read(prep.ReadShards(tmp_path / "data"), check=lambda found: assert_same(found, expected))
    assert {each.dtype.name: each.shape for _, found in expected for each in [found["grid"], found["half"]]}
    assert all_of(tmp_path / "data", "val")[0][0] == "photos/ä 7.jpeg"


CLASSES = ["cat", "dog", "owl"]
ROLES = {"mask": "mask", "boxes": "list", "words": "list"}


def labeled(number: int) -> Element:
    """Return an element with features of every kind that ``WriteShards`` takes."""
    pixels = np.random.default_rng(number).integers(0, 256, (4 + number % 3, 5, 3), dtype=np.uint8)
    return f"{number:02}.png", {
        "boxes": np.arange(4 * (number % 3), dtype=np.float32).reshape(-1, 4),
        "brain": np.arange(3).astype(ml_dtypes.bfloat16),
        "complex": np.complex64(1j * number),
        "empty": np.zeros((2, 0), np.int32),
        "image": image_file(pixels),
        "is_even": number % 2 == 0,
        "label": number % 3,
        "mask": image_file(pixels[..., 0]),
        "pixels": np.full((8, 8, 3), number, np.uint8),
        "text": "é" * (number % 5),
        "unsigned": np.uint64(2**64 - 1 - number),
        "words": np.array(["é", "b"][: number % 3], object),
    }


def test_what_is_read_and_written_again_is_the_same_dataset(tmp_path, contents):
    options = prep.Options(compression="gzip")
    write = partial(prep.WriteShards, roles=ROLES, class_names=CLASSES, shards=3, seed=5, options=options)
    one, other = tmp_path / "one" / "pets", tmp_path / "other" / "pets"
    with beam.Pipeline(FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create([labeled(number) for number in range(20)]) | write(one)
    with beam.Pipeline(FnApiRunner()) as pipeline:
        _ = pipeline | prep.ReadShards(one) | write(other)
    assert read_manifest(other).num_examples == 20
    assert contents(one) == contents(other)
    elements = dict(all_of(other))
    assert elements["07.png"].keys() == labeled(7)[1].keys()
    for name in ("brain", "pixels", "boxes", "unsigned"):
        np.testing.assert_array_equal(elements["07.png"][name], labeled(7)[1][name], name)
    assert elements["07.png"]["words"].tolist() == ["é".encode()]


def test_the_key_of_an_example_without_one_is_its_number_in_the_split(tmp_path):
    write_numbers(tmp_path / "data", [3, 0, 4], features=(NUMBER,))
    found = [(f"{number:010}", {"number": np.int64(number)}) for number in range(7)]
    assert_same(all_of(tmp_path / "data", num_bytes=60), found)
    assert [key for key, _ in all_of(tmp_path / "data", num_bytes=60)] == [key for key, _ in found]


def test_a_row_of_an_array_does_not_hold_the_rows_that_were_read_with_it(tmp_path):
    shape = Feature("x", "raw", "uint8", (5,))
    examples = [{"x": bytes([number] * 5)} for number in range(20)]
    write_dataset(tmp_path / "data", Schema((shape,)), {"train": [examples]})
    assert all(features["x"].base is None for _, features in all_of(tmp_path / "data"))


# Damage


@pytest.fixture
def shard(numbers) -> Path:
    return numbers / read_manifest(numbers).shards[0].path


# What may have changed between the construction of the pipeline and its run


def test_a_dataset_that_was_replaced_is_read_as_long_as_its_files_are_kept(tmp_path, quiet_build):
    root = tmp_path / "data"
    before = quiet_build(prep.Arrays({"x": np.arange(6)}), root)
    transform = prep.ReadShards(root)
    quiet_build(prep.Arrays({"x": np.arange(9)}), root, overwrite=True)

    def check(elements: list[Element]) -> None:
        assert sorted(int(features["x"]) for _, features in elements) == [*range(6)]

    read(transform, check=check)
    prep.prune(root)
    with pytest.raises(FileNotFoundError, match=f"{root}/{before.folder}/"):
        [*transform._stored.runs()]


def test_a_dataset_is_read_and_replaced_in_one_pipeline(tmp_path, quiet_build):
    root = tmp_path / "data"
    quiet_build(prep.Arrays({"x": np.arange(9)}), root, shards=3)
    with beam.Pipeline(FnApiRunner()) as pipeline:
        odd = pipeline | prep.ReadShards(root) | beam.Filter(lambda element: element[1]["x"] % 2)
        _ = odd | prep.WriteShards(root, shards=2, overwrite=True)
    assert sorted(int(features["x"]) for _, features in all_of(root)) == [1, 3, 5, 7]
    assert prep.verify(root, deep=True)


def test_a_worker_with_other_versions_is_refused(numbers, monkeypatch):
    monkeypatch.setattr("tfshards.prep.engines.transform.own_versions", lambda: {"tfshards": "0.0"})
    with pytest.raises(Exception, match=r"a worker on \S+ has tfshards \S+, but the command runs with 0\.0"):
        read(prep.ReadShards(numbers), check=lambda _: None)
