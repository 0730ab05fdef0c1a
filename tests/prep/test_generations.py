"""A dataset keeps the generations that it replaces, and its views follow the manifest, or are reported."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.errors import raises
from tests.pictures import image_file, write
from tfshards.prep import (
    Arrays,
    ImageFolder,
    append,
    build,
    generations,
    prune,
    relabel,
    remove,
    restore,
    verify,
)
from tfshards.schemas import BuildError, FormatError, InputError, Manifest, read_manifest


def arrays(count: int = 24, *, names: tuple[str, ...] = ("cat", "dog", "owl")) -> Arrays:
    return Arrays({"x": np.arange(count), "label": np.arange(count) % len(names)}, class_names=names)


def built(out, source: Arrays | None = None, **options: object) -> Manifest:
    return build(source or arrays(), out, **{"shards": 2, **options})


@pytest.fixture
def out(tmp_path):
    """A dataset that was built, appended to, edited twice, and built again: five generations."""
    out = tmp_path / "data"
    built(out)
    append(arrays(30), out)
    remove(out, ["3", "7"])
    relabel(out, {"4": "owl"})
    built(out, arrays(names=("a", "b")), overwrite=True)
    return out


def test_a_generation_that_lacks_a_shard_is_not_restored(out):
    last = generations(out)[-1].folder
    manifest = json.loads((out / last / "dataset.json").read_bytes())
    (out / manifest["splits"]["train"]["shards"][1]["path"]).unlink()
    with raises(InputError, "is damaged and", str(last)):
        restore(out, last)
    # the generation after it has the same shard
    assert [one.num_damaged for one in generations(out)] == [0, 0, 0, 1, 1]


def bitmaps(folder: Path, shade: int, broken: int = 12) -> ImageFolder:
    """Write 12 images of equal size, one of which may be broken."""
    for number in range(12):
        content = image_file(np.full((6, 6, 3), 20 * number + shade, np.uint8), "BMP")
        write(folder / f"{number:02}.bmp", bytes(len(content)) if number == broken else content)
    return ImageFolder(folder)


def test_prune_removes_no_generation_if_the_manifest_of_the_dataset_is_lost(out):
    manifest = read_manifest(out)
    (out / "dataset.json").write_bytes(b"{")
    assert [one.folder for one in generations(out) if one.is_current] == []
    (out / "dataset.json").unlink()
    assert manifest.folder == generations(out)[0].folder
    before = sorted(out.rglob("*"))
    with pytest.raises(InputError, match=manifest.folder):
        prune(out)
    assert sorted(out.rglob("*")) == before
    assert restore(out, manifest.folder) == manifest
    prune(out)
    assert verify(out, deep=True)


def test_a_damaged_copy_of_the_manifest_is_written_again(tmp_path, contents):
    out = tmp_path / "data"
    manifest = built(out)
    before = contents(out)
    copy = out / manifest.folder / "dataset.json"
    for damage in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])):
        damage(copy)
        assert [one.folder for one in generations(out)] == [manifest.folder]
        assert built(out) == manifest
        assert contents(out) == before


def test_what_prune_has_left_of_a_build_is_never_written_again(tmp_path):
    out = tmp_path / "data"
    built(out, bitmaps(tmp_path / "photos", 1), shards=4)
    made = remove(out, ["00.bmp"])
    prune(out)
    # of the same plan, since only the content differs
    with raises(BuildError, "rejected (", code="too-many-rejected"):
        built(out, bitmaps(tmp_path / "photos", 2, broken=3), shards=4, overwrite=True)
    assert read_manifest(out) == made
    assert verify(out, deep=True)


def test_a_build_does_not_undo_a_restore(tmp_path, quiet_build):
    photos, out = bitmaps(tmp_path / "photos", 0, broken=-1), tmp_path / "out"
    first = quiet_build(photos, out, shards=2)
    bitmaps(tmp_path / "photos", 5, broken=-1)
    for path in (tmp_path / "photos").iterdir():
        os.utime(path, (1, 1))
    second = quiet_build(photos, out, shards=2, overwrite=True)
    assert second.folder != first.folder
    restore(out, first.folder)
    with raises(InputError, "holds a dataset with", code="dataset-differs"):
        quiet_build(photos, out, shards=2)
    assert read_manifest(out) == first
    assert quiet_build(photos, out, shards=2, overwrite=True) == second


def removed(out: Path) -> Manifest:
    return remove(out, ["3"])


@pytest.mark.parametrize("use", [read_manifest, verify, removed, built, prune])
def test_a_damaged_pointer_leads_to_restore(use, tmp_path):
    out = tmp_path / "data"
    manifest = built(out)
    text = (out / "dataset.json").read_text()
    (out / "dataset.json").write_text(text.replace('"totals"', '"total"'))
    with pytest.raises(FormatError, match=f"'tfshards generations {out}' lists what 'tfshards restore'"):
        use(out)
    assert restore(out, manifest.folder) == manifest


def test_generations_without_a_pointer_are_not_replaced_by_a_build(tmp_path):
    out = tmp_path / "data"
    built(out)
    edited = remove(out, ["3"])
    (out / "dataset.json").unlink()
    with raises(InputError, "has no dataset.json"):
        built(out)
    assert restore(out, edited.folder) == edited


@pytest.mark.parametrize("use", [read_manifest, verify, prune, generations, built])
def test_the_folder_of_a_build_is_no_dataset(use, tmp_path, contents):
    out = tmp_path / "data"
    manifest = built(out)
    before = contents(out)
    with raises(InputError, "is the folder", str(out)):
        use(out / manifest.folder)
    assert contents(out) == before


def test_files_of_the_user_in_the_folder_for_work_stay(tmp_path):
    out = tmp_path / "data"
    first = built(out)
    own = out / first.folder / "work" / "notes.txt"
    write(own, b"mine")
    assert built(out) == first
    built(out, shards=3, overwrite=True)
    assert [one.folder for one in generations(out)][1:] == [first.folder]
    prune(out)
    assert own.read_bytes() == b"mine"
    # prune has left nothing else, and a later build of this plan uses the folder
    assert prune(out) == []
    assert built(out, overwrite=True) == first
    assert verify(out, deep=True)
    assert own.read_bytes() == b"mine"
