"""Records that differ from the schema, and how a report lists them; test_damages.py damages files."""

import json
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.format_reader import with_digest
from tests.pictures import image_file
from tests.prep.exported import record, write_manifest, write_records
from tfshards.prep import Arrays, Examples, RecordProblem, verify
from tfshards.schemas import Feature, Schema, read_manifest

SCHEMA = Schema(
    (
        Feature("raw", "raw", "int16", (2,)),
        Feature("numbers", "int", "int64", (2,)),
        Feature("reals", "float", "float32", (2,)),
        Feature("words", "bytes", "bytes", (2,)),
        Feature("label", "label", "int64"),
        Feature("pairs", "int", "int64", (None, 2)),
        Feature("key", "bytes", "bytes"),
    ),
    ("cat", "dog"),
)
SOUND = {
    "raw": b"abcd",
    "numbers": [1, 2],
    "reals": [0.5, 1.5],
    "words": [b"a", b"b"],
    "label": 1,
    "pairs": [5, 6, 7, 8],
    "key": b"7",
    "zebra": 1,
}


def faults(root, *records, schema=SCHEMA, labels=None, **how):
    """Write a dataset whose shard is as its manifest states, and return the records with faults."""
    shutil.rmtree(root, ignore_errors=True)
    labels = {"train": [labels or [1] * len(records)]}
    write_records(root, schema, {"train": [records]}, labels)
    assert verify(root)
    problems = verify(root, **(how or {"deep": True})).problems
    assert all(isinstance(problem, RecordProblem) for problem in problems)
    return [(problem.record, problem.key, problem.message) for problem in problems]


def with_value(name, value):
    return record(SCHEMA, {**SOUND, name: value})


def of_schema(*features):
    return record(Schema(features), SOUND)


# a record, and what its fault names
RECORDS = {
    "not an example": (b"junk", "tf.train.Example"),
    "no bytes": (b"", "'key'"),
    "a feature less": (of_schema(*SCHEMA.features[1:]), "'raw'"),
    "a feature more": (of_schema(*SCHEMA.features, Feature("zebra", "int", "int64")), "'zebra'"),
    "too few bytes": (with_value("raw", b"abc"), "'raw' has 3"),
    "too few numbers": (with_value("numbers", [1]), "'numbers' has 1"),
    "half": (with_value("pairs", [1, 2, 3]), "'pairs' has 3"),
    "numbers of another kind": (
        of_schema(SCHEMA["raw"], Feature("numbers", "float", "float32", (2,)), *SCHEMA.features[2:]),
        "'numbers' is a list of float",
    ),
    "no such class": (with_value("label", 2), "2"),
    "another class than the labels say": (with_value("label", 0), "label 0"),
}


@pytest.mark.parametrize(("data", "names"), RECORDS.values(), ids=RECORDS)
def test_a_record_that_violates_the_schema_is_named(data, names, tmp_path):
    # an example without a class has the label -1
    sound = [with_value("key", b"6"), record(SCHEMA, {**SOUND, "label": -1, "pairs": [], "key": b"8"})]
    assert faults(tmp_path / "d", *sound, labels=[1, -1]) == []
    labels = [1, 2] if names == "2" else [1, 1]
    ((number, key, message),) = faults(tmp_path / "d", sound[0], data, labels=labels)
    # bytes that are not an example have no key, which the file of keys lists as an empty one
    assert (number, key) in [(1, "7"), (1, "")]
    assert names in message


def test_a_key_of_two_records_is_named(tmp_path):
    schema = Schema((SCHEMA["key"],))
    found = faults(
        tmp_path / "d", *(record(schema, {"key": key}) for key in (b"a", b"b", b"a")), schema=schema
    )
    assert [each[:2] for each in found] == [(2, "a")]


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("bool", 0, 1), ("int8", -128, 127), ("uint32", 0, (1 << 32) - 1)]
)
def test_integers_beyond_their_dtype_are_named(dtype, least, most, tmp_path):
    schema = Schema((Feature("n", "int", dtype, (None,)),))
    lists = [[least, most], [least, least - 1], [most, most + 1], [0, most + 1, least - 1]]
    found = faults(tmp_path / "d", *(record(schema, {"n": values}) for values in lists), schema=schema)
    assert [each[0] for each in found] == [1, 2, 3]
    wrong = (least - 1, most + 1, most + 1)
    assert all(f" {number}," in message for (*_, message), number in zip(found, wrong, strict=True))


def test_a_damaged_frame_hides_no_other_one(tmp_path, quiet_build):
    quiet_build(
        Examples([{"key": f"k{n}", "word": "x" * n} for n in range(100, 200, 10)]), tmp_path, shards=1
    )
    (shard,) = tmp_path.glob("*/*.tfrecord-*")
    index = shard.parent / "index" / f"{shard.name}.idx"
    starts = [int(line.split()[0]) for line in index.read_text().splitlines()]
    data = bytearray(shard.read_bytes())
    # of lengths, checksums and data; byte 12 is the tag of the only field of an example
    for number, at in ((0, 2), (2, 12), (3, 30), (5, 9), (5, 60), (9, 0)):
        data[starts[number] + at] ^= 7
    shard.write_bytes(data)
    found = [p for p in verify(tmp_path, deep=True).problems if isinstance(p, RecordProblem)]
    assert [(problem.record, problem.offset) for problem in found] == [
        (n, starts[n]) for n in (0, 2, 3, 5, 9)
    ]
    keys = (shard.parent / "index" / f"{shard.name}.keys").read_text().split("\0")
    assert [problem.key for problem in found] == [keys[problem.record] for problem in found]


def test_an_interrupt_ends_the_threads(tmp_path, quiet_build, monkeypatch):
    quiet_build(Arrays({"x": np.zeros((40, 100))}), tmp_path, shards=4)
    ticks: list[int] = []

    def interrupt(_: object, num_bytes: int) -> None:
        ticks.append(num_bytes)
        if len(ticks) == 1:
            raise KeyboardInterrupt
        time.sleep(0.05)

    monkeypatch.setattr("tfshards.prep.progress.lines.Meter.add", interrupt)
    monkeypatch.setattr("tfshards.schemas.storage.stored._BLOCK", 8)
    with pytest.raises(KeyboardInterrupt):
        verify(tmp_path)
    assert sum(ticks) < read_manifest(tmp_path).splits["train"].num_bytes


def image_bytes(mode: str, size: tuple[int, int], kind: str = "PNG") -> bytes:
    return image_file(Image.new(mode, size), kind)


IMAGES = {
    "as many channels": (image_bytes("RGB", (4, 3)), (3, 4, 3), None),
    "fewer channels, which are repeated": (image_bytes("L", (4, 3), "JPEG"), (None, None, 3), None),
    "any channels": (image_bytes("RGBA", (4, 3)), (None, None, None), None),
    "more channels": (image_bytes("RGBA", (4, 3)), (None, None, 3), "RGBA"),
    "another width": (image_bytes("RGB", (4, 3)), (3, 5, 3), "3 x 4"),
    "no image": (b"junk", (None, None, 3), "6a 75 6e 6b"),
}


@pytest.mark.parametrize(("data", "shape", "names"), IMAGES.values(), ids=IMAGES)
def test_pixels_are_decoded_and_compared_with_the_schema(data, shape, names, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", shape), SCHEMA["key"]))
    # more than a queue holds
    records = [record(schema, {"image": data, "key": b"%d" % number}) for number in range(100)]
    assert faults(tmp_path / "d", *records, schema=schema) == []
    found = faults(tmp_path / "d", *records, schema=schema, decode=True)
    assert [each[0] for each in found] == (list(range(100)) if names else [])
    assert all(names in message for *_, message in found)


@pytest.mark.parametrize(
    "options",
    [{"max_pixels": 199}, {"of": [{"options": {"max_pixels": 199}}, {"options": {"max_pixels": 9}}]}],
)
def test_images_are_decoded_up_to_the_pixel_limit_of_the_build(options, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", (None, None, 3)),))
    records = [record(schema, {"image": image_bytes("RGB", (width, 10))}) for width in (20, 19)]
    assert faults(tmp_path / "d", *records, schema=schema, decode=True) == []
    write_manifest(tmp_path / "d", replace(read_manifest(tmp_path / "d"), options=options))
    assert [each.record for each in verify(tmp_path / "d", decode=True).problems] == [0]


def test_a_manifest_that_counts_missing_records_is_found(tmp_path, quiet_build):
    quiet_build(Arrays({"x": np.arange(5)}), tmp_path, shards=1)
    document = json.loads(read_manifest(tmp_path).to_text())
    for counts in (document["splits"]["train"], document["splits"]["train"]["shards"][0]):
        counts["num_examples"] += 1
    document["totals"] |= {"accepted": 6, "entries": 6}
    (tmp_path / "dataset.json").write_bytes(with_digest(json.dumps(document).encode()))
    (shard,) = read_manifest(tmp_path).shards
    assert shard.path not in {problem.place for problem in verify(tmp_path).problems}
    assert shard.path in {problem.place for problem in verify(tmp_path, deep=True).problems}
