"""Shards of a dataset that was appended to are rebuilt, from the grown source and from each of its parts."""

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, Options, append, build, repair, reshard, verify
from tfshards.schemas import InputError, Manifest, read_manifest

from .derived import write, write_images

append = partial(append, engine="local", log=lambda _: None)
build = partial(build, engine="local", log=lambda _: None)

SPLIT = {"train": "0.7", "val": "0.3"}


def images(folder: Path, count: int) -> tuple[object, list[str]]:
    photos = write_images(folder / "photos", range(count), ["cat/x.png"])
    if count > 20:
        write_images(folder / "photos", (), ["dog/y.png"])
        write(photos / ".hidden", b"")
        write(photos / "eel" / "1.png", (photos / "cat" / "000.png").read_bytes())
    if count > 30:
        # rejected by the build, and fixed since
        write(photos / "cat" / "x.png", (photos / "cat" / "002.png").read_bytes())
    return ImageFolder(photos), [str(photos)]


def arrays(folder: Path, count: int) -> tuple[object, list[str]]:
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", np.arange(count * 3).reshape(count, 3))
    np.save(folder / "who.npy", np.arange(count) % 9)
    paths = [f"{name}={folder / name}.npy" for name in ("x", "who")]
    return Arrays.open(paths), paths


KINDS = {
    "images": (images, Options(splits=SPLIT, stratify=True, max_rejected=1)),
    "arrays in groups": (arrays, Options(splits=SPLIT, group_by="who", compression="gzip")),
}


def grown(kind: str, tmp_path: Path) -> tuple[Path, list[str], object, Manifest]:
    """Build from 20 inputs and append twice; return the dataset, the paths, the source and the manifest."""
    make, options = KINDS[kind]
    source, _ = make(tmp_path, 20)
    build(source, tmp_path / "out", shards=2, options=options)
    for count in (30, 45):
        source, paths = make(tmp_path, count)
        new = {"new_classes": True} if kind.startswith("images") else {}
        append(paths, tmp_path / "out", shards=2, max_rejected=1, **new)
    return tmp_path / "out", paths, source, read_manifest(tmp_path / "out")


def damage(root: Path, path: str) -> None:
    data = bytearray((root / path).read_bytes())
    data[len(data) // 2] ^= 255
    (root / path).write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_shards_of_any_part_are_rebuilt_from_the_grown_source(kind, tmp_path, contents):
    out, paths, source, manifest = grown(kind, tmp_path)
    before = contents(out)
    by_build: dict[str, list[str]] = {}
    for shard in manifest.shards:
        by_build.setdefault(shard.path.rpartition(".tfrecord-")[0][-8:], []).append(shard.path)
    assert len(by_build) == 3
    for number, shards in enumerate(by_build.values()):
        # all shards of a part: one is damaged, the others are gone
        damage(out, shards[0])
        for path in shards[1:]:
            (out / path).unlink()
        report = repair(out, paths if number else source)
        assert report, report.left
        assert contents(out) == before
    assert verify(out, deep=True)


def test_damage_in_two_parts_is_repaired_from_each_part(tmp_path, contents):
    first = write_images(tmp_path / "first", range(12))
    more = write_images(tmp_path / "more", range(20, 27))
    out = tmp_path / "out"
    old = build(ImageFolder(first), out, shards=2)
    made = append(more, out, shards=2)
    before = contents(out)
    for shard in (old.shards[0], made.shards[-1]):
        damage(out, shard.path)
    # from all inputs at once, or from those of each part
    both = shutil.copytree(first, tmp_path / "both")
    shutil.copytree(more, both, dirs_exist_ok=True)
    assert repair(out, both)
    assert contents(out) == before
    for shard in (old.shards[0], made.shards[-1]):
        damage(out, shard.path)
    report = repair(out, first)
    assert (report.repaired, bool(report)) == ((old.shards[0].path,), False)
    assert repair(out, more)
    assert contents(out) == before


def test_without_the_record_of_the_inputs_of_a_part_it_is_refused(tmp_path, contents):
    out, paths, _, manifest = grown("images", tmp_path)
    path = manifest.splits["train"].shards[-1].path
    damage(out, path)
    (out / f"inputs-{path.rpartition('.tfrecord-')[0][-8:]}.npz").unlink()
    before = contents(out)
    with raises(InputError, "inputs-differ"):
        repair(out, paths)
    assert contents(out) == before


def test_a_dataset_that_was_resharded_and_appended_to_is_refused(tmp_path):
    photos = write_images(tmp_path / "photos", range(8))
    build(ImageFolder(photos), tmp_path / "old", shards=1)
    reshard(tmp_path / "old", tmp_path / "out", log=lambda _: None)
    write_images(photos, range(8, 12))
    made = append(photos, tmp_path / "out")
    damage(tmp_path / "out", made.shards[0].path)
    with raises(InputError, "not-a-build", how="was made by reshard"):
        repair(tmp_path / "out", photos)
