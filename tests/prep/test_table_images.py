"""Images named in a table: pairs and masks, keys, and paths that are missing or outside of the root."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from PIL import Image

from tests.errors import raises
from tfshards import loader
from tfshards.prep import ColumnRoles, ImageOptions, Options, Table, verify
from tfshards.prep.cli.main import main
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.frames import read_records
from tfshards.schemas import BuildError, InputError, OptionsError, read_manifest

ANY_REJECTS = Options(max_rejected=1)


def records(out: Path) -> dict[str, dict[str, list[object]]]:
    """Return all examples by key, without TensorFlow."""
    shards = read_manifest(out).shards
    found = [decode_example(data) for shard in shards for _, data in read_records(out / shard.path, "none")]
    by_key = {os.fsdecode(values["key"][0]): values for values in found}
    assert len(by_key) == len(found)
    return by_key


def rejects(out: Path) -> dict[str, tuple[str, str]]:
    (path,) = out.glob("rejected-*.jsonl")
    lines = map(json.loads, path.read_text().splitlines())
    return {line["key"]: (line["reason"], line["detail"]) for line in lines}


def csv(folder: Path, content: str | bytes, name: str = "metadata.csv") -> Path:
    path = folder / name
    path.write_bytes(os.fsencode(content))
    return path


def parquet(folder: Path, **columns: list[object]) -> Path:
    pa.parquet.write_table(pa.table(columns), folder / "rows.parquet")
    return folder / "rows.parquet"


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


NAMES = ["007", "1.png", "a b.png", "deep/er/c.png", "./d.png", "Käse.png", 'quo"te,.png', "line\nend.png"]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_paths_of_any_kind_are_keys(form, image_folder, tmp_path, quiet_build):
    root = image_folder({name: number for number, name in enumerate(NAMES)})
    path = root / f"metadata.{form}"
    if form == "parquet":
        pa.parquet.write_table(pa.table({"file_name": NAMES}), path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"file_name": name}) + "\n" for name in NAMES))
    else:
        path.write_text("\n".join(['"file_name"', *('"' + name.replace('"', '""') + '"' for name in NAMES)]))
    quiet_build(Table(path), tmp_path / "out", shards=3)
    expected = {name: [(root / name).read_bytes()] for name in NAMES}
    assert {key: values["image"] for key, values in records(tmp_path / "out").items()} == expected


def test_names_that_are_not_utf8_are_found(image_folder, tmp_path, quiet_build):
    root = image_folder({"caf\udce9.png": 1, "b.png": 2})
    quiet_build(Table(csv(root, "file_name\ncaf\udce9.png\nb.png\n")), tmp_path / "out")
    assert sorted(records(tmp_path / "out")) == ["b.png", "caf\udce9.png"]


def test_a_folder_with_its_metadata_is_read_from_the_command_line(image_folder, tmp_path, capsys):
    root = image_folder({"a.png": 1, "b.png": 2, "c.png": 3, "d.png": 4})
    csv(root, "label,file_name,score\ncat,b.png,0.5\ndog,a.png,1\n")
    out = tmp_path / "out"
    assert main(["build", "table", str(root), str(out), "--shards", "1"]) == 0
    logged = capsys.readouterr().err
    assert f"warning: 2 image files are below {root}, but not in any row, such as 'c.png', 'd.png'" in logged
    manifest = read_manifest(out)
    assert manifest.schema.names == ("image", "label", "score", "key")
    assert manifest.schema.class_names == ("cat", "dog")
    assert {key: values["label"] for key, values in records(out).items()} == {"a.png": [1], "b.png": [0]}
    assert verify(out, deep=True)


def test_unreadable_files_next_to_the_table_do_not_matter(image_folder, tmp_path, quiet_build, monkeypatch):
    root = image_folder({"a.png": 1})

    def fail(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied", str(root / "private"))

    monkeypatch.setattr("tfshards.prep.sources.tree.LocalTree.images", fail)
    assert quiet_build(Table(csv(root, "file_name\na.png\n")), tmp_path / "out").num_examples == 1


def test_masks_keep_their_numbers_and_are_cropped_with_their_image(tmp_path, quiet_build):
    rng = np.random.default_rng(0)
    mask = rng.integers(0, 3, (9, 12), dtype=np.uint8) * 100
    (tmp_path / "a.png").write_bytes(png(np.stack([mask] * 3, axis=2)))
    palette = Image.fromarray(mask // 100).convert("P")
    palette.putpalette([9, 9, 9, 200, 0, 0, 0, 200, 0])
    palette.save(tmp_path / "a-mask.png")
    path = csv(tmp_path, "file_name,mask_file_name,depth\na.png,a-mask.png,a.png\n")
    columns = ColumnRoles(images=("depth",), masks=("mask_file_name",))
    manifest = quiet_build(Table(path, columns=columns), tmp_path / "out")
    assert [feature.name for feature in manifest.schema.features] == ["image", "mask", "depth", "key"]
    assert manifest.schema["mask"].shape == (None, None, 1)
    assert manifest.options["image_columns"] == {
        "image": "file_name",
        "mask": "mask_file_name",
        "depth": "depth",
    }
    (batch,) = loader.load(
        tmp_path / "out",
        batch_size=1,
        image={
            "image": loader.Image(size=(6, 6), crop="random", method="nearest"),
            "mask": loader.Image(size=(6, 6), crop="random", method="nearest", channels=1),
            "depth": loader.Image(size=(9, 12)),
        },
    )
    tf.debugging.assert_equal(batch["image"][..., :1], batch["mask"] * 100)
    tf.debugging.assert_equal(batch["depth"][0, :, :, 0], mask)
    assert verify(tmp_path / "out", deep=True)


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (ImageOptions(resize="6x8", format="jpeg"), (6, 8, 1)),  # the photo as JPEG, the mask as PNG
        (ImageOptions(channels=4), (None, None, 1)),
        (ImageOptions(jpeg_quality=50, check="header"), (None, None, 1)),
        (ImageOptions(check="none"), (None, None, 1)),  # the header of a mask is looked at
    ],
)
def test_image_options_that_mix_no_pixels_apply_to_masks(images, shape, tmp_path, quiet_build):
    mask = np.arange(48, dtype=np.uint8).reshape(6, 8)
    (tmp_path / "m.png").write_bytes(png(mask))
    (tmp_path / "a.png").write_bytes(png(np.stack([mask] * 3, axis=2)))
    path = csv(tmp_path, "file_name,m\na.png,m.png\n")
    manifest = quiet_build(Table(path, images, ColumnRoles(masks=("m",))), tmp_path / "out")
    assert manifest.schema["m"].shape == shape
    (values,) = records(tmp_path / "out").values()
    np.testing.assert_array_equal(Image.open(io.BytesIO(values["m"][0])), mask)


def test_a_table_outside_of_the_image_folder_names_its_root(image_folder, tmp_path, quiet_build, log):
    root = image_folder({"a.png": 1, "b.png": 2})
    path = csv(tmp_path, "file_name\na.png\n")
    quiet_build(Table(path, root=root), tmp_path / "out")
    assert list(records(tmp_path / "out")) == ["a.png"]
    assert not [line for line in log if line.startswith("warning")]
    with raises(InputError, "root-not-a-folder"):
        quiet_build(Table(path, root=tmp_path / "none"), tmp_path / "other")


OUTSIDE = {
    "an absolute path": "/etc/passwd",
    "a path above": "../outside.png",
    "a path around": "sub/../../outside.png",
    "a link": "link.png",
    "a folder that is a link": "linked/outside.png",
    "above a folder that is a link": "linked/../outside.png",
    "the folder above": "..",
}


@pytest.fixture
def linked(image_folder, tmp_path) -> Path:
    """A folder with links out of it; ``linked`` points to a folder next to ``outside.png``."""
    root = image_folder({"a.png": 1, "sub/b.png": 2})
    image_folder({"outside.png": 3, "beside/outside.png": 4}, name="elsewhere")
    (root / "link.png").symlink_to(tmp_path / "elsewhere" / "outside.png")
    (root / "linked").symlink_to(tmp_path / "elsewhere" / "beside")
    (root / "inside.png").symlink_to("sub/b.png")
    return root


@pytest.mark.parametrize("path", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_a_path_outside_of_the_root_is_refused(path, linked, tmp_path, quiet_build):
    table = csv(linked, f"file_name\na.png\n{path}\n")
    with raises(InputError, "outside"):
        quiet_build(Table(table), tmp_path / "out")


def test_links_are_followed_inside_the_root_and_outside_on_request(linked, tmp_path, quiet_build):
    quiet_build(Table(csv(linked, "file_name\ninside.png\nsub/../a.png\n")), tmp_path / "one")
    assert set(records(tmp_path / "one")) == {"inside.png", "sub/../a.png"}
    names = ["link.png", "linked/outside.png", "linked/../outside.png"]
    path = csv(linked, "\n".join(["file_name", *names]))
    quiet_build(Table(path, follow_links=True), tmp_path / "two")
    found = records(tmp_path / "two")
    assert found["link.png"]["image"] == found["linked/../outside.png"]["image"]
    assert set(found) == set(names)


MISSING = {
    "no such file": ("none.png", "there is no file 'none.png'"),
    "a folder": ("sub", "there is no file 'sub'"),
    "the root": (".", "there is no file '.'"),
    "a pipe": ("pipe.png", "there is no file 'pipe.png'"),
    "below a file": ("a.png/b.png", "there is no file 'a.png/b.png'"),
    "a name that is too long": ("x" * 300, f"there is no file '{'x' * 300}'"),
    "a name with a NUL": ("a\0b", "there is no file 'a\\x00b'"),
    "no name": ("", "the row names no file"),
    "nothing": (None, "the row names no file"),
}


@pytest.mark.parametrize(("path", "detail"), MISSING.values(), ids=MISSING.keys())
def test_a_row_without_its_file_is_rejected(path, detail, image_folder, tmp_path, quiet_build):
    root = image_folder({"a.png": 1, "sub/b.png": 2})
    os.mkfifo(root / "pipe.png")
    table = parquet(root, file_name=["a.png", path, "sub/b.png"])
    with raises(BuildError, "too-many-rejected", num_rejects=1, inputs=3):
        quiet_build(Table(table), tmp_path / "out", shards=2)
    manifest = quiet_build(Table(table), tmp_path / "out", shards=2, options=ANY_REJECTS)
    assert (manifest.totals.accepted, manifest.totals.rejected) == (2, 1)
    assert [shard.num_examples for shard in manifest.splits["train"].shards] == [1, 1]
    key = path if path and "\0" not in path else "1"
    assert rejects(tmp_path / "out") == {key: ("missing", detail)}


def test_the_rejected_one_of_several_images_is_named(image_folder, tmp_path, quiet_build):
    root = image_folder({"a.png": 1, "b.png": b"no image", "c.png": 2})
    table = csv(root, "file_name,mask_file_name\na.png,b.png\nc.png,a.png\n")
    quiet_build(Table(table), tmp_path / "out", options=ANY_REJECTS)
    (found,) = rejects(tmp_path / "out").items()
    assert found[0] == "a.png"
    assert found[1][0] == "unreadable"
    assert found[1][1].startswith("mask: starts with 6e 6f")


def test_rows_of_the_same_image_have_their_numbers_as_keys(image_folder, tmp_path, quiet_build, log):
    root = image_folder({"a.png": 1, "b.png": 2})
    table = csv(root, "file_name,x\nb.png,0\na.png,1\nb.png,2\n")
    quiet_build(Table(table), tmp_path / "out")
    assert log[0] == (
        "warning: 2 rows have the image 'b.png': the keys of the examples are row numbers, not paths"
    )
    found = records(tmp_path / "out")
    assert {key: values["x"] for key, values in found.items()} == {"0": [0], "1": [1], "2": [2]}
    assert found["0"]["image"] == found["2"]["image"] == [(root / "b.png").read_bytes()]


def test_an_image_in_two_splits_is_reported(image_folder, tmp_path, quiet_build, log):
    root = image_folder({"a.png": 1, "b.png": 2, "c.png": 3})
    rows = ["a.png,train", "./a.png,val", "b.png,train", "c.png,val", "c.png,val"]
    quiet_build(Table(csv(root, "\n".join(["file_name,split", *rows]))), tmp_path / "out")
    assert "warning: the image 'a.png' is in the splits train and val" in log
    rows += ["b.png,val", "c.png,train"]
    (tmp_path / "stage").mkdir()
    found = Table(csv(root, "\n".join(["file_name,split", *rows]))).stage(tmp_path / "stage").warnings
    assert found == (
        "2 rows have the image 'b.png', and 1 more image is repeated: the keys of the examples are row "
        "numbers, not paths",
        "the image 'a.png' is in the splits train and val, and 2 more images are in several splits",
    )


def test_names_of_splits_and_classes_that_look_alike_are_reported(tmp_path, quiet_build, log):
    rows = ["0,Train,cat", "1,train,dog", '2,val," cat"']
    quiet_build(Table(csv(tmp_path, "\n".join(["n,split,label", *rows]))), tmp_path / "out")
    assert "warning: 'Train' and 'train' look alike, but are two splits" in log
    assert "warning: ' cat' and 'cat' look alike, but are two classes" in log


def test_control_characters_in_keys_are_escaped(image_folder, tmp_path, capsys):
    name = "a\x1b[31m\n.png"
    root = image_folder({name: 1, "b.png": 2})
    table = parquet(root, file_name=[name, "b.png"])
    out = str(tmp_path / "out")
    assert main(["build", "table", str(table), out]) == 0
    assert main(["show", out, name]) == 0
    (root / name).unlink()
    assert main(["build", "table", str(table), out + "2", "--max-rejected", "1"]) == 0
    assert list(rejects(Path(out + "2"))) == [name]
    logged = capsys.readouterr()
    assert "\x1b" not in logged.out + logged.err


def test_an_image_that_changes_during_the_build_ends_it(image_folder, tmp_path, quiet_build, monkeypatch):
    root = image_folder({"a.png": 1, "b.png": 2})
    table = Table(csv(root, "file_name\na.png\nb.png\n"))
    stage = Table.stage

    def changing(self, folder, *, preview=False):
        reader = stage(self, folder, preview=preview)
        (root / "b.png").write_bytes(b"other")
        return reader

    monkeypatch.setattr(Table, "stage", changing)
    with pytest.raises(
        BuildError, match=r"b\.png: changed after the build listed it; run the command again$"
    ):
        quiet_build(table, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message", "flags", "shown"),
    [
        ({"images": ImageOptions(resize="8x8")}, "resize='8x8'", ["--resize", "8x8"], "--resize 8x8"),
        ({"images": ImageOptions(check="none")}, "check='none'", ["--check=none"], "--check none"),
        ({"root": "photos"}, "root='photos'", ["--root", "photos"], "--root photos"),
    ],
)
def test_options_of_images_without_images_are_refused(
    options, message, flags, shown, tmp_path, quiet_build, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    path = csv(tmp_path, "x\n1\n2\n")
    rest = f" has no effect, since {path.name} has no column of image paths; leave it out, or name the column"
    with pytest.raises(OptionsError, match=re.escape(f"{message}{rest} with images=")):
        quiet_build(Table(path.name, **options), tmp_path / "out")
    assert main(["build", "table", path.name, "out", *flags]) == 2
    assert capsys.readouterr().err == f"tfshards: {shown}{rest} with --image\n"
