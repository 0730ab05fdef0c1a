"""remove and relabel: what is written, left on disk or refused; see tests/verbs for the examples."""

import shutil
from pathlib import Path

import pytest

from tests.errors import raises
from tests.prep.derived import build_arrays, keys, write_images
from tests.reported import logged
from tfshards.prep import ImageFolder, Options, append, build, prune, relabel, remove, verify
from tfshards.schemas import InputError, Manifest, OptionsError


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


def test_a_split_keeps_an_example_and_classes_keep_their_numbers(root):
    held = keys(root)
    with raises(InputError, "would be removed", "5 examples", "'test'"):
        remove(root, held["test"])
    made = remove(root, [key for key in held["val"] if key.startswith("cat/")])
    assert made.schema.class_names == ("cat", "dog")
    assert made.splits["val"].label_counts["cat"] == 0
    # fewer examples than shards
    made = remove(root, held["test"][:-2])
    assert sizes(made)["test"] == [1, 1]
    assert verify(root, deep=True)


# relabel: files of labels, numbers for classes, and what is refused; see tests/verbs for the examples


def test_classes_without_names_are_numbers(tmp_path):
    build_arrays(tmp_path)
    root = tmp_path / "old"
    made = relabel(root, {"3": 2, "7": "2"})
    assert [*made.splits["train"].label_counts.items()] == [("0", 33), ("1", 33), ("2", 35)]
    numbers = tmp_path / "l.csv"
    numbers.write_text("key,label\n3,2\n7,2\n")
    # the same labels change nothing more
    assert relabel(root, numbers) == made
    with raises(InputError, "does not have the class", "'9'"):
        relabel(root, {"3": 9})
    made = relabel(root, {"3": 9, "4": -5}, new_classes=True)
    assert [*made.splits["train"].label_counts] == ["-5", "0", "1", "2", "9"]
    assert verify(root, deep=True)
    for label in ("cat", "0.7", str(1 << 63)):
        with pytest.raises(InputError, match=f"'{label}'"):
            relabel(root, {"3": label}, new_classes=True)


FILES = {
    "l.csv": b"\xef\xbb\xbflabel,key,note\r\ndog,cat/000.png,\ndog,cat/002.png,x\n",
    "l.tsv": b"key\tlabel\ncat/000.png\tdog\ncat/002.png\tdog\n",
}


def test_files_of_labels_are_read(root, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    made = relabel(root, {"cat/000.png": "dog", "cat/002.png": "dog"})
    for name in FILES:
        # the same labels change nothing more
        assert relabel(root, tmp_path / name) == made


WRONG = {
    "no label": ("l.csv", b"key,class\na,b\n"),
    "two labels of a key": ("l.csv", b"key,label\na,x\na,x\na,y\n"),
    "an empty label": ("l.csv", b"key,label\na,\n"),
    "a short line": ("l.csv", b"key,label\na\n"),
    "a quotation mark": ("l.csv", b'key,label\n"a,b\n'),
}


def test_what_holds_no_labels_is_refused(root, tmp_path):
    for name, content in WRONG.values():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            relabel(root, tmp_path / name)
    for wrong in ({"cat/000.png": 1.5}, {"cat/000.png": True}):
        with raises(InputError, "does not have the class"):
            relabel(root, wrong)
    with raises(InputError, code="key-unknown"):
        relabel(root, {3: "cat"})
    (tmp_path / "l.txt").touch()
    with pytest.raises(OptionsError, match=r"\.csv"):
        relabel(root, tmp_path / "l.txt")
    with raises(InputError, "1 of 2 keys not in", "'cat/nobody.png'", code="key-unknown"):
        relabel(root, {"cat/000.png": "dog", "cat/nobody.png": "dog"})
