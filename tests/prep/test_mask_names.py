"""Masks elsewhere, with other names, or with another depth than their photos."""

import io
import os

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tests.errors import raises
from tests.prep.table_files import IMAGES, check_repair, examples, write_jsonl, write_parquet
from tfshards import loader
from tfshards.prep import ColumnRoles, Elements, ImageFolder, ImageOptions, Table, append
from tfshards.prep.cli.main import main
from tfshards.schemas import Feature, InputError, OptionsError

NAME = "{folders}/{stem:-_leftImg8bit}_gtFine_labelIds.png"
FRAMES = ["train/aachen/a_1", "train/bochum/b_2", "val/lindau/c_3"]


def photo_of(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (4, 5, 3)).astype(np.uint8)


def mask_of(number: int) -> np.ndarray:
    return np.random.default_rng(50 + number).integers(0, 30, (4, 5)).astype(np.uint8)


def depth_of(number: int) -> np.ndarray:
    return np.random.default_rng(90 + number).integers(0, 65536, (4, 5)).astype(np.uint16)


def encoded(pixels: np.ndarray, *, palette: bool = False, kind: str = "PNG") -> bytes:
    file, picture = io.BytesIO(), Image.fromarray(pixels)
    if palette:
        picture = picture.convert("P")
        picture.putpalette([200, 100, 50] * 256)
    picture.save(file, kind)
    return file.getvalue()


def write(path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.fixture
def cityscapes(tmp_path):
    for number, frame in enumerate(FRAMES):
        write(tmp_path / f"leftImg8bit/{frame}_leftImg8bit.png", encoded(photo_of(number)))
        for what, pixels in (
            ("labelIds", mask_of(number)),
            ("color", photo_of(number)),
            ("instanceIds", mask_of(9)),
        ):
            write(tmp_path / f"gtFine/{frame}_gtFine_{what}.png", encoded(pixels))
        write(tmp_path / f"gtFine/{frame}_gtFine_polygons.json", b"{}")
    return tmp_path / "leftImg8bit"


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def test_masks_of_cityscapes_are_found_by_their_names_appended_and_repaired(cityscapes, tmp_path, capsys):
    out, build = tmp_path / "out", ["--mask-dir", "../gtFine", "--mask-name", NAME]
    assert main(["build", "images", str(cityscapes), str(out), *build]) == 0
    assert "6 not named like a mask" in " ".join(capsys.readouterr().out.split())
    for number, frame in enumerate(FRAMES):
        values = examples(out)[f"{frame}_leftImg8bit.png"]
        assert np.array_equal(pixels(values["image"][0]), photo_of(number))
        assert np.array_equal(pixels(values["mask"][0]), mask_of(number))
    check_repair(out, cityscapes, split="val")
    write(cityscapes / "train/aachen/d_4_leftImg8bit.png", encoded(photo_of(4)))
    write(tmp_path / "gtFine/train/aachen/d_4_gtFine_labelIds.png", encoded(mask_of(4)))
    append([cityscapes], out, log=lambda _: None)
    assert np.array_equal(pixels(examples(out)["train/aachen/d_4_leftImg8bit.png"]["mask"][0]), mask_of(4))


def test_images_and_masks_without_each_other_are_counted(cityscapes, tmp_path):
    write(cityscapes / "train/aachen/other.png", encoded(photo_of(7)))
    write(cityscapes / "train/aachen/e_5_leftImg8bit.png", encoded(photo_of(7)))
    write(tmp_path / "gtFine/train/f_gtFine_labelIds.png", encoded(mask_of(7)))
    source = ImageFolder(cityscapes, mask_dir="../gtFine", mask_name=NAME)
    listing = source.listing()
    assert listing.skipped == {"not an image": 3, "not named like a mask": 6, "mask without an image": 1}
    assert any(
        "for 2 of 5 images, such as 'train/aachen/e_5_leftImg8bit.png'" in line for line in listing.warnings
    )
    rows = listing.rows(np.arange(5))
    assert [
        outcome.reason for outcome in source.read(rows, listing.schema) if hasattr(outcome, "reason")
    ] == ["missing"] * 2
    os.utime(cityscapes / "train/aachen/other.png", ns=(1, 1))
    with raises(InputError, "changed-file"):
        source.read(rows, listing.schema)
    with raises(InputError, "masks-unmatched"):
        ImageFolder(cityscapes, mask_dir="../gtFine", mask_name="{folders}/{stem}_x.png").listing()


def test_a_template_may_be_of_images_in_no_folder(tmp_path):
    for number in range(2):
        write(tmp_path / f"photos/{number}.png", encoded(photo_of(number)))
        write(tmp_path / f"masks/deep/m{number}.png", encoded(mask_of(number)))
    source = ImageFolder(tmp_path / "photos", mask_dir="../masks", mask_name="deep/{folders}/m{stem}.png")
    listing = source.listing()
    found = source.read(listing.rows(np.arange(2)), listing.schema)
    assert [pixels(each.values[1]).tolist() for each in found] == [mask_of(n).tolist() for n in range(2)]


HOSTILE = {
    "out of the folder": "../{stem}.png",
    "out of it by the folders": "{folders}/../../{stem}.png",
    "absolute": "/{folders}/{stem}.png",
    "an unknown field": "{name}.png",
    "a conversion": "{stem!r}.png",
    "digits": "{stem:06d}.png",
    "an ending of folders": "{folders:-a}/{stem}.png",
    "no stem": "{folders}.png",
    "the stem twice": "{stem}/{stem}.png",
    "no suffix": "{folders}/{stem}",
    "another suffix": "{folders}/{stem}.txt",
    "an open brace": "{stem.png",
}


@pytest.mark.parametrize("template", HOSTILE.values(), ids=HOSTILE)
def test_templates_that_make_no_names_of_masks_are_refused(template, tmp_path):
    with raises(OptionsError, "mask-name-form", template=template):
        ImageFolder(tmp_path, mask_dir="masks", mask_name=template)


def test_options_of_masks_without_masks_are_refused(tmp_path, build_table):
    with raises(OptionsError, "mask-name-useless"):
        ImageFolder(tmp_path, mask_name="{stem}.png")
    write(tmp_path / "photos/a.png", encoded(photo_of(1)))
    deep = ImageOptions(mask_depth=16)
    with raises(OptionsError, "mask-depth-useless"):
        ImageFolder(tmp_path / "photos", deep).listing()
    with raises(OptionsError, "mask-depth-useless"):
        Elements(images=["image"], image_options=deep)
    table = write_jsonl(tmp_path / "photos/rows.jsonl", [{"file_name": "a.png"}])
    with raises(OptionsError, "mask-depth-useless"):
        build_table(table, images=deep)
    with raises(OptionsError, "not-a-choice", name="mask_depth"):
        ImageOptions(mask_depth=12)


def test_depth_maps_of_16_bits_are_exact_next_to_photos_of_8(tmp_path, build_table):
    for number in range(3):
        write(tmp_path / f"nyu/images/{number}.jpg", encoded(photo_of(number), kind="JPEG"))
        write(tmp_path / f"nyu/masks/{number}.png", encoded(depth_of(number)))
    out = tmp_path / "out"
    assert main(["build", "images", str(tmp_path / "nyu"), str(out), "--mask-depth", "16"]) == 0
    found = examples(out)
    for number in range(3):
        values = found[f"images/{number}.jpg"]
        assert values["image"] == [(tmp_path / f"nyu/images/{number}.jpg").read_bytes()]
        assert np.array_equal(pixels(values["mask"][0]), depth_of(number))
    image = {"image": loader.Image((4, 5)), "mask": loader.Image(dtype="int32")}
    (batch,) = loader.load(out, batch_size=3, image=image, select=("image", "mask", "key"))
    assert batch[0].dtype == "uint8"
    for key, mask in zip(batch[2].numpy(), batch[1].numpy(), strict=True):
        assert np.array_equal(mask[..., 0], depth_of(int(key[7:8])))
    check_repair(out, tmp_path / "nyu")
    rows = [{"file_name": f"images/{number}.jpg", "depth": f"masks/{number}.png"} for number in range(3)]
    table = write_jsonl(tmp_path / "nyu/rows.jsonl", rows)
    manifest = build_table(
        table, "table", columns=ColumnRoles(masks=("depth",)), images=ImageOptions(mask_depth=16)
    )
    assert manifest.schema["depth"] == Feature("depth", "mask", "uint16", (None, None, 1))
    assert manifest.schema["image"].dtype == "uint8"


def structs(data: list[bytes]) -> pa.Array:
    return pa.array([{"bytes": each, "path": None} for each in data], IMAGES)


@pytest.mark.parametrize("kind", ["palette", "gray"])
def test_masks_next_to_photos_in_parquet_never_become_colors_in_silence(kind, tmp_path, build_table):
    photos = structs([encoded(photo_of(number)) for number in range(3)])
    masks = structs([encoded(mask_of(number), palette=kind == "palette") for number in range(3)])
    path = write_parquet(tmp_path / "rows.parquet", {"image": photos, "annotation": masks, "id": [1, 2, 3]})
    with raises(InputError, "column-may-be-mask", name="annotation", photo="image"):
        build_table(path)
    build_table(path, columns=ColumnRoles(masks=("annotation",)))
    for number, values in enumerate(examples(tmp_path / "out").values()):
        assert np.array_equal(pixels(values["annotation"][0]), mask_of(number))
    declared = build_table(path, "colors", columns=ColumnRoles(images=("annotation",)))
    assert declared.schema["annotation"].kind == "image"
    # photos that are gray, too, and pictures in JPEG, are no masks
    gray = write_parquet(tmp_path / "gray.parquet", {"left": masks, "right": masks})
    assert build_table(gray, "gray").schema["right"].kind == "image"
    lossy = structs([encoded(mask_of(number), kind="JPEG") for number in range(3)])
    jpegs = write_parquet(tmp_path / "jpegs.parquet", {"image": photos, "other": lossy})
    assert build_table(jpegs, "jpegs").schema["other"].kind == "image"


def test_masks_in_files_next_to_photos_are_proposed_too(tmp_path, build_table):
    for number in range(2):
        write(tmp_path / f"data/{number}.png", encoded(photo_of(number)))
        write(tmp_path / f"data/{number}m.png", encoded(mask_of(number), palette=True))
    rows = [{"file_name": f"{number}.png", "seg_file_name": f"{number}m.png"} for number in range(2)]
    table = write_jsonl(tmp_path / "data/metadata.jsonl", rows)
    with raises(InputError, "column-may-be-mask", name="seg_file_name", photo="file_name"):
        build_table(table)
    build_table(table, columns=ColumnRoles(masks=("seg_file_name",)))
    assert np.array_equal(pixels(examples(tmp_path / "out")["0.png"]["seg"][0]), mask_of(0))
    paths = pa.array([{"bytes": None, "path": f"{number}m.png"} for number in range(2)], IMAGES)
    mixed = write_parquet(tmp_path / "data/rows.parquet", {"file_name": ["0.png", "1.png"], "m": paths})
    with raises(InputError, "column-may-be-mask", name="m"):
        build_table(mixed)
    # what cannot be read is reported as damage, by the build
    (tmp_path / "data/1m.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "data/0m.png").unlink()
    Table(table).stage(tmp_path)
