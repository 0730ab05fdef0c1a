"""The annotations of COCO and YOLO, in their own layouts, become boxes and classes."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.errors import raises
from tests.prep import table_files
from tests.prep.table_files import check_repair, encoded
from tfshards.prep import ImageOptions, Table
from tfshards.schemas import InputError, OptionsError

INSTANCES = "annotations/instances_{}.json"
# the ids of COCO have gaps, and are in no order
CATEGORIES = [{"id": 18, "name": "dog"}, {"id": 1, "name": "person"}, {"id": 3, "name": "car"}]
NAMES = ("person", "car", "dog")
WANTED = {
    "000000000009.jpg": ([[1.5, 2, 3, 4], [0, 0, 8, 6]], [2, 0], [True, False], [12.5, 48]),
    "000000000025.jpg": ([], [], [], []),
    "000000000030.png": ([[4, 1, 2, 2.25]], [1], [False], [4.5]),
}


def coco(**others) -> dict[str, object]:
    ids = {each["name"]: each["id"] for each in CATEGORIES}
    annotations = [
        {
            "image_id": 7 * number,
            "category_id": ids[NAMES[category]],
            "bbox": box,
            "area": area,
            "iscrowd": int(crowd),
            "segmentation": [[0, 0, 1, 1, 0, 1]],
        }
        for number, values in enumerate(WANTED.values())
        for box, category, crowd, area in zip(*values, strict=True)
    ]
    images = [{"id": 7 * n, "file_name": name, "height": 6, "width": 8} for n, name in enumerate(WANTED)]
    annotations.sort(key=lambda each: -each["image_id"])
    return {"info": {}, "images": images, "annotations": annotations, "categories": CATEGORIES, **others}


def write_images(folder: Path, names) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded(number, "PNG" if name.endswith("png") else "JPEG"))


def write_coco(root: Path, splits: dict[str, str], layout: str = INSTANCES) -> Path:
    """Write the images and annotations of each split, in the folder that it is mapped to."""
    for split, folder in splits.items():
        path = root / layout.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(coco()))
        write_images(root / folder, WANTED)
    return root


def examples(out: Path, split: str = "train") -> dict[str, dict[str, object]]:
    """Return the examples of a split by the last part of their key, with the boxes as an array."""
    found = {Path(key).name: values for key, values in table_files.examples(out, split).items()}
    for values in found.values():
        values["objects/bbox"] = np.float32(values["objects/bbox"]).reshape(-1, 4)
    return found


def stage(path: Path, form: str, **given) -> None:
    folder = path if path.is_dir() else path.parent
    (folder / "staged").mkdir(exist_ok=True)
    Table(path, form=form, **given).stage(folder / "staged")


def test_folders_and_files_that_do_not_hold_coco_are_reported(tmp_path):
    with raises(InputError, "coco-no-files"):
        stage(tmp_path, "coco")
    path = tmp_path / "instances_train.json"
    with raises(InputError, "unreadable"):
        Table(path, form="coco").stage(tmp_path)
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with raises(InputError, "coco-unreadable"):
            stage(path, "coco")
    path.write_text(json.dumps(coco(images=[], annotations=[])))
    with raises(InputError, "coco-no-images"):
        stage(path, "coco")
    path.write_text(json.dumps(coco()))
    for root in (None, tmp_path / "staged"):
        with raises(InputError, "coco-images-missing", where=str(root or tmp_path)):
            stage(path, "coco", root=root)
    for form in ("coco", "yolo"):
        with raises(InputError, "root-not-a-folder"):
            stage(tmp_path, form, root=tmp_path / "typo")
    write_coco(tmp_path, {"train": "train", "val": "val"})
    with raises(InputError, "coco-images-repeated"):
        stage(tmp_path, "coco", root=tmp_path / "train")
    other = coco(categories=CATEGORIES[1:], annotations=[])
    (tmp_path / "annotations" / "instances_val.json").write_text(json.dumps(other))
    with raises(InputError, "coco-categories-differ"):
        stage(tmp_path, "coco")


def test_options_that_do_not_fit_are_refused(tmp_path):
    with raises(OptionsError, "not-a-choice", name="form"):
        Table(tmp_path, form="voc")


def write_turned(root: Path, orientation: int | None, size: tuple[int, int] | None, real=(8, 6), boxes=None):
    """Write one image with boxes, whose annotations state a size, and return its upright pixels."""
    root.mkdir(exist_ok=True)
    values = np.arange(real[0] * real[1] * 3, dtype=np.uint8).reshape(real[1], real[0], 3)
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    Image.fromarray(values).save(root / "a.png", exif=exif)
    stated = {} if size is None else {"width": size[0], "height": size[1]}
    boxes = [[1, 2, 3, 2], [0, 0, 1, 1]] if boxes is None else boxes
    document = {
        "images": [{"id": 1, "file_name": "a.png", **stated}],
        "categories": [{"id": 1, "name": "x"}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": box} for box in boxes],
    }
    (root / "a.json").write_text(json.dumps(document))
    with Image.open(root / "a.png") as saved:
        return ImageOps.exif_transpose(saved)


AMBIGUOUS = "--boxes-in file or upright must declare"
# orientation, stated size, size, and why the boxes do not fit
FITTING = {
    "upright": (6, (6, 8), (8, 6), None),
    "no orientation": (None, (8, 6), (8, 6), None),
    "no size and no orientation": (None, None, (8, 6), None),
    "another size": (None, (400, 300), (8, 6), "state (400, 300) pixels, the image has (8, 6)"),
    "another size, turned": (6, (7, 6), (8, 6), "state (7, 6) pixels, the image has (8, 6)"),
    "turned by half": (3, (8, 6), (8, 6), AMBIGUOUS),
    "a mirror": (2, (8, 6), (8, 6), AMBIGUOUS),
    "a square": (6, (6, 6), (6, 6), AMBIGUOUS),
    "no size": (6, None, (8, 6), AMBIGUOUS),
}


@pytest.mark.parametrize(("orientation", "stated", "real", "detail"), FITTING.values(), ids=FITTING)
def test_boxes_stay_as_they_are_or_are_rejected(orientation, stated, real, detail, tmp_path):
    write_turned(tmp_path / "coco", orientation, stated, real)
    source = Table(tmp_path / "coco" / "a.json", form="coco")
    (tmp_path / "stage").mkdir()
    reader = source.stage(tmp_path / "stage")
    listing = reader.listing()
    (outcome,) = reader.read(listing.rows(np.array([0])), listing.schema)
    if detail is None:
        values = dict(zip(listing.schema.names, outcome.values, strict=True))
        assert np.array_equal(np.reshape(values["objects/bbox"], (-1, 4)), [[1, 2, 3, 2], [0, 0, 1, 1]])
        assert "boxes turned" not in outcome.conversions
    else:
        assert (outcome.reason, detail in outcome.detail) == ("boxes do not fit", True)


def test_turned_images_are_accepted_without_boxes_and_without_a_check(build_table, tmp_path):
    write_turned(tmp_path / "coco", 3, (8, 6), boxes=[])
    write_turned(tmp_path / "other", 3, (8, 6))
    assert build_table(tmp_path / "coco" / "a.json", form="coco").num_examples == 1
    unchecked = ImageOptions(check="none")
    assert build_table(tmp_path / "other" / "a.json", "new", form="coco", images=unchecked).num_examples == 1


LINES = {
    "a.jpg": "1 0.5 0.5 0.25 0.5\n0 0.25 0.125 0.5 0.25\n",
    "b.png": "\n",
    "deep/c.jpg": "2 0.9975 0.5 0.005 1.0001",
}


def write_yolo(root: Path, folder: str = ".", labels: str = ".") -> Path:
    """Write the images into a folder and their text files into another."""
    write_images(root / folder, LINES)
    for name, text in LINES.items():
        label = (root / labels / name).with_suffix(".txt")
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(text)
    return root


def check_yolo(out: Path, split: str = "train") -> None:
    found = examples(out, split)
    for name, text in LINES.items():
        rows = [line.split() for line in text.split("\n") if line]
        values = found[Path(name).name]
        assert values["objects/category"] == [int(row[0]) for row in rows]
        wanted = np.float32([row[1:] for row in rows]).reshape(-1, 4)
        assert values["objects/bbox"].tolist() == wanted.tolist()


def test_yolo_may_list_the_images_of_each_split(build_table, tmp_path, log):
    root, names = write_yolo(tmp_path / "yolo", "images", "labels"), [*LINES]
    (root / "train.txt").write_text("".join(f"./images/{name}\n" for name in names[1:]) + "\n")
    (root / "val.txt").write_text(f"images/{names[0]}")
    (root / "data.yaml").write_text("train: train.txt\nval: [val.txt]\nnames: [a, b, c]")
    manifest = build_table(root, form="yolo")
    assert [split.num_examples for split in manifest.splits.values()] == [len(names) - 1, 1]
    assert [*examples(tmp_path / "out", "val")] == [Path(names[0]).name]
    # a label of an image that no list names
    (root / "data.yaml").write_text("train: train.txt\nnames: [a, b, c]")
    build_table(root, "part", form="yolo")
    assert any("warning: 1 text file without an image in the dataset, such as " in line for line in log)


def test_yolo_is_repaired_and_its_text_files_are_part_of_it(build_table, tmp_path):
    first = build_table(write_yolo(tmp_path / "yolo"), form="yolo")
    check_repair(tmp_path / "out", tmp_path / "yolo")
    (tmp_path / "yolo" / "b.txt").write_text("0 0.5 0.5 0.5 0.5")
    other = build_table(tmp_path / "yolo", "other/out", form="yolo")
    assert (other.name, other.build_id != first.build_id) == (first.name, True)


def test_sources_that_are_not_yolo_are_reported(tmp_path):
    with raises(InputError, "path-missing"):
        Table(tmp_path / "none", form="yolo").stage(tmp_path)
    (tmp_path / "x.txt").write_text("")
    with raises(InputError, "yolo-path"):
        Table(tmp_path / "x.txt", form="yolo").stage(tmp_path)
    write_yolo(tmp_path / "images", ".", "../labels")
    with raises(InputError, "yolo-no-boxes"):
        stage(tmp_path / "images", "yolo")
    (tmp_path / "images" / "list.txt").write_text("a\0b.jpg\n")
    (tmp_path / "images" / "data.yaml").write_text("train: list.txt")
    with raises(InputError, "yolo-no-boxes", alone=str(tmp_path / "images" / "a\0b.jpg")):
        stage(tmp_path / "images", "yolo")
    (tmp_path / "images" / "data.yaml").unlink()
    with raises(OptionsError, "yolo-root-useless"):
        stage(tmp_path / "images", "yolo", root=tmp_path)


def test_only_text_files_in_the_source_are_read(build_table, tmp_path, log):
    root, other = write_yolo(tmp_path / "images" / "ds"), tmp_path / "labels" / "ds" / "a.txt"
    for path, text in ((other, "0 0.5 0.5 1 1"), (root / "z.txt", ""), (root / "classes.txt", "a\nb\nc")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    build_table(root, form="yolo")
    check_yolo(tmp_path / "out")
    assert f"warning: 1 text file without an image in the dataset, such as {str(root / 'z.txt')!r}" in log
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to(other)
    with raises(InputError, "outside"):
        build_table(root, "linked", form="yolo")
    build_table(root, "linked", form="yolo", follow_links=True)
    assert examples(tmp_path / "linked")["a.jpg"]["objects/bbox"].tolist() == [[0.5, 0.5, 1, 1]]


def test_a_yaml_that_names_a_folder_that_does_not_exist_is_an_error(build_table, tmp_path, log):
    root = write_yolo(tmp_path / "yolo", "train/images", "train/labels")
    write_yolo(root, "more/images", "more/labels")
    config = root / "data.yaml"
    config.write_text("train: ../train/images\nholdout: more/images\n")
    assert list(build_table(root, form="yolo").splits) == ["train"]
    wanted = f"warning: {config} names the folder 'more/images' as 'holdout', which is not train, val or test"
    assert any(line.startswith(wanted) for line in log)
    for text, line, split, missing in (
        ("train: ../none/images\nval: train/images\n", 1, "train", "../none/images"),
        ("train: train/images\n\nval: ../none\n", 3, "val", "../none"),
        ("train: train/images\ntest:\n - train/images\n - x\n", 2, "test", "x"),
    ):
        config.write_text(text)
        with raises(InputError, "yolo-folder-missing", line=line, split=split, missing=missing):
            build_table(root, "wrong", form="yolo")
