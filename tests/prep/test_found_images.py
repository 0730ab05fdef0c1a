"""The column of images is found in tables that do not name it ``file_name``."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import check_repair, encoded
from tests.prep.table_files import examples as records
from tfshards.prep import ColumnRoles, Options, Table, plan
from tfshards.prep.cli.main import main
from tfshards.prep.records.frames import read_records
from tfshards.schemas import InputError, OptionsError, read_manifest
from tfshards.schemas.example import decode_example

LINE = "column {0!r} holds images, as with images={0!r}; no_images=True stores it as it is"


def write_csv(path, header: str, *rows: str):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize("name", ["filename", "image_path", "path", "image", "Photo"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_column_of_paths_of_images_holds_the_images(name, form, image_folder, quiet_build, tmp_path, log):
    paths = ["a/0.png", "a/1.jpg", "./b/2", "3.png"]
    root = image_folder(dict(zip(paths, [0, encoded(1, "JPEG"), encoded(2), 3], strict=True)))
    path = root / f"rows.{form}"
    columns = {"note": ["x", "y", "z", ""], name: paths, "label": ["cat", "dog", "cat", "dog"]}
    if form == "parquet":
        pa.parquet.write_table(pa.table(columns), path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps({k: columns[k][row] for k in columns}) + "\n" for row in range(4)))
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
    root = image_folder({"a.png": encoded(1), "m.png": encoded(2, mode="L")})
    path = write_csv(root / "rows.csv", "photo,outline", "a.png,m.png")
    manifest = quiet_build(Table(path, columns=ColumnRoles(masks=("outline",))), tmp_path / "out")
    assert manifest.schema["photo"].kind == "image"


NOT_FOUND = {
    "no files": (["path,n", "x/y.txt,1"], ColumnRoles(), "path", "no such files"),
    "other files": (["path,n", "rows.csv,1"], ColumnRoles(), "path", "files that are no images"),
    "a folder": (["path,n", "deep,1"], ColumnRoles(), "path", "a folder"),
    "a long text": (["path,n", "x" * 5000 + ",1"], ColumnRoles(), "path", "too long for a path"),
    "a long name": (["path,n", "x" * 1000 + ",1"], ColumnRoles(), "path", "too long for a name"),
}


@pytest.mark.parametrize(("lines", "columns", "name", "reason"), NOT_FOUND.values(), ids=NOT_FOUND)
def test_other_text_stays_text(lines, columns, name, reason, image_folder, quiet_build, tmp_path, log):
    root = image_folder({"a.png": 1, "b.png": 2, "deep/c.png": 3})
    manifest = quiet_build(Table(write_csv(root / "rows.csv", *lines), columns=columns), tmp_path / "out")
    assert manifest.schema[name].kind == "bytes", reason
    assert not any("holds images" in line for line in log)


REFUSED = {
    "two columns": (["left,right", "a.png,b.png"], fault("columns-of-images", whole="left, right")),
    "a file is missing": (
        ["path,n", "a.png,1", "none.png,2"],
        fault("column-names-no-images", name="path", num_missing=1),
    ),
}


@pytest.mark.parametrize(("lines", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_ambiguous_is_refused_with_the_flag_to_give(lines, message, image_folder, capsys):
    root = image_folder({"a.png": 1, "b.png": 2})
    path = write_csv(root / "rows.csv", *lines)
    (root / "stage").mkdir()
    with raises(InputError, message):
        Table(path).stage(root / "stage")
    assert main(["build", "table", str(path), str(root / "out")]) != 0
    assert "--no-images" in (error := capsys.readouterr().err)
    assert "--image" in error
    assert "no_images" not in error


@pytest.mark.parametrize("name", ["path", "Photo"])
def test_names_of_images_without_files_end_the_build(name, image_folder, quiet_build, tmp_path, capsys):
    root = image_folder({"deep/a.png": 1})
    path = write_csv(root / "rows.csv", f"{name},n", "a.png,1")
    with raises(InputError, "column-names-no-images", name=name, missing="a.png", root=str(root)):
        quiet_build(Table(path), tmp_path / "out")
    (tmp_path / "wrong").mkdir()
    assert main(["build", "table", str(path), str(tmp_path / "out"), "--root", str(tmp_path / "wrong")]) == 1
    error = capsys.readouterr().err
    assert "name their folder with --root, use the column with --image" in error
    assert "has no effect" not in error
    as_text = quiet_build(Table(path, columns=ColumnRoles(no_images=True)), tmp_path / "text")
    assert as_text.schema[name].kind == "bytes"
    assert quiet_build(Table(path, root=root / "deep"), tmp_path / "found").schema[name].kind == "image"


@pytest.mark.parametrize(
    ("header", "columns"), [("file_name", ColumnRoles()), ("x", ColumnRoles(images=("x",)))]
)
def test_a_named_column_of_images_without_files_ends_the_build(header, columns, image_folder, tmp_path):
    path = write_csv(image_folder({"deep/a": 1}) / "rows.csv", f"{header},n", "a,1", "b,2")
    (tmp_path / "stage").mkdir()
    message = rf"^column '{header}': none of the image files exists, such as 'a' in .* name the"
    with pytest.raises(InputError, match=message):
        Table(path, columns=columns).stage(tmp_path / "stage")


def test_a_dataset_names_the_folder_of_images_after_its_table(image_folder, tmp_path, quiet_build, capsys):
    root = image_folder({"root/a.png": 1, "root/b.png": 2}) / "root"
    path, out = write_csv(tmp_path / "rows.csv", "file_name,n", "a.png,1", "b.png,2"), tmp_path / "out"
    manifest = quiet_build(Table(path, root=root), out)
    remedy = "name the folder of the images: with root=, or after the table\n"
    assert main(["append", str(path), str(out)]) == 1
    assert capsys.readouterr().err.endswith(remedy)
    (out / manifest.shards[0].path).unlink()
    assert main(["verify", str(out), "--repair", str(path)]) == 1
    assert remedy in capsys.readouterr().err
    assert main(["verify", str(out), "--repair", str(path), "--repair", str(root)]) == 0
    assert main(["append", str(path), str(root), str(out)]) == 0


def test_paths_without_suffixes_are_told_from_a_wrong_folder(image_folder, tmp_path):
    path = write_csv(image_folder({"7.png": 1}) / "rows.csv", "id,n", "8,1")
    (tmp_path / "stage").mkdir()
    with raises(InputError, "column-no-image-exists", first="8"):
        Table(path, columns=ColumnRoles(images=("id",))).stage(tmp_path / "stage")


@pytest.mark.parametrize("first", ["a.png,0", "0,./a.png"])
def test_a_table_without_a_header_is_refused(first, image_folder, tmp_path):
    path = write_csv(image_folder({"a.png": 1, "b.png": 2}) / "rows.csv", first, "b.png,b.png")
    (tmp_path / "stage").mkdir()
    with raises(InputError, "table-no-header"):
        Table(path).stage(tmp_path / "stage")


HINTS = {
    "bare ids": (["image,n", "1000268201_693b,1"], "such as '1000268201_693b', are not paths of files"),
    "ints": (["image_path,n", "17,1"], "such as '17', are not paths of files: it is stored as it is; write"),
    "URLs": (["link,n", "https://a.b/c.jpg,1"], "such as 'https://a.b/c.jpg', are not paths of files"),
}


@pytest.mark.parametrize(("lines", "message"), HINTS.values(), ids=HINTS)
def test_a_column_that_seems_to_name_images_is_reported(lines, message, quiet_build, tmp_path, log):
    path = write_csv(tmp_path / "rows.csv", *lines)
    quiet_build(Table(path), tmp_path / "out")
    assert any(line.startswith("warning: column ") and message in line for line in log)
    match = rf"^root='.*' has no effect, .* with images= \(column .*{message}"
    with pytest.raises(OptionsError, match=match):
        quiet_build(Table(path, root=tmp_path), tmp_path / "other")
    log.clear()
    quiet_build(Table(path, columns=ColumnRoles(no_images=True)), tmp_path / "text")
    assert not any("warning" in line for line in log)


def test_text_in_a_column_named_image_is_no_path(quiet_build, tmp_path, log):
    quiet_build(Table(write_csv(tmp_path / "rows.csv", "image", "a red car")), tmp_path / "out")
    assert not any("warning" in line for line in log)


def test_each_row_holds_an_image_or_names_one(image_folder, quiet_build, tmp_path):
    root = image_folder({"img/1.png": 1})
    rows = [
        {"bytes": encoded(7), "path": "0.png"},
        {"bytes": None, "path": "img/1.png"},
        {"bytes": None, "path": "img/2.png"},
        {"bytes": None, "path": None},
    ]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pa.parquet.write_table(pa.table({"image": pa.array(rows, kind)}), root / "rows.parquet")
    quiet_build(Table(root / "rows.parquet"), tmp_path / "out", options=Options(max_rejected=1))
    found = {key: values["image"] for key, values in records(tmp_path / "out").items()}
    # one row has no path, so that the keys are row numbers
    assert found == {"0": [encoded(7)], "1": [(root / "img" / "1.png").read_bytes()]}
    (rejected,) = (tmp_path / "out").glob("rejected-*.jsonl")
    details = [json.loads(line)["detail"] for line in rejected.read_text().splitlines()]
    assert details == ["the row holds no image, and there is no file 'img/2.png'", "the row holds no image"]


def split_rows(root, names: list[str]):
    rows = [json.dumps({"file_name": name, "n": number}) for number, name in enumerate(names)]
    (root / "metadata.jsonl").write_text("\n".join(rows))
    return root


def keys_by_split(out) -> dict[str, list[str]]:
    return {
        name: sorted(
            decode_example(data)["key"][0].decode()
            for shard in split.shards
            for _, data in read_records(out / shard.path, "none")
        )
        for name, split in read_manifest(out).splits.items()
    }


def test_the_folders_of_the_paths_are_the_splits(image_folder, quiet_build, tmp_path, log):
    names = ["train/0.png", "./test/0.png", "train/1.png"]
    root = split_rows(image_folder({name: number for number, name in enumerate(names)}), names)
    quiet_build(Table(root), tmp_path / "out")
    wanted = {"train": ["train/0.png", "train/1.png"], "test": ["./test/0.png"]}
    assert keys_by_split(tmp_path / "out") == wanted
    line = "the splits are the folders test, train in column 'file_name', as with split='file_name'"
    assert f"warning: {line}; split='' builds no splits" in log
    named = quiet_build(Table(root, columns=ColumnRoles(split="file_name")), tmp_path / "named")
    assert named.options == read_manifest(tmp_path / "out").options
    none = quiet_build(Table(root, columns=ColumnRoles(split="")), tmp_path / "none")
    assert list(none.splits) == ["train"]
    for name in ("out", "none"):
        check_repair(tmp_path / name, root)


@pytest.mark.parametrize("names", [["train/0.png", "test/0.png", "x/0.png"], ["train/0.png", "train/1.png"]])
def test_folders_that_are_not_all_splits_are_none(names, image_folder, quiet_build, tmp_path, log):
    root = split_rows(image_folder({name: number for number, name in enumerate(names)}), names)
    assert list(quiet_build(Table(root), tmp_path / "out").splits) == ["train"]
    is_mixed = any(
        "only some paths are in the folders test, train, so these are not splits" in line for line in log
    )
    assert is_mixed == ("x/0.png" in names)


def test_a_column_that_is_missing_cannot_name_the_splits(image_folder, tmp_path):
    root = split_rows(image_folder({"a.png": 1}), ["a.png"])
    with raises(InputError, "column-unknown", name="left_file_name"):
        Table(root, columns=ColumnRoles(split="left_file_name")).stage(tmp_path)


def test_metadata_in_the_folders_of_splits_names_the_way_to_build_it(image_folder, tmp_path, capsys):
    for split in ("train", "test"):
        split_rows(image_folder({f"{split}/0.png": 1}) / split, ["0.png"])
    with raises(InputError, "table-metadata-deeper", deeper="test, train"):
        Table(tmp_path / "photos").stage(tmp_path)


def test_a_dataset_of_paths_is_repaired_as_it_is(image_folder, quiet_build, tmp_path):
    root = image_folder({"a.png": 1, "b.png": 2})
    path = write_csv(root / "rows.csv", "path,n", "a.png,1", "b.png,2")
    out = tmp_path / "out"
    quiet_build(Table(path, columns=ColumnRoles(no_images=True)), out)
    check_repair(out, path)


def test_a_column_without_any_value_stays_text(quiet_build, tmp_path):
    pa.parquet.write_table(pa.table({"path": ["", ""]}), tmp_path / "rows.parquet")
    assert quiet_build(Table(tmp_path / "rows.parquet"), tmp_path / "out").schema["path"].kind == "bytes"


def test_a_file_that_cannot_be_read_is_no_image(image_folder, quiet_build, tmp_path, monkeypatch):
    root = image_folder({"a": 1})

    def refuse(tree, path):
        raise PermissionError

    monkeypatch.setattr("tfshards.prep.sources.tree.LocalTree.opened", refuse)
    manifest = quiet_build(Table(write_csv(root / "rows.csv", "path,n", "a,1")), tmp_path / "out")
    assert manifest.schema["path"].kind == "bytes"


def test_a_metadata_table_with_images_inside_names_no_files(image_folder, quiet_build, tmp_path, log):
    root = image_folder({"a.png": 1})
    pa.parquet.write_table(pa.table({"picture": [encoded(2)]}), root / "metadata.parquet")
    assert quiet_build(Table(root), tmp_path / "out").schema["picture"].kind == "image"
    assert not any("are in no row" in line for line in log)
