"""The annotations of COCO and YOLO, in their own layouts, become boxes and classes."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.errors import raises
from tests.prep import table_files
from tests.prep.table_files import check_repair, encoded
from tfshards.prep import ImageOptions, Options, Table
from tfshards.prep.cli.main import main
from tfshards.schemas import Feature, InputError, OptionsError

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


COCO_LAYOUTS = {
    "COCO": ({"train2017": "train2017", "val2017": "val2017"}, INSTANCES, ["train", "val"]),
    "images": ({"train": "images/train", "test": "images/test"}, INSTANCES, ["train", "test"]),
    "Roboflow": ({"train": "train", "valid": "valid"}, "{}/_annotations.coco.json", ["train", "valid"]),
}


@pytest.mark.parametrize(("folders", "names", "splits"), COCO_LAYOUTS.values(), ids=COCO_LAYOUTS)
def test_a_folder_of_coco_becomes_splits(folders, names, splits, build_table, tmp_path):
    manifest = build_table(write_coco(tmp_path / "coco", folders, names), form="coco")
    assert list(manifest.splits) == splits
    assert manifest.schema.class_names == NAMES
    assert manifest.schema["objects/bbox"] == Feature("objects/bbox", "float", "float32", (None, 4), "xywh")
    assert manifest.schema["objects/category"] == Feature("objects/category", "label", "int64", (None,))
    assert manifest.schema["objects/iscrowd"] == Feature("objects/iscrowd", "int", "bool", (None,))
    for split, folder in zip(splits, folders.values(), strict=True):
        found = examples(tmp_path / "out", split)
        assert list(found) == list(WANTED)
        for number, (name, (boxes, classes, crowds, areas)) in enumerate(WANTED.items()):
            values = found[name]
            assert values["key"] == [f"{folder}/{name}".encode()]
            assert values["objects/bbox"].tolist() == boxes
            assert values["objects/category"] == classes
            assert values["objects/iscrowd"] == crowds
            assert values["objects/area"] == areas
            assert values["image_id"] == [7 * number]
            assert values["image"] == [(tmp_path / "coco" / folder / name).read_bytes()]


def test_a_shard_of_coco_is_repaired(tmp_path):
    source, out = write_coco(tmp_path / "coco", {"train": "train", "val": "val"}), tmp_path / "out"
    assert main(["build", "table", str(source), str(out), "--from", "coco"]) == 0
    check_repair(out, source, split="val")


@pytest.mark.parametrize(
    ("file", "folder", "root"),
    [
        ("coco/annotations/instances_train2017.json", "coco/train2017", None),
        ("coco/annotations/instances_train2017.json", "coco/images/train2017", None),
        ("coco/any.json", "coco", None),
        ("coco/any.json", "coco/images", None),
        ("any.json", "elsewhere", "elsewhere"),
        ("any/instances_val.json", "elsewhere/val", "elsewhere"),
    ],
)
def test_one_file_of_coco_finds_its_images(file, folder, root, build_table, tmp_path):
    write_coco(tmp_path, {"": folder}, file)
    build_table(tmp_path / file, form="coco", root=root and tmp_path / root)
    split = "val" if file.endswith("instances_val.json") else "train"
    assert list(examples(tmp_path / "out", split)) == list(WANTED)


def one(**changes) -> dict[str, object]:
    """Return a document with one annotation, with these values."""
    return coco(annotations=[{"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4], **changes}])


def image_with(**changes) -> dict[str, object]:
    return coco(images=[{**coco()["images"][0], **changes}], annotations=[])


def named(*names: object) -> dict[str, object]:
    return coco(annotations=[], categories=[{"id": n, "name": name} for n, name in enumerate(names)])


WRONG_COCO = {
    "a list": ([], "categories is None, but must be a list"),
    "captions": ({"annotations": [{"caption": "a"}]}, "categories is None, but must be a list"),
    "no annotations": (coco(annotations=None), "annotations is None, but must be a list"),
    "no object": (coco(annotations=[5]), "annotations[0].image_id is None, but must be an integer"),
    "no id": (coco(images=[{}]), "images[0].id is None, but"),
    "an image twice": (coco(images=coco()["images"] * 2), "images[3].id is 0, which is repeated"),
    "an id beyond int64": (image_with(id=2**70), "images[0].id is 1180591620717411303424, but"),
    "a fraction as id": (image_with(id=1.5), "images[0].id is 1.5, but"),
    "no path": (image_with(file_name="a\0"), r"images[0].file_name is 'a\x00', but must be"),
    "a surrogate in a path": (image_with(file_name="\ud800"), r"images[0].file_name is '\ud800', but"),
    "a width that is text": (image_with(width="8"), "images[0].width is '8', but"),
    "a name twice": (named("a", "b", "a"), "names of categories must be different, not ('a', 'b', 'a')"),
    "no name": (named("a", None), "categories[1].name is None, but must be text"),
    "an empty name": (named(""), "categories[0].name is '', but"),
    "a surrogate": (named("\ud800"), r"categories[0].name is '\ud800', but"),
    "three numbers": (one(bbox=[1, 2, 3]), "annotations[0].bbox is [1, 2, 3], but must be 4 numbers"),
    "text": (one(bbox="1234"), "annotations[0].bbox is '1234', but"),
    "NaN": (one(bbox=[float("nan"), 1, 2, 3]), "annotations[0].bbox is [nan, 1, 2, 3], but"),
    "beyond float32": (one(bbox=[1e39, 0, 1, 1]), "annotations[0].bbox is [1e+39, 0, 1, 1], but"),
    "beyond float64": (one(bbox=[10**400, 0, 1, 1]), f"annotations[0].bbox is [1{'0' * 58}..., but"),
    "negative": (one(bbox=[20, 20, -5, -5]), "annotations[0].bbox is [20, 20, -5, -5], but"),
    "a crowd that is text": (one(iscrowd="0"), "annotations[0].iscrowd is '0', but must be 0 or 1"),
    "an area that is text": (one(area="1"), "annotations[0].area is '1', but must be a number"),
    "2 numbers": (one(keypoints=[1, 2]), "annotations[0].keypoints is [1, 2], but must be a list of x, y"),
    "a half": (one(segmentation=[[0, 0, 1, 1, 1]]), "annotations[0].segmentation is [[0, 0, 1, 1, 1]], but"),
    "no size": (one(segmentation={"counts": [1]}), "annotations[0].segmentation is {'counts': [1]}, but"),
    "more keypoints than others": (
        coco(annotations=[{**one()["annotations"][0], "keypoints": [1, 2, 2] * n} for n in (1, 2)]),
        "annotations[1].keypoints are 6 numbers, and 3 elsewhere",
    ),
    "an unknown class": (one(category_id=99), "annotations[0].category_id is 99, which does not exist"),
    "an unknown image": (one(image_id=5), "annotations[0].image_id is 5, which does not exist"),
}


@pytest.mark.parametrize(("document", "fault"), WRONG_COCO.values(), ids=WRONG_COCO)
def test_a_file_that_is_not_coco_is_reported(document, fault, tmp_path):
    write_coco(tmp_path, {"train": "train"})
    (tmp_path / "annotations" / "instances_train.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as raised:
        stage(tmp_path, "coco")
    assert raised.value.code == "coco-invalid"
    assert fault in str(raised.value)


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


def test_a_missing_first_image_is_only_rejected(build_table, tmp_path):
    write_coco(tmp_path / "coco", {"train": "train"})
    (tmp_path / "coco" / "train" / "000000000009.jpg").unlink()
    manifest = build_table(tmp_path / "coco", form="coco", build={"options": Options(max_rejected=1)})
    assert (manifest.num_examples, manifest.totals.reasons["rejected"]) == (2, {"missing": 1})


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


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_boxes_of_the_pixels_in_the_file_are_turned_with_them(orientation, build_table, tmp_path):
    upright = write_turned(tmp_path / "coco", orientation, (8, 6))
    manifest = build_table(tmp_path / "coco" / "a.json", form="coco")
    assert manifest.totals.conversions["boxes turned"] == 1
    (values,) = examples(tmp_path / "out").values()
    stored = Image.open(io.BytesIO(values["image"][0]))
    assert stored.size == upright.size == (6, 8)
    with Image.open(tmp_path / "coco" / "a.png") as image:
        # by the values of the pixels, which are all different
        wanted = [np.asarray(image)[2:4, 1:4], np.asarray(image)[0:1, 0:1]]
    for (left, top, width, height), pixels in zip(values["objects/bbox"].astype(int), wanted, strict=True):
        found = np.asarray(stored)[top : top + height, left : left + width]
        assert sorted(found.reshape(-1, 3).tolist()) == sorted(pixels.reshape(-1, 3).tolist())


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


YAML = "path: {root}\ntrain: images/train\nval: [images/val]\ntest: # optional\nnames:\n{names}"
BY_NUMBER = "".join(f"  {number}: {name}\n" for number, name in enumerate(NAMES))
ROBOFLOW = "train: ../train/images\nval: ../val/images\nnc: 3\nnames: ['person', 'car', 'dog']\n"
# folder of images and of text files, data.yaml, classes.txt, class names
YOLO = {
    "Ultralytics": ("images/{}", "labels/{}", YAML.format(root="../none", names=BY_NUMBER), "", NAMES),
    "a list": ("images/{}", "labels/{}", YAML.format(root=".", names=" [a, b, 3]"), "", ("a", "b", "3")),
    "Roboflow": ("{}/images", "{}/labels", ROBOFLOW, "", NAMES),
    "folders without a YAML": ("images/{}", "labels/{}", "", "", ()),
    "with a file of names": ("images/{}", "labels/{}", "", "\n".join(NAMES) + "\n", NAMES),
    "text files next to the images": ("{}", "{}", "", "", ()),
}


@pytest.mark.parametrize(("images", "labels", "config", "lines", "names"), YOLO.values(), ids=YOLO)
def test_a_folder_of_yolo_becomes_splits(images, labels, config, lines, names, build_table, tmp_path):
    root = tmp_path / "yolo"
    for split in ("train", "val"):
        write_yolo(root, images.format(split), labels.format(split))
    for name, text in (("data.yaml", config), ("classes.txt", lines)):
        if text:
            (root / name).write_text(text)
    manifest = build_table(root, form="yolo")
    assert list(manifest.splits) == ["train", "val"]
    assert manifest.schema.class_names == names
    assert manifest.schema["objects/category"].kind == "label"
    for split in manifest.splits:
        check_yolo(tmp_path / "out", split)
    assert examples(tmp_path / "out", "val")["a.jpg"]["key"] == [f"{images.format('val')}/a.jpg".encode()]
    if config:
        assert build_table(root / "data.yaml", "same/out", form="yolo") == manifest


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


def test_one_folder_of_yolo_has_no_splits(build_table, tmp_path, log):
    write_yolo(tmp_path / "yolo", "images", "labels")
    (tmp_path / "yolo" / "images" / "background.png").write_bytes(encoded(9))
    assert build_table(tmp_path / "yolo", form="yolo").splits["train"].num_examples == 4
    check_yolo(tmp_path / "out")
    assert examples(tmp_path / "out")["background.png"]["objects/bbox"].shape == (0, 4)
    assert any("warning: 1 image without a text file, and so without boxes, such as " in line for line in log)


def test_yolo_is_repaired_and_its_text_files_are_part_of_it(build_table, tmp_path):
    first = build_table(write_yolo(tmp_path / "yolo"), form="yolo")
    check_repair(tmp_path / "out", tmp_path / "yolo")
    (tmp_path / "yolo" / "b.txt").write_text("0 0.5 0.5 0.5 0.5")
    other = build_table(tmp_path / "yolo", "other/out", form="yolo")
    assert (other.name, other.build_id != first.build_id) == (first.name, True)


WRONG_YOLO = {
    "a polygon": ("a.txt", "0 0 0 1 1 0 1", "yolo-box-values", {"number": 1, "num_words": 7, "count": 5}),
    "text": ("a.txt", "0 0 0 1 1\nx 0 0 1 1", "yolo-class", {"number": 2, "words": "x", "most": 9999}),
    "a fraction": ("a.txt", "0.5 0 0 1 1", "yolo-class", {"words": "0.5"}),
    "a large class": ("a.txt", "1e30 0 0 1 1", "yolo-class", {"words": "1e30"}),
    "too few names": ("data.yaml", "names: [a]\ntrain: .", "yolo-class", {"words": "1", "most": 0}),
    "a negative width": ("a.txt", "0 0.5 0.5 -0.005 0.5", "yolo-box-range", {"number": 1}),
    "pixels": ("a.txt", "0 120 30 40 20", "yolo-box-range", {"number": 1}),
    "a repeated line": ("classes.txt", "a\nb\na\n", "class-name-line", {"number": 3, "name": "a"}),
    "deep YAML": ("data.yaml", "[" * 5000, "yolo-not-yaml", {"splitlines": "it is nested too deeply"}),
    "an impossible date": ("data.yaml", "a: 2020-99-99", "yolo-not-yaml", {}),
    "other text": ("data.yaml", "a: [", "yolo-not-yaml", {}),
    "a list": ("data.yaml", "[1]", "yolo-not-config", {}),
    "other keys": ("data.yaml", "train: .\nnames: {0: a, x: b}", "yolo-names", {"found": None}),
    "gaps": ("data.yaml", "names: {1: a}", "yolo-names", {"found": None}),
    "one name": ("data.yaml", "names: a", "yolo-names", {"found": "a"}),
    "repeated names": ("data.yaml", "train: .\nnames: [a, a]", "yolo-names", {"found": "a"}),
    "equal numbers": ("data.yaml", "train: .\nnames: [1, 01]", "yolo-names", {"found": "1"}),
    "a truth value": ("data.yaml", "train: .\nnames: [x, no]", "yolo-names", {"found": False}),
    "a list of no images": ("data.yaml", "train: a.txt", "yolo-no-boxes", {}),
    "a missing folder": ("data.yaml", "train: none", "yolo-folder-missing", {"missing": "none", "line": 1}),
    "keypoints": ("data.yaml", "kpt_shape: [17]\ntrain: .", "yolo-kpt-shape", {"found": [17]}),
    "no splits": ("data.yaml", "names: [a]", "yolo-no-images", {}),
}


@pytest.mark.parametrize(("name", "text", "code", "values"), WRONG_YOLO.values(), ids=WRONG_YOLO)
def test_what_is_not_yolo_is_reported(name, text, code, values, tmp_path):
    (write_yolo(tmp_path / "yolo") / name).write_text(text)
    with raises(InputError, code, **values):
        stage(tmp_path / "yolo", "yolo")


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
