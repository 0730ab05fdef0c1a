"""merge --as-splits: each dataset becomes a split, and keys stay unique."""

from __future__ import annotations

import numpy as np
import pytest

from tests.errors import raises
from tests.prep.derived import build_quietly, records, write_images
from tests.prep.test_merge import by_hand
from tfshards.prep import Arrays, ImageFolder, Options, ShardOptions, append, merge, reshard, verify
from tfshards.prep.cli import main as cli
from tfshards.prep.records.example import decode_example, example_encoder, with_key_prefix
from tfshards.prep.records.frames import read_records
from tfshards.schemas import BuildError, Feature, InputError, OptionsError, Schema, read_manifest

KEYED = b"".join(example_encoder(Schema((Feature("key", "bytes", "bytes"),)))([b"1"]))


def quiet(_):
    """Drop a status line."""


def examples(root):
    """The examples by split and key."""
    manifest = read_manifest(root)
    return {
        split: {
            example["key"][0]: {name: value for name, value in example.items() if name != "key"}
            for shard in held.shards
            for _, data in read_records(root / shard.path, manifest.compression)
            for example in [decode_example(data)]
        }
        for split, held in manifest.splits.items()
    }


@pytest.fixture
def photos(tmp_path):
    """Two datasets of images whose names are the same, each with a rejected file."""
    roots = []
    for name, start in (("a", 0), ("b", 100)):
        folder = write_images(tmp_path / f"{name}-photos", range(20), ["cat/x.png"])
        for number, path in enumerate(sorted(folder.glob("*/0*.png"))):
            path.write_bytes(path.read_bytes() + bytes([start + number]))
        options = Options(max_rejected=1)
        build_quietly(ImageFolder(folder), tmp_path / name, options=options, shards=3)
        roots.append(tmp_path / name)
    return roots


def test_each_dataset_becomes_a_split_whose_keys_start_with_its_name(photos, tmp_path, capsys):
    one, two = photos
    out = tmp_path / "out"
    assert cli.main(["merge", "--as-splits", f"train={one}", f"test={two}", str(out)]) == 0
    found = examples(out)
    assert list(found) == ["train", "test"]
    for split, root in (("train", one), ("test", two)):
        held = examples(root)["train"]
        assert found[split] == {f"{split}/".encode() + key: example for key, example in held.items()}
    made = read_manifest(out)
    assert made.options["as_splits"] == ["train", "test"]
    assert [each["split"] for each in made.options["of"]] == ["train", "test"]
    assert made.split_cuts == {}
    assert {name: len(split.shards) for name, split in made.splits.items()} == {"train": 3, "test": 3}
    assert made.splits["test"].label_counts == read_manifest(two).splits["train"].label_counts
    assert made.totals.rejected == 2
    rejects = (out / f"rejected-{made.build_id}.jsonl").read_text()
    assert '"key": "test/cat/x.png"' in rejects
    assert '"key": "train/cat/x.png"' in rejects
    assert str(verify(out, deep=True, decode=True)).startswith(f"{out}: sound")
    assert cli.main(["merge", "--as-splits", f"train={one}", f"test={two}", str(out)]) == 0
    assert "up to date" in capsys.readouterr().err
    assert cli.main(["show", str(out), "test/cat/000.png"]) == 0


def test_rows_of_arrays_are_merged_as_splits_into_other_shards(tmp_path):
    for name, count, compression in (("a", 30, "none"), ("b", 7, "gzip")):
        source = Arrays({"x": np.arange(count) ** 2})
        build_quietly(source, tmp_path / name, options=Options(compression=compression))
    made = merge(
        {"train": tmp_path / "a", "test": tmp_path / "b"},
        tmp_path / "out",
        shards={"train": 4, "test": 1},
        options=ShardOptions(compression="gzip", balance="bytes"),
        log=quiet,
    )
    assert {name: len(split.shards) for name, split in made.splits.items()} == {"train": 4, "test": 1}
    assert examples(tmp_path / "out")["test"] == {
        b"test/%d" % number: {"x": [number**2]} for number in range(7)
    }
    assert len(examples(tmp_path / "out")["train"]) == 30


def test_merging_in_one_step_equals_building_from_split_folders(tmp_path):
    roots = {split: write_images(tmp_path / "photos" / split, range(8)) for split in ("train", "test")}
    for split, root in roots.items():
        build_quietly(ImageFolder(root), tmp_path / split)
    merge({split: tmp_path / split for split in roots}, tmp_path / "merged", log=quiet)
    build_quietly(ImageFolder(tmp_path / "photos"), tmp_path / "built")
    assert examples(tmp_path / "merged") == examples(tmp_path / "built")
    # so that the folder of both can be appended
    write_images(tmp_path / "photos" / "test", [8])
    grown = append(tmp_path / "photos", tmp_path / "merged", engine="local", log=quiet)
    assert {name: split.num_examples for name, split in grown.splits.items()} == {"train": 8, "test": 9}


def test_new_rows_of_merged_splits_are_refused(tmp_path):
    for name in ("a", "b"):
        build_quietly(Arrays({"x": np.arange(4)}), tmp_path / name)
    merge({"train": tmp_path / "a", "test": tmp_path / "b"}, tmp_path / "out", log=quiet)
    reshard(tmp_path / "out", tmp_path / "again", shards=2, log=quiet)
    for root in (tmp_path / "out", tmp_path / "again"):
        with raises(InputError, "rows-renumbered"):
            append(Arrays({"x": np.arange(5)}), root, engine="local", log=quiet)


def test_datasets_without_keys_are_linked_as_splits(tmp_path):
    schema = Schema((Feature("x", "bytes", "bytes"),))
    roots = [by_hand(tmp_path / name, schema, [name.encode() * 3]) for name in "ab"]
    logged = []
    merge({"train": roots[0], "test": roots[1]}, tmp_path / "out", log=logged.append)
    assert logged[0].startswith("warning: the examples have no keys, so repeated")
    assert records(tmp_path / "out") == {"train": [b"aaa"], "test": [b"bbb"]}
    merge({"train": roots[0], "test": roots[1]}, tmp_path / "new", shards=1, log=quiet)
    assert records(tmp_path / "new") == records(tmp_path / "out")


def test_a_damaged_record_is_named(tmp_path):
    schema = Schema((Feature("key", "bytes", "bytes"),))
    roots = [by_hand(tmp_path / name, schema, data) for name, data in (("a", [b"\xff"]), ("b", [KEYED]))]
    with pytest.raises(BuildError, match=r"a/x\.tfrecord: record 0 at byte 0: is not a tf\.train\.Example"):
        merge({"train": roots[0], "test": roots[1]}, tmp_path / "out", log=quiet)


def test_datasets_of_several_splits_are_refused(photos, tmp_path):
    merge({"train": photos[0], "test": photos[1]}, tmp_path / "two", log=quiet)
    with raises(InputError, "as-splits-several", split="val"):
        merge({"train": photos[0], "val": tmp_path / "two"}, tmp_path / "out", log=quiet)


def test_the_name_of_a_split_is_checked(photos, tmp_path):
    with pytest.raises(OptionsError, match=r"^the split name 'a b' must be letters"):
        merge({"a b": photos[0], "test": photos[1]}, tmp_path / "out", log=quiet)


@pytest.mark.parametrize("sources", [["train=a", "b"], ["train=a", "train=b"], ["train=", "test=b"]])
def test_the_command_line_requires_a_folder_for_each_split(sources, capsys):
    assert cli.main(["merge", "--as-splits", *sources, "out"]) == 2
    assert "must be SPLIT=FOLDER, with each split given once" in capsys.readouterr().err


def test_a_prefix_of_the_key_keeps_the_bytes_of_all_other_values():
    # names of which one is a prefix of another, which implementations of protobuf order differently
    features = (
        Feature("key", "bytes", "bytes"),
        Feature("key/b", "raw", "uint8", (3,)),
        Feature("a", "int", "int64", (None,)),
        Feature("f", "float", "float32", (2,)),
        Feature("k", "bytes", "bytes", (None,)),
    )
    encode = example_encoder(Schema(features))
    values = [b"\xff/1.png", b"abc", [-1, 300], [0.5, 1.5], [b"", b"x" * 5000]]
    before, after = (b"".join(encode([key, *values[1:]])) for key in (values[0], b"train/\xff/1.png"))
    assert with_key_prefix(before, b"train/") == after
    # fields that no tf.train.Example has, which readers ignore
    for unknown in (b"\x10\xac\x02", b"\x19" + bytes(8), b"\x25" + bytes(4), b"\x2a\x01x"):
        assert with_key_prefix(unknown + before, b"train/") == unknown + after


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "^has no key$"),
        (b"\xff", r"^is not a tf\.train\.Example"),
        (b"\n\0", "^has no key$"),
        (KEYED + b"\x1b\x1c", "the field at byte 16 has type 3$"),
    ],
)
def test_a_record_without_a_key_is_not_prefixed(data, message):
    with pytest.raises(ValueError, match=message):
        with_key_prefix(data, b"train/")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({5: "a", "test": "b"}, r"^sources=\[5, 'test'\] must be a list of strings$"),
        ({"train": None, "test": "b"}, r"^sources=None must be a path$"),
        (["a", 3], r"^sources=3 must be a path$"),
    ],
)
def test_sources_that_are_no_paths_by_name_are_refused(sources, message, tmp_path):
    with pytest.raises(OptionsError, match=message):
        merge(sources, tmp_path / "out")


def test_splits_without_the_flag_are_recognized(tmp_path, capsys):
    for name in "ab":
        build_quietly(Arrays({"x": np.arange(4)}), tmp_path / name, shards=1)
    train, test = f"train={tmp_path / 'a'}", f"test={tmp_path / 'b'}"
    assert cli.main(["merge", train, test, str(tmp_path / "out")]) == 1
    message = f"{train} does not exist, but {tmp_path / 'a'} does; give --as-splits to make datasets splits"
    assert capsys.readouterr().err == f"tfshards: {message}\n"
