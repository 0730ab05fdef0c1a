"""remove: the next generation of a dataset lacks some examples; all others stay as they are."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import raises
from tfshards import prep, schemas
from tfshards.prep import Arrays, ImageFolder, Options, adopt, append, merge, prune, remove, repair, verify
from tfshards.prep.building.inputs_file import read_inputs
from tfshards.prep.cli.main import main
from tfshards.prep.records.frames import read_records
from tfshards.prep.rewriting.keys import are_removed
from tfshards.prep.rewriting.layout import SplitLayout, kept_layout
from tfshards.prep.rewriting.origin import Origin, open_origin
from tfshards.prep.sources.keys import hash_key
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import BuildError, InputError, Manifest, Schema, Shard, Split, Totals, read_manifest
from tfshards.schemas.example import decode_key
from tfshards.schemas.manifest_file import write_manifest

from . import derived
from .derived import BUILDS, build_arrays, build_each, build_quietly, quiet, records, write_images


@pytest.fixture(scope="module")
def origins(tmp_path_factory) -> dict[tuple[str, str], Path]:
    """A folder with a dataset ``old`` and its inputs, of each kind and compression."""
    return build_each(tmp_path_factory)


@pytest.fixture
def photos(origins, tmp_path) -> Path:
    """A copy of the folder with 60 images in three splits of three shards, and two that are rejected."""
    return Path(shutil.copytree(origins["images", "none"], tmp_path / "photos-and-data"))


def keys(root: Path) -> dict[str, list[str]]:
    """Return the keys of each split, in order."""
    return {split: [os.fsdecode(decode_key(d) or b"") for d in held] for split, held in records(root).items()}


def sizes(manifest: Manifest) -> dict[str, list[int]]:
    return {name: [shard.num_examples for shard in split.shards] for name, split in manifest.splits.items()}


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("kind", BUILDS)
def test_other_examples_keep_their_bytes_and_the_shards_stay_balanced(kind, compression, origins, tmp_path):
    root = Path(shutil.copytree(origins[kind, compression] / "old", tmp_path / "old"))
    before, held = read_manifest(root), records(root)
    gone = {split: found[1::7] for split, found in held.items()}
    wanted = [decode_key(data) for found in gone.values() for data in found]
    log: list[str] = []
    made = remove(root, wanted, log=log.append)
    assert read_manifest(root) == made
    assert verify(root, deep=True, decode=kind == "images")
    for split, found in records(root).items():
        assert sorted(found) == sorted(set(held[split]) - set(gone[split]))
        assert max(sizes(made)[split]) - min(sizes(made)[split]) <= 1
        assert len(sizes(made)[split]) == len(sizes(before)[split])
    assert made.num_examples == before.num_examples - len(wanted)
    assert made.totals.accepted == made.num_examples
    assert f"verified by digest: nothing has changed in the {made.num_examples} other examples" in log
    # the old generation stays until it is pruned
    assert all((root / shard.path).exists() for shard in before.shards)
    prune(root)
    assert verify(root, deep=True)
    assert not any((root / shard.path).exists() for shard in before.shards)


def test_only_the_shards_concerned_are_written(photos, log):
    root = photos / "old"
    before, held = read_manifest(root), keys(root)
    assert sizes(before)["train"] == [15, 14, 14]
    made = remove(root, held["train"][3:4], log=log.append)
    assert sizes(made)["train"] == [14, 14, 14]
    assert log[1] == "train: writing 1 of 3 shards, 14 examples per shard"
    links = {shard.path: (root / shard.path).stat().st_nlink for shard in made.shards}
    assert sorted(links.values()) == [1, *[2] * 8]
    assert [*keys(root)["train"]] == [*held["train"][:3], *held["train"][4:]]
    labels = made.splits["train"].label_counts
    assert sum(labels.values()) == made.splits["train"].num_examples
    assert made.splits["val"].label_counts == before.splits["val"].label_counts


def test_examples_move_only_if_the_shards_would_be_uneven(photos, log):
    root = photos / "old"
    before, held = read_manifest(root), keys(root)
    count = sizes(before)["train"][1]
    start = sizes(before)["train"][0]
    gone = held["train"][start : start + 5]
    made = remove(root, gone, log=log.append)
    found = sizes(made)["train"]
    assert max(found) - min(found) <= 1
    (line,) = [line for line in log if line.startswith("train: ")]
    moved = found[1] - (count - 5)
    assert moved >= 2
    assert line.startswith("train: writing 3 of 3 shards, ")
    assert line.endswith(f", {moved} examples moved to balance them")
    # those that stay in their shard keep their order; those that move come last
    now = keys(root)["train"][found[0] : found[0] + found[1]]
    assert now[: count - 5] == held["train"][start + 5 : start + count]


def test_nothing_of_the_removed_examples_is_on_disk_after_prune(tmp_path, log):
    pictures = write_images(tmp_path / "photos", range(20))
    shutil.copy(pictures / "cat" / "004.png", pictures / "dog" / "twin.png")
    (pictures / "dog" / "broken-of-jane.png").write_bytes(b"no image")
    root = tmp_path / "data"
    options = Options(max_rejected=1, duplicates="drop")
    build_quietly(ImageFolder(pictures), root, shards=3, options=options)
    write_images(tmp_path / "more", range(20, 24))
    append(tmp_path / "more", root, engine="local", log=quiet)
    names = ["cat/004.png", "dog/005.png", "dog/broken-of-jane.png", "cat/022.png"]
    twin = "dog/twin.png"
    images = [
        (folder / name).read_bytes()[8:]
        for folder in (pictures, tmp_path / "more")
        for name in names
        if (folder / name).exists() and "broken" not in name
    ]
    assert len(images) == 3
    made = remove(root, names, log=log.append)
    assert log[0] == (f"removing 3 examples and 2 rejected inputs from {root}")
    assert made.totals.rejected == 0
    assert made.rejects_digest == ""
    assert not list(root.glob(f"rejected-{made.build_id}*"))
    held = everything(root)
    assert all(name.encode() in held for name in names)
    prune(root)
    held = everything(root)
    for text in [*images, *(name.encode() for name in [*names, twin])]:
        assert text not in held
    assert b"cat/006.png" in held
    assert not (root / AREA_NAME).exists()
    assert verify(root, deep=True)
    inputs = read_inputs(root, made.build_id)
    assert inputs is not None
    assert len(inputs.keys) == len(inputs.sizes) == 21
    # nor do they come back
    log.clear()
    assert append(pictures, root, engine="local", log=log.append) == made
    assert f"leaving out 4 inputs removed from {root}, such as 'cat/004.png'" in log


def everything(root: Path) -> bytes:
    """Return the bytes of all files of a folder, with the arrays in archives as they are."""
    parts = []
    for path in sorted(root.rglob("*")):
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                parts += [arrays[name].tobytes().replace(b"\0", b"\n") for name in arrays]
        elif path.is_file():
            parts.append(path.read_bytes())
    return b"\n".join(parts)


def test_append_takes_new_inputs_but_no_removed_ones_also_after_reshard_and_merge(photos, tmp_path, log):
    root = photos / "old"
    remove(root, ["cat/000.png", "dog/001.png"], log=quiet)
    write_images(photos / "photos", range(60, 64))
    made = append(photos / "photos", root, engine="local", log=log.append)
    assert made.num_examples == 58 + 4
    assert f"leaving out 2 inputs removed from {root}, such as 'cat/000.png'" in log
    assert "comparing the contents" not in " ".join(log)
    assert verify(root, deep=True)
    # a second edit of the dataset that was appended to
    again = remove(root, ["cat/060.png"], log=quiet)
    assert again.num_examples == 61
    assert len(again.options["removed"]) == 3
    assert "removed" not in again.options["origin"]["options"]
    assert "rejected" not in json.dumps(again.options["origin"]["options"]["appended"])
    assert verify(root, deep=True)
    # a third one has the same origin as the second
    last = remove(root, ["cat/062.png"], log=quiet)
    assert last.options["origin"] == again.options["origin"]
    prep.reshard(root, root, shards=2, overwrite=True, log=quiet)
    assert append(photos / "photos", root, engine="local", log=quiet).num_examples == 60


def test_removed_keys_are_known_after_the_splits_were_put_before_the_keys(tmp_path):
    for name, first in (("a", 0), ("b", 10)):
        build_quietly(
            ImageFolder(write_images(tmp_path / f"{name}s", range(first, first + 8))), tmp_path / name
        )
    remove(tmp_path / "a", ["cat/000.png"], log=quiet)
    merged = merge({"train": tmp_path / "a", "test": tmp_path / "b"}, tmp_path / "both", log=quiet)
    named = [b"train/cat/000.png", b"test/cat/000.png", b"cat/000.png"]
    assert are_removed(named, merged.made).tolist() == [True, False, False]
    made = remove(tmp_path / "both", ["train/dog/001.png"], log=quiet)
    assert are_removed([b"train/cat/000.png", b"train/dog/001.png"], made.made).tolist() == [True, True]


def test_rows_of_arrays_are_removed_by_their_numbers_and_new_rows_appended(tmp_path, log):
    build_arrays(tmp_path)
    root = tmp_path / "old"
    made = remove(root, ["0", "17", "100"], log=quiet)
    assert made.num_examples == 98
    inputs = read_inputs(root, made.build_id)
    assert inputs is not None
    assert sorted(map(int, inputs.keys)) == sorted({*range(101)} - {0, 17, 100})
    x = np.random.default_rng(0).integers(0, 256, (101, 40), dtype=np.uint8)
    grown = Arrays({"x": np.concatenate([x, x[:2]]), "label": np.arange(103) % 3})
    assert append(grown, root, engine="local", log=log.append).num_examples == 100
    assert f"leaving out 3 inputs removed from {root}, such as '0'" in log
    assert verify(root, deep=True)
    # the shards of two builds differ in size, so that records only leave their shards
    before = sizes(read_manifest(root))["train"]
    one = open_origin(root).manifest.shards[0]
    first = [decode_key(data) for _, data in read_records(root / one.path, "none")]
    assert sizes(remove(root, first[:9], log=quiet))["train"] == [before[0] - 9, *before[1:]]
    log.clear()
    rest = remove(root, first[9:], log=log.append)
    assert sizes(rest)["train"] == before[1:]
    fewer = (
        "warning: the split 'train' will have 3 shards instead of 4, since a shard without examples is left "
    )
    assert f"{fewer}out" in log
    assert verify(root, deep=True)


def test_an_edited_dataset_is_read_verified_repaired_reported_and_derived_from(photos, tmp_path):
    root = photos / "old"
    made = remove(root, keys(root)["train"][:10], log=quiet)
    prune(root)
    index = root / made.shards[0].files[0]
    index.unlink()
    assert not verify(root)
    assert repair(root)
    assert verify(root, deep=True)
    (root / made.shards[0].path).write_bytes(b"")
    with raises(InputError, "not-a-build", manifest="old", how="was made by remove"):
        repair(root, photos / "photos")
    assert repr(made).startswith(f"old, build {made.build_id}")


def test_unknown_keys_are_refused_and_repeated_calls_do_nothing(photos, contents, log):
    root = photos / "old"
    before = contents(root)
    wanted = ["cat/000.png", "cat/zero.png", "x"]
    with pytest.raises(InputError, match=r"2 of 3 keys not in .*old: 'cat/zero.png', 'x'; correct these"):
        remove(root, wanted, log=quiet)
    assert contents(root) == before
    made = remove(root, wanted[:1], log=quiet)
    assert made.options["removed"] == [hash_key(b"cat/000.png").hex()]
    after = contents(root)
    log.clear()
    assert remove(root, [b"cat/000.png"], log=log.append) == made
    assert log[0] == "1 key removed before"
    assert "is up to date" in log[1]
    assert contents(root) == after


def test_a_split_keeps_an_example_and_a_class_without_examples_is_reported(photos, log):
    root = photos / "old"
    held = keys(root)
    with raises(InputError, "remove-whole-split", num_examples=5, name="test"):
        remove(root, held["test"], log=quiet)
    cats = [key for key in held["val"] if key.startswith("cat/")]
    made = remove(root, cats, log=log.append)
    assert "warning: the split 'val' will have no examples of the classes 'cat'" in log
    assert made.schema.class_names == ("cat", "dog")
    assert made.splits["val"].label_counts["cat"] == 0
    log.clear()
    made = remove(root, held["test"][:-2], log=log.append)
    assert sizes(made)["test"] == [1, 1]
    assert any("will have 2 shards instead of 3" in line for line in log)
    assert verify(root, deep=True)


@pytest.mark.parametrize("wanted", [[], b"cat/000.png", [7], 7])
def test_keys_that_are_none_are_refused(photos, wanted):
    with pytest.raises(schemas.OptionsError, match=r"keys="):
        remove(photos / "old", wanted, log=quiet)


def test_datasets_that_cannot_be_edited_are_refused(photos, tmp_path):
    (tmp_path / "empty").write_text("\n")
    with raises(InputError, "keys-empty"):
        remove(photos / "old", tmp_path / "empty", log=quiet)
    with raises(InputError, "path-missing"):
        remove(tmp_path / "none", ["a"], log=quiet)
    adopted = tmp_path / "adopted"
    adopted.mkdir()
    shard = read_manifest(photos / "old").splits["train"].shards[0]
    shutil.copy(photos / "old" / shard.path, adopted / "a.tfrecord")
    adopt(adopted, prep.AdoptOptions(splits={"train": "a*"}))
    with raises(InputError, "edit-of-foreign-records"):
        remove(adopted, ["cat/000.png"], log=quiet)
    keyless = tmp_path / "keyless"
    built = build_quietly(Arrays({"x": np.arange(4)}), keyless)
    features = tuple(replace(one, name="id") if one.name == "key" else one for one in built.schema.features)
    write_manifest(replace(built, schema=replace(built.schema, features=features)), keyless)
    with raises(InputError, "edit-no-keys"):
        remove(keyless, ["0"], log=quiet)


def test_a_dataset_with_another_content_than_its_digests_is_not_edited(tmp_path):
    build_arrays(tmp_path)
    shard = tmp_path / "old" / read_manifest(tmp_path / "old").shards[1].path
    derived.repeat_a_record(shard)
    held = [os.fsdecode(decode_key(data) or b"") for _, data in read_records(shard, "none")]
    one = next(key for key in held if held.count(key) == 1)
    with raises(BuildError, "copies-differ", name="train"):
        remove(tmp_path / "old", [one], log=quiet)


def test_the_command_removes_what_the_audit_lists(tmp_path, capsys):
    pictures = write_images(tmp_path / "photos", range(12))
    for number in (2, 4):
        shutil.copy(pictures / "cat" / f"{number:03d}.png", pictures / "cat" / f"twin-{number}.png")
    root = str(tmp_path / "data")
    build_quietly(ImageFolder(pictures), root, shards=2)
    listed = tmp_path / "keys.txt"
    assert main(["audit", root, "--distance", "none", "--keys", str(listed)]) == 0
    assert f"wrote 2 keys to {listed}" in capsys.readouterr().err
    assert main(["remove", root, "--keys", str(listed), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["totals"]["accepted"] == 12
    assert main(["audit", root, "--distance", "none", "--keys", str(listed)]) == 0
    assert listed.read_bytes() == b""
    listed.write_text("nobody\ncat/000.png\n")
    assert main(["remove", root, "--keys", str(listed)]) == 1
    assert "1 of 2 keys not in" in capsys.readouterr().err


def test_a_missing_index_of_another_shard_ends_the_call(photos):
    root = photos / "old"
    manifest = read_manifest(root)
    missing = root / manifest.splits["test"].shards[0].files[0]
    missing.unlink()
    with raises(BuildError, "file-fault"):
        remove(root, keys(root)["train"][:1], log=quiet)
    assert read_manifest(root) == manifest


SCHEMA = Schema((schemas.Feature("x", "int", "int64"),))


def layout_of(sizes: list[int], is_removed: np.ndarray, *, is_balanced: bool) -> SplitLayout:
    digest, zero = f"sha256:{64 * '0'}", 16 * "0"
    shards = [
        Shard(f"d-train-0123abcd.tfrecord-{i:05d}", s, 16 * s, 16 * s, digest, digest, zero, zero, "")
        for i, s in enumerate(sizes)
    ]
    manifest = Manifest("d", "0123abcd", SCHEMA, {"train": Split(tuple(shards))}, Totals(0, 0))
    origin = Origin(Path("d"), manifest)
    return kept_layout([origin], "train", is_removed, is_balanced=is_balanced)


@given(st.data(), st.booleans())
def test_the_other_records_keep_their_shard_and_order_except_the_moved_ones(data, is_balanced):
    num_shards = data.draw(st.integers(1, 6))
    if is_balanced:
        least = data.draw(st.integers(1, 8))
        sizes = [least + data.draw(st.integers(0, 1)) for _ in range(num_shards)]
    else:
        sizes = [data.draw(st.integers(0, 9)) for _ in range(num_shards)]
    is_removed = np.array([data.draw(st.booleans()) for _ in range(sum(sizes))], np.bool_)
    if is_removed.all():
        return
    made = layout_of(sizes, is_removed, is_balanced=is_balanced)
    shard_of = np.repeat(np.arange(num_shards), sizes)
    made_records = [
        np.concatenate(
            [np.arange(first, first + count) for _, first, count in [(0, 0, 0), *made.runs(index)]]
        )
        for index in range(len(made.kept))
    ]
    assert sorted(np.concatenate(made_records).tolist()) == np.flatnonzero(~is_removed).tolist()
    homes = [int(np.bincount(shard_of[each], minlength=num_shards).argmax()) for each in made_records]
    moved = 0
    for of_shard, kept, home in zip(made_records, made.kept, homes, strict=True):
        if kept >= 0:
            assert of_shard.tolist() == np.flatnonzero(shard_of == kept).tolist()
            continue
        own = [number for number in of_shard.tolist() if shard_of[number] == home]
        assert own == sorted(own)
        moved += len(of_shard) - len(own)
    if is_balanced:
        counts = [len(each) for each in made_records]
        assert max(counts) - min(counts) <= 1
        assert made.num_moved <= is_removed.sum() + num_shards
    else:
        assert made.num_moved == moved == 0
