"""A dataset that differs from its manifest: every kind of fault is found and named."""

import gzip
import json
import os
import re
import struct
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.pictures import image_file
from tfshards.prep import Arrays, ImageFolder, Options, verify
from tfshards.prep.records.example import example_encoder
from tfshards.prep.records.frames import frame, read_records
from tfshards.prep.records.shard_file import scan_shard
from tfshards.prep.verification.report import RecordProblem, VerificationReport
from tfshards.schemas import Feature, Manifest, Schema, Shard, Split, Totals, read_manifest
from tfshards.schemas.example import ParsedExample, decode_example
from tfshards.schemas.files import file_digest
from tfshards.schemas.index import RecordIndex, index_path, labels_bytes, labels_path, parse_index
from tfshards.schemas.manifest import with_digest
from tfshards.schemas.manifest_file import write_manifest

from .derived import first_index, first_labels, first_shard


@pytest.fixture
def dataset(small_folder, tmp_path, quiet_build) -> Path:
    """Two splits of two shards each."""
    options = Options(splits={"train": 0.7, "val": 0.3})
    quiet_build(ImageFolder(small_folder), tmp_path / "out", shards=2, options=options)
    assert verify(tmp_path / "out", deep=True)
    return tmp_path / "out"


def rewrite(root: Path, change) -> None:
    """Change the records of the first shard, and update its size, digest and index as a build would."""
    manifest = read_manifest(root)
    old = manifest.shards[0]
    records = change([data for _, data in read_records(root / old.path, "none")])
    put(root, manifest, old, records)


def put(root: Path, manifest: Manifest, old: Shard, records: list[bytes]) -> None:
    data = b"".join(part for record in records for part in frame(record))
    (root / old.path).write_bytes(data)
    index = RecordIndex(np.array([len(record) + 16 for record in records], dtype=np.int64))
    (root / index_path(old.path)).write_text(index.to_text())
    new = scan_shard(root, old.path, "none")[0]
    label = manifest.schema.label
    if label:
        (root / labels_path(old.path)).write_bytes(labels_bytes([label_of(data, label) for data in records]))
        new = replace(new, labels_digest=file_digest(root / labels_path(old.path)))
    splits = {
        name: replace(split, shards=tuple(new if shard == old else shard for shard in split.shards))
        for name, split in manifest.splits.items()
    }
    write_manifest(replace(manifest, splits=splits), root)


def label_of(data: bytes, label: Feature) -> int:
    try:
        return ParsedExample(data).label(label.name)
    except ValueError:
        # some records are not examples
        return 0


def repeat_a_record(records: list[bytes]) -> list[bytes]:
    """Replace a record with another of the same class."""
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
    offsets = [offset for offset, _ in read_records(path, "none")]
    path.write_bytes(path.read_bytes()[: offsets[-1]])


def swap_records(root: Path) -> None:
    path = first_shard(root)
    records = [data for _, data in read_records(path, "none")]
    path.write_bytes(b"".join(part for record in records[::-1] for part in frame(record)))


def edit_json(root: Path, change) -> None:
    document = json.loads((root / "dataset.json").read_text())
    change(document)
    (root / "dataset.json").write_text(with_digest(json.dumps(document)))


def swap_labels(document: dict) -> None:
    counts = document["splits"]["train"]["label_counts"]
    counts["cat"], counts["dog"] = counts["cat"] + 1, counts["dog"] - 1


def edit_first(root: Path, **fields: object) -> None:
    """Change the manifest's entry of the first shard."""
    edit_json(root, lambda document: document["splits"]["train"]["shards"][0].update(fields))


def wrong_index(root: Path) -> None:
    lines = first_index(root).read_text().splitlines()
    (_, one), (_, two) = (line.split() for line in lines[:2])
    lines[:2] = [f"0 {int(one) + 1}", f"{int(one) + 1} {int(two) - 1}"]
    first_index(root).write_text("\n".join([*lines, ""]))


def wrong_index_in_both(root: Path) -> None:
    wrong_index(root)
    edit_first(root, index_digest=file_digest(first_index(root)))


def swap_labels_beside(root: Path) -> None:
    """Write the labels of the first shard in another order; the size of the file does not change."""
    labels = np.fromfile(first_labels(root), "<i8")
    assert len(set(labels.tolist())) == 2
    first_labels(root).write_bytes(labels_bytes(1 - labels))


def swap_labels_in_both(root: Path) -> None:
    swap_labels_beside(root)
    edit_first(root, labels_digest=file_digest(first_labels(root)))


def an_index(data: bytes):
    return lambda root: first_index(root).write_bytes(data)


OTHER_BYTES = r"00000-of-00002: its bytes have changed: the digest differs$"
OTHER_INDEX = r"^index/.*00000-of-00002\.idx: its bytes have changed: the digest differs$"
OTHER_LABELS = r"^index/.*00000-of-00002\.labels: its bytes have changed: the digest differs$"
SHARD, GONE = "00000-of-00002: ", "cannot be read: No such file or directory$"
INDEX, LABELS = r"^index/.*00000-of-00002\.idx: ", r"^index/.*00000-of-00002\.labels: "
OTHER_SIZE = r"00000-of-00002: has \d+ bytes, but the manifest lists \d+$"

# fault -> found by comparing sizes and digests, found by reading all records if it is something else
FAULTS = {
    "a flipped bit in data": (
        flip_a_bit,
        [OTHER_BYTES],
        [
            OTHER_BYTES,
            r"00000-of-00002: record 0 at byte 0, its key reads '(cat|dog)/\d\d\.png': the checksum of the "
            r"record's data does not match$",
        ],
    ),
    "a cut between records": (
        cut_between_records,
        [OTHER_SIZE],
        [OTHER_SIZE, r"00000-of-00002: holds 4 records, but the manifest lists 5$"],
    ),
    "swapped records of different lengths": (
        swap_records,
        [OTHER_BYTES],
        [
            OTHER_BYTES,
            r"record \d at byte \d+, key '.*': has \d+ bytes with its frame, but the index lists \d+$",
        ],
    ),
    "a missing shard": (lambda root: first_shard(root).unlink(), SHARD + GONE),
    "a pipe instead of a shard": (
        lambda root: (first_shard(root).unlink(), os.mkfifo(root / read_manifest(root).shards[0].path)),
        SHARD + "cannot be read: is not a regular file$",
    ),
    "an empty shard": (
        lambda root: first_shard(root).write_bytes(b""),
        [r"has 0 bytes, but the manifest lists"],
        [r"has 0 bytes, but the manifest lists", r"holds 0 records, but the manifest lists 5$"],
    ),
    "bytes after the last record": (
        lambda root: first_shard(root).write_bytes(first_shard(root).read_bytes() + b"\0"),
        [OTHER_SIZE],
        [OTHER_SIZE, r"record 5 at byte \d+: the file ends 1 bytes into the frame's header$"],
    ),
    "a missing index": (lambda root: first_index(root).unlink(), INDEX + GONE),
    "an index of letters": (
        an_index(b"0 abc\n"),
        INDEX + "line 1: is '0 abc', must be two integers and a newline$",
    ),
    "an index that is not text": (
        an_index(b"0 \xff\n"),
        INDEX + "holds characters other than digits and spaces$",
    ),
    "an index of fewer records": (
        an_index(b"0 20\n"),
        INDEX + r"has 1 records of 20 bytes, but the manifest lists 5 of \d+$",
    ),
    "an index that is far too long": (
        an_index(b"0" * 1000),
        INDEX + "cannot be read: has 1000 bytes; an index of 5 records has at most 190$",
    ),
    "an index of other places": (wrong_index, OTHER_INDEX),
    "a manifest and an index of other places": (
        wrong_index_in_both,
        [],
        [r"record 0 at byte 0, key '.*': has \d+ bytes with its frame, but the index lists \d+$"],
    ),
    "missing labels": (lambda root: first_labels(root).unlink(), LABELS + GONE),
    "labels of other classes": (swap_labels_beside, OTHER_LABELS),
    "a manifest and labels of other classes": (
        swap_labels_in_both,
        [],
        [r"-00002: record 0 .*: has the label (\d), but index/.*-00002\.labels lists (?!\1)\d$"],
    ),
    "a manifest of other last bytes": (
        lambda root: edit_first(root, last_bytes="00" * 8),
        [r"00000-of-00002: ends with the bytes [0-9a-f]{16}, but the manifest lists 0{16}$"],
        [r"00000-of-00002: ends with the bytes", r"in a different order$"],
    ),
    "a manifest of other examples": (
        lambda root: edit_first(root, examples_digest="0" * 16),
        [],
        [r"00000-of-00002: its records have the digest [0-9a-f]{16}, but the manifest lists 0{16}$"],
    ),
    "wrong label counts": (
        lambda root: edit_json(root, swap_labels),
        [],
        [r"^splits\.train\.label_counts: differ from the records: 'cat' occurs 6 times, not 7, "],
    ),
    "a record twice, instead of another": (
        lambda root: rewrite(root, repeat_a_record),
        [],
        [r"00000-of-00002: record \d at byte \d+, key '(.*)': has the key of record \d of .*00000-of-00002$"],
    ),
}


@pytest.mark.parametrize("row", FAULTS.values(), ids=FAULTS)
def test_every_fault_is_found_and_named(row, dataset):
    fault, shallow, *deep = row
    fault(dataset)
    assert_found(verify(dataset), shallow)
    assert_found(verify(dataset, deep=True), *(deep or [shallow]))


def assert_found(report: VerificationReport, patterns: str | list[str]) -> None:
    texts = [str(problem) for problem in report.problems]
    patterns = [patterns] if isinstance(patterns, str) else patterns
    assert len(texts) == len(patterns), texts
    for text, pattern in zip(texts, patterns, strict=True):
        assert re.search(pattern, text), (pattern, text)


def test_a_manifest_that_counts_missing_records_is_found_by_reading(dataset):
    def one_more(document: dict) -> None:
        document["splits"]["train"]["shards"][0]["num_examples"] += 1
        document["splits"]["train"]["num_examples"] += 1
        document["splits"]["train"]["label_counts"]["cat"] += 1
        document["totals"]["accepted"] += 1
        document["totals"]["entries"] += 1

    edit_json(dataset, one_more)
    companions = [
        r"^index/.*: has 5 records of \d+ bytes, but the manifest lists 6 of \d+$",
        r"labels of 6 .* have 48$",
    ]
    assert_found(verify(dataset), companions)
    assert_found(verify(dataset, deep=True), [r"holds 5 records, but the manifest lists 6$", *companions])


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
SOUND = [b"abcd", [1, 2], [0.5, 1.5], [b"a", b"b"], 1, [5, 6, 7, 8], b"7"]


def dataset_of(root: Path, records: list[bytes], schema: Schema = SCHEMA) -> Path:
    """Write records as a dataset of one shard, intact except for the content of the records."""
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
    values = [value if f.name == name else sound for f, sound in zip(SCHEMA.features, SOUND, strict=True)]
    return record(SCHEMA, values)


def of_schema(*features: Feature) -> bytes:
    """Return a record of another schema, with valid values by name or index."""
    sound = dict(zip(SCHEMA.names, SOUND, strict=True))
    return record(Schema(features), [sound.get(feature.name, 1) for feature in features])


RECORDS = {
    "not an example": (b"junk", r"is not a tf\.train\.Example: "),
    "no bytes": (b"", r"the feature 'key' is missing$"),
    "a feature less": (of_schema(*SCHEMA.features[1:]), r"the feature 'raw' is missing$"),
    "a feature more": (
        of_schema(*SCHEMA.features, Feature("zebra", "int", "int64")),
        r"the feature 'zebra' is not in the schema$",
    ),
    "too few bytes": (with_value("raw", b"abc"), r"the feature 'raw' has 3 bytes instead of 4$"),
    "too few numbers": (with_value("numbers", [1]), r"the feature 'numbers' has 1 values instead of 2$"),
    "half": (with_value("pairs", [1, 2, 3]), r"the feature 'pairs' has 3 values, which are not rows of 2$"),
    "numbers of another kind": (
        of_schema(*SCHEMA.features[:1], Feature("numbers", "float", "float32", (2,)), *SCHEMA.features[2:]),
        r"the feature 'numbers' is a list of float instead of int$",
    ),
    "no such class": (with_value("label", 2), r"the label 2 is not one of the 2 classes$"),
}


def test_intact_records_have_no_fault(tmp_path):
    # an example without a class has the label -1
    records = [record(SCHEMA, SOUND), record(SCHEMA, [*SOUND[:4], -1, [], b"8"])]
    assert verify(dataset_of(tmp_path, records), deep=True)


@pytest.mark.parametrize(("data", "fault"), RECORDS.values(), ids=RECORDS)
def test_a_record_that_violates_the_schema_is_named(data, fault, tmp_path):
    root = dataset_of(tmp_path, [with_value("key", b"6"), data])
    assert verify(root)
    assert_found(verify(root, deep=True), [rf"-00001: record 1 at byte \d+(, key '7')?: {fault}"])


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("bool", 0, 1), ("int8", -128, 127), ("uint32", 0, (1 << 32) - 1)]
)
def test_integers_beyond_their_dtype_are_named(dtype, least, most, tmp_path):
    schema = Schema((Feature("n", "int", dtype, (None,)), Feature("key", "bytes", "bytes")))
    below, above = least - 1, most + 1
    lists = [[least, most], [least, below], [most, above], [0, above, below]]
    records = [record(schema, [values, str(key).encode()]) for key, values in enumerate(lists)]
    assert of_records(verify(dataset_of(tmp_path, records, schema), deep=True)) == [
        f"record {key}, key '{key}': the feature 'n' holds {beyond}, which is out of range for {dtype}"
        for key, beyond in ((1, below), (2, above), (3, above))
    ]


def test_many_faults_of_a_shard_are_listed_in_twenty_lines_and_counted(tmp_path):
    report = verify(dataset_of(tmp_path, [struct.pack("<q", -number) for number in range(100)]), deep=True)
    assert not report
    assert len(report.problems) == len(report.to_json()) == 100
    lines = str(report).splitlines()
    assert len(lines) == 22
    assert lines[-2].endswith("-00001: and 80 more problems")
    assert lines[-1] == f"{report.dataset}: 100 problems"
    assert repr(report) == str(report)


def test_labels_without_names_are_counted_by_number(tmp_path, quiet_build):
    quiet_build(Arrays({"label": np.array([3, 5, 3])}), tmp_path / "out")
    assert verify(tmp_path / "out", deep=True)
    edit_json(
        tmp_path / "out", lambda document: document["splits"]["train"].update(label_counts={"3": 1, "5": 2})
    )
    assert_found(
        verify(tmp_path / "out", deep=True),
        [r"^splits\.train\.label_counts: differ from the records: '3' occurs 2 times, not 1, "],
    )


DAMAGED_LENGTH = "the checksum of the record's length does not match"
DAMAGED_DATA = "the checksum of the record's data does not match"


@pytest.fixture(params=["none", "gzip"])
def rows(request, tmp_path, quiet_build) -> tuple[Path, str]:
    """Ten rows of different lengths in one shard, and its compression."""
    words = np.array(["x" * length for length in range(100, 200, 10)], dtype="S")
    options = Options(compression=request.param)
    quiet_build(Arrays({"word": words}), tmp_path / "out", shards=1, options=options)
    return tmp_path / "out", request.param


def change_records(root: Path, compression: str, changes: dict[tuple[int, int], int]) -> list[str]:
    """Flip bits by record and offset in its frame; a negative offset counts from the end. Return the keys."""
    path = first_shard(root)
    frames = bytearray(path.read_bytes() if compression == "none" else gzip.decompress(path.read_bytes()))
    index = parse_index(first_index(root).read_text(), "index")
    keys = [decode_example(data)["key"][0].decode() for _, data in read_records(path, compression)]
    for (number, place), bits in changes.items():
        start, length = int(index.offsets[number]), int(index.lengths[number])
        frames[start + place % length] ^= bits
    path.write_bytes(frames if compression == "none" else gzip.compress(frames))
    return keys


def of_records(report: VerificationReport) -> list[str]:
    """Return number, key and fault of each damaged record."""
    texts = [problem.message for problem in report.problems if isinstance(problem, RecordProblem)]
    return [re.sub(" at byte \\d+", "", text, count=1) for text in texts]


def test_all_damaged_records_are_named_and_those_between_them_are_read(rows):
    root, compression = rows
    damage = {(0, 2): 1, (3, -1): 128, (5, 9): 4, (5, -20): 1, (9, 0): 64}
    keys = change_records(root, compression, damage)
    assert of_records(verify(root, deep=True)) == [
        f"record 0, key {keys[0]!r}: {DAMAGED_LENGTH}; its data are sound",
        f"record 3, its key reads {keys[3]!r}: {DAMAGED_DATA}",
        f"record 5, its key reads {keys[5]!r}: {DAMAGED_LENGTH}",
        f"record 9, key {keys[9]!r}: {DAMAGED_LENGTH}; its data are sound",
    ]


def test_a_record_without_a_key_is_named_by_its_number(rows):
    root, compression = rows
    # tag of the only field of an example: the following bytes are not a message
    change_records(root, compression, {(0, 12): 7, (4, 12): 7})
    report = verify(root, deep=True)
    assert of_records(report) == [f"record 0: {DAMAGED_DATA}", f"record 4: {DAMAGED_DATA}"]
    problem = next(found for found in report.problems if isinstance(found, RecordProblem))
    assert (problem.record, problem.offset, problem.key) == (0, 0, None)
    assert [found["record"] for found in report.to_json() if "record" in found] == [0, 4]


@pytest.mark.parametrize("rows", ["gzip"], indirect=True)
def test_compressed_data_are_read_no_further_than_the_size_in_the_manifest(rows):
    root, _ = rows
    path = first_shard(root)
    path.write_bytes(path.read_bytes() + gzip.compress(bytes(50_000_000)))
    (found,) = of_records(verify(root, deep=True))
    assert re.fullmatch(r"record 10: the records should end at byte \d+, but more bytes follow", found)


@pytest.mark.parametrize("rows", ["gzip"], indirect=True)
def test_recompressed_records_are_distinguished_from_other_records(rows):
    root, _ = rows
    path = first_shard(root)
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1))
    texts = [str(problem) for problem in verify(root, deep=True).problems]
    assert texts[-1].endswith(
        ": its records are those that were written, but in a different order, or compressed differently"
    )


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that cannot be read is Linux's")
def test_a_disk_that_cannot_be_read_is_a_problem(dataset):
    path = first_shard(dataset)
    path.unlink()
    # a regular file whose first byte cannot be read
    path.symlink_to("/proc/self/mem")
    texts = [str(problem) for problem in verify(dataset, deep=True).problems]
    assert texts == [
        f"{path.name}: has 0 bytes, but the manifest lists {read_manifest(dataset).shards[0].num_bytes}",
        f"{path.name}: record 0 at byte 0: cannot be read: Input/output error",
    ]


def test_an_interrupt_ends_the_threads(dataset, monkeypatch):
    ticks: list[int] = []

    def interrupt(_: object, num_bytes: int) -> None:
        ticks.append(num_bytes)
        if len(ticks) == 1:
            raise KeyboardInterrupt
        time.sleep(0.05)

    monkeypatch.setattr("tfshards.prep.progress.lines.Meter.add", interrupt)
    monkeypatch.setattr("tfshards.schemas.files._BLOCK", 8)
    with pytest.raises(KeyboardInterrupt):
        verify(dataset)
    assert sum(ticks) < read_manifest(dataset).splits["train"].num_bytes


@pytest.fixture
def with_rejects(image_folder, tmp_path, quiet_build) -> Path:
    photos = image_folder({**{f"{number:02d}.png": number for number in range(20)}, "bad.png": b"no image"})
    quiet_build(ImageFolder(photos), tmp_path / "out", shards=2, options=Options(max_rejected="50%"))
    return tmp_path / "out"


def test_the_rejects_file_is_compared(with_rejects):
    assert verify(with_rejects, deep=True)
    (path,) = with_rejects.glob("rejected-*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"no", b"on"))
    path.write_bytes(path.read_bytes() + b"\n")
    assert_found(verify(with_rejects), [r"^rejected-[0-9a-f]{8}\.jsonl: its bytes have changed"])
    path.unlink()
    assert_found(verify(with_rejects), [r"^rejected-[0-9a-f]{8}\.jsonl: cannot be read: No such file"])


PIXELS = Schema((Feature("image", "image", "uint8", (None, None, 3)), Feature("key", "bytes", "bytes")))


def image_bytes(mode: str, size: tuple[int, int], kind: str = "PNG") -> bytes:
    return image_file(Image.new(mode, size), kind)


IMAGES = {
    "as many channels": (image_bytes("RGB", (4, 3)), (3, 4, 3), None),
    "fewer channels, which are repeated": (image_bytes("L", (4, 3), "JPEG"), (None, None, 3), None),
    "any channels": (image_bytes("RGBA", (4, 3)), (None, None, None), None),
    "more channels": (
        image_bytes("RGBA", (4, 3)),
        (None, None, 3),
        "the image 'image' has mode RGBA, but the schema allows 3 channels",
    ),
    "another width": (
        image_bytes("RGB", (4, 3)),
        (3, 5, 3),
        "the image 'image' has 3 x 4 pixels, but the schema requires 3 x 5",
    ),
    "no image": (
        b"junk",
        (None, None, 3),
        "the image 'image' cannot be decoded: starts with 6a 75 6e 6b, and is not a known image",
    ),
}


@pytest.mark.parametrize(("data", "shape", "fault"), IMAGES.values(), ids=IMAGES)
def test_pixels_are_decoded_and_compared_with_the_schema(data, shape, fault, tmp_path):
    schema = Schema((Feature("image", "image", "uint8", shape), PIXELS.features[1]))
    records = [record(schema, [image, key]) for image, key in ((data, b"a.jpg"), (data, b"b.jpg"))]
    root = dataset_of(tmp_path, records, schema)
    assert verify(root, deep=True)
    named = [f"record {number}, key '{key}'" for number, key in enumerate(("a.jpg", "b.jpg"))]
    found = of_records(verify(root, decode=True))
    assert len(found) == (2 if fault else 0)
    for text, name in zip(found, named, strict=False):
        assert re.fullmatch(f"{name}: {fault}", text)


@pytest.mark.parametrize(
    "options",
    [{"max_pixels": 199}, {"of": [{"options": {"max_pixels": 199}}, {"options": {"max_pixels": 9}}]}],
    ids=["of a build", "of what a dataset was made of"],
)
def test_images_are_decoded_up_to_the_pixel_limit_of_the_build(options, tmp_path):
    images = [image_bytes("RGB", (20, 10)), image_bytes("RGB", (19, 10))]
    records = [record(PIXELS, [image, str(number).encode()]) for number, image in enumerate(images)]
    root = dataset_of(tmp_path, records, PIXELS)
    assert verify(root, decode=True)
    write_manifest(replace(read_manifest(root), options=options), root)
    assert of_records(verify(root, decode=True)) == [
        "record 0, key '0': the image 'image' cannot be decoded: 20 x 10 pixels; at most 199"
    ]


def test_more_images_than_fit_in_the_queue_are_all_decoded(tmp_path):
    good, bad = image_bytes("RGB", (4, 3)), b"junk"
    records = [record(PIXELS, [bad if n % 30 == 7 else good, str(n).encode()]) for n in range(100)]
    found = of_records(verify(dataset_of(tmp_path, records, PIXELS), decode=True))
    assert [text.partition(":")[0] for text in found] == [f"record {n}, key '{n}'" for n in (7, 37, 67, 97)]


def test_progress_of_large_files_is_counted_while_they_are_read(tmp_path, quiet_build, monkeypatch):
    counted: list[int] = []
    noise = np.random.default_rng(0).integers(0, 256, (50, 100_000), dtype=np.uint8)
    quiet_build(Arrays({"x": noise}), tmp_path / "out", shards=1)
    monkeypatch.setattr("tfshards.prep.progress.lines.Meter.add", lambda _, number: counted.append(number))
    verify(tmp_path / "out", deep=True)
    assert len(counted) > 5
    assert sum(counted) == 2 * read_manifest(tmp_path / "out").splits["train"].num_bytes
