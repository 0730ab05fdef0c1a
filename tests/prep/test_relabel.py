"""relabel: files of labels, numbers for classes, and what is refused; see tests/verbs for the examples."""

import pytest

from tests.errors import raises
from tfshards.prep import relabel, verify
from tfshards.schemas import InputError, OptionsError

from .derived import build_arrays


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
    for label in ("cat", "07", str(1 << 63)):
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
    for wrong in ({}, {"a": 1.5}, {"a": True}, {3: "a"}):
        with raises(OptionsError, "labels= must" if wrong else "labels= is empty"):
            relabel(root, wrong)
    (tmp_path / "l.txt").touch()
    with pytest.raises(OptionsError, match=r"\.csv"):
        relabel(root, tmp_path / "l.txt")
    with raises(InputError, "1 of 2 keys not in", "'cat/nobody.png'", code="key-unknown"):
        relabel(root, {"cat/000.png": "dog", "cat/nobody.png": "dog"})
