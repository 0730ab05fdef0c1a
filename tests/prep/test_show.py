"""Find an example by its key, and describe its values."""

from dataclasses import replace

import numpy as np
import pytest

from tests.errors import raises
from tfshards import loader
from tfshards.prep import Arrays, ImageFolder, Options
from tfshards.prep.cli.show import example_text
from tfshards.prep.records.example import example_encoder
from tfshards.prep.records.frames import RecordError, frame, read_records
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.verification.show import description, examples, find
from tfshards.schemas import Feature, InputError, Manifest, Schema, Split, Totals, read_manifest
from tfshards.schemas.manifest_file import write_manifest


def test_show_finds_every_example(small_folder, tmp_path, quiet_build):
    options = Options(splits={"train": 0.6, "val": 0.4})
    manifest = quiet_build(ImageFolder(small_folder), tmp_path / "out", shards=3, options=options)
    for path in small_folder.rglob("*.png"):
        found = find(tmp_path / "out", str(path.relative_to(small_folder)))
        assert found.values["image"] == [path.read_bytes()]
        assert found.shard in [shard.path for shard in manifest.splits[found.split].shards]
        data = [data for _, data in read_records(tmp_path / "out" / found.shard, "none")][found.record]
        assert path.read_bytes() in data


def test_a_key_that_is_part_of_another_key_is_not_confused_with_it(tmp_path, quiet_build):
    quiet_build(Arrays({"x": np.arange(200) * 7}), tmp_path / "out")
    for row in (1, 10, 100, 11):
        assert find(tmp_path / "out", str(row)).values["x"] == [row * 7]


def test_show_finds_examples_by_number_in_the_order_of_the_loader(small_folder, tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(ImageFolder(small_folder), out, shards=3)
    in_order = list(examples(out))
    assert [found.number for found in in_order] == list(range(13))
    assert len({found.shard for found in in_order}) == 3
    for number, found in enumerate(in_order):
        assert find(out, str(number)) == find(out, f"train:{number}") == found
        assert find(out, found.values["key"][0].decode()) == found
    with raises(InputError, "number-unknown", split="train", size=13):
        find(out, "13")
    loaded = loader.load(out, batch_size=13)
    (keys,) = [batch["key"].tolist() for batch in loaded.as_numpy_iterator()]
    assert keys == [found.values["key"][0] for found in in_order]


def test_a_number_needs_a_split_where_there_are_several(small_folder, tmp_path, quiet_build):
    out = tmp_path / "out"
    quiet_build(ImageFolder(small_folder), out, options=Options(splits={"train": 0.6, "val": 0.4}))
    with raises(InputError, "split-needed", named="train:3, val:3"):
        find(out, "3")
    found = find(out, "val:3")
    assert (found.split, found.number) == ("val", 3)
    assert example_text(found).startswith("split val, example 3, record 3 of out-val-")
    assert [each.split for each in examples(out)] == ["train"] * 8 + ["val"] * 5
    with raises(InputError, "split-not-shown", split="test", names="'train', 'val'"):
        next(examples(out, "test"))
    with raises(InputError, "key-unknown", key="test:3"):
        find(out, "test:3")


def test_a_number_is_a_key_where_keys_are_numbers(tmp_path, quiet_build):
    quiet_build(Arrays({"x": np.arange(20) * 7}), tmp_path / "out", seed=5)
    assert find(tmp_path / "out", "12").values["x"] == [84]
    by_position = find(tmp_path / "out", "train:12")
    assert by_position.number == 12
    assert by_position.values["key"] != [b"12"]


@pytest.mark.parametrize(
    ("feature", "values", "shown"),
    [
        (
            Feature("sound", "bytes", "bytes"),
            [b"a" * 150 + b"\n" + b"b" * 5000],
            f"{'a' * 150}\\n{'b' * 49}… (5.0 KiB in all)",
        ),
        (Feature("tags", "label", "int64", (None,)), [1, 0], "1 (dog), 0 (cat)"),
        (Feature("tags", "label", "int64", (None,)), [], "none"),
    ],
)
def test_values_are_described(feature, values, shown):
    schema = Schema((feature,), ("cat", "dog") if feature.kind == "label" else ())
    assert description(feature, schema, values) == shown


def test_a_mask_is_described_as_an_image(image_folder):
    data = (image_folder({"a.png": 1}) / "a.png").read_bytes()
    schema = Schema((Feature("mask", "mask", "uint8", (None, None, 1)),))
    assert description(schema["mask"], schema, [data]).startswith("PNG 5 x 5 (height x width), mode RGB, ")


def test_a_key_that_is_not_utf8_is_found(image_folder, tmp_path, quiet_build):
    quiet_build(ImageFolder(image_folder({"caf\udce9\x1b.png": 1, "b.png": 2})), tmp_path / "out")
    found = find(tmp_path / "out", "caf\udce9\x1b.png")
    text = example_text(found)
    assert text.splitlines()[-1] == r"key: caf\udce9\x1b.png"


def test_every_kind_of_value_is_described_in_one_line(tmp_path, quiet_build):
    arrays = {
        "pixels": np.arange(12, dtype=">u2").reshape(1, 3, 4),
        "few": np.array([[0.5, -1.5]], np.float16),
        "truth": np.array([True]),
        "complex": np.array([1 + 2j]),
        "list": np.array([[1, 2, 3]]),
        "number": np.array([42]),
        "label": np.array([3]),
        "text": np.array([["a\n", "b\\"]]),
        "many": np.arange(100).reshape(1, 100),
    }
    quiet_build(Arrays(arrays, lists=("list", "many")), tmp_path / "out")
    text = example_text(find(tmp_path / "out", "0"))
    assert text.splitlines()[1:] == [
        "pixels: uint16 [3, 4]: [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]"
        if "], [" in text
        else "pixels: uint16 [3, 4]: 0, 1, 2, 3, 4, 5, 6, 7, … (12 in all)",
        "few: float16 [2]: 0.5, -1.5",
        "truth: bool []: True",
        "complex: complex128 []: (1+2j)",
        "list: int64 [3]: 1, 2, 3",
        "number: int64 []: 42",
        "label: int64 []: 3",
        r"text: a\n, b\\",
        "many: int64 [100]: 0, 1, 2, 3, 4, 5, 6, 7, … (100 in all)",
        "key: 0",
    ]


def dataset_of(root, schema: Schema, records: list[bytes]) -> None:
    data = b"".join(part for record in records for part in frame(record))
    path = "tiny-train-5eed0001.tfrecord-00000-of-00001"
    (root / path).write_bytes(data)
    # the labels of the shard are not read here
    shard, _ = scan_shard(root, path, "none")
    shard = replace(shard, labels_digest="sha256:" + "0" * 64 if schema.label else "")
    split = Split((shard,))
    manifest = Manifest("tiny", "5eed0001", schema, {"train": split}, Totals(len(records), len(records)))
    write_manifest(manifest, root)


KEYED = Schema((Feature("label", "label", "int64"), Feature("key", "bytes", "bytes")), ("cat", "dog"))


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (b"no example, but wanted", "is not a tf.train.Example"),
        (b"".join(example_encoder(KEYED)([2, b"wanted"])), "the label 2 is not one of the 2 classes"),
        (
            b"".join(example_encoder(Schema((Feature("other", "bytes", "bytes"),)))([b"wanted"])),
            "the feature 'key' is missing",
        ),
    ],
)
def test_a_record_that_violates_the_schema_is_named(record, fault, tmp_path):
    sound = b"".join(example_encoder(KEYED)([1, b"first"]))
    dataset_of(tmp_path, KEYED, [sound, record])
    assert find(tmp_path, "first").record == 0
    with pytest.raises(RecordError, match=rf"-00001: record 1 at byte {len(sound) + 16}: {fault}"):
        find(tmp_path, "wanted")
    with pytest.raises(RecordError, match=rf"-00001: record 1 at byte {len(sound) + 16}: {fault}"):
        find(tmp_path, "train:1")


def test_a_damaged_record_found_during_the_search_is_named(tmp_path):
    dataset_of(tmp_path, KEYED, [b"".join(example_encoder(KEYED)([1, b"first"]))])
    (shard,) = tmp_path.glob("*.tfrecord*")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    message = "record 0 at byte 0: the checksum of the record's data does not match"
    with pytest.raises(RecordError, match=message):
        find(tmp_path, "first")


def test_a_dataset_without_keys_or_without_examples_is_reported(tmp_path):
    for schema, records in (
        (Schema((Feature("x", "int", "int64"),)), [[1]]),
        (Schema((Feature("key", "int", "int64"),)), [[1]]),
        (KEYED, []),
    ):
        dataset_of(tmp_path, schema, [b"".join(example_encoder(schema)(values)) for values in records])
        with raises(InputError, "key-unknown", position="train:0"):
            find(tmp_path, "x")
        if records:
            assert find(tmp_path, "0").values[schema.names[0]] == [1]
    with raises(InputError, "number-unknown", split="train", size=0):
        find(tmp_path, "0")


def test_a_missing_shard_is_named(tmp_path):
    dataset_of(tmp_path, KEYED, [b"".join(example_encoder(KEYED)([1, b"first"]))])
    manifest = read_manifest(tmp_path)
    lost = replace(manifest.shards[0], path="gone.tfrecord")
    write_manifest(replace(manifest, splits={"train": Split((lost,))}), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"gone\.tfrecord"):
        find(tmp_path, "x")
