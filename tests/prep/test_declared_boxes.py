"""Declared boxes and keypoints are where the stored image shows what they enclose."""

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageOps

from tests.errors import raises
from tests.prep import table_files
from tests.prep.table_files import check_repair, write_jsonl, write_parquet
from tfshards.prep import ColumnRoles, ImageOptions, Table, build
from tfshards.prep.cli.main import main
from tfshards.schemas import InputError, OptionsError, read_manifest

RED, GREEN = (255, 0, 0), (0, 255, 0)
NUM_PHOTOS = 20


def photo(number: int) -> tuple[Image.Image, list[tuple[int, int, int, int]]]:
    """Return the pixels of a file, and the edges of a red and a green rectangle in it."""
    random = np.random.default_rng(number)
    wide, high = random.integers(60, 120, 2).tolist()
    boxes = []
    image = Image.new("RGB", (wide, high))
    for column, color in enumerate((RED, GREEN)):
        left, right = np.sort(
            random.choice(np.arange(column * wide // 2, (column + 1) * wide // 2 - 4), 2, False)
        )
        top, bottom = np.sort(random.choice(np.arange(high - 12), 2, False))
        box = (int(left), int(top), int(right) + 4, int(bottom) + 12)
        image.paste(color, box)
        boxes.append(box)
    return image, boxes


def upright(box, sides, orientation):
    """Return the edges of a box in the upright image, by painting it and letting Pillow turn it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    mask = Image.new("L", sides)
    mask.paste(255, box)
    mask.save(file, "PNG", exif=exif)
    return ImageOps.exif_transpose(Image.open(file)).getbbox()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return a folder of photos with all orientations, and the edges in the files of each."""
    root = tmp_path_factory.mktemp("photos")
    found = {}
    for number in range(NUM_PHOTOS):
        image, boxes = photo(number)
        exif = Image.Exif()
        orientation = number % 9
        if orientation:
            exif[0x0112] = orientation
        name = f"{number:02}.{'png' if number % 3 else 'jpg'}"
        image.save(root / name, exif=exif, quality=98, subsampling=0)
        found[name] = (image.size, orientation or 1, boxes)
    return root, found


def formatted(box, sides, form):
    left, top, right, bottom = box
    order, _, share = form.partition("-")
    numbers = {
        "xywh": (left, top, right - left, bottom - top),
        "xyxy": (left, top, right, bottom),
        "yxyx": (top, left, bottom, right),
        "cxcywh": ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top),
    }[order]
    scale = (sides[::-1] if order == "yxyx" else sides) * 2 if share else (1, 1, 1, 1)
    return [number / side for number, side in zip(numbers, scale, strict=True)]


def edges(numbers, sides, form):
    order, _, share = form.partition("-")
    scale = np.array((sides[::-1] if order == "yxyx" else sides) * 2 if share else (1, 1, 1, 1))
    a, b, c, d = np.asarray(numbers) * scale
    return {
        "xywh": (a, b, a + c, b + d),
        "xyxy": (a, b, c, d),
        "yxyx": (b, a, d, c),
        "cxcywh": (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
    }[order]


def check_rectangle(picture, box, color, slack=1.5):
    """Compare a box with the rectangle of a color in a picture."""
    pixels = np.asarray(picture.convert("RGB"), np.int64)
    rows, columns = np.nonzero(np.abs(pixels - color).sum(axis=2) < 180)
    found = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    assert np.abs(np.subtract(found, box)).max() <= slack, (found, box)


def check_dataset(out, form, feature):
    built = table_files.examples(out)
    assert len(built) == NUM_PHOTOS
    for values in built.values():
        picture = Image.open(io.BytesIO(values["image"][0]))
        numbers = np.reshape(values[feature], (-1, 4))
        for box, color in zip(numbers, (RED, GREEN), strict=False):
            check_rectangle(picture, edges(box, picture.size, form), color)


def write_columns(path, files, reference="file"):
    """Write a CSV with the first box of each photo in four columns."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "xmin", "ymin", "xmax", "ymax", "kind"])
        for name, (sides, orientation, boxes) in files.items():
            box = boxes[0] if reference == "file" else upright(boxes[0], sides, orientation)
            writer.writerow([name, *box, "a"])
    return path


def test_four_columns_become_one_feature_through_every_verb(photos, tmp_path, capsys):
    root, files = photos
    some = dict(list(files.items())[:15])
    table, out = tmp_path / "t.csv", tmp_path / "out"
    flags = ["--root", str(root), "--boxes", "xmin,ymin,xmax,ymax=xyxy", "--boxes-in", "file"]
    assert (
        main(["build", "table", str(write_columns(table, some)), str(out), *flags, "--resize", "long=64"])
        == 0
    )
    assert main(["append", str(write_columns(table, files)), str(root), str(out)]) == 0
    manifest = read_manifest(out)
    found = manifest.schema["boxes"]
    assert (found.kind, found.shape, found.coordinates) == ("float", (4,), "xyxy")
    assert manifest.schema.names == ("image", "kind", "boxes", "key")
    check_dataset(out, "xyxy", "boxes")
    capsys.readouterr()
    assert main(["info", str(out)]) == 0
    assert "boxes (float, float32 4, xyxy)" in capsys.readouterr().out
    new = tmp_path / "new"
    assert main(["build", "table", str(table), str(new), *flags, "--resize", "long=64"]) == 0
    assert read_manifest(new).schema == manifest.schema
    check_dataset(new, "xyxy", "boxes")
    check_repair(new, table, root)
    derived = tmp_path / "derived"
    assert main(["reshard", str(new), str(derived), "--shards", "2"]) == 0
    assert read_manifest(derived).schema == manifest.schema
    merged, keys = tmp_path / "merged", tmp_path / "keys.txt"
    assert main(["merge", "--as-splits", f"a={out}", f"b={new}", str(merged)]) == 0
    keys.write_text(f"a/{next(iter(some))}\n")
    assert main(["remove", str(merged), "--keys", str(keys)]) == 0
    assert read_manifest(merged).schema == manifest.schema
    capsys.readouterr()
    exported = tmp_path / "exported"
    assert main(["export", str(new), str(exported), "--to", "parquet"]) == 0
    assert "--boxes boxes=xyxy" in capsys.readouterr().err
    table = next((exported / "data").glob("*.parquet"))
    again = tmp_path / "again"
    flags = ["--boxes", "boxes=xyxy", "--boxes-in", "upright", "--drop", "key"]
    assert main(["build", "table", str(table), str(again), *flags]) == 0
    check_dataset(again, "xyxy", "boxes")


def test_columns_of_width_and_height_decide_and_parquet_is_read(photos, tmp_path, build_table):
    root, files = photos
    kept = {name: each for name, each in files.items() if each[1] in (1, 5, 6, 7, 8)}
    # every second table states the upright image
    stated = {
        name: (sides[::-1], [upright(box, sides, turn) for box in boxes])
        if turn > 4 and number % 2
        else (sides, boxes)
        for number, (name, (sides, turn, boxes)) in enumerate(kept.items())
    }
    columns = {
        "file_name": list(stated),
        "width": [sides[0] for sides, _ in stated.values()],
        "height": [sides[1] for sides, _ in stated.values()],
        "bbox": pa.array([boxes for _, boxes in stated.values()], pa.list_(pa.list_(pa.int32(), 4))),
    }
    path = write_parquet(tmp_path / "t.parquet", columns)
    build_table(path, root=root, columns=ColumnRoles(boxes={"bbox": "xyxy"}))
    built = table_files.examples(tmp_path / "out")
    assert len(built) == len(kept)
    for values in built.values():
        picture = Image.open(io.BytesIO(values["image"][0]))
        for box, color in zip(np.reshape(values["bbox"], (-1, 4)), (RED, GREEN), strict=True):
            check_rectangle(picture, box, color)


def one_photo(tmp_path, orientation=None, **columns):
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png", exif=exif)
    return write_jsonl(tmp_path / "t.jsonl", [{"file_name": "a.png", **columns}])


def outcome_of(path, tmp_path, roles, images=None):
    # a file that is mapped must not change
    folder = tmp_path / f"stage{len([*tmp_path.iterdir()])}"
    folder.mkdir()
    reader = Table(path, images or ImageOptions(), roles).stage(folder)
    listing = reader.listing()
    (outcome,) = reader.read(listing.rows(np.array([0])), listing.schema)
    if hasattr(outcome, "reason"):
        return str(outcome.reason), outcome.detail, listing.warnings
    return dict(zip(listing.schema.names, outcome.values, strict=True)), outcome.conversions, listing.warnings


def test_numbers_that_no_one_declared_are_a_warning_or_refused(tmp_path):
    path = one_photo(tmp_path, bbox=[1, 2, 3, 4])
    values, _, warnings = outcome_of(path, tmp_path, ColumnRoles())
    assert (values["bbox"], any("boxes={'bbox': 'xywh'}" in one for one in warnings)) == ([1, 2, 3, 4], True)
    with raises(InputError, "boxes-undeclared", name="bbox", resize="8x8"):
        outcome_of(path, tmp_path, ColumnRoles(), ImageOptions(resize="8x8"))
    path = one_photo(tmp_path, 6, bbox=[1, 2, 3, 4])
    reason, detail, _ = outcome_of(path, tmp_path, ColumnRoles())
    assert (reason, "--boxes bbox=xywh" in detail) == ("boxes do not fit", True)
    four = {"Roi.X1": 1, "Roi.Y1": 2, "Roi.X2": 3, "Roi.Y2": 4}
    path = one_photo(tmp_path, 6, **four)
    name = ",".join(four)
    reason, detail, warnings = outcome_of(path, tmp_path, ColumnRoles())
    assert (reason, f"--boxes {name}=xyxy" in detail, name in warnings[0]) == ("boxes do not fit", True, True)
    values, _, warnings = outcome_of(path, tmp_path, ColumnRoles(boxes={name: "none"}))
    assert (values["Roi.Y2"], warnings) == (4, ())
    path = one_photo(tmp_path, 6, bbox=[1, 2, 3, 4])
    values, _, warnings = outcome_of(path, tmp_path, ColumnRoles(boxes={"bbox": "none"}))
    assert (values["bbox"], warnings) == ([1, 2, 3, 4], ())
    reason, detail, _ = outcome_of(path, tmp_path, ColumnRoles(boxes={"bbox": "xywh"}))
    assert (reason, "--boxes-in" in detail) == ("boxes do not fit", True)


# box, option, and the reason or the stored box
CHECKS = {
    "inside": ([1, 2, 3, 4], "reject", [1, 2, 3, 4]),
    "rounded": ([-1, 0, 42, 20], "reject", [-1, 0, 42, 20]),
    "outside": ([30, 0, 20, 20], "reject", "box outside"),
    "clipped": ([30, 0, 20, 30], "clip", [30, 0, 10, 20]),
    "kept": ([30, 0, 20, 30], "keep", [30, 0, 20, 30]),
    "nothing is left": ([50, 0, 20, 20], "clip", "box outside"),
    "negative": ([5, 5, -2, 2], "keep", "box outside"),
    "missing": ([5, 5, None, 2], "keep", "box outside"),
    "infinite": ([5, 5, 1e300, 2], "keep", "box outside"),
}


@pytest.mark.parametrize(("box", "option", "expected"), CHECKS.values(), ids=CHECKS)
def test_boxes_are_compared_with_their_image(box, option, expected, tmp_path):
    path = one_photo(tmp_path, bbox=box)
    roles = ColumnRoles(boxes={"bbox": "xywh"}, outside_boxes=option)
    found, notes, _ = outcome_of(path, tmp_path, roles)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert found["bbox"] == expected
        assert ("boxes clipped" in notes) == (option == "clip")


@pytest.mark.parametrize(
    "roles", [{"boxes": {"b": "xy"}}, {"keypoints": {"b": "none"}}, {"boxes": ["b=xywh"]}]
)
def test_formats_are_checked(roles):
    with raises(OptionsError, "coordinates-format"):
        ColumnRoles(**roles)


def test_a_flag_without_a_format_is_refused(tmp_path, capsys):
    path = one_photo(tmp_path, bbox=[1, 2, 3, 4])
    assert main(["build", "table", str(path), str(tmp_path / "out"), "--boxes", "bbox"]) == 2
    assert "COLUMN=FORMAT" in capsys.readouterr().err


@pytest.mark.parametrize(("orientation", "boxes"), [(6, {"bbox": "none"}), (1, {})])
def test_what_is_declared_of_boxes_is_recorded_and_no_more(orientation, boxes, tmp_path):
    path, out = one_photo(tmp_path, orientation, bbox=[1, 2, 3, 4]), tmp_path / "out"
    manifest = build(Table(path, columns=ColumnRoles(boxes=boxes)), out, log=lambda _: None)
    assert manifest.options.get("boxes", {}) == boxes
    check_repair(out, path)
