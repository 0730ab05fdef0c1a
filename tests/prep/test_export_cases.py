"""Exports at their edges: large shards, other splits, records that are not what the manifest says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.prep.derived import build_quietly, records, write_images
from tests.prep.exported import write_dataset, write_everything
from tfshards.prep import ImageFolder, export
from tfshards.prep.exporting import parquet
from tfshards.prep.exporting.format import suffix_of
from tfshards.prep.exporting.table import FORMATS
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.frames import RecordError
from tfshards.schemas import Feature, FormatError, Schema
from tfshards.schemas.manifest_file import write_manifest

quietly = partial(export, log=lambda _: None)
NUMBERS = Schema((Feature("x", "int", "int64", (None,)),))


@pytest.mark.parametrize(
    ("head", "suffix"),
    [
        (b"\xff\xd8\xff\xe0", "jpg"),
        (b"\x89PNG\r\n\x1a\n", "png"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "webp"),
        (b"GIF89a", "gif"),
        (b"II*\0", "tif"),
        (b"BM\0\0", "bmp"),
        (b"what", "bin"),
    ],
)
def test_the_suffix_of_an_image_follows_from_its_content(head, suffix):
    assert suffix_of(head) == suffix


def test_array_record_holds_selected_features_and_what_tfds_cannot_read(tmp_path):
    from array_record.python import array_record_module

    schema = Schema((Feature("x", "raw", "uint32"), Feature("y", "int", "int64")))
    rows = [{"x": np.uint32(number).tobytes(), "y": number} for number in range(3)]
    write_dataset(tmp_path / "ds", schema, {"train": [rows]})
    made = quietly(tmp_path / "ds", tmp_path / "all", to="array_record")
    assert list(made.files) == ["every-train.array_record-00000-of-00001"]
    made = quietly(tmp_path / "ds", tmp_path / "y", to="array_record", select=["y"])
    assert set(made.files) > {"dataset_info.json", "features.json"}
    reader = array_record_module.ArrayRecordReader(str(tmp_path / "y" / next(iter(made.files))))
    assert [decode_example(data) for data in reader.read_all()] == [{"y": [number]} for number in range(3)]


def test_splits_whose_names_datasets_cannot_tell_apart_are_refused(tmp_path):
    write_dataset(tmp_path / "ds", NUMBERS, {"a-b": [[]], "a_b": [[]], "c-d": [[]]})
    with pytest.raises(
        FormatError, match=r"2 problems\n  splits\.a-b: and another split are both 'a_b' for data"
    ):
        quietly(tmp_path / "ds", tmp_path / "out", to="parquet")


def test_parquet_has_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 2)
    rows = [{"x": list(range(number))} for number in range(5)]
    write_dataset(tmp_path / "ds", NUMBERS, {"train": [rows]})
    quietly(tmp_path / "ds", tmp_path / "out", to="parquet")
    found = pq.ParquetFile(tmp_path / "out" / "data" / "train-00000-of-00001.parquet")
    assert found.num_row_groups == 3
    assert found.read().to_pydict() == {"x": [row["x"] for row in rows]}


@pytest.mark.parametrize("to", ["parquet", "webdataset"])
def test_arrays_of_byte_strings_are_kept(to, tmp_path):
    schema = Schema((Feature("x", "bytes", "bytes", (2, 2)),))
    write_dataset(tmp_path / "ds", schema, {"train": [[{"x": [b"a", b"", b"\xc3\xa9", b"d"]}]]})
    assert quietly(tmp_path / "ds", tmp_path / "out", to=to).num_examples == 1


def test_lists_of_byte_strings_that_are_not_utf_8_are_refused(tmp_path):
    schema = Schema((Feature("x", "bytes", "bytes", (None,)),))
    write_dataset(tmp_path / "ds", schema, {"train": [[{"x": [b"a", b"\xff"]}]]})
    with pytest.raises(FormatError, match="x: is a list of byte strings, of which some are not UTF-8"):
        quietly(tmp_path / "ds", tmp_path / "out", to="webdataset")
    assert quietly(tmp_path / "ds", tmp_path / "parquet", to="parquet").num_examples == 1


def test_a_record_that_is_not_what_the_schema_says_ends_the_export(tmp_path):
    manifest = write_dataset(tmp_path / "ds", NUMBERS, {"train": [[{"x": [1]}]]})
    other = Schema((Feature("y", "int", "int64"),))
    write_manifest(replace(manifest, schema=other), tmp_path / "ds")
    with pytest.raises(RecordError, match=r"record 0 at byte 0: the feature 'x' is not in the schema"):
        quietly(tmp_path / "ds", tmp_path / "out", to="webdataset")


@pytest.mark.parametrize("to", FORMATS)
def test_a_file_that_is_gone_is_written_again(to, tmp_path, contents):
    write_everything(tmp_path / "ds")
    made = quietly(tmp_path / "ds", tmp_path / "out", to=to)
    before = contents(tmp_path / "out")
    for name in (next(iter(made.files)), list(made.files)[-1]):
        (tmp_path / "out" / name).unlink()
        quietly(tmp_path / "ds", tmp_path / "out", to=to)
        assert contents(tmp_path / "out") == before


def test_an_export_that_was_stopped_before_its_first_file_starts_again(tmp_path):
    write_everything(tmp_path / "ds")
    (tmp_path / "out" / ".export").mkdir(parents=True)
    assert quietly(tmp_path / "ds", tmp_path / "out", to="webdataset").num_kept == 0


def test_parts_of_many_files_are_written(tmp_path):
    photos = write_images(tmp_path / "photos", range(40))
    build_quietly(ImageFolder(photos), tmp_path / "ds", shards=1)
    made = quietly(tmp_path / "ds", tmp_path / "out", to="folder")
    assert len(made.files) == 41
    # the same images under the same keys: a build of the export has the same records
    build_quietly(ImageFolder(tmp_path / "out" / "train"), tmp_path / "again", shards=1)
    assert sorted(records(tmp_path / "again")["train"]) == sorted(records(tmp_path / "ds")["train"])


def test_the_manifest_of_the_dataset_stays_as_it_is(tmp_path, contents):
    write_everything(tmp_path / "ds")
    before = contents(tmp_path / "ds")
    for to in FORMATS:
        quietly(tmp_path / "ds", tmp_path / to, to=to)
    assert contents(tmp_path / "ds") == before
