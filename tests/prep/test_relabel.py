"""relabel: files of labels, numbers for classes, and what is refused; see tests/verbs for the examples."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.errors import raises
from tfshards.prep import Arrays, ImageFolder, append, relabel, reshard, verify
from tfshards.prep.records.frames import read_records
from tfshards.schemas import Feature, InputError, OptionsError, Schema, read_manifest

from .derived import build_arrays, build_quietly, quiet, write_images
from .exported import record, write_records


def test_classes_without_names_are_numbers(tmp_path):
    build_arrays(tmp_path)
    root = tmp_path / "old"
    made = relabel(root, {"3": 2, "7": "2"}, log=quiet)
    assert [*made.splits["train"].label_counts.items()] == [("0", 33), ("1", 33), ("2", 35)]
    numbers = tmp_path / "l.jsonl"
    numbers.write_text('{"key": 3, "label": 2}\n{"key": "7", "label": 2}\n')
    with pytest.raises(InputError, match="'key'"):
        relabel(root, numbers, log=quiet)
    numbers.write_text('{"key": "3", "label": 2}\n{"key": "7", "label": 2}\n')
    # the same labels change nothing more
    assert relabel(root, numbers, log=quiet) == made
    with raises(InputError, "class-unknown", unknown="9"):
        relabel(root, {"3": 9}, log=quiet)
    made = relabel(root, {"3": 9, "4": -5}, new_classes=True, log=quiet)
    assert [*made.splits["train"].label_counts] == ["-5", "0", "1", "2", "9"]
    assert verify(root, deep=True)
    for label in ("cat", "07", str(1 << 63)):
        with pytest.raises(InputError, match=f"'{label}'"):
            relabel(root, {"3": label}, new_classes=True, log=quiet)


FILES = {
    "l.csv": b"label,key,note\ndog,cat/000.png,\ndog,cat/002.png,x\n",
    "l.tsv": b"key\tlabel\ncat/000.png\tdog\ncat/002.png\tdog\n",
    "l.jsonl": b'{"key": "cat/000.png", "label": "dog"}\n\n{"key": "cat/002.png", "label": "dog"}\n',
}


def test_files_of_labels_are_read(root, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    table = pa.table({"key": ["cat/000.png", "cat/002.png"], "label": ["dog", "dog"]})
    pq.write_table(table, tmp_path / "l.parquet")
    made = relabel(root, {"cat/000.png": "dog", "cat/002.png": "dog"}, log=quiet)
    for name in [*FILES, "l.parquet"]:
        # the same labels change nothing more
        assert relabel(root, tmp_path / name, log=quiet) == made


WRONG = {
    "no label": ("l.csv", b"key,class\na,b\n"),
    "two labels of a key": ("l.csv", b"key,label\na,x\na,x\na,y\n"),
    "an empty label": ("l.csv", b"key,label\na,\n"),
    "a fraction": ("l.jsonl", b'{"key": "a", "label": 1.5}\n'),
    "no key": ("l.jsonl", b'{"key": null, "label": "b"}\n'),
}


def test_what_holds_no_labels_is_refused(root, tmp_path):
    for name, content in WRONG.values():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            relabel(root, tmp_path / name, log=quiet)
    for wrong in ({}, {"a": 1.5}, {"a": True}, {3: "a"}):
        with raises(OptionsError, "labels-mapping" if wrong else "labels-none"):
            relabel(root, wrong, log=quiet)
    (tmp_path / "l.txt").touch()
    with pytest.raises(OptionsError, match=r"\.csv"):
        relabel(root, tmp_path / "l.txt", log=quiet)
    with raises(InputError, "keys-unknown", some="1 of 2 keys", keys="'cat/nobody.png'"):
        relabel(root, {"cat/000.png": "dog", "cat/nobody.png": "dog"}, log=quiet)


def test_append_does_not_report_relabeled_inputs_as_changed(tmp_path, log):
    photos, root = write_images(tmp_path / "p", range(8)), tmp_path / "d"
    build_quietly(ImageFolder(photos), root)
    relabel(root, {"cat/000.png": "dog"}, log=quiet)
    # also in a dataset that is derived from the relabeled one
    reshard(root, tmp_path / "again", shards=2, log=quiet)
    for folder in (root, tmp_path / "again"):
        before = read_manifest(folder)
        assert append(photos, folder, engine="local", log=log.append) == before
    assert not [line for line in log if "warning" in line]


def test_rows_are_compared_with_the_labels_that_they_have_now(tmp_path):
    def rows(count: int, first: int = 0) -> Arrays:
        return Arrays({"x": np.arange(first, count), "label": np.arange(first, count) % 2})

    root = tmp_path / "d"
    build_quietly(rows(8), root, shards=3)
    relabel(root, {"3": 0, "4": 1}, log=quiet)
    with raises(InputError, "append-row-differs"):
        append(rows(10, 1), root, engine="local", log=quiet)
    made = append(rows(10), root, engine="local", log=quiet)
    assert made.splits["train"].label_counts == {"0": 5, "1": 5}


def test_numbers_that_equal_no_number_stay_as_they_are(tmp_path):
    schema = Schema(
        (
            Feature("x", "float", "float32"),
            Feature("label", "label", "int64"),
            Feature("key", "bytes", "bytes"),
        )
    )
    row = {"x": np.nan, "label": 0, "key": b"a"}
    before, after = (record(schema, {**row, "label": label}) for label in (0, 1))
    other = record(schema, {"x": 0.5, "label": 1, "key": b"b"})
    root, counts = tmp_path / "d", {"train": {"0": 1, "1": 1}}
    write_records(root, schema, {"train": [[before, other]]}, {"train": [[0, 1]]}, counts)
    (shard,) = relabel(root, {"a": 1}, log=quiet).shards
    assert [data for _, data in read_records(root / shard.path, "none")] == [after, other]
