"""``prep.Examples``: datasets from iterables of other packages, and what is done with them later."""

from functools import partial
from pathlib import Path

import datasets
import numpy as np
import pytest
import tensorflow as tf
import webdataset as wds

from tests.errors import raises
from tests.pictures import image_file
from tfshards import loader, prep
from tfshards.prep.building import write as writing
from tfshards.schemas import InputError, read_manifest

Values = dict[str, object]

COUNT = 9


def encoded(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (5 + number % 3, 9, 3), dtype=np.uint8)
    return image_file(pixels)


def example(number: int) -> Values:
    return {"image": encoded(number), "label": ("cat", "dog")[number % 2], "n": number, "x": number / 4}


@pytest.fixture
def build(tmp_path, quiet_build):
    """Build a dataset from examples in the folder ``name``, and return the folder."""

    def run(source: prep.Examples, name: str = "out", **given: object) -> Path:
        quiet_build(source, tmp_path / name, **given)
        return tmp_path / name

    return run


def hugging_face() -> datasets.Dataset:
    columns = {name: [example(number)[name] for number in range(COUNT)] for name in example(0)}
    columns["image"] = [{"bytes": image, "path": None} for image in columns["image"]]
    features = {
        "image": datasets.Image(decode=False),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "n": datasets.Value("int64"),
        "x": datasets.Value("float64"),
    }
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def tensors() -> tf.data.Dataset:
    columns = {name: [example(number)[name] for number in range(COUNT)] for name in example(0)}
    return tf.data.Dataset.from_tensor_slices(
        {**columns, "n": np.array(columns["n"]), "x": np.array(columns["x"])}
    )


ITERABLES = {
    "Hugging Face": hugging_face,
    "tf.data": tensors,
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> list[str]:
    """The digests of the shards of the examples in a list."""
    out = tmp_path_factory.mktemp("reference") / "out"
    manifest = prep.build(prep.Examples(map(example, range(COUNT))), out, shards=2)
    return [shard.digest for shard in manifest.shards]


@pytest.mark.parametrize("name", ITERABLES)
def test_the_same_examples_of_any_package_are_the_same_dataset(name, build, reference):
    names = ["cat", "dog"]
    manifest = read_manifest(build(prep.Examples(ITERABLES[name](), class_names=names), shards=2))
    assert [shard.digest for shard in manifest.shards] == reference
    assert manifest.schema.class_names == ("cat", "dog")


def test_samples_of_webdataset_are_examples_with_a_key(build, tmp_path):
    with wds.TarWriter(str(tmp_path / "samples.tar")) as tar:
        for number in range(COUNT):
            tar.write({"__key__": f"train/{number:03d}", "png": encoded(number), "cls": number % 3})
    samples = wds.WebDataset(str(tmp_path / "samples.tar"), shardshuffle=False)
    roles = {"__key__": "key", "__url__": "drop", "__local_path__": "drop", "png": "image", "cls": "label"}
    decoded = samples.map(lambda sample: {**sample, "cls": int(sample["cls"])})
    first = next(iter(decoded))
    source = prep.Examples(decoded, {name: role for name, role in roles.items() if name in first})
    found = {each.pop("key"): each for each in map(dict, loader.Records(build(source), "train"))}
    assert found == {
        f"train/{number:03d}".encode(): {"png": encoded(number), "cls": number % 3} for number in range(COUNT)
    }


def test_a_million_examples_would_fit_since_values_wait_on_disk(tmp_path):
    alive, most = 0, 0

    class Counted(dict):
        def __init__(self, number: int) -> None:
            nonlocal alive, most
            super().__init__(n=number)
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    (tmp_path / "staged").mkdir()
    reader = prep.Examples(map(Counted, range(2_000))).stage(tmp_path / "staged")
    assert reader.listing().num_examples == 2_000
    assert most < 10


@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_a_build_that_ended_reads_the_examples_again_and_writes_the_same_bytes(
    moment, build, tmp_path, contents, log, monkeypatch
):
    def end() -> None:
        raise KeyboardInterrupt

    def examples(end=lambda: None):
        for number in range(300):
            if number == 200:
                end()
            yield {"x": bytes(999) + bytes([number % 256]), "label": number % 3}

    given = {"shards": 4, "seed": 3}
    with prep.limited_jobs(1):
        build(prep.Examples(examples), "whole/out", **given)
        with monkeypatch.context() as patch:
            ended = prep.Examples(partial(examples, *[end] * (moment == "reading")))
            if moment == "writing":
                write = writing.write_shard
                patch.setattr(writing, "write_shard", lambda *task: (write(*task), end()))
            with pytest.raises(KeyboardInterrupt):
                build(ended, **given)
        build(prep.Examples(examples), **given)
    assert any("resuming the build" in line for line in log) == (moment == "writing")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole" / "out")


def test_a_build_and_append_take_the_examples_again(build, tmp_path):
    given = [*map(example, range(COUNT))]
    out = build(prep.Examples(given), shards=3)
    shard = out / read_manifest(out).shards[1].path
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-9])
    assert not prep.verify(out, repair=True)
    build(prep.Examples(given), shards=3)
    assert shard.read_bytes() == whole
    with raises(InputError, "was made by examples"):
        prep.append(str(tmp_path), out)
    for others in ((5, 6), range(5, 5 + COUNT)):
        with pytest.raises(InputError, match="rows are identified by their numbers"):
            prep.append(prep.Examples(map(example, others)), out)
    grown = prep.append(prep.Examples(iter([*given, example(20)])), out)
    assert grown.num_examples == COUNT + 1


@pytest.mark.parametrize(
    "value", [int, lambda number: np.full((2, 3), number, np.float32)], ids=["int", "array"]
)
def test_an_example_with_other_content_of_the_same_size_is_another_input(value, build):
    build(prep.Examples([("k1", {"x": value(7)}), ("k2", {"x": value(8)})]))
    with raises(InputError, "holds a dataset", code="dataset-differs"):
        build(prep.Examples([("k1", {"x": value(7)}), ("k2", {"x": value(9)})]))
