"""The column of images is found in tables that do not name it ``file_name``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.prep.test_table_images import records
from tests.prep.test_table_nested import encoded
from tfshards.prep import ColumnRoles, Table, plan
from tfshards.prep.cli.main import main
from tfshards.schemas import InputError, read_manifest

LINE = "column {0!r} holds images, as with images={0!r}; no_images=True stores it as it is"


def write_csv(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize("name", ["filename", "image_path", "path", "image", "Photo"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_column_of_paths_of_image_files_holds_the_images(
    name, form, image_folder, quiet_build, tmp_path, log
):
    paths = ["a/0.png", "a/1.jpg", "./b/2", "3.png"]
    root = image_folder(dict(zip(paths, [0, encoded(1, "JPEG"), encoded(2), 3], strict=True)))
    path = root / f"rows.{form}"
    columns = {"note": ["x", "y", "z", ""], name: paths, "label": ["cat", "dog", "cat", "dog"]}
    if form == "parquet":
        pa.parquet.write_table(pa.table(columns), path)
    elif form == "jsonl":
        path.write_text(
            "".join(json.dumps({key: columns[key][row] for key in columns}) + "\n" for row in range(4))
        )
    else:
        write_csv(path, ",".join(columns), *map(",".join, zip(*columns.values(), strict=True)))
    manifest = quiet_build(Table(path), tmp_path / "out")
    assert manifest.schema[name].kind == "image"
    assert f"warning: {LINE.format(name)}" in log
    named = quiet_build(Table(path, columns=ColumnRoles(images=(name,))), tmp_path / "named")
    assert (named.schema, named.options) == (manifest.schema, manifest.options)
    assert set(records(tmp_path / "out")) == set(paths)
    as_text = quiet_build(Table(path, columns=ColumnRoles(no_images=True)), tmp_path / "text")
    assert as_text.schema[name].kind == "bytes"


def test_a_preview_reports_the_column_of_images(image_folder):
    root = image_folder({"a.png": 1})
    found = plan(Table(write_csv(root / "rows.csv", "filename,n", "a.png,1")), root / "out")
    assert LINE.format("filename") in found.warnings


def test_masks_alone_do_not_keep_the_images_from_being_found(image_folder, quiet_build, tmp_path):
    root = image_folder({"a.png": 1, "m.png": encoded(2, mode="L")})
    path = write_csv(root / "rows.csv", "photo,outline", "a.png,m.png")
    manifest = quiet_build(Table(path, columns=ColumnRoles(masks=("outline",))), tmp_path / "out")
    assert manifest.schema["photo"].kind == "image"


NOT_FOUND = {
    "file_name": (["file_name,path", "a.png,b.png"], ColumnRoles(), "path", "there are images by name"),
    "named": (["left,right", "a.png,b.png"], ColumnRoles(images=("left",)), "right", "the user named one"),
    "no files": (["path,n", "x/y.txt,1"], ColumnRoles(), "path", "no such files"),
    "other files": (["path,n", "rows.csv,1"], ColumnRoles(), "path", "files that are no images"),
    "a folder": (["path,n", "deep,1"], ColumnRoles(), "path", "a folder"),
    "a long text": (["path,n", "x" * 5000 + ",1"], ColumnRoles(), "path", "too long for a path"),
    "a long name": (["path,n", "x" * 1000 + ",1"], ColumnRoles(), "path", "too long for a name"),
}


@pytest.mark.parametrize(("lines", "columns", "name", "reason"), NOT_FOUND.values(), ids=NOT_FOUND.keys())
def test_other_text_stays_text(lines, columns, name, reason, image_folder, quiet_build, tmp_path, log):
    root = image_folder({"a.png": 1, "b.png": 2, "deep/c.png": 3})
    manifest = quiet_build(Table(write_csv(root / "rows.csv", *lines), columns=columns), tmp_path / "out")
    assert manifest.schema[name].kind == "bytes", reason
    assert not any("holds images" in line for line in log)


REFUSED = {
    "two columns": (
        ["left,right", "a.png,b.png"],
        r"^the columns left, right hold images; name the one to use with images=, or store all as they are",
    ),
    "a file is missing": (
        ["path,n", "a.png,1", "none.png,2"],
        r"^column 'path' names images, but 1 of 2 are none, such as 'none\.png'; use it with images='pa",
    ),
}


@pytest.mark.parametrize(("lines", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_ambiguous_is_refused_with_the_flag_to_give(lines, message, image_folder, capsys):
    root = image_folder({"a.png": 1, "b.png": 2})
    path = write_csv(root / "rows.csv", *lines)
    (root / "stage").mkdir()
    with pytest.raises(InputError, match=message):
        Table(path).stage(root / "stage")
    assert main(["build", "table", str(path), str(root / "out")]) != 0
    assert "--no-images" in (error := capsys.readouterr().err)
    assert "--image" in error
    assert "no_images" not in error


def test_names_of_images_without_files_are_stored_with_a_warning(image_folder, quiet_build, tmp_path, log):
    root = image_folder({"deep/a.png": 1})
    path = write_csv(root / "rows.csv", "path,n", "a.png,1")
    assert quiet_build(Table(path), tmp_path / "out").schema["path"].kind == "bytes"
    line = f"column 'path' names image files that are not in {root}: it is stored as text; name their folder"
    assert f"warning: {line} with root=" in log
    assert quiet_build(Table(path, root=root / "deep"), tmp_path / "found").schema["path"].kind == "image"


def test_an_earlier_dataset_of_paths_is_repaired_as_it_is(image_folder, quiet_build, tmp_path):
    root = image_folder({"a.png": 1, "b.png": 2})
    path = write_csv(root / "rows.csv", "path,n", "a.png,1", "b.png,2")
    out = tmp_path / "out"
    quiet_build(Table(path, columns=ColumnRoles(no_images=True)), out)
    shard = out / read_manifest(out).shards[0].path
    whole = shard.read_bytes()
    shard.unlink()
    assert main(["verify", str(out), "--repair", str(path)]) == 0
    assert shard.read_bytes() == whole


def test_a_column_without_any_value_stays_text(quiet_build, tmp_path):
    pa.parquet.write_table(pa.table({"path": ["", ""]}), tmp_path / "rows.parquet")
    assert quiet_build(Table(tmp_path / "rows.parquet"), tmp_path / "out").schema["path"].kind == "bytes"


def test_a_file_that_cannot_be_read_is_no_image(image_folder, quiet_build, tmp_path, monkeypatch):
    root = image_folder({"a": 1})

    def refuse(path, suffix):
        raise PermissionError

    monkeypatch.setattr("tfshards.prep.sources.tables.found_images.looks_like_an_image", refuse)
    manifest = quiet_build(Table(write_csv(root / "rows.csv", "path,n", "a,1")), tmp_path / "out")
    assert manifest.schema["path"].kind == "bytes"


def test_a_metadata_table_with_images_inside_names_no_files(image_folder, quiet_build, tmp_path, log):
    root = image_folder({"a.png": 1})
    pa.parquet.write_table(pa.table({"picture": [encoded(2)]}), root / "metadata.parquet")
    assert quiet_build(Table(root), tmp_path / "out").schema["picture"].kind == "image"
    assert not any("are in no row" in line for line in log)
