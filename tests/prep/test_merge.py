"""merge: mixtures, names of splits before keys, and what is refused; see tests/verbs for the examples."""

import errno
import os
import threading
import time
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tests.errors import fault, raises
from tfshards import prep, schemas
from tfshards.prep import Arrays, ImageFolder, Options, ShardOptions, append, merge, reshard, verify
from tfshards.prep.building.output_state import up_to_date
from tfshards.prep.cli import main as cli
from tfshards.prep.records.example import example_encoder, with_key_prefix
from tfshards.prep.records.frames import read_records
from tfshards.prep.records.shard_file import ShardFile, frames_of
from tfshards.prep.rewriting import scan
from tfshards.prep.rewriting.keys import read_known
from tfshards.prep.rewriting.origin import Origin
from tfshards.schemas import BuildError, Feature, InputError, OptionsError, Schema, Totals, read_manifest
from tfshards.schemas.example import decode_example
from tfshards.schemas.index import index_path
from tfshards.schemas.manifest_file import write_manifest

from .derived import build_quietly, first_labels, first_shard, flip, in_no_order, quiet, records, write_images

ANY = Options(max_rejected=1)
SPLIT = Options(splits={"train": "0.7", "val": "0.3"}, max_rejected=1)


def build_photos(folder, name: str, numbers: range, options: Options = SPLIT, **more: object):
    """Build images of these numbers, and one that is rejected."""
    photos = write_images(folder / f"{name}-photos", numbers, [f"cat/{name}.png"])
    build_quietly(ImageFolder(photos, **more), folder / name, shards=3, options=options)
    return folder / name


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three datasets of which each split differs in size: 61, 20 and 9 examples."""
    folder = tmp_path_factory.mktemp("three")
    return [
        build_photos(folder, "one", range(61)),
        build_photos(folder, "two", range(61, 81)),
        # without a split val
        build_photos(folder, "three", range(81, 90), ANY),
    ]


@pytest.fixture
def two(tmp_path):
    """Two datasets that a test may damage."""
    return [build_photos(tmp_path, "a", range(12)), build_photos(tmp_path, "b", range(12, 30))]


def together(roots) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for root in roots:
        for split, held in records(root).items():
            found.setdefault(split, []).extend(held)
    return found


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_new_shards_mix_the_datasets(compression, three, tmp_path):
    asked = {
        "shards": prep.ShardCounts(4, {"val": 2}),
        "options": ShardOptions(compression=compression),
    }
    made = merge(three, tmp_path / "out", **asked, log=quiet)
    assert verify(tmp_path / "out", deep=True)
    assert in_no_order(records(tmp_path / "out")) == in_no_order(together(three))
    sizes = [shard.num_examples for shard in made.splits["train"].shards]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 1
    assert made.options["shards"] == {"train": 4, "val": 2}
    assert made.compression == compression
    # each shard holds examples of each dataset, in proportion
    held = [set(records(root)["train"]) for root in three]
    bounds = np.cumsum([0, *sizes]).tolist()
    train = records(tmp_path / "out")["train"]
    for start, end in pairwise(bounds):
        for dataset in held:
            share = len(dataset) * (end - start) / len(train)
            assert abs(sum(record in dataset for record in train[start:end]) - share) <= 3


def test_compressed_and_plain_shards_are_merged_by_writing_new_ones(three, tmp_path):
    reshard(three[1], tmp_path / "two", options=ShardOptions(compression="gzip"), log=quiet)
    roots = [three[0], tmp_path / "two"]
    with raises(InputError, "merge-compressions-differ", compression="none", compression2="gzip"):
        merge(roots, tmp_path / "out", log=quiet)
    made = merge(roots, tmp_path / "out", options=ShardOptions(compression="none"), log=quiet)
    assert made.compression == "none"
    # as many shards as before
    assert len(made.splits["train"].shards) == 6
    assert in_no_order(records(tmp_path / "out")) == in_no_order(together(roots))


def test_a_repeated_merge_is_up_to_date_and_another_needs_overwrite(three, tmp_path, log):
    out = tmp_path / "out"
    made = merge(three[:2], out, log=quiet)
    assert merge(three[:2], out, log=log.append) == made
    assert log == [up_to_date(out, is_compared=False)]
    with raises(InputError, "dataset-differs", distinction="with other inputs"):
        merge(three, out, log=quiet)
    again = merge(three, out, overwrite=True, log=quiet)
    assert again.num_examples == 90
    assert verify(out)


def test_without_hard_links_shards_are_copied(three, tmp_path, monkeypatch):
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    # a second file system is not available here
    monkeypatch.setattr(os, "link", refuse)
    made = merge(three, tmp_path / "out", log=quiet)
    assert verify(tmp_path / "out", deep=True)
    assert all((tmp_path / "out" / shard.path).stat().st_nlink == 1 for shard in made.shards)


def test_a_key_in_two_datasets_is_refused(three, tmp_path):
    same = build_photos(tmp_path, "same", range(59, 63), ANY)
    with raises(InputError, "keys-overlap", in_all=" (2 keys in total)"):
        merge([three[0], same], tmp_path / "out", log=quiet)
    assert not (tmp_path / "out").exists()


def test_a_rejected_key_in_two_datasets_is_refused(three, tmp_path):
    photos = write_images(tmp_path / "photos", range(90, 94), ["cat/two.png"])
    build_quietly(ImageFolder(photos), tmp_path / "same", shards=1, options=ANY)
    with raises(InputError, "keys-overlap", key="cat/two.png"):
        merge([three[1], tmp_path / "same"], tmp_path / "out", log=quiet)


def test_other_classes_are_refused(two, tmp_path):
    photos = write_images(tmp_path / "photos", range(40, 44))
    (photos / "dog").rename(photos / "owl")
    build_quietly(ImageFolder(photos), tmp_path / "owls", shards=1, options=ANY)
    with raises(InputError, "merge-classes-differ"):
        merge([*two, tmp_path / "owls"], tmp_path / "out", log=quiet)


def test_other_features_are_refused(two, tmp_path):
    gray = build_photos(tmp_path, "grey", range(50, 54), ANY, images=prep.ImageOptions(channels=1))
    with raises(InputError, "merge-features-differ"):
        merge([two[0], gray], tmp_path / "out", log=quiet)


@pytest.mark.parametrize(
    ("roots", "message"),
    [
        (["a"], "merge-too-few"),
        ("ab", "merge-too-few"),
        (["a", "b", "./a"], fault("merge-repeated", twice="a")),
    ],
)
def test_anything_except_two_different_datasets_is_refused(roots, message, tmp_path):
    with raises(OptionsError, message):
        merge(roots, tmp_path / "out", log=quiet)


@pytest.mark.parametrize("asked", [{}, {"shards": 2}])
def test_a_damaged_shard_is_named(asked, two, tmp_path):
    flip(first_shard(two[1]), -1)
    message = r"b-train-\w+\.tfrecord-00000-of-00003: record \d+ at byte .*checksum"
    with pytest.raises(BuildError, match=message):
        merge(two, tmp_path / "out", **asked, log=quiet)
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_damaged_labels_are_named(two, tmp_path):
    flip(first_labels(two[1]), -1)
    message = r"/b is damaged: index/b-train-\w+.*\.labels: its bytes have changed"
    with pytest.raises(BuildError, match=message):
        merge(two, tmp_path / "out", log=quiet)
    with pytest.raises(InputError, match=r"/b is damaged: index/b-train-.*\.labels: its bytes have changed"):
        merge(two, tmp_path / "out", shards=2, log=quiet)


def test_datasets_whose_labels_are_different_features_are_refused(tmp_path):
    one, other = Feature("kind", "label", "int64"), Feature("label", "label", "int64")
    roots = [
        by_hand(tmp_path / "a", Schema((one, other)), []),
        by_hand(tmp_path / "b", Schema((other, one)), []),
    ]
    with raises(InputError, "merge-features-differ"):
        merge(roots, tmp_path / "out", log=quiet)


def by_hand(root, schema: Schema, examples: list[bytes]):
    """Write a dataset of records that may violate the schema."""
    (root / "index").mkdir(parents=True)
    with ShardFile(root / "x.tfrecord", schema.label is not None) as file:
        file.append(frames_of([(data,) for data in examples], "none"))
    shard, companions = file.describe("x.tfrecord")
    for path, content in companions.items():
        (root / path).write_bytes(content)
    splits = {"train": schemas.Split((shard,))}
    totals = Totals(len(examples), len(examples))
    write_manifest(schemas.Manifest("x", "00000000", schema, splits, totals), root)
    return root


@pytest.mark.parametrize("as_splits", [False, True])
def test_datasets_without_keys_are_merged_with_a_warning(as_splits, tmp_path, log):
    schema = Schema((Feature("x", "bytes", "bytes"),))
    one, two = (by_hand(tmp_path / name, schema, [name.encode() * 3]) for name in "ab")
    sources = {"train": one, "test": two} if as_splits else [one, two]
    merge(sources, tmp_path / "out", log=log.append)
    assert log[0].startswith("warning: the examples have no keys, so repeated")
    wanted = {"train": [b"aaa"], "test": [b"bbb"]} if as_splits else {"train": [b"aaa", b"bbb"]}
    assert records(tmp_path / "out") == wanted
    merge(sources, tmp_path / "new", shards=1, log=quiet)
    assert records(tmp_path / "new") == wanted


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"\xff", "record 0 at byte 0: is not a tf.train.Example"), (b"", "record 0 at byte 0: has no key")],
)
def test_a_record_without_a_key_is_named(data, message, tmp_path):
    schema = Schema((Feature("key", "bytes", "bytes"),))
    roots = [by_hand(tmp_path / name, schema, [data]) for name in "ab"]
    with pytest.raises(BuildError, match=message):
        merge(roots, tmp_path / "out", log=quiet)


def test_a_shard_that_lacks_records_at_its_end_is_named(two):
    manifest = read_manifest(two[0])
    path = two[0] / manifest.shards[0].path
    index = (two[0] / index_path(manifest.shards[0].path)).read_text().splitlines()
    os.truncate(path, int(index[-1].split()[0]))
    with raises(BuildError, "keys-miscounted", num_packed=1, num_examples=2):
        read_known(Origin(two[0], manifest), None)


def test_keys_are_read_no_further_once_another_shard_has_failed(three, monkeypatch):
    monkeypatch.setattr(scan, "_RECORDS", 2)
    origin = Origin(three[0], read_manifest(three[0]))
    sizes = [shard.num_examples for shard in origin.manifest.shards]
    first, has_failed, num_read = threading.Lock(), threading.Event(), Counter()
    is_first = first.acquire

    def pack(data, _):
        num_read[threading.get_ident()] += 1
        if num_read[threading.get_ident()] == 3:
            if is_first(blocking=False):
                # the other one fails now
                assert has_failed.wait(60)
            elif not has_failed.is_set():
                has_failed.set()
                raise ValueError("has no key")
        time.sleep(0.05)
        return b"k"

    with pytest.raises(BuildError, match="has no key"):
        scan.read_shards(origin, "keys", pack)
    # each thread read one shard
    assert max(num_read.values()) < min(sizes)


KEYED = b"".join(example_encoder(Schema((Feature("key", "bytes", "bytes"),)))([b"1"]))


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


def test_datasets_of_several_splits_are_refused(photos, tmp_path):
    merge({"train": photos[0], "test": photos[1]}, tmp_path / "two", log=quiet)
    with raises(InputError, "as-splits-several", split="val"):
        merge({"train": photos[0], "val": tmp_path / "two"}, tmp_path / "out", log=quiet)


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
        ({"a b": "a", "test": "b"}, r"^the split name 'a b' must be letters"),
        ({5: "a", "test": "b"}, r"^sources=\[5, 'test'\] must be a list of strings$"),
        ({"train": None, "test": "b"}, r"^sources=None must be a path$"),
        (["a", 3], r"^sources=3 must be a path$"),
    ],
)
def test_sources_that_are_no_paths_by_name_are_refused(sources, message, tmp_path):
    with pytest.raises(OptionsError, match=message):
        merge(sources, tmp_path / "out")
