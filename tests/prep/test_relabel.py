"""relabel: files of labels, numbers for classes, and what is refused; see tests/verbs for the examples."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.errors import raises
from tfshards.prep import ImageFolder, append, relabel, reshard, verify
from tfshards.prep.rewriting.relabel import new_labels
from tfshards.schemas import InputError, OptionsError

from .derived import build_arrays, build_images, build_quietly, build_table, quiet, write_images


@pytest.fixture(scope="module")
def origins(tmp_path_factory) -> dict[str, Path]:
    """60 images in three splits, and 101 rows with classes that have no names."""
    found = {}
    for name, make in (("images", build_images), ("arrays", build_arrays)):
        folder = tmp_path_factory.mktemp(name)
        make(folder)
        found[name] = folder / "old"
    return found


@pytest.fixture
def pets(origins, tmp_path) -> Path:
    return Path(shutil.copytree(origins["images"], tmp_path / "pets"))


def test_classes_without_names_are_numbers(origins, tmp_path):
    root = Path(shutil.copytree(origins["arrays"], tmp_path / "rows"))
    made = relabel(root, {"3": 2, "7": "2"}, log=quiet)
    assert [*made.splits["train"].label_counts.items()] == [("0", 33), ("1", 33), ("2", 35)]
    with raises(InputError, "class-unknown", unknown="9"):
        relabel(root, {"3": 9}, log=quiet)
    made = relabel(root, {"3": 9, "4": -5}, new_classes=True, log=quiet)
    assert [*made.splits["train"].label_counts] == ["-5", "0", "1", "2", "9"]
    assert verify(root, deep=True)
    for label in ("cat", "07", str(1 << 63)):
        message = rf"the label '{label}' is not an integer of type int64, but the"
        with pytest.raises(InputError, match=message):
            relabel(root, {"3": label}, new_classes=True, log=quiet)


def test_unknown_keys_and_datasets_without_classes_are_refused(pets, tmp_path):
    wanted = {"cat/000.png": "dog", "cat/nobody.png": "dog"}
    with raises(InputError, "keys-unknown", some="1 of 2 keys", keys="'cat/nobody.png'"):
        relabel(pets, wanted, log=quiet)
    build_table(tmp_path)
    with raises(InputError, "relabel-no-label"):
        relabel(tmp_path / "old", {"0": "a"}, log=quiet)


FILES = {
    "l.csv": b"label,key,note\ndog,cat/000.png,\ndog,cat/002.png,x\n",
    "l.tsv": b"key\tlabel\ncat/000.png\tdog\ncat/002.png\tdog\n",
    "l.jsonl": b'{"key": "cat/000.png", "label": "dog"}\n\n{"key": "cat/002.png", "label": "dog"}\n',
}


@pytest.mark.parametrize("name", [*FILES, "l.parquet"])
def test_files_of_labels_are_read(name, tmp_path):
    path = tmp_path / name
    if name in FILES:
        path.write_bytes(FILES[name])
    else:
        pq.write_table(pa.table({"key": ["cat/000.png", "cat/002.png"], "label": ["dog", "dog"]}), path)
    assert new_labels(path) == {b"cat/000.png": "dog", b"cat/002.png": "dog"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.csv", b"key,class\na,b\n", r"no column 'label'; its columns are 'key', 'class', and must be"),
        (
            "l.csv",
            b"key,label\na,x\na,x\na,y\n",
            r"row 3: the key 'a' has the label 'y', but 'x' in an earlier row",
        ),
        ("l.csv", b"key,label\na,\n", r"row 1: label is '', but must be text or an integer"),
        ("l.jsonl", b'{"key": "a", "label": 1.5}\n', r"row 1: label is 1.5, but must be text or an integer"),
        ("l.jsonl", b'{"key": null, "label": "b"}\n', r"row 1: key is None, but must be text or an integer"),
    ],
)
def test_files_that_hold_no_labels_are_errors(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        new_labels(tmp_path / name)


def test_arguments_that_are_no_labels_are_errors(tmp_path):
    with raises(OptionsError, "labels-none"):
        new_labels({})
    for wrong in ({"a": 1.5}, {"a": True}, {3: "a"}):
        with raises(OptionsError, "labels-mapping"):
            new_labels(wrong)
    (tmp_path / "l.txt").touch()
    with raises(OptionsError, "table-suffix"):
        new_labels(tmp_path / "l.txt")
    unreadable = tmp_path / "l.jsonl"
    unreadable.mkdir()
    with raises(InputError, "table-folder"):
        new_labels(unreadable)


def test_append_does_not_report_relabeled_inputs_as_changed(tmp_path, log):
    photos, root = write_images(tmp_path / "p", range(8)), tmp_path / "d"
    build_quietly(ImageFolder(photos), root)
    relabel(root, {"cat/000.png": "dog"}, log=quiet)
    # with the contents compared as well, also in a dataset that is derived from the relabeled one
    reshard(root, tmp_path / "again", shards=2, log=quiet)
    for folder, checksum in ((root, False), (tmp_path / "again", True)):
        append(photos, folder, engine="local", checksum=checksum, log=log.append)
        assert log[-1] == f"{folder} is up to date: none of the 8 inputs is new, and none has changed"
    shutil.copy(photos / "cat" / "002.png", photos / "cat" / "000.png")
    append(photos, root, engine="local", checksum=True, log=log.append)
    assert "warning: 1 input has changed, such as 'cat/000.png'; " in "".join(log)
