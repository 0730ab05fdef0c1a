"""remove: what is written, what is left on disk, and what is refused; see tests/verbs for the examples."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tfshards import prep, schemas
from tfshards.prep import Arrays, ImageFolder, Options, adopt, append, prune, remove, verify
from tfshards.prep.building.inputs_file import read_inputs
from tfshards.prep.records.frames import read_records
from tfshards.prep.writing.area import AREA_NAME
from tfshards.schemas import BuildError, InputError, Manifest, read_manifest
from tfshards.schemas.example import decode_key
from tfshards.schemas.manifest_file import write_manifest

from . import derived
from .derived import build_arrays, build_images, build_quietly, quiet, records, write_images


@pytest.fixture(scope="module")
def origin(tmp_path_factory) -> Path:
    """A folder with 60 images in three splits of three shards, and two that are rejected, and ``old``."""
    folder = tmp_path_factory.mktemp("images")
    build_images(folder)
    return folder


@pytest.fixture
def photos(origin, tmp_path) -> Path:
    """A copy of the folder."""
    return Path(shutil.copytree(origin, tmp_path / "photos-and-data"))


def keys(root: Path) -> dict[str, list[str]]:
    """Return the keys of each split, in order."""
    return {split: [os.fsdecode(decode_key(d) or b"") for d in held] for split, held in records(root).items()}


def sizes(manifest: Manifest) -> dict[str, list[int]]:
    return {name: [shard.num_examples for shard in split.shards] for name, split in manifest.splits.items()}


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


def test_a_missing_index_of_another_shard_ends_the_call(photos):
    root = photos / "old"
    manifest = read_manifest(root)
    missing = root / manifest.splits["test"].shards[0].files[0]
    missing.unlink()
    with raises(BuildError, "file-fault"):
        remove(root, keys(root)["train"][:1], log=quiet)
    assert read_manifest(root) == manifest
