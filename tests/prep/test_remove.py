"""remove: what is written, what is left on disk, and what is refused; see tests/verbs for the examples."""

import shutil
from pathlib import Path

import pytest

from tests.errors import raises
from tests.format_reader import companion
from tests.reported import logged
from tfshards.prep import ImageFolder, Options, adopt, append, build, prune, remove, verify
from tfshards.schemas import FormatError, InputError, Manifest, OptionsError, read_manifest

from .derived import first_shard, keys, write_images


def sizes(manifest: Manifest) -> dict[str, list[int]]:
    return {name: [shard.num_examples for shard in split.shards] for name, split in manifest.splits.items()}


def test_nothing_of_the_removed_examples_is_on_disk_after_prune(tmp_path, log):
    pictures = write_images(tmp_path / "photos", range(20))
    shutil.copy(pictures / "cat" / "004.png", pictures / "dog" / "twin.png")
    (pictures / "dog" / "broken-of-jane.png").write_bytes(b"no image")
    root = tmp_path / "data"
    options = Options(max_rejected=1, duplicates="drop")
    build(ImageFolder(pictures), root, shards=3, options=options)
    write_images(tmp_path / "more", range(20, 24))
    append(tmp_path / "more", root)
    names = ["cat/004.png", "dog/005.png", "dog/broken-of-jane.png", "cat/022.png"]
    images = [
        (folder / name).read_bytes()[8:]
        for folder in (pictures, tmp_path / "more")
        for name in names
        if (folder / name).exists() and "broken" not in name
    ]
    assert len(images) == 3
    # the twin was rejected as a copy of the first one
    remove(root, names[:1])
    made = remove(root, names[1:])
    assert (made.totals.rejected, made.rejects_digest) == (0, "")
    assert not (root / made.rejects_path).exists()
    held = everything(root)
    assert all(name.encode() in held for name in names)
    prune(root)
    held = everything(root)
    for text in [*images, *(name.encode() for name in [*names, "dog/twin.png"])]:
        assert text not in held
    assert b"cat/006.png" in held
    assert verify(root, deep=True)
    # nor do they come back
    assert logged(append, log.append)(pictures, root) == made
    assert any(line.startswith("leaving out 4 inputs") for line in log)


def everything(root: Path) -> bytes:
    """Return the bytes of all files of a folder."""
    return b"\n".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


def test_a_split_keeps_an_example_and_a_class_without_examples_is_reported(root, log):
    held = keys(root)
    with raises(InputError, "would be removed", "5 examples", "'test'"):
        remove(root, held["test"])
    made = logged(remove, log.append)(root, [key for key in held["val"] if key.startswith("cat/")])
    assert any(line.startswith("warning: ") and "'val'" in line and "'cat'" in line for line in log)
    assert made.schema.class_names == ("cat", "dog")
    assert made.splits["val"].label_counts["cat"] == 0
    # fewer examples than shards
    made = remove(root, held["test"][:-2])
    assert sizes(made)["test"] == [1, 1]
    assert verify(root, deep=True)


def test_what_cannot_be_edited_is_refused(root, tmp_path):
    for wanted in ([], b"cat/000.png", [7], 7):
        with pytest.raises(OptionsError, match=r"keys="):
            remove(root, wanted)
    (tmp_path / "empty").write_text("\n")
    with raises(InputError, "has no keys"):
        remove(root, tmp_path / "empty")
    manifest = read_manifest(root)
    (tmp_path / "adopted").mkdir()
    shutil.copy(first_shard(root), tmp_path / "adopted" / "a.tfrecord")
    adopt(tmp_path / "adopted", splits={"train": "a*"})
    with raises(InputError, "holds records"):
        remove(tmp_path / "adopted", ["cat/000.png"])
    # the keys of another shard than that with the key
    key, path = keys(root)["train"][0], companion(manifest.splits["test"].shards[0].path, "keys")
    (root / path).unlink()
    with pytest.raises(FormatError, match=path):
        remove(root, [key])
    assert read_manifest(root) == manifest
