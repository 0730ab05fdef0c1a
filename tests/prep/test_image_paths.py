"""Paths of images that differ from those of their files, and images that no one declared."""

import shlex

import pytest

from tests.errors import fault, raises
from tests.prep.table_files import encoded, examples, write_jsonl, write_parquet
from tfshards.prep import ColumnRoles, Table, build
from tfshards.prep.cli.main import main
from tfshards.schemas import InputError, read_manifest


@pytest.fixture
def photos(tmp_path):
    """Write images with these paths; the number in a name is that of its content."""

    def write(*paths):
        for number, path in enumerate(paths):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(encoded(number))

    return write


WRITTEN = {
    "no suffix": (["a", "b.c"], ["a.png", "b.c.png"]),
    "no suffix, in a folder": (["train/a", "train/b"], ["train/a.PNG", "train/b.png"]),
    "a file without one": (["train/a", "train/b"], ["train/a", "train/b.png"]),
    "backslashes": (["train\\a.png", "x\\y\\b.png"], ["train/a.png", "x/y/b.png"]),
    "both": (["train\\a", "train\\b"], ["train/a.png", "train/b.png"]),
}


@pytest.mark.parametrize(("written", "files"), WRITTEN.values(), ids=WRITTEN)
def test_paths_of_files_that_are_written_in_another_way_are_found(written, files, photos, tmp_path, capsys):
    photos(*files)
    path = write_jsonl(tmp_path / "t.jsonl", [{"file_name": each, "x": n} for n, each in enumerate(written)])
    out = tmp_path / "out"
    assert main(["build", "table", str(path), str(out)]) == 0
    assert {key: (each["image"], each["x"]) for key, each in examples(out).items()} == {
        file: ([encoded(number)], [number]) for number, file in enumerate(files)
    }
    assert ("for the file" in capsys.readouterr().err) == (written != files)


def test_a_path_that_fits_several_files_is_an_error(photos, tmp_path):
    photos("a.png", "a.jpg", "b.png")
    path = write_jsonl(tmp_path / "t.jsonl", [{"file_name": "a"}, {"file_name": "b"}])
    with raises(InputError, "image-path-several", path="a", found="a.jpg, a.png"):
        Table(path).stage(tmp_path)


def test_paths_that_fit_no_file_are_rejected_by_name(photos, tmp_path):
    photos("a.png", "c.png", "../b.png")
    names = ["a", "b", "../b", "gone/b", "gone\\b.png", "", "a\0"]
    path = write_jsonl(tmp_path / "t.jsonl", [{"file_name": name} for name in names if ".." not in name])
    flags = ["--max-rejected", "90%", "--quiet"]
    assert main(["build", "table", str(path), str(tmp_path / "out"), *flags]) == 0
    assert read_manifest(tmp_path / "out").totals.rejected == 5
    path = write_jsonl(tmp_path / "t.jsonl", [{"file_name": "a"}, {"file_name": "../b"}])
    with raises(InputError, "outside"):
        Table(path).stage(tmp_path)


def test_undeclared_paths_with_backslashes_are_images(photos, tmp_path, build_table):
    photos("train/a.png", "val/b.png")
    build_table(write_jsonl(tmp_path / "t.jsonl", [{"photo": "train\\a.png"}, {"photo": "val\\b.png"}]))
    assert [*examples(tmp_path / "out", "val")] == ["val/b.png"]


FITTING = {
    "text": (["n01_a", "n01_b"], ["train/n01_a.jpg", "train/n01_b.jpg"], "train/{id}.jpg"),
    "numbers": ([7, 12], ["train/12.png", "train/7.png"], "train/{id}.png"),
    "padded numbers": ([7, 12], ["data/train/0007.png", "data/train/0012.png"], "data/train/{id:04d}.png"),
    "in the folder of the table": (["a", "b"], ["a.jpg", "b.jpg"], "{id}.jpg"),
}


@pytest.mark.parametrize(("ids", "files", "template"), FITTING.values(), ids=FITTING)
def test_ids_next_to_files_of_their_names_show_what_works(ids, files, template, photos, tmp_path, capsys):
    photos(*files, ".hidden/x.jpg", "deep/er/and/deeper/x.jpg")
    rows = [{"id": each, "label": "cat"} for each in ids]
    path, out = write_jsonl(tmp_path / "t.jsonl", rows), tmp_path / "out"
    command = ["build", "table", str(path), str(out)]
    assert main(command) == 1
    message = capsys.readouterr().err
    assert f"--image {shlex.quote(template)}" in message
    assert main([*command, "--image", template, "--quiet"]) == 0
    assert sorted(examples(out)) == files
    assert main([*command, "--no-images", "--overwrite", "--quiet"]) == 0
    assert [*examples(out)] == ["0", "1"]


def test_ids_of_files_in_several_folders_are_found_by_a_pattern(photos, tmp_path):
    photos("part_1/a.jpg", "part_1/b.jpg", "part_2/c.jpg", "part_2/d.jpg")
    path = write_jsonl(tmp_path / "t.jsonl", [{"id": each, "label": "cat"} for each in "abcd"])
    with raises(InputError, "column-fits-files", name="id", template="part_*/{id}.jpg"):
        build(Table(path), tmp_path / "out", log=lambda _: None)
    table = Table(path, columns=ColumnRoles(images=["part_*/{id}.jpg"]))
    build(table, tmp_path / "out", log=lambda _: None)
    assert {key: each["image"] for key, each in examples(tmp_path / "out").items()} == {
        key: [encoded(number)]
        for number, key in enumerate(("part_1/a.jpg", "part_1/b.jpg", "part_2/c.jpg", "part_2/d.jpg"))
    }
    photos("part_2/a.jpg")
    with raises(InputError, "template-matches-several", path="part_*/a.jpg"):
        table.stage(tmp_path)


def test_a_pattern_is_not_looked_for_in_a_bucket(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"id": "a"}])
    table = Table(path, root="s3://bucket/x", columns=ColumnRoles(images=["part_*/{id}.jpg"]))
    with raises(InputError, "template-pattern-remote", root="s3://bucket/x"):
        table.stage(tmp_path)


def test_other_values_next_to_images_are_stored(photos, tmp_path, build_table):
    photos("plots/1.png", "plots/note.png")
    (tmp_path / "plots" / "4.txt").write_text("")
    (tmp_path / "closed").mkdir(mode=0)
    rows = [{"id": number, "name": f"x/{number}", "size": 0.5} for number in (1, 2, 3, 4)]
    build_table(write_jsonl(tmp_path / "t.jsonl", rows))
    assert [*examples(tmp_path / "out")] == ["0", "1", "2", "3"]


def test_columns_of_json_are_reported(photos, tmp_path, build_table, log):
    photos("a.png", "b.png")
    rows = [{"file_name": f"{name}.png", "region": '{"x": 1}', "note": "{}x"} for name in "ab"]
    build_table(write_jsonl(tmp_path / "t.jsonl", rows))
    assert ["region" in line for line in log if " holds JSON" in line] == [True]


MORE = {
    "paths": ({"depth": ["d/a.png", "d/b.png"]}, "depth"),
    "some paths": ({"depth": ["d/a.png", "d/gone.png"]}, "depth"),
    "encoded images": ({"raw": [encoded(1), encoded(2)]}, "raw"),
}


@pytest.mark.parametrize(("columns", "name"), MORE.values(), ids=MORE)
def test_further_images_are_declared(columns, name, photos, tmp_path):
    photos("a.png", "b.png", "d/a.png", "d/b.png")
    path = write_parquet(tmp_path / "t.parquet", {"file_name": ["a.png", "b.png"], **columns})
    with raises(InputError, fault("columns-of-more-images", name=name)):
        Table(path).stage(tmp_path)
    kinds = {"images": "image", "masks": "mask", "no_images": "bytes", "drop": None}
    for role, kind in kinds.items():
        roles = ColumnRoles(**{role: True if role == "no_images" else (name,)})
        schema = Table(path, columns=roles).stage(tmp_path).schema
        assert (schema[name].kind if name in schema.names else None) == kind


def test_text_that_only_looks_like_a_path_is_stored_next_to_images(photos, tmp_path, build_table):
    photos("a.png", "b.png")
    rows = [{"file_name": f"{name}.png", "was": f"old/{name}.png", "note": name} for name in "ab"]
    build_table(write_jsonl(tmp_path / "t.jsonl", rows))
    assert [each["was"] for each in examples(tmp_path / "out").values()] == [[b"old/a.png"], [b"old/b.png"]]
