"""diff: what one dataset has that another lacks, and what differs in the examples of both."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.format_reader import companion, read
from tfshards import prep
from tfshards.prep import Arrays, append, build, diff, relabel, remove, reshard
from tfshards.schemas import read_manifest

from .derived import write_images


def names(found) -> set[str]:
    return {difference.name for difference in found.options}


def changed_shard(root: Path) -> Path:
    """Return the shard that the only edit of a dataset has written."""
    manifest = read_manifest(root)
    (found,) = [shard.path for shard in manifest.shards if shard.path.startswith(manifest.folder)]
    return root / found


def test_equal_datasets_and_equal_shards_are_compared_without_reading_them(origin, root):
    reshard(root, root, shards=2, overwrite=True, options=prep.ShardOptions(compression="gzip"))
    found = diff(origin, root)
    assert (found.is_same, any(found.examples.values()), names(found)) == (
        False,
        False,
        {"compression", "shards"},
    )
    prep.restore(root, read_manifest(origin).folder)
    assert diff(origin, root).is_same
    remove(root, ["cat/000.png"])
    for shard in read_manifest(root).shards:
        path = root / shard.path
        if path != changed_shard(root):
            path.write_bytes(bytes(shard.num_bytes - 8) + path.read_bytes()[-8:])
    found = diff(origin, root)
    assert (found.removed, found.num_same) == (("cat/000.png",), 59)


def test_examples_that_were_removed_added_and_relabeled(origin, root, tmp_path):
    remove(root, ["cat/000.png", "dog/001.png"])
    relabel(root, {"cat/002.png": "dog", "cat/004.png": "emu"}, new_classes=True)
    append(write_images(tmp_path / "more", range(60, 67)), root)
    found = diff(origin, root)
    assert found.removed == ("cat/000.png", "dog/001.png")
    assert found.added == tuple(sorted(f"{('cat', 'dog')[n % 2]}/{n:03d}.png" for n in range(60, 67)))
    assert found.relabeled == (("cat/002.png", "cat", "dog"), ("cat/004.png", "cat", "emu"))
    assert (found.changed, found.moved, found.num_same) == ((), (), 56)
    assert names(found) == {"class_names", "shards"}
    assert "2 more" in repr(found)
    back = diff(root, origin)
    assert (back.added, back.removed) == (found.removed, found.added)


def test_examples_that_changed_or_moved(origin, tmp_path):
    photos, new = write_images(tmp_path / "photos", range(60)), tmp_path / "new"
    shutil.copy(photos / "cat" / "004.png", photos / "cat" / "002.png")
    options = prep.Options(splits={"train": "0.3", "val": "0.6", "test": "0.1"})
    build(prep.ImageFolder(photos), new, shards=3, options=options)
    found = diff(origin, new)
    one, other = (
        {key: split for split, held in read(root).items() for key in held} for root in (origin, new)
    )
    moved = {(key, split, other[key]) for key, split in one.items() if split != other[key]}
    assert {*found.moved} == moved
    assert len(moved) > 10
    assert found.changed == ("cat/002.png",)
    assert (found.added, found.removed, found.relabeled) == ((), (), ())
    assert found.num_same == 60 - len({"cat/002.png", *(key for key, *_ in moved)})
    assert "splits" in names(found)


def made(tmp_path, name, arrays, roles=None, **options):
    source = Arrays({key: np.array(value) for key, value in arrays.items()}, roles or {}, **options)
    build(source, tmp_path / name, shards=1)
    return tmp_path / name


def test_classes_are_compared_by_name_and_only_the_features_of_both(tmp_path):
    one = made(tmp_path, "a", {"x": range(4), "label": [0, 1, 1, 0]}, class_names=["cat", "dog"])
    other = made(tmp_path, "b", {"x": range(4), "label": [1, 0, 1, 1]}, class_names=["dog", "cat"])
    found = diff(one, other)
    assert (found.relabeled, found.num_same) == ((("2", "dog", "cat"),), 3)
    found = diff(one, made(tmp_path, "c", {"x": range(4), "z": range(4)}))
    assert not any(found.examples.values())
    assert "features" in names(found)


SIZES = [0, 1, 300, 5000, 70_000, 4_200_000]


@pytest.mark.parametrize("compressions", [("none", "none"), ("none", "gzip")])
def test_records_are_compared_by_their_lengths_and_checksums(compressions, tmp_path):
    rows = {f"{number:02d}": b"a" * SIZES[number % 6] for number in range(36)}
    edited = {"01": b"b", "04": b"a" * 69_999 + b"b", "05": b"b" * 4_200_000, "06": b"a", "35": b""}
    labels = {key: int(key) % 3 for key in rows}
    for name, values, compression, shards in zip(
        "ab", (rows, rows | edited), compressions, (3, 4), strict=True
    ):
        ones = [(key, {"x": value, "y": labels[key]}) for key, value in values.items()]
        labels["07"] = labels["08"] = 9
        options = prep.Options(compression=compression)
        build(prep.Examples(ones, {"y": "label"}), tmp_path / name, shards=shards, options=options)
    if compressions[1] == "none":
        for shard in read_manifest(tmp_path / "b").shards:
            blank(tmp_path / "b", shard)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.changed == tuple(edited)
    assert found.relabeled == (("07", "1", "9"), ("08", "2", "9"))
    assert (found.num_same, found.added, found.removed, found.moved) == (29, (), (), ())


def blank(root: Path, shard) -> None:
    """Overwrite the data of records, but not their checksums."""
    data = bytearray((root / shard.path).read_bytes())
    for line in (root / companion(shard.path, "idx")).read_text().splitlines():
        offset, length = map(int, line.split())
        data[offset : offset + length - 4] = bytes(length - 4)
    (root / shard.path).write_bytes(data)
