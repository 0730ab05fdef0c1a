"""The columns of images: those that are called ``file_name`` or ``image``, and those that are declared."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.errors import fault, raises
from tests.prep.table_files import check_repair, encoded, write_jsonl
from tests.prep.table_files import examples as records
from tfshards.prep import ColumnRoles, Options, Table
from tfshards.prep.cli.main import main
from tfshards.prep.records.frames import read_records
from tfshards.schemas import InputError, read_manifest
from tfshards.schemas.example import decode_example


def write_csv(path, header: str, *rows: str):
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


FORMS = ("csv", "jsonl", "parquet")


def write_rows(path, columns):
    """Write columns in the form that the suffix of the path names."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.table(columns), path)
        return path
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".jsonl":
        return write_jsonl(path, rows)
    return write_csv(path, ",".join(columns), *(",".join(map(str, row.values())) for row in rows))


@pytest.mark.parametrize("form", FORMS)
def test_a_column_called_image_holds_paths(form, image_folder, quiet_build, tmp_path):
    paths = ["a/0.png", "a/1.jpg", "./b/2", "3.png"]
    root = image_folder(dict(zip(paths, [0, encoded(1, "JPEG"), encoded(2), 3], strict=True)))
    columns = {"note": ["x", "y", "z", "w"], "image": paths, "label": ["cat", "dog", "cat", "dog"]}
    path = write_rows(root / f"rows.{form}", columns)
    manifest = quiet_build(Table(path), tmp_path / "out")
    assert manifest.schema["image"].kind == "image"
    named = quiet_build(Table(path, columns=ColumnRoles(images=("image",))), tmp_path / "named")
    assert (named.schema, named.options) == (manifest.schema, manifest.options)
    assert set(records(tmp_path / "out")) == set(paths)
    check_repair(tmp_path / "out", path)
    as_text = quiet_build(Table(path, columns=ColumnRoles(no_images=True)), tmp_path / "text")
    assert as_text.schema["image"].kind == "bytes"


def test_paths_in_a_column_called_image_may_look_like_numbers(image_folder, quiet_build, tmp_path):
    root = image_folder({"007": encoded(1), "1": encoded(2)})
    quiet_build(Table(write_csv(root / "rows.csv", "image,n", "007,1", "1,2")), tmp_path / "out")
    assert set(records(tmp_path / "out")) == {"007", "1"}


OTHER_ROLES = {
    "a mask": ({"masks": ("image",), "images": ("photo",)}, "mask"),
    "dropped": ({"drop": ("image",), "images": ("photo",)}, None),
    "an image next to another one": ({"images": ("photo",)}, "image"),
}


@pytest.mark.parametrize(("roles", "kind"), OTHER_ROLES.values(), ids=OTHER_ROLES)
def test_a_column_called_image_may_have_another_role(roles, kind, image_folder, tmp_path):
    root = image_folder({"a.png": encoded(1), "m.png": encoded(2)})
    path = write_csv(root / "rows.csv", "image,photo", "m.png,a.png")
    schema = Table(path, columns=ColumnRoles(**roles)).stage(tmp_path).schema
    assert (schema["image"].kind if "image" in schema.names else None) == kind
    assert schema["photo"].kind == "image"


NO_PATHS = {
    "text": (["a red car", "a cat"], "column-no-image-exists"),
    "numbers": ([7, 8], "column-paths-type"),
    "lists of numbers": ([[0, 1], [2, 3]], "column-paths-type"),
    "lists of paths": ([["a.png"], ["a.png"]], "image-list"),
}


@pytest.mark.parametrize(("values", "code"), NO_PATHS.values(), ids=NO_PATHS)
def test_other_values_in_a_column_called_image_are_refused(values, code, image_folder, tmp_path, capsys):
    root = image_folder({"a.png": 1})
    path = write_rows(root / "rows.parquet", {"image": values, "n": [1, 2]})
    with raises(InputError, code):
        Table(path).stage(tmp_path)
    if code != "image-list":
        assert main(["plan", "table", str(path), str(tmp_path / "out")]) == 1
        assert "--no-images" in capsys.readouterr().err
    assert Table(path, columns=ColumnRoles(no_images=True)).stage(tmp_path).schema["image"].kind != "image"


PHOTO = encoded(1)
# values of a column x; whether there is a column file_name, too; the value in the message
UNDECLARED = {
    "paths": (["a.png", "b.png"], False, "'a.png'"),
    "paths without files, since no file is looked at": (["gone/a.JPG", "gone/b.tif"], False, "'gone/a.JPG'"),
    "half of the values, since paths may lack suffixes": (["a.png", "b"], False, "'a.png'"),
    "values that are empty do not count": (["a.png", "", "", ""], False, "'a.png'"),
    "paths next to declared images": (["a.png", "b.png"], True, "'a.png'"),
    "categories": (pa.array(["a.png", "a.png"]).dictionary_encode(), False, "'a.png'"),
    "URLs of objects": (["s3://b/a.png", "gs://b/a.png"], True, "'s3://b/a.png'"),
    "web addresses as the only images": (["https://h/a.png", "http://h/b.jpg"], False, "'https://h/a.png'"),
    "encoded images": ([PHOTO, PHOTO], False, "encoded bytes"),
    "encoded images next to declared ones": ([PHOTO, PHOTO], True, "encoded bytes"),
    "lists": ([["a.png"], []], False, None),
}


def rows_of(root, values, has_images):
    columns = {"x": values, "n": range(len(values))}
    if has_images:
        columns["file_name"] = ["a.png", "b.png"]
    return write_rows(root / "rows.parquet", columns)


@pytest.mark.parametrize(("values", "has_images", "first"), UNDECLARED.values(), ids=UNDECLARED)
def test_images_that_nobody_declared_are_refused(values, has_images, first, image_folder, tmp_path, capsys):
    path = rows_of(image_folder({"a.png": 1, "b.png": 2}), values, has_images)
    expected = fault("column-undeclared", name="x", first=first) if first else fault("image-list", name="x")
    with raises(InputError, expected):
        Table(path).stage(tmp_path)
    if first:
        assert main(["build", "table", str(path), str(tmp_path / "out")]) == 1
        message = capsys.readouterr().err
        assert all(f"--{flag}" in message for flag in ("image x", "mask x", "drop x", "no-images"))
    for roles in (ColumnRoles(drop=("x",)), ColumnRoles(no_images=True)):
        schema = Table(path, columns=roles).stage(tmp_path).schema
        assert ("x" in schema.names) == roles.no_images
        assert ("image" in schema.names) == has_images


STORED = {
    "text": (["x/y.txt", "a cat"], False, "no suffix of an image"),
    "a file name in a few texts": (["a.png", "a cat", "a dog"], False, "most are no paths"),
    "ids of images": (["a", "b"], False, "paths have suffixes; a template makes them"),
    "web addresses next to images": (["https://h/a.png", "HTTP"], True, "they say where an image came from"),
    "other bytes": ([b"\0\1", b"\2"], False, "no image begins like that"),
    "nothing": (["", ""], False, "no value"),
}


@pytest.mark.parametrize(("values", "has_images", "reason"), STORED.values(), ids=STORED)
def test_other_values_are_stored(values, has_images, reason, image_folder, tmp_path):
    path = rows_of(image_folder({"a.png": 1, "b.png": 2}), values, has_images)
    assert Table(path).stage(tmp_path).schema["x"].kind == "bytes", reason


def test_a_column_in_a_template_of_paths_is_stored(image_folder, tmp_path):
    root = image_folder({"photos/a.png": 1, "photos/b.png": 2})
    path = write_csv(root / "rows.csv", "Image Index,n", "a.png,1", "b.png,2")
    schema = Table(path, columns=ColumnRoles(images=("photos/{Image Index}",))).stage(tmp_path).schema
    assert (schema["image"].kind, schema["Image Index"].kind) == ("image", "bytes")


@pytest.mark.parametrize("role", ["images", "masks"])
def test_further_images_are_declared(role, image_folder, tmp_path):
    root = image_folder({"a.png": encoded(1), "b.png": encoded(2)})
    path = rows_of(root, ["a.png", "b.png"], has_images=True)
    schema = Table(path, columns=ColumnRoles(**{role: ("x",)})).stage(tmp_path).schema
    assert (schema["x"].kind, schema["image"].kind) == (role.removesuffix("s"), "image")


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


def test_a_metadata_table_with_images_inside_names_no_files(image_folder, quiet_build, tmp_path, log):
    root = image_folder({"a.png": 1})
    pa.parquet.write_table(pa.table({"image": [encoded(2)]}), root / "metadata.parquet")
    assert quiet_build(Table(root), tmp_path / "out").schema["image"].kind == "image"
    assert not any("are in no row" in line for line in log)
