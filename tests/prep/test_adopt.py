"""TFRecord files written by TensorFlow, TFDS and other tools become a dataset that the loader reads."""

import json
import logging
import os
import re
import zlib

import numpy as np
import pytest

from tests.tables import mostly_nightly
from tfshards.prep import AdoptOptions, Arrays, FeatureRoles, adopt, audit, build, merge, reshard, verify
from tfshards.prep.cli.main import main
from tfshards.schemas import FormatError, InputError, OptionsError, read_manifest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from tests.errors import fault, raises
from tfshards import loader

logging.getLogger("absl").setLevel(logging.ERROR)

# by name, since an empty list also has a type
FLOATS = ("score", "boxes")
QUIET = {"log": lambda _: None}


def example(**values: object) -> bytes:
    """Return a serialized example; lists may have any length."""
    features = {}
    for name, value in values.items():
        elements = value if isinstance(value, list) else [value]
        if elements and isinstance(elements[0], bytes):
            made = tf.train.Feature(bytes_list=tf.train.BytesList(value=elements))
        elif name in FLOATS:
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


def picture(number: int) -> bytes:
    return tf.io.encode_png(np.full((4, 5 + number % 3, 3), number, np.uint8)).numpy()


def row(number: int) -> dict[str, object]:
    return {
        "image/encoded": picture(number),
        "image/class/label": number % 4,
        "id": number,
        "score": number / 8,
        "boxes": [float(corner) for corner in range(4 * (number % 3))],
        "size": [4, 5 + number % 3],
        "name": b"picture %d" % number,
    }


def rows(numbers) -> list[bytes]:
    return [example(**row(number)) for number in numbers]


def numbered(numbers) -> list[bytes]:
    return [example(id=number, label=number % 2) for number in numbers]


def assert_same_values(batch: dict, numbers) -> None:
    for place, number in enumerate(numbers):
        wanted = row(number)
        assert batch["image/encoded"][place].numpy() == wanted["image/encoded"]
        assert int(batch["image/class/label"][place]) == wanted["image/class/label"]
        assert float(batch["score"][place]) == wanted["score"]
        assert batch["boxes"][place].numpy().tolist() == wanted["boxes"]
        assert batch["size"][place].numpy().tolist() == wanted["size"]
        assert batch["name"][place].numpy() == wanted["name"]


LAYOUTS = [
    (
        {
            "train-00000-of-00003": 7,
            "train-00001-of-00003": 5,
            "train-00002-of-00003": 8,
            "validation-00000-of-00001": 6,
        },
        "",
        {"train": 20, "validation": 6},
        "ImageNet's scripts: no suffix",
    ),
    (
        {"Split-train/data_tfrecord-00000-of-00001.gz": 9, "Split-eval/data_tfrecord-00000-of-00001.gz": 5},
        "GZIP",
        {"train": 9, "eval": 5},
        "TFX's ExampleGen",
    ),
    (
        {"new_test-test.tfrecord-00000-of-00001": 5, "new_test-train.tfrecord-00000-of-00001": 6},
        "",
        {"train": 6, "test": 5},
        "TFDS's names",
    ),
    (
        {"a.tfrecord": 3, "b.tfrecords": 4, "c.tfrec": 5, "d": 6, "e.tfrecord.gz": 2},
        "",
        {"train": 20},
        "names that say nothing of splits, nor the truth of compression",
    ),
    ({"x/train/10.b": 3, "x/train/9.b": 4, "x/val2017/0.b": 5}, "", {"train": 7, "val2017": 5}, "folders"),
    ({"part-1-of-2": 3, "part-2-of-2": 4}, "GZIP", {"train": 7}, "numbers from one"),
]


def write_layout(root, files: dict[str, int], compression: str) -> int:
    """Write numbered rows into files; return how many there are."""
    start = 0
    for name, count in files.items():
        write(root / name, rows(range(start, start + count)), compression)
        start += count
    return start


@pytest.mark.parametrize(("files", "compression", "sizes", "reason"), LAYOUTS)
def test_files_of_any_names_are_adopted_and_not_changed(tmp_path, files, compression, sizes, reason):
    num_rows = write_layout(tmp_path, files, compression)
    before = stamps(tmp_path)
    manifest = adopt(tmp_path, **QUIET)
    assert {name: split.num_examples for name, split in manifest.splits.items()} == sizes, reason
    assert list(manifest.splits) == list(sizes), reason
    assert sum(shard.num_examples for shard in manifest.shards) == num_rows
    assert {shard.path for shard in manifest.shards} == set(files)
    assert {name: stamp for name, stamp in stamps(tmp_path).items() if name in before} == before
    assert verify(tmp_path, deep=True)


@pytest.mark.parametrize(("files", "compression", "sizes", "reason"), mostly_nightly(LAYOUTS, LAYOUTS[1:2]))
def test_the_loader_reads_an_adopted_dataset_like_a_built_one(tmp_path, files, compression, sizes, reason):
    num_rows = write_layout(tmp_path, files, compression)
    adopt(tmp_path, **QUIET)
    seen = []
    for split, count in sizes.items():
        batches = loader.load(tmp_path, split, batch_size=2, shuffle=loader.Shuffle(seed=3), remainder="keep")
        assert len(batches) == -(-count // 2)
        for batch in batches:
            numbers = batch["id"].numpy().tolist()
            assert_same_values(batch, numbers)
            seen += numbers
    assert sorted(seen) == list(range(num_rows)), reason
    decoded = next(iter(loader.load(tmp_path, "train", batch_size=2, image=loader.Image(size=(8, 8)))))
    assert decoded["image/encoded"].shape == (2, 8, 8, 3)


def stamps(root) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.relative_to(root).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_class_name_repeated_in_tfds_is_reported(tmp_path):
    write(tmp_path / "d-train.tfrecord-00000-of-00001", numbered(range(4)))
    (tmp_path / "dataset_info.json").write_text("no JSON")
    (tmp_path / "label.labels.txt").write_text("a\na\n")
    with raises(InputError, "adopt-faults"):
        adopt(tmp_path, **QUIET)
    (tmp_path / "label.labels.txt").write_bytes(b"\xff")
    message = r"label.labels.txt is not UTF-8: .*; give the names with class_names="
    with pytest.raises(InputError, match=message):
        adopt(tmp_path, **QUIET)
    (tmp_path / "label.labels.txt").write_text("only\n\n")
    with raises(InputError, "adopt-faults"):
        adopt(tmp_path, **QUIET)
    (tmp_path / "label.labels.txt").unlink()
    manifest = adopt(tmp_path, **QUIET)
    assert (manifest.name, manifest.schema.class_names) == (tmp_path.name, ())


def test_two_folders_of_tfds_must_have_the_same_classes(tmp_path):
    for folder, names in (("one", "a\nb\n"), ("two", "a\nc\n")):
        write(tmp_path / folder / "d-train.tfrecord-00000-of-00001", numbered(range(4)))
        (tmp_path / folder / "dataset_info.json").write_text(json.dumps({"name": folder}))
        (tmp_path / folder / "label.labels.txt").write_text(names)
    with raises(InputError, "tfds-classes-differ"):
        adopt(tmp_path, **QUIET)
    manifest = adopt(tmp_path, AdoptOptions(name="both", class_names=("x", "y")), **QUIET)
    assert (manifest.name, manifest.schema.class_names) == ("both", ("x", "y"))


def test_the_features_that_tfds_declares_are_not_read(tmp_path, log):
    write(tmp_path / "d-train.tfrecord-00000-of-00001", numbered(range(4)))
    (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / "features.json").write_text("no JSON")
    assert adopt(tmp_path, log=log.append).schema.names == ("id", "label")
    assert any(line.startswith("warning: features.json is not read: features are as") for line in log)


def test_a_tfds_split_name_that_a_dataset_cannot_have_is_reported(tmp_path):
    write(tmp_path / "d-_x.tfrecord-00000-of-00001", numbered(range(4)))
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(InputError, match=r"the split name '_x' must be .*; name it with splits="):
        adopt(tmp_path, **QUIET)


def test_class_names_come_from_a_file(tmp_path, capsys):
    write(tmp_path / "d" / "x.tfrecord", numbered(range(5)))
    (tmp_path / "names").write_text("cat\ndog\nemu\n")
    assert main(["adopt", str(tmp_path / "d"), "--class-names", str(tmp_path / "names")]) == 0
    manifest = read_manifest(tmp_path / "d")
    assert manifest.splits["train"].label_counts == {"cat": 3, "dog": 2, "emu": 0}
    assert (tmp_path / "d" / "labels.txt").read_text() == "cat\ndog\nemu\n"
    # without class names, the files written for them are removed
    assert main(["adopt", str(tmp_path / "d"), "--overwrite"]) == 0
    assert read_manifest(tmp_path / "d").splits["train"].label_counts == {"0": 3, "1": 2}
    assert not (tmp_path / "d" / "labels.txt").exists()


def test_labels_must_be_smaller_than_the_number_of_names(tmp_path):
    write(tmp_path / "x.tfrecord", [example(y=value) for value in (0, -2, 1)])
    options = AdoptOptions(class_names=("cat", "dog"), roles=FeatureRoles(label="y"))
    with raises(InputError, "adopt-faults"):
        adopt(tmp_path, options, **QUIET)
    with raises(InputError, "adopt-faults"):
        adopt(tmp_path, AdoptOptions(class_names=("cat", "dog")), **QUIET)
    assert adopt(tmp_path, AdoptOptions(roles=FeatureRoles(label="y")), **QUIET).splits[
        "train"
    ].label_counts == {"-2": 1, "0": 1, "1": 1}
    assert not (tmp_path / "labels.txt").exists()


def test_lists_of_labels_are_not_counted(tmp_path):
    write(tmp_path / "x.tfrecord", [example(y=[0, 1]), example(y=[])])
    options = AdoptOptions(class_names=("cat", "dog"), roles=FeatureRoles(label="y"))
    assert adopt(tmp_path, options, **QUIET).splits["train"].label_counts == {}
    assert verify(tmp_path, deep=True)


def test_a_foreign_labels_txt_is_not_changed(tmp_path, log):
    write(tmp_path / "x.tfrecord", numbered(range(5)))
    (tmp_path / "labels.txt").write_text("mine\n")
    adopt(tmp_path, AdoptOptions(class_names=("cat", "dog")), log=log.append)
    assert f"warning: {tmp_path}/labels.txt stays as it is; the class names are in dataset.json" in log
    adopt(tmp_path, overwrite=True, **QUIET)
    assert (tmp_path / "labels.txt").read_text() == "mine\n"


def test_adopting_again_is_up_to_date_and_writes_nothing(tmp_path, capsys):
    write(tmp_path / "x.tfrecord", numbered(range(5)))
    assert main(["adopt", str(tmp_path), "--json"]) == 0
    assert capsys.readouterr().out == (tmp_path / "dataset.json").read_text()
    before = stamps(tmp_path)
    assert main(["adopt", str(tmp_path)]) == 0
    assert f"{tmp_path} is up to date" in capsys.readouterr().err
    assert stamps(tmp_path) == before
    # an index and labels can always be rebuilt
    (tmp_path / "index" / "x.tfrecord.idx").unlink()
    (tmp_path / "index" / "x.tfrecord.labels").write_bytes(b"")
    assert main(["adopt", str(tmp_path)]) == 0
    assert {name: found[2] for name, found in stamps(tmp_path).items()} == {
        name: found[2] for name, found in before.items()
    }


def test_changed_files_are_adopted_again_only_on_request(tmp_path):
    write(tmp_path / "x.tfrecord", numbered(range(5)))
    write(tmp_path / "y.tfrecord", numbered(range(5, 9)))
    first = adopt(tmp_path, **QUIET)
    options = AdoptOptions(roles=FeatureRoles(drop=("label",)))
    with raises(InputError, "adopt-differs", what="options (drop=)"):
        adopt(tmp_path, options, **QUIET)
    (tmp_path / "y.tfrecord").unlink()
    with raises(InputError, "adopt-differs"):
        adopt(tmp_path, **QUIET)
    assert read_manifest(tmp_path) == first
    second = adopt(tmp_path, overwrite=True, **QUIET)
    assert second.build_id != first.build_id
    assert not (tmp_path / "index" / "y.tfrecord.idx").exists()
    assert verify(tmp_path, deep=True)
    labels = np.fromfile(tmp_path / "index" / "x.tfrecord.labels", "<i8")
    assert labels.tolist() == [number % 2 for number in range(5)]
    adopt(tmp_path, options, overwrite=True, **QUIET)
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["x.tfrecord.idx"]
    assert verify(tmp_path, deep=True)


def test_a_manifest_that_cannot_be_read_is_replaced_only_on_request(tmp_path):
    write(tmp_path / "x.tfrecord", numbered(range(5)))
    adopt(tmp_path, **QUIET)
    cut = (tmp_path / "dataset.json").read_bytes()[:-9]
    for content in (cut, b"{"):
        (tmp_path / "dataset.json").write_bytes(content)
        with pytest.raises(FormatError, match="not readable as JSON"):
            adopt(tmp_path, **QUIET)
    # of another tool, for all that is known
    with pytest.raises(FormatError, match="not readable as JSON"):
        adopt(tmp_path, overwrite=True, **QUIET)
    (tmp_path / "dataset.json").write_bytes(cut)
    assert adopt(tmp_path, overwrite=True, **QUIET).num_examples == 5


def test_an_index_that_tfshards_did_not_write_is_not_replaced(tmp_path):
    write(tmp_path / "x.tfrecord", numbered(range(5)))
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "x.tfrecord.idx").write_text("mine")
    with raises(InputError, "foreign-file"):
        adopt(tmp_path, **QUIET)
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["x.tfrecord", "x.tfrecord.idx"]


def test_a_built_dataset_needs_no_adoption(tmp_path):
    source = Arrays({"x": np.arange(9), "label": np.arange(9) % 2}, class_names=("cat", "dog"))
    built = build(source, tmp_path / "out", shards=2, **QUIET)
    for overwrite in (False, True):
        with raises(InputError, "adopt-is-dataset", build_id=built.build_id):
            adopt(tmp_path / "out", overwrite=overwrite, **QUIET)
    assert read_manifest(tmp_path / "out") == built
    # a dataset whose manifest was lost is adopted with what its records and views show
    (tmp_path / "out" / "dataset.json").unlink()
    manifest = adopt(tmp_path / "out", **QUIET)
    assert [shard.digest for shard in manifest.shards] == [shard.digest for shard in built.shards]
    assert {*manifest.schema.features} == {*built.schema.features}
    assert manifest.schema.class_names == ("cat", "dog")
    assert manifest.splits["train"].label_counts == built.splits["train"].label_counts
    assert verify(tmp_path / "out", deep=True)


def test_verbs_accept_an_adopted_dataset_without_keys(tmp_path, capsys):
    write(tmp_path / "train.tfrecord", rows(range(6)))
    write(tmp_path / "test.tfrecord", rows(range(4, 8)))
    assert main(["adopt", str(tmp_path)]) == 0
    assert main(["info", str(tmp_path)]) == 0
    assert "boxes (float, float32 ?)" in capsys.readouterr().out
    assert main(["show", str(tmp_path), "x"]) == 1
    assert "give a key, or a position such as train:0" in capsys.readouterr().err
    assert main(["show", str(tmp_path), "test:2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("split test, example 2, record 2 of test.tfrecord\n")
    assert "id: int64 []: 6\n" in shown
    leak = next(finding for finding in audit(tmp_path, distance=None).findings if finding.kind == "leak")
    assert "'test' that are also in 'train': 2 of 4" in leak.message


def test_a_dropped_feature_is_not_a_fault_but_an_unknown_one_is(tmp_path):
    write(tmp_path / "d" / "a.tfrecord", [example(x=1, y=2), example(x=3)])
    with raises(InputError, "adopt-faults"):
        adopt(tmp_path / "d", AdoptOptions(roles=FeatureRoles(label="y")), **QUIET)
    adopt(tmp_path / "d", AdoptOptions(roles=FeatureRoles(drop=("y",))), **QUIET)
    assert verify(tmp_path / "d", deep=True)
    assert sorted(next(iter(loader.load(tmp_path / "d", batch_size=2)))) == ["x"]
    # nor is it in derived datasets
    reshard(tmp_path / "d", tmp_path / "new", shards=2, **QUIET)
    merge([tmp_path / "d", tmp_path / "new"], tmp_path / "both", **QUIET)
    assert verify(tmp_path / "both", deep=True)


def test_a_feature_that_some_records_lack_is_refused_by_name_and_record(tmp_path):
    write(tmp_path / "a.tfrecord", [example(x=1, y=2), example(x=3), example(y=4)])
    with pytest.raises(InputError) as caught:
        adopt(tmp_path, **QUIET)
    text = str(caught.value)
    assert "'x': is only in 2 of 3 records, and not in a.tfrecord, record 2 at byte" in text
    assert "'y': is only in 2 of 3 records, and not in a.tfrecord, record 1 at byte" in text
    assert "leave it out with drop=('y',)" in text
    options = AdoptOptions(roles=FeatureRoles(drop=("y",)))
    write(tmp_path / "a.tfrecord", [example(x=1, y=2), example(x=3)])
    assert adopt(tmp_path, options, **QUIET).schema.names == ("x",)


def test_other_files_are_skipped_and_counted(tmp_path, log):
    write(tmp_path / "d" / "a.tfrecord", numbered(range(3)))
    for name in ("README.md", "data.csv", "short", "zip.gz", "x.z", "cut.gz"):
        (tmp_path / "d" / name).write_bytes(
            {
                "zip.gz": zlib_gzip(b"no records, but gzip"),
                "x.z": zlib.compress(b"x"),
                "cut.gz": b"\x1f\x8b\x08",
            }.get(name, b"text" if name != "short" else b"x")
        )
    (tmp_path / "d" / "x.zz").write_bytes(b"\x78\x9cno zlib")
    (tmp_path / "d" / "empty").touch()
    os.mkfifo(tmp_path / "d" / "pipe")
    (tmp_path / "d" / "nowhere").symlink_to("nothing")
    write(tmp_path / "d" / ".hidden" / "b.tfrecord", numbered(range(3)))
    write(tmp_path / "d" / ".c.tfrecord", numbered(range(3)))
    assert adopt(tmp_path / "d", log=log.append).num_examples == 3
    assert log == ["9 other files skipped: README.md, cut.gz, data.csv and 6 more"]


def zlib_gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def test_empty_files_are_shards_and_empty_gzip_files_are_left_out(tmp_path, log):
    write(tmp_path / "plain" / "train-00000-of-00002", numbered(range(3)))
    (tmp_path / "plain" / "train-00001-of-00002").touch()
    (tmp_path / "plain" / "val.tfrecord").touch()
    manifest = adopt(tmp_path / "plain", **QUIET)
    assert [shard.num_examples for shard in manifest.shards] == [3, 0, 0]
    assert len([*loader.load(tmp_path / "plain", "train", batch_size=1, shuffle=loader.Shuffle(seed=0))]) == 3
    write(tmp_path / "gzip" / "train-00000-of-00002.gz", numbered(range(3)), "GZIP")
    (tmp_path / "gzip" / "train-00001-of-00002.gz").write_bytes(zlib_gzip(b""))
    (tmp_path / "gzip" / "val.tfrecord.gz").write_bytes(zlib_gzip(b""))
    manifest = adopt(tmp_path / "gzip", log=log.append)
    assert list(manifest.splits) == ["train"]
    assert len(manifest.shards) == 1
    assert log == [
        "warning: train-00001-of-00002.gz holds no records and is skipped",
        "warning: val.tfrecord.gz holds no records and is skipped",
    ]
    assert verify(tmp_path / "gzip", deep=True)


def test_patterns_assign_files_to_splits(tmp_path, capsys):
    for number in range(4):
        write(tmp_path / f"part{number}", numbered(range(3 * number, 3 * number + 3)))
    options = ["--split", "train=part[01]", "--split", "held-out=part2"]
    assert main(["adopt", str(tmp_path), *options, "--name", "mine"]) == 0
    manifest = read_manifest(tmp_path)
    assert {name: [shard.path for shard in split.shards] for name, split in manifest.splits.items()} == {
        "train": ["part0", "part1"],
        "held-out": ["part2"],
    }
    assert manifest.name == "mine"
    assert "1 other file skipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "globs", "message"),
    [
        (["a.tfrecord"], {"x": "a*", "y": "*"}, "matches the patterns of two splits, x=a* and y=*"),
        (["a.tfrec"], {"x": "b*"}, "splits={'x': 'b*'} matches no TFRecord file; the files are a.tfrec"),
        (["train/val.tfrecord"], {}, "train/val.tfrecord names two splits, 'val' and 'train'; choose one"),
        (["train.tfrecord", "x.tfrecord"], {}, "x.tfrecord names no split, but train.tfrecord names 'train'"),
        (["train-0-of-3", "train-2-of-3"], {}, "1 file missing in a numbered series: train-1-of-3; restore"),
        (["x/a-7-of-12.tfrecord"], {}, "x/a-03-of-12.tfrecord, x/a-04-of-12.tfrecord and 6 more"),
        (["a-0-of-1", "a-0-of-2", "a-1-of-2"], {}, "a-0-of-1 and a-0-of-2 belong to two numbered series"),
    ],
)
def test_files_of_unknown_splits_are_named(tmp_path, files, globs, message):
    for name in files:
        write(tmp_path / name, numbered(range(2)))
    with pytest.raises(InputError, match=re.escape(message)):
        adopt(tmp_path, AdoptOptions(splits=globs), **QUIET)
    assert not (tmp_path / "dataset.json").exists()


def test_missing_shards_are_accepted_on_request(tmp_path, log):
    write(tmp_path / "train-00000-of-00003", numbered(range(2)))
    manifest = adopt(tmp_path, AdoptOptions(allow_missing=True), log=log.append)
    assert manifest.num_examples == 2
    assert log[0].startswith("warning: 2 files missing in a numbered series: train-00001-of-00003, ")


def test_a_split_may_be_part_of_a_numbered_series_and_other_series_are_skipped(tmp_path):
    for name in ("a-0-of-1", "a-0-of-2", "a-1-of-2"):
        write(tmp_path / name, numbered(range(2)))
    options = AdoptOptions(splits={"train": "a-0-of-2"})
    assert [shard.path for shard in adopt(tmp_path, options, **QUIET).shards] == ["a-0-of-2"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: write(root / "a:b.tfrec", numbered([0])), "the path 'a:b.tfrec' must be a relative"),
        (lambda root: write(root / "index/b", numbered([0])), "the path 'index/b' is reserved for another"),
        (lambda root: os.link(root / "a", root / "b"), "b: is the same file as a; its examples would be in"),
        (
            lambda root: (root / "b").symlink_to(write(root.parent / "far", numbered([0]))),
            "b: is a link to a file outside the folder; replace it with the file itself",
        ),
        (lambda root: (root / "b.tfrec").write_bytes(b"x" * 99), "b.tfrec: is not a TFRecord file, despite"),
    ],
)
def test_a_file_that_cannot_be_a_shard_is_named(tmp_path, make, message):
    root = tmp_path / "d"
    write(root / "a", numbered(range(2)))
    make(root)
    with pytest.raises(FormatError, match=re.escape(message)):
        adopt(root, **QUIET)
    assert not (root / "dataset.json").exists()


def test_plain_and_compressed_files_are_not_one_dataset(tmp_path):
    write(tmp_path / "a.tfrecord", numbered(range(2)))
    write(tmp_path / "b.tfrecord", numbered(range(2)), "GZIP")
    with raises(InputError, "adopt-compressions-mixed", num_gzip=1, gzip="b.tfrecord"):
        adopt(tmp_path, **QUIET)
    assert adopt(tmp_path, AdoptOptions(splits={"train": "b*"}), **QUIET).compression == "gzip"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, fault("adopt-not-a-folder", what="does not exist")),
        (lambda root: root.write_bytes(b""), fault("adopt-not-a-folder", what="is a file")),
        (lambda root: root.mkdir(), fault("adopt-no-files", num_files=0)),
        (lambda root: (root.mkdir(), (root / "a.tfrecord").touch()), "adopt-no-records"),
    ],
)
def test_a_folder_without_records_is_reported(tmp_path, make, message):
    root = tmp_path / "d"
    make(root)
    with raises(InputError, message):
        adopt(root, **QUIET)


def test_an_invalid_dataset_name_is_reported(tmp_path):
    write(tmp_path / "my data" / "a", numbered([1]))
    with pytest.raises(InputError, match=r"the folder's name 'my data' must be .*; give another with name="):
        adopt(tmp_path / "my data", **QUIET)
    with pytest.raises(OptionsError, match="the dataset's name 'a b' must be"):
        AdoptOptions(name="a b")
    with pytest.raises(OptionsError, match="the split name '-x' must be"):
        AdoptOptions(splits={"-x": "*"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "train"], "--split train must be NAME=GLOB, such as train='train-*'"),
        (["--split", "a=1", "--split", "a=2"], "--split a=2 repeats the split 'a'"),
    ],
)
def test_invalid_arguments_are_reported_before_reading(tmp_path, capsys, arguments, message):
    assert main(["adopt", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_all_damaged_records_of_all_files_are_named_and_nothing_is_written(tmp_path, capsys, compression):
    size = len(numbered([0])[0]) + 16
    for name, places in (("a", (1, 3)), ("b", (0,)), ("c", ())):
        path = write(tmp_path / name, numbered(range(5)))
        data = bytearray(path.read_bytes())
        for place in places:
            data[place * size + 14] ^= 1
        path.write_bytes(zlib_gzip(bytes(data)) if compression else bytes(data))
    before = stamps(tmp_path)
    assert main(["adopt", str(tmp_path)]) == 1
    fault = "the checksum of the record's data does not match"
    assert capsys.readouterr().err.splitlines() == [
        f"tfshards: {tmp_path} cannot be adopted, nothing was written: 3 problems",
        f"  a: record 1 at byte {size}: {fault}",
        f"  a: record 3 at byte {3 * size}: {fault}",
        f"  b: record 0 at byte 0: {fault}",
    ]
    assert stamps(tmp_path) == before


def test_other_messages_than_examples_are_refused(tmp_path):
    # a field of another number than that of tf.train.Example
    write(tmp_path / "a", [example(x=1) + b"\x1a\x00"])
    write(tmp_path / "b", [b"just bytes"])
    steps = tf.train.FeatureLists(feature_list={"x": tf.train.FeatureList()})
    write(tmp_path / "c", [tf.train.SequenceExample(feature_lists=steps).SerializeToString()])
    with pytest.raises(FormatError) as caught:
        adopt(tmp_path, **QUIET)
    first, second, third = map(str, caught.value.problems)
    assert "c: record 0 at byte 0: is a tf.train.SequenceExample; only tf.train.Example" in third
    assert "a: record 0 at byte 0: has a field 3; only tf.train.Example with features can be adopted" in first
    assert "b: record 0 at byte 0: is not a tf.train.Example" in second


def test_a_file_that_vanishes_while_others_are_read_ends_the_run(tmp_path):
    write(tmp_path / "0.tfrecord", numbered([0]))
    # reading it has to be stopped
    write(tmp_path / "1.tfrecord", numbered([0]) * 50_000)
    (tmp_path / "README").touch()
    with pytest.raises(FileNotFoundError):
        adopt(tmp_path, log=lambda _: (tmp_path / "0.tfrecord").unlink())
    assert not (tmp_path / "dataset.json").exists()
    assert not (tmp_path / "index").exists()


def test_verify_reports_an_empty_list_of_another_type_which_tensorflow_refuses(tmp_path):
    path = write(tmp_path / "a", [example(x=[]), example(x=[1])])
    adopt(tmp_path, **QUIET)
    assert verify(tmp_path, deep=True)
    other = tf.train.Example(
        features=tf.train.Features(feature={"x": tf.train.Feature(float_list=tf.train.FloatList(value=[]))})
    )
    write(path, [other.SerializeToString(), example(x=[1])])
    problems = [str(problem) for problem in verify(tmp_path, deep=True).problems]
    fault = "record 0 at byte 0: the feature 'x' is an empty list of float instead of int64"
    assert any(fault in problem for problem in problems)
    message = "the feature 'x' holds integers, but floats in a, record 0 at byte 0"
    with pytest.raises(FormatError, match=message):
        adopt(tmp_path, overwrite=True, **QUIET)


def test_a_numbered_file_next_to_shards_is_a_shard(tmp_path):
    write(tmp_path / "a-0-of-2", numbered(range(2)))
    (tmp_path / "a-1-of-2").write_bytes(b"x" * 99)
    (tmp_path / "weights-0-of-1").write_bytes(b"x" * 99)
    with pytest.raises(FormatError, match="a-1-of-2: is not a TFRecord file") as caught:
        adopt(tmp_path, **QUIET)
    assert len(caught.value.problems) == 1
