"""diff: what one dataset has that another lacks, and what differs in the examples of both."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tfshards import prep
from tfshards.prep import AdoptOptions, Arrays, Options, adopt, append, build, diff, relabel, remove, reshard
from tfshards.prep.cli.main import main
from tfshards.prep.comparison import diff as diff_module
from tfshards.prep.comparison.diff import option_differences
from tfshards.prep.records.frames import frame, read_records
from tfshards.schemas import BuildError, InputError, read_manifest

from .derived import build_images, build_quietly, quiet, write_images
from .test_remove import keys


@pytest.fixture(scope="module")
def origin(tmp_path_factory) -> Path:
    """60 images in three splits."""
    folder = tmp_path_factory.mktemp("images")
    build_images(folder)
    return folder / "old"


@pytest.fixture
def copy(origin, tmp_path) -> Path:
    return Path(shutil.copytree(origin, tmp_path / "new"))


def names(found) -> set[str]:
    return {difference.name for difference in found.options}


def test_equal_datasets_are_compared_without_reading_them(origin, copy, monkeypatch):
    monkeypatch.setattr(diff_module, "read_shards", None)
    found = diff(origin, copy)
    assert found.is_same
    assert repr(found) == "60 examples are the same"
    reshard(copy, copy, shards=2, overwrite=True, options=prep.ShardOptions(compression="gzip"), log=quiet)
    found = diff(origin, copy)
    assert (found.is_same, found.has_same_examples, names(found)) == (False, True, {"compression", "shards"})
    assert repr(found).splitlines()[0] == "compression: none -> gzip"


def changed_shard(root: Path) -> Path:
    """Return the shard that the only edit of a dataset has written; the others are links."""
    (found,) = [root / s.path for s in read_manifest(root).shards if (root / s.path).stat().st_nlink == 1]
    return found


def test_shards_of_both_datasets_are_not_read(origin, copy):
    remove(copy, ["cat/000.png"], log=quiet)
    for shard in read_manifest(copy).shards:
        path = copy / shard.path
        if path != changed_shard(copy):
            # a link, so that it is damaged in both generations
            path.write_bytes(bytes(shard.num_bytes - 8) + path.read_bytes()[-8:])
    found = diff(origin, copy)
    assert (found.removed, found.num_same, found.has_same_examples) == (("cat/000.png",), 59, False)


def test_equal_shards_in_other_splits_are_examples_that_moved(tmp_path):
    roots = [
        made(tmp_path, name, {"x": range(4), "part": ["train"] * 3 + [split]}, split="part")
        for name, split in (("a", "val"), ("b", "test"))
    ]
    one, other = (read_manifest(root).splits for root in roots)
    assert one["val"].shards[0].digest == other["test"].shards[0].digest
    found = diff(*roots)
    assert found.moved == (("3", "val", "test"),)
    assert (found.num_same, found.added, found.removed) == (3, (), ())


def test_equal_records_may_have_other_classes(tmp_path):
    (shard,) = read_manifest(made(tmp_path, "built", {"x": range(4), "y": [0, 0, 3, 3]}, label="")).shards
    for label in "xy":
        folder = tmp_path / label
        folder.mkdir()
        shutil.copy(tmp_path / "built" / shard.path, folder / "a.tfrecord")
        adopt(folder, AdoptOptions(splits={"train": "a*"}, roles=prep.FeatureRoles(label=label)))
    found = diff(tmp_path / "x", tmp_path / "y")
    assert found.relabeled == (("1", "1", "0"), ("2", "2", "3"))
    assert found.num_same == 2


def test_examples_that_were_removed_added_and_relabeled(origin, copy, tmp_path):
    remove(copy, ["cat/000.png", "dog/001.png"], log=quiet)
    relabel(copy, {"cat/002.png": "dog", "cat/004.png": "emu"}, new_classes=True, log=quiet)
    append(write_images(tmp_path / "more", range(60, 67)), copy, engine="local", log=quiet)
    found = diff(origin, copy)
    assert found.removed == ("cat/000.png", "dog/001.png")
    assert found.added == tuple(sorted(f"{('cat', 'dog')[n % 2]}/{n:03d}.png" for n in range(60, 67)))
    assert found.relabeled == (("cat/002.png", "cat", "dog"), ("cat/004.png", "cat", "emu"))
    assert (found.changed, found.moved, found.num_same) == ((), (), 56)
    assert names(found) == {"class_names", "shards"}
    lines = repr(found).splitlines()
    assert lines[0] == "added: 7 examples"
    assert lines[6] == "    and 2 more"
    assert "    cat/004.png: cat -> emu" in lines
    assert 'class_names: ["cat", "dog"] -> ["cat", "dog", "emu"]' in lines
    back = diff(copy, origin)
    assert (back.added, back.removed) == (found.removed, found.added)


def test_examples_that_changed_or_moved(origin, tmp_path):
    pictures = write_images(tmp_path / "photos", range(60))
    shutil.copy(pictures / "cat" / "000.png", pictures / "cat" / "002.png")
    options = Options(splits={"train": "0.6", "val": "0.3", "test": "0.1"})
    build_quietly(prep.ImageFolder(pictures), tmp_path / "new", shards=3, seed=1, options=options)
    found = diff(origin, tmp_path / "new")
    assert found.changed == ("cat/002.png",)
    assert (found.added, found.removed, found.relabeled) == ((), (), ())
    splits = [{k: s for s, held in keys(root).items() for k in held} for root in (origin, tmp_path / "new")]
    moved = {(key, split, splits[1][key]) for key, split in splits[0].items() if split != splits[1][key]}
    assert {*found.moved} == moved
    assert len(moved) > 10
    assert found.num_same == 60 - len({"cat/002.png", *(key for key, *_ in moved)})
    assert {"seed", "splits"} <= names(found)


def made(tmp_path, name, arrays, **options):
    source = Arrays({key: np.array(value) for key, value in arrays.items()}, **options)
    build(source, tmp_path / name, shards=1, engine="local", log=quiet)
    return tmp_path / name


def test_classes_are_compared_by_name(tmp_path):
    one = made(tmp_path, "a", {"x": range(4), "label": [0, 1, 1, 0]}, class_names=["cat", "dog"])
    other = made(tmp_path, "b", {"x": range(4), "label": [1, 0, 1, 1]}, class_names=["dog", "cat"])
    found = diff(one, other)
    assert found.relabeled == (("2", "dog", "cat"),)
    assert found.num_same == 3


def test_only_the_features_of_both_are_compared(tmp_path):
    one = made(tmp_path, "a", {"x": range(4), "z": range(4)})
    found = diff(one, made(tmp_path, "b", {"x": range(4), "label": [0, 1, 0, 1]}))
    assert found.has_same_examples
    assert names(found) == {"features"}


def test_options_of_merged_datasets_are_those_of_all_builds(origin, copy):
    one, other = read_manifest(origin), read_manifest(origin)
    merged = replace(other, options={"source": "merge", "of": [{"options": one.options}] * 2})
    found = {each.name: each for each in option_differences(one, merged)}
    assert found["seed"].after is None
    assert len(found["builds"].after) == 2


def test_options_that_only_one_build_has_are_none_in_the_other(origin, tmp_path):
    rows = made(tmp_path, "rows", {"x": range(4)})
    assert any(line.endswith("-> none") for line in repr(diff(origin, rows)).splitlines())


def test_datasets_that_cannot_be_compared_are_refused(origin, copy, tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.tfrecord").write_bytes(
        b"".join(frame(b"\x0a\x0c\x0a\x0a\x0a\x01x\x12\x05\x1a\x03\x0a\x01\x07"))
    )
    adopt(tmp_path / "files", AdoptOptions(splits={"train": "a*"}))
    reshard(tmp_path / "files", tmp_path / "keyless", log=quiet)
    with raises(InputError, "diff-no-keys"):
        diff(origin, tmp_path / "keyless")
    with raises(InputError, "path-missing"):
        diff(origin, tmp_path / "none")
    remove(copy, ["cat/000.png"], log=quiet)
    shard = changed_shard(copy)
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.unlink()
    shard.write_bytes(data)
    with pytest.raises(BuildError, match="the checksum of the record's data does not match"):
        diff(origin, copy)


def test_a_record_that_lost_its_key_is_named(origin, copy):
    remove(copy, ["cat/000.png"], log=quiet)
    shard = changed_shard(copy)
    first, *others = [data for _, data in read_records(shard, "none")]
    # of the same length and with valid checksums, so that only the name of the feature is wrong
    renamed = first.replace(b"\n\x03key", b"\n\x03yek")
    assert renamed != first
    shard.unlink()
    shard.write_bytes(b"".join(b"".join(frame(data)) for data in (renamed, *others)))
    with pytest.raises(BuildError, match=r"record 0 at byte 0: has no key") as failure:
        diff(origin, copy)
    assert str(failure.value).startswith(str(shard))


def test_the_command_exits_as_diff_does(origin, copy, capsys):
    assert main(["diff", str(origin), str(copy)]) == 0
    assert capsys.readouterr().out == "60 examples are the same\n"
    remove(copy, ["cat/000.png"], log=quiet)
    assert main(["diff", str(origin), str(copy)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "removed: 1 example",
        "    cat/000.png",
        "59 examples are the same",
    ]
    assert main(["diff", str(origin), str(copy), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["removed"] == ["cat/000.png"]
    assert main(["diff", str(origin), str(copy / "no")]) == 1
    assert main(["diff", str(origin), ""]) == 2
