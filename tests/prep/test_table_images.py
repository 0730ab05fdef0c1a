"""Images named in a table: pairs and masks, keys, and paths that are missing or outside of the root."""

import io
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.errors import raises
from tests.prep.table_files import examples, write_parquet, write_text
from tfshards import loader
from tfshards.prep import ColumnRoles, ImageOptions, Options, Table, verify
from tfshards.prep.cli.main import main
from tfshards.schemas import BuildError, OptionsError

ANY_REJECTS = {"options": Options(max_rejected=1)}


def rejects(out) -> dict[str, tuple[str, str]]:
    (path,) = out.glob("rejected-*.jsonl")
    lines = map(json.loads, path.read_text().splitlines())
    return {line["key"]: (line["reason"], line["detail"]) for line in lines}


def csv(folder, *lines: str):
    return write_text(folder / "metadata.csv", *lines)


def png(pixels: np.ndarray, path) -> None:
    Image.fromarray(pixels).save(path)


def test_unreadable_files_next_to_the_table_do_not_matter(image_folder, build_table, monkeypatch):
    root = image_folder({"a.png": 1})

    def fail(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied", str(root / "private"))

    monkeypatch.setattr("tfshards.prep.sources.tree.LocalTree.images", fail)
    assert build_table(csv(root, "file_name", "a.png")).num_examples == 1


def test_masks_keep_their_numbers_and_are_cropped_with_their_image(tmp_path, build_table):
    mask = np.random.default_rng(0).integers(0, 3, (9, 12), dtype=np.uint8) * 100
    png(np.stack([mask] * 3, axis=2), tmp_path / "a.png")
    palette = Image.fromarray(mask // 100).convert("P")
    palette.putpalette([9, 9, 9, 200, 0, 0, 0, 200, 0])
    palette.save(tmp_path / "a-mask.png")
    path = csv(tmp_path, "file_name,mask_file_name,depth", "a.png,a-mask.png,a.png")
    manifest = build_table(path, columns=ColumnRoles(images=("depth",), masks=("mask_file_name",)))
    assert [feature.name for feature in manifest.schema.features] == ["image", "mask", "depth", "key"]
    assert manifest.schema["mask"].shape == (None, None, 1)
    columns = {"image": "file_name", "mask": "mask_file_name", "depth": "depth"}
    assert manifest.options["image_columns"] == columns
    crop = {"size": (6, 6), "crop": "random", "method": "nearest"}
    images = {
        "image": loader.Image(**crop),
        "mask": loader.Image(**crop, channels=1),
        "depth": loader.Image(size=(9, 12)),
    }
    (batch,) = loader.load(tmp_path / "out", batch_size=1, image=images)
    tf.debugging.assert_equal(batch["image"][..., :1], batch["mask"] * 100)
    tf.debugging.assert_equal(batch["depth"][0, :, :, 0], mask)
    assert verify(tmp_path / "out", deep=True)


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (ImageOptions(resize="6x8", format="jpeg"), (6, 8, 1)),  # the photo as JPEG, the mask as PNG
        (ImageOptions(channels=4), (None, None, 1)),
        (ImageOptions(jpeg_quality=50), (None, None, 1)),
        (ImageOptions(check="none"), (None, None, 1)),  # the header of a mask is looked at
    ],
)
def test_image_options_that_mix_no_pixels_apply_to_masks(images, shape, tmp_path, build_table):
    mask = np.arange(48, dtype=np.uint8).reshape(6, 8)
    png(mask, tmp_path / "m.png")
    png(np.stack([mask] * 3, axis=2), tmp_path / "a.png")
    path = csv(tmp_path, "file_name,m", "a.png,m.png")
    manifest = build_table(path, images=images, columns=ColumnRoles(masks=("m",)))
    assert manifest.schema["m"].shape == shape
    (values,) = examples(tmp_path / "out").values()
    np.testing.assert_array_equal(Image.open(io.BytesIO(values["m"][0])), mask)


@pytest.fixture
def linked(image_folder, tmp_path):
    """A folder with links out of it; ``linked`` points to a folder next to ``outside.png``."""
    root = image_folder({"a.png": 1, "sub/b.png": 2})
    image_folder({"outside.png": 3, "beside/outside.png": 4}, name="elsewhere")
    (root / "link.png").symlink_to(tmp_path / "elsewhere" / "outside.png")
    (root / "linked").symlink_to(tmp_path / "elsewhere" / "beside")
    (root / "inside.png").symlink_to("sub/b.png")
    return root


MISSING = {
    "no such file": "none.png",
    "a folder": "sub",
    "the root": ".",
    "a pipe": "pipe.png",
    "below a file": "a.png/b.png",
    "a name that is too long": "x" * 300,
    "a name with a NUL": "a\0b",
    "no name": "",
    "nothing": None,
}


@pytest.mark.parametrize("path", MISSING.values(), ids=MISSING)
def test_a_row_without_its_file_is_rejected(path, image_folder, tmp_path, build_table):
    root = image_folder({"a.png": 1, "sub/b.png": 2})
    os.mkfifo(root / "pipe.png")
    table = write_parquet(root / "rows.parquet", {"file_name": ["a.png", path, "sub/b.png"]})
    with raises(BuildError, "too-many-rejected", num_rejects=1, inputs=3):
        build_table(table, build={"shards": 2})
    manifest = build_table(table, build={"shards": 2, **ANY_REJECTS})
    assert (manifest.totals.accepted, manifest.totals.rejected) == (2, 1)
    assert [shard.num_examples for shard in manifest.splits["train"].shards] == [1, 1]
    key = path if path and "\0" not in path else "1"
    detail = f"there is no file {path!r}" if path else "the row names no file"
    assert rejects(tmp_path / "out") == {key: ("missing", detail)}


def test_the_rejected_one_of_several_images_is_named(image_folder, tmp_path, build_table):
    root = image_folder({"a.png": 1, "b.png": b"no image", "c.png": 2})
    build_table(csv(root, "file_name,mask_file_name", "a.png,b.png", "c.png,a.png"), build=ANY_REJECTS)
    ((key, (reason, detail)),) = rejects(tmp_path / "out").items()
    assert (key, reason) == ("a.png", "unreadable")
    assert detail.startswith("mask: starts with 6e 6f")


def test_an_image_in_two_splits_is_reported(image_folder, tmp_path):
    root = image_folder({"a.png": 1, "b.png": 2, "c.png": 3})
    rows = ["a.png,train", "./a.png,val", "b.png,train", "c.png,val", "b.png,val", "c.png,train"]
    warnings = Table(csv(root, "file_name,split", *rows)).stage(tmp_path).warnings
    assert "3 images in several splits, such as 'a.png' in train and val" in warnings


def test_an_image_that_changes_during_the_build_ends_it(image_folder, tmp_path, quiet_build, monkeypatch):
    root = image_folder({"a.png": 1, "b.png": 2})
    table = Table(csv(root, "file_name", "a.png", "b.png"))
    stage = Table.stage

    def changing(self, folder, *, preview=False):
        reader = stage(self, folder, preview=preview)
        (root / "b.png").write_bytes(b"other")
        return reader

    monkeypatch.setattr(Table, "stage", changing)
    message = r"b\.png: changed after the build listed it; run the command again$"
    with pytest.raises(BuildError, match=message):
        quiet_build(table, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "found", "flags"),
    [
        ({"images": ImageOptions(resize="8x8")}, "resize='8x8'", ["--resize", "8x8"]),
        ({"images": ImageOptions(check="none")}, "check='none'", ["--check", "none"]),
        ({"root": "photos"}, "root='photos'", ["--root", "photos"]),
    ],
)
def test_options_of_images_without_images_are_refused(options, found, flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    name = csv(tmp_path, "x", "1", "2").name
    rest = f" has no effect, since {name} has no column of image paths; leave it out, or name the column"
    with pytest.raises(OptionsError, match=re.escape(f"{found}{rest} with images=")):
        Table(name, **options).stage(tmp_path)
    assert main(["build", "table", name, "out", *flags]) == 2
    assert capsys.readouterr().err == f"tfshards: {' '.join(flags)}{rest} with --image\n"
