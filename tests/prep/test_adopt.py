"""TFRecord files written by TensorFlow, TFDS and other tools become a dataset that the loader reads."""

import gzip
import os
import shutil
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.errors import raises
from tests.pictures import image_file
from tests.reported import logged
from tests.surface.command import refused, run, run_json
from tfshards import loader
from tfshards.prep import (
    Arrays,
    adopt,
    append,
    audit,
    build,
    generations,
    merge,
    prune,
    relabel,
    remove,
    reshard,
    verify,
)
from tfshards.schemas import Feature, FormatError, InputError, TfshardsError, read_manifest


def example(**values: object) -> bytes:
    """Return an example; lists have any length, ``()`` is an empty list of floats, None no list."""
    features = {}
    for name, value in values.items():
        elements = value if isinstance(value, (list, tuple)) else [value]
        if value is None:
            made = tf.train.Feature()
        elif elements and isinstance(elements[0], bytes):
            made = tf.train.Feature(bytes_list=tf.train.BytesList(value=elements))
        elif value == () or (elements and isinstance(elements[0], float)):
            made = tf.train.Feature(float_list=tf.train.FloatList(value=elements))
        else:
            made = tf.train.Feature(int64_list=tf.train.Int64List(value=elements))
        features[name] = made
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write(path, records, compression: str = ""):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for data in records:
            writer.write(data)
    return path


def picture(mode: str = "RGB", size: tuple[int, int] = (5, 4), name: str = "PNG") -> bytes:
    return image_file(Image.new(mode, size), name)


# gray and color of 16 bits
DEEP = image_file(np.arange(20, dtype=np.uint16).reshape(4, 5) * 3000)
DEEP_COLOR = tf.io.encode_png(np.zeros((4, 5, 3), np.uint16)).numpy()


def row(number: int) -> dict[str, object]:
    return {
        "image/encoded": picture(size=(5 + number % 3, 4)),
        "image/class/label": number % 4,
        "id": number,
        "score": number / 8,
        "boxes": [float(corner) for corner in range(4 * (number % 3))] or (),
        "size": [4, 5 + number % 3],
        "name": b"picture %d" % number,
    }


def numbered(numbers) -> list[bytes]:
    return [example(id=number, label=number % 2) for number in numbers]


def stamps(root) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.relative_to(root).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


# the numbers of examples by file, the compression, those by split
LAYOUTS = {
    "ImageNet's scripts": ("train-00000-of-00002 7, train-00001-of-00002 5, validation-00000-of-00001 6", "",
        {"train": 12, "validation": 6}),
    "TFX's ExampleGen": (
        "Split-train/data_tfrecord-00000-of-00001.gz 9, Split-eval/data_tfrecord-00000-of-00001.gz 5", "GZIP",
        {"train": 9, "eval": 5}),
    "names that say nothing of splits, nor the truth of compression":
        ("a.tfrecord 3, b.tfrecords 4, c.tfrec 5, d 6, e.tfrecord.gz 2", "", {"train": 20}),
    "numbers from one": ("part-1-of-2 3, part-2-of-2 4", "GZIP", {"train": 7}),
}  # fmt: skip


@pytest.mark.parametrize(("files", "compression", "sizes"), LAYOUTS.values(), ids=LAYOUTS)
def test_files_of_any_names_are_adopted_unchanged_and_loaded(tmp_path, files, compression, sizes):
    files = {name: int(count) for name, count in map(str.split, files.split(", "))}
    rows = [row(number) for number in range(sum(files.values()))]
    start = 0
    for name, count in files.items():
        write(tmp_path / name, [example(**each) for each in rows[start : start + count]], compression)
        start += count
    before = stamps(tmp_path)
    manifest = adopt(tmp_path)
    assert {name: split.num_examples for name, split in manifest.splits.items()} == sizes
    assert list(manifest.splits) == list(sizes)
    assert {shard.path for shard in manifest.shards} == set(files)
    assert {name: stamp for name, stamp in stamps(tmp_path).items() if name in before} == before
    assert verify(tmp_path, deep=True)
    seen = []
    for split in sizes:
        cache = f"disk:{tmp_path / 'near'}"
        for batch in loader.load(tmp_path, split, batch_size=1, shuffle=loader.Shuffle(seed=3), cache=cache):
            found = {name: value[0].numpy() for name, value in batch.items()}
            wanted = rows[int(found["id"])]
            seen.append(wanted["id"])
            for name, value in wanted.items():
                assert np.array_equal(found[name], np.array(value, getattr(found[name], "dtype", None))), name
    assert sorted(seen) == list(range(len(rows)))


# what records hold as ``x``, and the feature that they have
INFERRED = [
    ([1, -(2**63)], Feature("x", "int", "int64")),
    ([0.5, 1.0], Feature("x", "float", "float32")),
    ([[1, 2], [3]], Feature("x", "int", "int64", (None,))),
    ([[], [3]], Feature("x", "int", "int64", (None,))),
    ([None, [1, 2]], Feature("x", "int", "int64", (None,))),
    ([[b"a", b"b"], [b"c", b""]], Feature("x", "bytes", "bytes", (2,))),
    ([picture(), picture(size=(5, 6))], Feature("x", "image", "uint8", (None, 5, 3))),
    ([picture("L", name="JPEG"), picture("L")], Feature("x", "image", "uint8", (4, 5, 1))),
    ([DEEP, picture("L")], Feature("x", "image", "uint16", (4, 5, 1))),
    # gray is delivered as color
    ([picture("L"), picture()], Feature("x", "image", "uint8", (4, 5, 3))),
    # headers that are not read, or that end early
    ([picture(name="WEBP")], Feature("x", "image", "uint8", (None, None, 3))),
    ([b"\x89PNG\r\n\x1a\n"], Feature("x", "image", "uint8", (None, None, 3))),
    ([b"\xff\xd8\xff\xda" + bytes(20)], Feature("x", "image", "uint8", (None, None, 3))),
    (
        [b"\xff\xd8\xff\xff\xc0\0\x0b\x08\0\x02\0\x03\x01" + bytes(9)],
        Feature("x", "image", "uint8", (2, 3, 1)),
    ),
    # JPEG 2000, which TensorFlow does not read
    ([b"\x00\x00\x00\x0cjP  \r\n\x87\n"], Feature("x", "bytes", "bytes")),
    ([picture(), b"no image"], Feature("x", "bytes", "bytes")),
]


@pytest.mark.parametrize(("values", "feature"), INFERRED)
def test_the_feature_is_inferred_from_the_values_in_one_shard_or_several(values, feature, tmp_path):
    for number, value in enumerate(values):
        write(tmp_path / "several" / f"{number}.tfrecord", [example(x=value, other=1)])
    for place, order in (("one", values), ("reversed", values[::-1])):
        write(tmp_path / place / "a.tfrecord", [example(x=value, other=1) for value in order])
    for place in ("several", "one", "reversed"):
        assert adopt(tmp_path / place).schema.features == (Feature("other", "int", "int64"), feature)
        assert verify(tmp_path / place, deep=True)


# features by name, the given label, and the found one
LABELS = [
    ({"x": [0, 1], "image/class/label": [0, 1]}, "image/class/label", "image/class/label"),
    ({"a/label": [0, 1], "label": [0, 1]}, None, "label"),
    ({"labels": [0, 1], "class_id": [0, 1]}, None, None),
    ({"label": [0, -1]}, None, "label"),
    ({"label": [[0, 1], [1, 0]]}, None, None),
    ({"label": [-1, 0, 5]}, "label", "label"),
    # lists are not counted
    ({"label": [[1, 2], []]}, "label", None),
]


@pytest.mark.parametrize(("values", "role", "label"), LABELS, ids=range(len(LABELS)))
def test_integers_named_label_are_classes(values, role, label, tmp_path):
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    write(tmp_path / "a", [example(**row) for row in rows])
    manifest = adopt(tmp_path, label=role)
    assert (manifest.schema.label.name if manifest.schema.label else None) == label
    assert {*manifest.splits["train"].label_counts} == ({str(row[label]) for row in rows} if label else set())


SEQUENCE = tf.train.SequenceExample(
    feature_lists=tf.train.FeatureLists(feature_list={"x": tf.train.FeatureList()})
).SerializeToString()
# records, the given label, and the records and the features that are named
UNFIT = [
    ([example(x=1, y=2), example(y=2)], "x", ["'x'", "record 1"]),
    ([example(x=1, y=2), example(x=3), example(y=4)], None, ["'y'", "record 1"]),
    ([example(x=None)], None, ["'x'"]),
    ([example(x=b"1")], "x", ["'x'", "label="]),
    ([example(x=[picture(), picture()])], None, ["'x'", "images"]),
    ([example(x=DEEP), example(x=DEEP_COLOR)], None, ["'x'", "16 bits"]),
    ([example(key=b"a"), example(key=b"b"), example(key=b"a")], None, ["'key'", "2", "3"]),
    ([example(key=b"a"), example(key=b"b\0")], None, ["'key'", "NUL"]),
    ([example(**{"\n": 1})], None, [r"'\n'"]),
    ([example(x=1), b"no protocol buffer"], None, ["record 1"]),
    ([example(x=1), SEQUENCE], None, ["record 1", "SequenceExample"]),
    # a field of another number than that of tf.train.Example
    ([example(x=1), example(x=0.5)], None, ["record 1", "'x'"]),
    ([example(x=1)] + [b""] * 50, None, ["record 1", "1 problem"]),
]


@pytest.mark.parametrize(("records", "label", "names"), UNFIT, ids=range(len(UNFIT)))
def test_records_without_a_common_schema_are_named(records, label, names, tmp_path):
    write(tmp_path / "a", records)
    with pytest.raises(TfshardsError) as caught:
        adopt(tmp_path, label=label)
    assert isinstance(caught.value, FormatError | InputError)
    # what adopts nothing of them says what builds a dataset of them
    names = [*names, "prep.build(prep.Examples("] if isinstance(caught.value, InputError) else names
    for name in names:
        assert name in str(caught.value)
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_the_first_damaged_record_of_each_file_is_named_and_nothing_is_written(tmp_path, compression):
    size = len(numbered([0])[0]) + 16
    for name, places in (("a", (1, 3)), ("b", (0,)), ("c", ())):
        path = write(tmp_path / name, numbered(range(5)))
        data = bytearray(path.read_bytes())
        for place in places:
            data[place * size + 14] ^= 1
        path.write_bytes(gzip.compress(bytes(data)) if compression else bytes(data))
    before = stamps(tmp_path)
    with pytest.raises(FormatError) as caught:
        adopt(tmp_path)
    texts = [str(problem) for problem in caught.value.problems]
    for text, (name, number) in zip(texts, (("a", 1), ("b", 0)), strict=True):
        assert text.startswith(f"{name}: record {number} at byte {number * size}: ")
    assert stamps(tmp_path) == before


def test_class_names_are_given_and_hold_for_all_labels(tmp_path, log):
    write(tmp_path / "d" / "d-train.tfrecord-00000-of-00001", numbered(range(5)))
    (tmp_path / "d" / "label.labels.txt").write_text("cat\ndog\nemu\n")
    logged(adopt, log.append)(tmp_path / "d")
    assert log[0] == "1 other file skipped: label.labels.txt"
    with pytest.raises(InputError, match="other files, records or class names; give overwrite=True"):
        adopt(tmp_path / "d", class_names=("cat", "dog"))
    with pytest.raises(InputError, match="has the value 1, but there are 1 class names"):
        adopt(tmp_path / "d", class_names=("cat",), overwrite=True)
    write(tmp_path / "e" / "x", [example(x=1)])
    with pytest.raises(InputError, match="label="):
        adopt(tmp_path / "e", class_names=("cat",))
    names = str(tmp_path / "d" / "label.labels.txt")
    assert run(["adopt", str(tmp_path / "d"), "--class-names", names, "--overwrite"]).status == 0
    assert read_manifest(tmp_path / "d").splits["train"].label_counts == {"cat": 3, "dog": 2, "emu": 0}
    assert not (tmp_path / "d" / "labels.txt").exists()


def test_adopting_again_is_up_to_date_and_changed_files_are_adopted_on_request(tmp_path):
    write(tmp_path / "x.tfrecord", numbered(range(5)))
    write(tmp_path / "y.tfrecord", numbered(range(5, 9)))
    _, document = run_json(["adopt", str(tmp_path)])
    assert document == read_manifest(tmp_path).to_json()
    before = stamps(tmp_path)
    assert "up to date" in run(["adopt", str(tmp_path)]).err
    assert stamps(tmp_path) == before
    # an index and labels can always be rebuilt
    (first, *_) = read_manifest(tmp_path).shards
    (tmp_path / first.index_path).unlink()
    (tmp_path / first.labels_path).write_bytes(b"")
    assert verify(tmp_path, repair=True)
    for name, (_, _, content) in stamps(tmp_path).items():
        assert content == before[name][2], name
    with pytest.raises(InputError, match=r"other options \(label=\)"):
        adopt(tmp_path, label="id")
    (tmp_path / "y.tfrecord").unlink()
    with pytest.raises(InputError, match="give overwrite=True"):
        adopt(tmp_path)
    old = read_manifest(tmp_path)
    new = adopt(tmp_path, label="id", overwrite=True)
    assert verify(tmp_path, deep=True)
    assert {each.folder for each in generations(tmp_path)} == {old.folder, new.folder}
    # an earlier call again makes its build the dataset, and writes what is damaged
    write(tmp_path / "y.tfrecord", numbered(range(5, 9)))
    (tmp_path / first.index_path).write_bytes(b"0 1\n")
    assert adopt(tmp_path, overwrite=True) == old
    prune(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([old.folder, "dataset.json", "x.tfrecord", "y.tfrecord"])
    assert verify(tmp_path, deep=True)


# the values of a feature ``key``, and what the file of keys holds
KEYS = [
    ([b"b", b"a/\xff"], b"b\0a/\xff"),
    ([b"only"], b"only"),
    # not one string
    ([[b"a", b"b"], [b"c", b"\0"]], None),
    ([picture(), picture("L")], None),
]


@pytest.mark.parametrize(("keys", "content"), KEYS)
def test_a_file_of_keys_is_written_where_each_record_has_one(keys, content, tmp_path):
    write(tmp_path / "x.tfrecord", [example(key=key, y=1) for key in keys])
    (shard,) = adopt(tmp_path).shards
    path = tmp_path / shard.keys_path
    assert (path.read_bytes() if path.exists() else None) == content
    assert verify(tmp_path, deep=True)
    if content is not None:
        path.unlink()
        assert not verify(tmp_path)
        assert verify(tmp_path, repair=True).repaired == (shard.keys_path,)
        assert path.read_bytes() == content
        assert verify(tmp_path, deep=True)


def test_only_a_manifest_of_tfshards_is_replaced_and_only_on_request(tmp_path):
    write(tmp_path / "x.tfrecord", numbered(range(5)))
    adopt(tmp_path)
    manifest = tmp_path / "dataset.json"
    cut = manifest.read_bytes()[:-9]
    for content, overwrite in ((b"{", False), (b"{", True), (cut, False)):
        manifest.write_bytes(content)
        with pytest.raises(FormatError):
            adopt(tmp_path, overwrite=overwrite)
    assert adopt(tmp_path, overwrite=True).num_examples == 5
    # a folder of the name of its build that is of somebody else
    folder = read_manifest(tmp_path).folder
    (tmp_path / folder / "build.json").write_text("{}")
    before = stamps(tmp_path / folder)
    for _ in range(2):
        with pytest.raises(InputError, match=folder):
            adopt(tmp_path, overwrite=True)
        manifest.unlink(missing_ok=True)
    assert stamps(tmp_path / folder) == before
    assert sorted(os.listdir(tmp_path)) == [folder, "x.tfrecord"]


def test_builds_of_tfshards_are_not_adopted_but_their_shards_are(tmp_path):
    source = Arrays({"x": np.arange(9), "label": np.arange(9) % 2}, class_names=("cat", "dog"))
    built = build(source, tmp_path / "out", shards=2)
    for overwrite in (False, True):
        with pytest.raises(InputError, match=f"already a dataset, build {built.build_id}"):
            adopt(tmp_path / "out", overwrite=overwrite)
    (tmp_path / "out" / "dataset.json").unlink()
    with pytest.raises(InputError, match=f"restore .* {built.folder}"):
        adopt(tmp_path / "out")
    (tmp_path / "copy").mkdir()
    for shard in built.shards:
        shutil.copy(tmp_path / "out" / shard.path, tmp_path / "copy")
    manifest = adopt(tmp_path / "copy")
    assert [shard.digest for shard in manifest.shards] == [shard.digest for shard in built.shards]
    assert {*manifest.schema.features} == {*built.schema.features}
    assert [*manifest.splits["train"].label_counts.values()] == [*built.splits["train"].label_counts.values()]


def test_verbs_accept_an_adopted_dataset_without_keys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "d" / "train.tfrecord", [example(x=number) for number in range(6)])
    write(tmp_path / "d" / "test.tfrecord", [example(x=number) for number in range(4, 8)])
    adopt(tmp_path / "d")
    assert sorted(next(iter(loader.load(tmp_path / "d", "train", batch_size=2)))) == ["x"]
    refused(["show", str(tmp_path / "d"), "x"], "train:0", status=1, code="key-unknown")
    assert "x: int64 []: 6\n" in run(["show", str(tmp_path / "d"), "test:2"]).out
    (leak,) = [found for found in audit(tmp_path / "d", distance=None).findings if found.kind == "leak"]
    assert len(leak.cases) == 2
    reshard(tmp_path / "d", tmp_path / "new", shards=2)
    log: list[str] = []
    logged(merge, log.append)([tmp_path / "d", tmp_path / "new"], tmp_path / "both")
    assert log[0].startswith("warning: the examples have no keys")
    assert verify(tmp_path / "both", deep=True)
    # examples without keys cannot be named, nor known inputs be recognized
    before = stamps(tmp_path / "new")
    for edit in (
        lambda root: remove(root, ["0"]),
        lambda root: relabel(root, {"0": 1}),
        lambda root: append(Arrays({"x": np.arange(9)}), root),
    ):
        with raises(InputError, "have no keys"):
            edit(tmp_path / "new")
    assert stamps(tmp_path / "new") == before


def test_a_series_that_a_pattern_leaves_incomplete_is_warned_of(tmp_path, log):
    write(tmp_path / "d" / "train-0-of-3", numbered(range(3)))
    logged(adopt, log.append)(tmp_path / "d", splits={"train": "train*"})
    assert "train-…-of-3: 1 files of a series of 3" in str(log)


def test_parts_of_a_checkpoint_are_skipped(tmp_path, log):
    for name in ("train-00000-of-00001", "val-00000-of-00001"):
        write(tmp_path / "d" / name, numbered(range(3)))
    (tmp_path / "d" / "model.ckpt-7.data-00000-of-00001").write_bytes(b"weights of a model")
    logged(adopt, log.append)(tmp_path / "d")
    assert log[0].startswith("1 other file skipped: model.ckpt-7.data-00000-of-00001")


def test_other_files_are_skipped_and_counted(tmp_path, log):
    write(tmp_path / "d" / "a.tfrecord", numbered(range(3)))
    for name, content in (
        *(("README.md", b"text"), ("short", b"x"), ("empty", b""), ("x.zz", b"\x78\x9cno zlib")),
        *(("x.z", zlib.compress(b"x")), ("cut.gz", b"\x1f\x8b\x08"), ("zip.gz", gzip.compress(b"no"))),
    ):
        (tmp_path / "d" / name).write_bytes(content)
    os.mkfifo(tmp_path / "d" / "pipe")
    (tmp_path / "d" / "nowhere").symlink_to("nothing")
    write(tmp_path / "d" / ".hidden" / "b.tfrecord", numbered(range(3)))
    assert logged(adopt, log.append)(tmp_path / "d").num_examples == 3
    assert log[0].startswith("8 other files skipped: README.md")


# files, options, and the shards by split, or what a refusal names
ASSIGNED = [
    ("p0 p1 p2 p3", {"splits": {"a": "p[01]", "held-out": "p2"}}, {"a": ["p0", "p1"], "held-out": ["p2"]}),
    ("a-0-of-1 a-0-of-2 a-1-of-2", {"splits": {"train": "a-0-of-2"}}, {"train": ["a-0-of-2"]}),
    ("a.tfrecord", {"splits": {"x": "a*", "y": "*"}}, "splits={'x': 'a*', 'y': '*'}"),
    ("a.tfrec", {"splits": {"x": "b*"}}, "a.tfrec"),
    ("train/val.tfrecord", {}, "train/val.tfrecord"),
    ("train.tfrecord x.tfrecord", {}, "x.tfrecord"),
    ("train-0-of-3 train-2-of-3", {}, "train-…-of-3: 2 files of a series of 3"),
    ("x/a-7-of-12.tfrecord", {}, "x/a-…-of-12.tfrecord: 1 files of a series of 12"),
    ("a-0-of-1 a-0-of-2 a-1-of-2", {}, "a-…-of-1: 1 files of a series of 1 or 2"),
    ("a:b.tfrec", {}, "'a:b.tfrec'"),
    ("a index/b", {}, "'index/b'"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "options", "expected"), ASSIGNED, ids=str)
def test_files_belong_to_the_splits_of_their_names_or_patterns(files, options, expected, tmp_path):
    for name in files.split():
        write(tmp_path / name, numbered(range(2)))
    if isinstance(expected, str):
        with pytest.raises((InputError, FormatError)) as caught:
            adopt(tmp_path, **options)
        assert expected in str(caught.value)
        assert not (tmp_path / "dataset.json").exists()
    else:
        found = adopt(tmp_path, **options).splits
        assert {name: [shard.path for shard in split.shards] for name, split in found.items()} == expected


def test_a_file_that_cannot_be_a_shard_is_named(tmp_path):
    for number, make in enumerate((
        lambda root: (root / "b").symlink_to(write(root.parent / "far", numbered([0]))),
        lambda root: (root / "b.tfrec").write_bytes(b"x" * 99),
    )):  # fmt: skip
        root = tmp_path / f"d{number}"
        write(root / "a-0-of-2", numbered(range(2)))
        make(root)
        with pytest.raises(FormatError) as caught:
            adopt(root, splits={"train": "*"})
        assert {problem.place for problem in caught.value.problems} == {*os.listdir(root)} - {"a-0-of-2"}
