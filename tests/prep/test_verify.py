"""A dataset that is not what its manifest says: every kind of fault is found and named."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tfshards.prep import Arrays, ImageFolder, Options, verify
from tfshards.prep.example import decode_example, example_encoder
from tfshards.prep.scan import scan_shard
from tfshards.prep.tfrecord import frame, read_records
from tfshards.schemas import (
    Feature,
    FormatError,
    InputError,
    Manifest,
    Problem,
    RecordIndex,
    Schema,
    Shard,
    Split,
    Totals,
    index_path,
    read_manifest,
    write_manifest,
)


@pytest.fixture
def dataset(small_folder, tmp_path, quiet_build) -> Path:
    """Two splits of two shards each."""
    options = Options(splits={"train": 0.7, "val": 0.3})
    quiet_build(ImageFolder(small_folder), tmp_path / "out", shards=2, options=options)
    assert verify(tmp_path / "out", deep=True) == []
    return tmp_path / "out"


def first_shard(root: Path) -> Path:
    return root / read_manifest(root).shards[0].path


def rewrite(root: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the records of the first shard, and its size, digest and index as if a build had made it."""
    manifest = read_manifest(root)
    old = manifest.shards[0]
    records = change([data for _, data in read_records(root / old.path)])
    put(root, manifest, old, records)


def put(root: Path, manifest: Manifest, old: Shard, records: list[bytes]) -> None:
    data = b"".join(part for record in records for part in frame(record))
    (root / old.path).write_bytes(data)
    index = RecordIndex(np.array([len(record) + 16 for record in records], dtype=np.int64))
    (root / index_path(old.path)).write_text(index.to_text())
    new = scan_shard(root, old.path)[0]
    splits = {
        name: replace(split, shards=tuple(new if shard == old else shard for shard in split.shards))
        for name, split in manifest.splits.items()
    }
    write_manifest(replace(manifest, splits=splits), root)


def repeat_a_record(records: list[bytes]) -> list[bytes]:
    """Put a record in the place of another of its class."""
    by_label: dict[int, int] = {}
    for number, data in enumerate(records):
        (label,) = decode_example(data)["label"]
        if label in by_label:
            records[number] = records[by_label[label]]
            return records
        by_label[label] = number
    raise AssertionError("no two records are of one class")


def flip_a_bit(root: Path) -> None:
    data = bytearray(first_shard(root).read_bytes())
    data[100] ^= 4
    first_shard(root).write_bytes(data)


def cut_between_records(root: Path) -> None:
    path = first_shard(root)
    offsets = [offset for offset, _ in read_records(path)]
    path.write_bytes(path.read_bytes()[: offsets[-1]])


def swap_records(root: Path) -> None:
    path = first_shard(root)
    records = [data for _, data in read_records(path)]
    path.write_bytes(b"".join(part for record in records[::-1] for part in frame(record)))


def edit_json(root: Path, change: Callable[[dict], None]) -> None:
    document = json.loads((root / "dataset.json").read_text())
    change(document)
    (root / "dataset.json").write_text(json.dumps(document))


def swap_labels(document: dict) -> None:
    counts = document["splits"]["train"]["label_counts"]
    counts["cat"], counts["dog"] = counts["cat"] + 1, counts["dog"] - 1


def index_of_first(root: Path) -> Path:
    return root / index_path(read_manifest(root).shards[0].path)


def wrong_index(root: Path) -> None:
    lines = index_of_first(root).read_text().splitlines()
    (_, one), (_, two) = (line.split() for line in lines[:2])
    lines[:2] = [f"0 {int(one) + 1}", f"{int(one) + 1} {int(two) - 1}"]
    index_of_first(root).write_text("\n".join([*lines, ""]))


# what is done -> found by a look at sizes and digests, found by reading all
FAULTS = {
    "a flipped bit": (
        flip_a_bit,
        [r"00000-of-00002: its bytes are not those that were written: the digest differs$"],
        [
            r"the digest differs$",
            r"00000-of-00002: record 0 at byte 0: the checksum of the record's data does",
        ],
    ),
    "a cut between records": (
        cut_between_records,
        [r"00000-of-00002: has \d+ bytes, the manifest says \d+$"],
        [
            r"has \d+ bytes, the manifest says \d+$",
            r"00000-of-00002: holds 4 records, the manifest says 5$",
            r"^index/.*\.idx: does not say where the shard's records are$",
        ],
    ),
    "swapped records": (
        swap_records,
        [r"the digest differs$"],
        [r"the digest differs$", r"^index/.*: does not say where the shard's records are$"],
    ),
    "a missing shard": (
        lambda root: first_shard(root).unlink(),
        [r"00000-of-00002: cannot be read: No such file or directory$"],
        [r"cannot be read: No such file or directory$"],
    ),
    "an empty shard": (
        lambda root: first_shard(root).write_bytes(b""),
        [r"has 0 bytes, the manifest says"],
        [
            r"has 0 bytes, the manifest says",
            r"holds 0 records, the manifest says 5$",
            r"does not say where",
        ],
    ),
    "a missing index": (
        lambda root: index_of_first(root).unlink(),
        [r"^index/.*00000-of-00002\.idx: cannot be read: No such file or directory$"],
        [r"^index/.*00000-of-00002\.idx: cannot be read: No such file or directory$"],
    ),
    "an index of letters": (
        lambda root: index_of_first(root).write_text("0 abc\n"),
        [r"^index/.*\.idx: line 1: is '0 abc', must be two integers and a newline$"],
        [r"^index/.*\.idx: line 1", r"^index/.*\.idx: does not say where"],
    ),
    "an index that is no text": (
        lambda root: index_of_first(root).write_bytes(b"0 \xff\n"),
        [r"^index/.*\.idx: holds other characters than digits and spaces$"],
        [r"^index/.*\.idx: holds other characters", r"^index/.*\.idx: does not say where"],
    ),
    "an index of fewer records": (
        lambda root: index_of_first(root).write_text("0 20\n"),
        [r"^index/.*\.idx: has 1 records of 20 bytes, the manifest says 5 of \d+$"],
        [r"has 1 records of 20 bytes", r"does not say where"],
    ),
    "an index of other places": (
        wrong_index,
        [],
        [r"^index/.*\.idx: does not say where the shard's records are$"],
    ),
    "wrong label counts": (
        lambda root: edit_json(root, swap_labels),
        [],
        [r"^splits\.train\.label_counts: are not what the shards hold$"],
    ),
    "a record twice, in the place of another": (
        lambda root: rewrite(root, repeat_a_record),
        [],
        [r"^\(all shards\): 1 records repeat the key of another$"],
    ),
}


@pytest.mark.parametrize(("fault", "shallow", "deep"), FAULTS.values(), ids=FAULTS.keys())
def test_every_fault_is_found_and_named(fault, shallow, deep, dataset):
    fault(dataset)
    assert_found(verify(dataset), shallow)
    assert_found(verify(dataset, deep=True), deep)


def assert_found(problems: list[Problem], patterns: list[str]) -> None:
    texts = [str(problem) for problem in problems]
    assert len(texts) == len(patterns), texts
    for text, pattern in zip(texts, patterns, strict=True):
        assert re.search(pattern, text), (pattern, text)


def test_a_manifest_whose_counts_do_not_add_up_is_no_manifest(dataset):
    edit_json(dataset, lambda document: document["splits"]["train"].update(num_examples=99))
    with pytest.raises(FormatError, match=r"splits\.train\.num_examples: is 99, but the shards hold 9"):
        verify(dataset)


def test_a_manifest_that_counts_records_that_are_not_there_is_found_by_reading(dataset):
    def one_more(document: dict) -> None:
        document["splits"]["train"]["shards"][0]["num_examples"] += 1
        document["splits"]["train"]["num_examples"] += 1
        document["splits"]["train"]["label_counts"]["cat"] += 1
        document["totals"]["accepted"] += 1
        document["totals"]["entries"] += 1

    edit_json(dataset, one_more)
    assert_found(verify(dataset), [r"^index/.*: has 5 records of \d+ bytes, the manifest says 6 of \d+$"])
    assert_found(verify(dataset, deep=True), [r"^index/", r"holds 5 records, the manifest says 6$"])


def test_a_directory_without_a_manifest_is_no_dataset(tmp_path):
    with pytest.raises(InputError, match=r"gone does not exist$"):
        verify(tmp_path / "gone")
    with pytest.raises(InputError, match=r"is no dataset: it has no dataset\.json"):
        verify(tmp_path)


SCHEMA = Schema(
    (
        Feature("raw", "raw", "int16", (2,)),
        Feature("numbers", "int", "int64", (2,)),
        Feature("reals", "float", "float32", (2,)),
        Feature("words", "bytes", "bytes", (2,)),
        Feature("label", "label", "int64"),
        Feature("key", "bytes", "bytes"),
    ),
    ("cat", "dog"),
)
SOUND = [b"abcd", [1, 2], [0.5, 1.5], [b"a", b"b"], 1, b"7"]


def dataset_of(root: Path, records: list[bytes], schema: Schema = SCHEMA) -> Path:
    """Write records as a dataset of one shard, sound but for what they hold."""
    (root / "index").mkdir()
    path = "tiny-train-5eed0001.tfrecord-00000-of-00001"
    digest = "sha256:" + "0" * 64
    size = 16 * len(records)
    shard = Shard(path, len(records), size, size, digest, digest, "0" * 16, "")
    manifest = Manifest(
        "tiny", "5eed0001", schema, {"train": Split((shard,))}, Totals(len(records), len(records))
    )
    put(root, manifest, shard, records)
    return root


def record(schema: Schema, values: list[object]) -> bytes:
    return b"".join(example_encoder(schema)(values))


def with_value(name: str, value: object) -> bytes:
    values = [
        value if feature.name == name else sound
        for feature, sound in zip(SCHEMA.features, SOUND, strict=True)
    ]
    return record(SCHEMA, values)


def of_schema(*features: Feature) -> bytes:
    """A record of another schema, each value of it the sound one of that name or place."""
    sound = dict(zip(SCHEMA.names, SOUND, strict=True))
    return record(Schema(features), [sound.get(feature.name, 1) for feature in features])


RECORDS = {
    "no example": (b"junk", r"is no tf\.train\.Example: "),
    "no bytes": (b"", r"the feature 'key' is missing$"),
    "a feature less": (of_schema(*SCHEMA.features[1:]), r"the feature 'raw' is missing$"),
    "a feature more": (
        of_schema(*SCHEMA.features, Feature("zebra", "int", "int64")),
        r"the feature 'zebra' is not in the schema$",
    ),
    "too few bytes": (with_value("raw", b"abc"), r"the feature 'raw' has 3 bytes instead of 4$"),
    "too few numbers": (with_value("numbers", [1]), r"the feature 'numbers' has 1 values instead of 2$"),
    "too many reals": (with_value("reals", [1.0] * 3), r"the feature 'reals' has 3 values instead of 2$"),
    "no words": (with_value("words", []), r"the feature 'words' has 0 values instead of 2$"),
    "numbers of another kind": (
        of_schema(*SCHEMA.features[:1], Feature("numbers", "float", "float32", (2,)), *SCHEMA.features[2:]),
        r"the feature 'numbers' is a list of float instead of int$",
    ),
    "no such class": (with_value("label", 2), r"the label 2 is none of the 2 classes$"),
    "a class below zero": (with_value("label", -1), r"the label -1 is none of the 2 classes$"),
}


def test_a_sound_record_has_no_fault(tmp_path):
    assert verify(dataset_of(tmp_path, [record(SCHEMA, SOUND)]), deep=True) == []


@pytest.mark.parametrize(("data", "fault"), RECORDS.values(), ids=RECORDS.keys())
def test_a_record_that_is_not_what_the_schema_says_is_named(data, fault, tmp_path):
    root = dataset_of(tmp_path, [record(SCHEMA, SOUND), data])
    assert verify(root) == []
    assert_found(verify(root, deep=True), [rf"-00001: record 1 at byte \d+: {fault}"])


LISTS = Schema(
    (
        Feature("numbers", "int", "int16", (None,)),
        Feature("reals", "float", "float32", (None,)),
        Feature("words", "bytes", "bytes", (None,)),
        Feature("tags", "label", "int64", (None,)),
        Feature("key", "bytes", "bytes"),
    ),
    ("cat", "dog"),
)


def test_lists_of_any_length_have_the_right_one(tmp_path):
    records = [
        record(LISTS, [[1, 2, 3], [0.5], [b"", b"b"], [1, 0, 1], b"1"]),
        record(LISTS, [[], [], [], [], b"2"]),
    ]
    assert verify(dataset_of(tmp_path, records, LISTS), deep=True) == []


@pytest.mark.parametrize(
    ("place", "value", "feature", "fault"),
    [
        (
            0,
            [1.5],
            Feature("numbers", "float", "float32", (None,)),
            "'numbers' is a list of float instead of int",
        ),
        (3, [1, 0, 2, 3], LISTS["tags"], "the label 2 is none of the 2 classes"),
    ],
)
def test_a_list_of_other_values_than_the_schema_says_is_named(tmp_path, place, value, feature, fault):
    values: list[object] = [[], [], [], [], b"1"]
    values[place] = value
    features = [*LISTS.features[:place], feature, *LISTS.features[place + 1 :]]
    root = dataset_of(tmp_path, [record(Schema(tuple(features)), values)], LISTS)
    assert_found(verify(root, deep=True), [rf"-00001: record 0 at byte 0: .*{fault}$"])


def test_a_shard_of_many_faults_is_told_in_twenty_lines(tmp_path):
    problems = verify(dataset_of(tmp_path, [struct.pack("<q", -number) for number in range(100)]), deep=True)
    assert len(problems) == 21
    assert str(problems[-1]).endswith("-00001: and 80 more problems")


def test_keys_of_another_kind_are_none_to_compare(tmp_path):
    schema = Schema((Feature("key", "int", "int64"),))
    assert verify(dataset_of(tmp_path, [record(schema, [1])] * 2, schema), deep=True) == []


def test_labels_without_names_are_counted_by_number(tmp_path, quiet_build):
    quiet_build(Arrays({"label": np.array([3, 5, 3])}), tmp_path / "out")
    assert verify(tmp_path / "out", deep=True) == []
    edit_json(
        tmp_path / "out", lambda document: document["splits"]["train"].update(label_counts={"3": 1, "5": 2})
    )
    assert_found(
        verify(tmp_path / "out", deep=True), [r"^splits\.train\.label_counts: are not what the shards"]
    )
