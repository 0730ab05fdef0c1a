"""The annotations of COCO and YOLO, in their own layouts, become boxes and classes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.errors import raises
from tests.prep.test_table_nested import encoded
from tfshards import loader
from tfshards.prep import ImageOptions, Options, Table
from tfshards.prep.cli.main import main
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.frames import read_records
from tfshards.schemas import Feature, InputError, OptionsError, read_manifest

# the ids of COCO have gaps, and are in no order
CATEGORIES = [{"id": 18, "name": "dog"}, {"id": 1, "name": "person"}, {"id": 3, "name": "car"}]
NAMES = ("person", "car", "dog")
WANTED = {
    "000000000009.jpg": ([[1.5, 2, 3, 4], [0, 0, 8, 6]], [2, 0], [True, False], [12.5, 48]),
    "000000000025.jpg": ([], [], [], []),
    "000000000030.png": ([[4, 1, 2, 2.25]], [1], [False], [4.5]),
}


def coco(names=WANTED, categories=CATEGORIES, **others) -> dict[str, object]:
    images = [
        {"id": 7 * number, "file_name": name, "height": 6, "width": 8} for number, name in enumerate(names)
    ]
    annotations = []
    for image in images:
        for box, category, crowd, area in zip(*WANTED[image["file_name"]], strict=True):
            number = {name: each["id"] for each in categories for name in [each["name"]]}[NAMES[category]]
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": image["id"],
                    "category_id": number,
                    "bbox": box,
                    "area": area,
                    "iscrowd": int(crowd),
                    "segmentation": [[0, 0, 1, 1, 0, 1]],
                }
            )
    annotations.sort(key=lambda each: -each["image_id"])
    return {
        "info": {},
        "images": images,
        "annotations": annotations,
        "categories": categories,
        **others,
    }


def write_coco(root: Path, splits: dict[str, str], layout: str = "annotations/instances_{}.json") -> Path:
    """Write the images and annotations of each split, in the folder that it is mapped to."""
    for split, folder in splits.items():
        path = root / layout.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(coco()))
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(WANTED):
            (root / folder / name).write_bytes(encoded(number, "PNG" if name.endswith("png") else "JPEG"))
    return root


def examples(out: Path, split: str) -> dict[str, dict[str, object]]:
    """Return the examples of a split by the last part of their key."""
    manifest, found = read_manifest(out), {}
    for shard in manifest.splits[split].shards:
        for _, data in read_records(out / shard.path, manifest.compression):
            values = decode_example(data)
            values["objects/bbox"] = np.float32(values["objects/bbox"]).reshape(-1, 4)
            found[Path(values["key"][0].decode()).name] = values
    return dict(sorted(found.items()))


@pytest.fixture
def quick(quiet_build, tmp_path):
    def run(source, form, name="out", build=None, **given):
        return quiet_build(Table(source, form=form, **given), tmp_path / name, **(build or {}))

    return run


COCO_LAYOUTS = {
    "COCO": (
        {"train2017": "train2017", "val2017": "val2017"},
        "annotations/instances_{}.json",
        ["train", "val"],
    ),
    "images": (
        {"train": "images/train", "test": "images/test"},
        "annotations/instances_{}.json",
        ["train", "test"],
    ),
    "Roboflow": ({"train": "train", "valid": "valid"}, "{}/_annotations.coco.json", ["train", "valid"]),
}


@pytest.mark.parametrize(("folders", "names", "splits"), COCO_LAYOUTS.values(), ids=COCO_LAYOUTS.keys())
def test_a_folder_of_coco_becomes_splits(folders, names, splits, quick, tmp_path):
    manifest = quick(write_coco(tmp_path / "coco", folders, names), "coco")
    assert list(manifest.splits) == splits
    assert manifest.schema.class_names == NAMES
    assert manifest.schema["objects/bbox"] == Feature("objects/bbox", "float", "float32", (None, 4))
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
    batch = next(
        iter(
            loader.load(
                tmp_path / "out",
                splits[0],
                batch_size=3,
                image=loader.Image((12, 16)),
                boxes=loader.Boxes("objects/bbox", "xywh", ("objects/category", "objects/iscrowd")),
            )
        )
    )
    by_key = dict(zip(batch["key"].numpy(), batch["objects/bbox"].to_list(), strict=True))
    wanted = [(np.array(boxes) * 2).tolist() for boxes, *_ in WANTED.values()]
    assert [by_key[key] for key in sorted(by_key)] == wanted


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
def test_one_file_of_coco_finds_its_images(file, folder, root, quick, tmp_path):
    write_coco(tmp_path, {"": folder}, file)
    manifest = quick(tmp_path / file, "coco", root=root and tmp_path / root)
    assert manifest.splits["train"].num_examples == 3
    assert list(examples(tmp_path / "out", "train")) == list(WANTED)


def test_the_command_builds_and_repairs_coco(tmp_path):
    source, out = write_coco(tmp_path / "coco", {"train": "train", "val": "val"}), tmp_path / "out"
    assert main(["build", "table", str(source), str(out), "--from", "coco"]) == 0
    (shard,) = out.glob("out-val-*")
    whole = shard.read_bytes()
    shard.unlink()
    assert main(["verify", str(out), "--repair", str(source)]) == 0
    assert shard.read_bytes() == whole


def one(**changes) -> dict[str, object]:
    """Return a document with one annotation, with these values."""
    annotation = {"id": 4, "image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4]}
    return {**coco(), "annotations": [{**annotation, **changes}]}


def image_with(**changes) -> dict[str, object]:
    return {**coco(), "images": [{**coco()["images"][0], **changes}], "annotations": []}


def named(*names: object) -> dict[str, object]:
    return {
        **coco(),
        "annotations": [],
        "categories": [{"id": n, "name": name} for n, name in enumerate(names)],
    }


WRONG_COCO = {
    "no JSON": ("{", "Expecting"),
    "deep JSON": ("[" * 100_000, "it is nested too deeply"),
    "captions": (
        one(bbox=None),
        r"the annotation 4 has the bbox None instead of 4 numbers; correct the file$",
    ),
    "a list": ([], r"it has no list of categories; correct"),
    "no annotations": ({**coco(), "annotations": None}, r"it has no list of annotations; correct"),
    "no object": ({**coco(), "annotations": [5]}, r"annotations\[0\] is not an object; correct"),
    "no id": ({**coco(), "images": [{}]}, r"an object in images has no id; correct"),
    "an image twice": ({**coco(), "images": coco()["images"] * 2}, r"the id 0 of an image is repeated; corr"),
    "an id beyond int64": (
        image_with(id=2**70),
        r"the id of the image is 1180591620717411303424, which is not an",
    ),
    "a fraction as id": (
        image_with(id=1.5),
        r"the id of the image is 1\.5, which is not an integer from 0 to",
    ),
    "a name that is no path": (
        image_with(file_name=None),
        r"the file_name None of the image 0 must be a path",
    ),
    "a surrogate in a path": (
        image_with(file_name="\ud800"),
        r"the file_name '\\ud800' of the image 0 is not Un",
    ),
    "a width that is text": (
        image_with(width="8"),
        r"the width or height of the image 0 is '8', which is not",
    ),
    "a name twice": (named("a", "b", "a"), r"the name 'a' of a category is repeated; correct the file$"),
    "an id twice": (
        coco(categories=[*CATEGORIES, {"id": 1, "name": "x"}]),
        r"the id 1 of a category is repeated; correct the file$",
    ),
    "no name": (named("a", None), r"the name None of the category 1 must be text; quote it; correct"),
    "an empty name": (named(""), r"the name '' of the category 0 is empty; correct"),
    "a surrogate": (named("\ud800"), r"the name '\\ud800' of the category 0 is not Unicode; correct"),
    "three numbers": (one(bbox=[1, 2, 3]), r"the annotation 4 has the bbox \[1, 2, 3\] instead of 4 numbers"),
    "text": (one(bbox="1234"), r"the annotation 4 has the bbox '1234' instead of 4 numbers"),
    "NaN": (
        one(bbox=[float("nan"), 1, 2, 3]),
        r"the bbox of the annotation 4 has nan, which is not a number",
    ),
    "beyond float32": (
        one(bbox=[1e39, 0, 1, 1]),
        r"the bbox of the annotation 4 has 1e\+39, which is not a nu",
    ),
    "beyond float64": (
        one(bbox=[10**400, 0, 1, 1]),
        r"the bbox of the annotation 4 has 10{59}\.\.\., which is",
    ),
    "negative": (
        one(bbox=[20, 20, -5, -5]),
        r"the bbox of the annotation 4 has a negative width or height: \[20",
    ),
    "a crowd that is text": (one(iscrowd="0"), r"the iscrowd of the annotation 4 is '0' instead of 0 or 1"),
    "an area that is text": (one(area="1"), r"the area of the annotation 4 has '1', which is not a number"),
    "an unknown class": (
        one(category_id=99),
        r"the annotation 4 has the category_id 99, which is not among the c",
    ),
    "an unknown image": (
        one(image_id=[]),
        r"the annotation 4 has the image_id \[\], which is not among the imag",
    ),
    "no image_id": (
        {**coco(), "annotations": [{"category_id": 1}]},
        r"annotations\[0\] has no image_id; correct the file$",
    ),
}


@pytest.mark.parametrize(("document", "message"), WRONG_COCO.values(), ids=WRONG_COCO.keys())
def test_a_file_that_is_not_coco_is_reported(document, message, tmp_path):
    write_coco(tmp_path, {"train": "train"})
    text = document if isinstance(document, str) else json.dumps(document)
    (tmp_path / "annotations" / "instances_train.json").write_text(text)
    with pytest.raises(InputError, match=rf"\.json is not a file of COCO's objects: {message}"):
        Table(tmp_path, form="coco").stage(tmp_path)


def test_images_that_coco_names_must_be_there(tmp_path):
    path = tmp_path / "instances_train.json"
    path.write_text(json.dumps({**coco(), "images": [], "annotations": []}))
    with raises(InputError, "coco-no-images"):
        Table(path, form="coco").stage(tmp_path)
    path.write_text(json.dumps(coco()))
    with raises(InputError, "coco-images-missing", where="next to it"):
        Table(path, form="coco").stage(tmp_path)
    (tmp_path / "empty").mkdir()
    with raises(InputError, "coco-images-missing"):
        Table(path, form="coco", root=tmp_path / "empty").stage(tmp_path)
    for form in ("coco", "yolo"):
        with raises(InputError, "root-not-a-folder"):
            Table(tmp_path, form=form, root=tmp_path / "typo").stage(tmp_path)


def test_a_missing_first_image_is_only_rejected(quick, tmp_path):
    write_coco(tmp_path / "coco", {"train": "train"})
    (tmp_path / "coco" / "train" / "000000000009.jpg").unlink()
    quiet = {"options": Options(max_rejected=1)}
    manifest = quick(tmp_path / "coco", "coco", build=quiet)
    assert (manifest.num_examples, manifest.totals.reasons["rejected"]) == (2, {"missing": 1})


def test_the_images_of_one_split_are_not_those_of_another(tmp_path):
    source = write_coco(tmp_path / "coco", {"train2017": "train2017", "val2017": "val2017"})
    with raises(InputError, "coco-images-repeated"):
        Table(source, form="coco", root=source / "train2017").stage(tmp_path)


def picture(orientation: int | None, size: tuple[int, int] = (8, 6)) -> tuple[bytes, Image.Image]:
    """Return a PNG file and its upright pixels, as Pillow turns them."""
    values = np.arange(size[0] * size[1] * 3, dtype=np.uint8).reshape(size[1], size[0], 3)
    image, file = Image.fromarray(values), io.BytesIO()
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    image.save(file, "PNG", exif=exif)
    with Image.open(file) as saved:
        return file.getvalue(), ImageOps.exif_transpose(saved)


def write_turned(root: Path, orientation: int | None, size: tuple[int, int] | None, real=(8, 6), boxes=None):
    root.mkdir(exist_ok=True)
    data, upright = picture(orientation, real)
    (root / "a.png").write_bytes(data)
    stated = {} if size is None else {"width": size[0], "height": size[1]}
    boxes = [[1, 2, 3, 2], [0, 0, 1, 1]] if boxes is None else boxes
    document = {
        "images": [{"id": 1, "file_name": "a.png", **stated}],
        "categories": [{"id": 1, "name": "x"}],
        "annotations": [
            {"id": number, "image_id": 1, "category_id": 1, "bbox": box} for number, box in enumerate(boxes)
        ],
    }
    (root / "a.json").write_text(json.dumps(document))
    return upright


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_boxes_of_the_pixels_in_the_file_are_turned_with_them(orientation, quick, tmp_path):
    upright = write_turned(tmp_path / "coco", orientation, (8, 6))
    manifest = quick(tmp_path / "coco" / "a.json", "coco")
    assert manifest.totals.conversions["boxes turned"] == 1
    (values,) = examples(tmp_path / "out", "train").values()
    stored = Image.open(io.BytesIO(values["image"][0]))
    assert stored.size == upright.size == (6, 8)
    with Image.open(tmp_path / "coco" / "a.png") as image:
        # by the values of the pixels, which are all different
        wanted = [np.asarray(image)[2:4, 1:4], np.asarray(image)[0:1, 0:1]]
    for (left, top, width, height), pixels in zip(values["objects/bbox"].astype(int), wanted, strict=True):
        found = np.asarray(stored)[top : top + height, left : left + width]
        assert sorted(found.reshape(-1, 3).tolist()) == sorted(pixels.reshape(-1, 3).tolist())


FITTING = {
    "upright": (6, (6, 8), (8, 6), "apply"),
    "no orientation": (None, (8, 6), (8, 6), "apply"),
    "no size and no orientation": (None, None, (8, 6), "apply"),
    "kept": (6, (8, 6), (8, 6), "keep"),
    "kept, turned by half": (3, (8, 6), (8, 6), "keep"),
    "kept, no size": (6, None, (8, 6), "keep"),
}


@pytest.mark.parametrize(("orientation", "stated", "real", "option"), FITTING.values(), ids=FITTING.keys())
def test_boxes_that_fit_stay(orientation, stated, real, option, quick, tmp_path):
    write_turned(tmp_path / "coco", orientation, stated, real)
    manifest = quick(tmp_path / "coco" / "a.json", "coco", images=ImageOptions(orientation=option))
    (values,) = examples(tmp_path / "out", "train").values()
    assert values["objects/bbox"].tolist() == [[1, 2, 3, 2], [0, 0, 1, 1]]
    assert "boxes turned" not in manifest.totals.conversions


AMBIGUOUS = (
    "and the annotations do not show whether their boxes refer to the upright image; --orientation keep"
)
UNFIT = {
    "another size": (None, (400, 300), (8, 6), "apply", "state 400 x 300 pixels, the image has 8 x 6"),
    "another size, turned": (6, (7, 6), (8, 6), "apply", "state 7 x 6 pixels, the image has 8 x 6"),
    "turned by half": (3, (8, 6), (8, 6), "apply", f"EXIF orientation 3, {AMBIGUOUS}"),
    "a mirror": (2, (8, 6), (8, 6), "apply", f"EXIF orientation 2, {AMBIGUOUS}"),
    "a square": (6, (6, 6), (6, 6), "apply", f"EXIF orientation 6, {AMBIGUOUS}"),
    "no size": (6, None, (8, 6), "apply", f"EXIF orientation 6, {AMBIGUOUS}"),
    "kept": (
        6,
        (6, 8),
        (8, 6),
        "keep",
        "state 6 x 8 pixels, as of the upright image, but with --orientation",
    ),
}


@pytest.mark.parametrize(
    ("orientation", "stated", "real", "option", "detail"), UNFIT.values(), ids=UNFIT.keys()
)
def test_boxes_that_may_not_fit_are_rejected(orientation, stated, real, option, detail, tmp_path):
    write_turned(tmp_path / "coco", orientation, stated, real)
    source = Table(tmp_path / "coco" / "a.json", ImageOptions(orientation=option), form="coco")
    (tmp_path / "stage").mkdir()
    reader = source.stage(tmp_path / "stage")
    listing = reader.listing()
    (outcome,) = reader.read(listing.rows(np.array([0])), listing.schema)
    assert (outcome.reason, detail in outcome.detail) == ("boxes do not fit", True)


def test_turned_images_without_boxes_are_accepted(quick, tmp_path):
    write_turned(tmp_path / "coco", 3, (8, 6), boxes=[])
    write_turned(tmp_path / "other", 3, (8, 6))
    unchecked = quick(
        tmp_path / "other" / "a.json", "coco", images=ImageOptions(check="none"), name="unchecked"
    )
    assert unchecked.num_examples == 1
    document = json.loads((tmp_path / "coco" / "a.json").read_text())
    (tmp_path / "coco" / "b.png").write_bytes(picture(None)[0])
    document["images"].append({"id": 2, "file_name": "b.png", "width": 8, "height": 6})
    document["annotations"] = [{"id": 1, "image_id": 2, "category_id": 1, "bbox": [1, 2, 3, 2]}]
    (tmp_path / "coco" / "a.json").write_text(json.dumps(document))
    assert quick(tmp_path / "coco" / "a.json", "coco").num_examples == 2


def test_folders_that_are_not_coco_are_reported(tmp_path):
    with raises(InputError, "coco-no-files"):
        Table(tmp_path, form="coco").stage(tmp_path)
    with raises(InputError, "unreadable"):
        Table(tmp_path / "none.json", form="coco").stage(tmp_path)
    write_coco(tmp_path, {"train": "train", "val": "val"})
    other = json.dumps({**coco(), "categories": CATEGORIES[1:], "annotations": []})
    (tmp_path / "annotations" / "instances_val.json").write_text(other)
    with raises(InputError, "coco-categories-differ"):
        Table(tmp_path, form="coco").stage(tmp_path)


def test_options_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(OptionsError, match=r"^form='voc' must be one of table, coco, yolo$"):
        Table(tmp_path, form="voc")
    with raises(OptionsError, "resize-of-boxes", resize="short=8"):
        Table(tmp_path, ImageOptions(resize="short=8"), form="coco")


LINES = {
    "a.jpg": "1 0.5 0.5 0.25 0.5\n0 0.25 0.125 0.5 0.25\n",
    "b.png": "\n",
    "deep/c.jpg": "2 1.0 0.0 0.005 1.0001",
}


def write_yolo(root: Path, folder: str, labels: str) -> None:
    """Write the images into a folder and their text files into another."""
    for number, (name, text) in enumerate(LINES.items()):
        image = root / folder / name
        label = (root / labels / name).with_suffix(".txt")
        for path in (image, label):
            path.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(encoded(number, "PNG" if name.endswith("png") else "JPEG"))
        label.write_text(text)


def check_yolo(out: Path, split: str) -> None:
    found = examples(out, split)
    for name, text in LINES.items():
        rows = [line.split() for line in text.split("\n") if line]
        values = found[Path(name).name]
        assert values["objects/category"] == [int(row[0]) for row in rows]
        assert (
            values["objects/bbox"].tolist() == np.float32([row[1:] for row in rows]).reshape(-1, 4).tolist()
        )


YAML = "path: {root}\ntrain: images/train\nval: [images/val]\ntest: # optional\nnames:\n{names}"
BY_NUMBER = "".join(f"  {number}: {name}\n" for number, name in enumerate(NAMES))
YOLO = {
    "Ultralytics": (["images/{}", "labels/{}"], YAML.format(root="../datasets/none", names=BY_NUMBER), NAMES),
    "Ultralytics, a list": (
        ["images/{}", "labels/{}"],
        YAML.format(root=".", names=" [a, b, 3]"),
        ("a", "b", "3"),
    ),
    "Roboflow": (
        ["{}/images", "{}/labels"],
        "train: ../train/images\nval: ../val/images\nnc: 3\nnames: ['person', 'car', 'dog']\n",
        NAMES,
    ),
    "folders without a YAML": (["images/{}", "labels/{}"], None, ()),
    "text files next to the images": (["{}", "{}"], None, ()),
}


@pytest.mark.parametrize(("folders", "config", "names"), YOLO.values(), ids=YOLO.keys())
@pytest.mark.parametrize("names_file", [False, True])
def test_a_folder_of_yolo_becomes_splits(folders, config, names, names_file, quick, tmp_path):
    root = tmp_path / "yolo"
    for split in ("train", "val"):
        write_yolo(root, *(folder.format(split) for folder in folders))
    if config:
        (root / "data.yaml").write_text(config)
    if names_file:
        (root / ("data.yaml" if config else "classes.txt")).write_text(config or "\n".join(NAMES) + "\n")
    manifest = quick(root / "data.yaml" if config and names_file else root, "yolo")
    assert list(manifest.splits) == ["train", "val"]
    assert manifest.schema.class_names == (NAMES if names_file and not config else names)
    assert manifest.schema["objects/category"].kind == "label"
    for split in manifest.splits:
        check_yolo(tmp_path / "out", split)
    assert examples(tmp_path / "out", "val")["a.jpg"]["key"] == [f"{folders[0].format('val')}/a.jpg".encode()]


def test_yolo_may_list_the_images_of_each_split(quick, tmp_path, log):
    root = tmp_path / "yolo"
    write_yolo(root, "images", "labels")
    names = [*LINES]
    (root / "train.txt").write_text("".join(f"./images/{name}\n" for name in names[1:]) + "\n")
    (root / "val.txt").write_text(f"images/{names[0]}")
    (root / "data.yaml").write_text("train: train.txt\nval: [val.txt]\nnames: [a, b, c]")
    manifest = quick(root, "yolo")
    assert {name: split.num_examples for name, split in manifest.splits.items()} == {
        "train": len(names) - 1,
        "val": 1,
    }
    assert [*examples(tmp_path / "out", "val")] == [Path(names[0]).name]
    (root / "val.txt").write_text(f"images/{names[0]}\nimages/./{names[0]}")
    with raises(InputError, "yolo-image-repeated", number=2):
        quick(root, "yolo", "other")
    # a label of an image that no list names
    (root / "val.txt").unlink()
    (root / "data.yaml").write_text("train: train.txt\nnames: [a, b, c]")
    quick(root, "yolo", "part")
    assert any("warning: 1 text file belongs to no image of the dataset, such as " in line for line in log)


def test_one_folder_of_yolo_has_no_splits(quick, tmp_path, log):
    write_yolo(tmp_path / "yolo", "images", "labels")
    (tmp_path / "yolo" / "images" / "background.png").write_bytes(encoded(9))
    manifest = quick(tmp_path / "yolo", "yolo")
    assert manifest.splits["train"].num_examples == 4
    check_yolo(tmp_path / "out", "train")
    assert examples(tmp_path / "out", "train")["background.png"]["objects/bbox"].shape == (0, 4)
    assert any("warning: 1 image has no text file, and so no boxes, such as " in line for line in log)


def test_boxes_of_yolo_stay_fractions_of_the_delivered_image(quick, tmp_path):
    write_yolo(tmp_path / "yolo", ".", ".")
    quick(tmp_path / "yolo", "yolo", images=ImageOptions(resize="3x4"))
    (batch,) = loader.load(
        tmp_path / "out",
        batch_size=3,
        image=loader.Image((10, 10), "center"),
        boxes=loader.Boxes("objects/bbox", "cxcywh", ("objects/category",), normalized=True),
    )
    # the middle 3 x 3 of 3 x 4 pixels
    by_key = dict(zip(batch["key"].numpy(), batch["objects/bbox"], strict=True))
    assert np.allclose(by_key[b"a.jpg"].numpy(), [[2 / 3, 0.5, 1 / 3, 0.5], [1 / 3, 0.125, 2 / 3, 0.25]])


def test_yolo_is_repaired_and_its_text_files_are_part_of_it(quick, tmp_path):
    write_yolo(tmp_path / "yolo", ".", ".")
    first = quick(tmp_path / "yolo", "yolo")
    shard = tmp_path / "out" / first.shards[0].path
    whole = shard.read_bytes()
    shard.unlink()
    assert main(["verify", str(tmp_path / "out"), "--repair", str(tmp_path / "yolo")]) == 0
    assert shard.read_bytes() == whole
    (tmp_path / "yolo" / "b.txt").write_text("0 0.5 0.5 0.5 0.5")
    (tmp_path / "other").mkdir()
    other = quick(tmp_path / "yolo", "yolo", "other/out")
    assert (other.name, other.build_id != first.build_id) == (first.name, True)


WRONG_YOLO = {
    "a polygon": (
        "a.txt",
        "0 0 0 1 1 0 1",
        r"a\.txt, line 1: has 7 values; a box has 5: class, center x, cen",
    ),
    "no number": (
        "a.txt",
        "0 0 0 1 1\nx 0 0 1 1",
        r"a\.txt, line 2: the class x must be a number from 0 to 9999$",
    ),
    "a fraction": (
        "a.txt",
        "0.5 0 0 1 1",
        r"a\.txt, line 1: the class 0\.5 must be a number from 0 to 9999$",
    ),
    "a large class": ("a.txt", "1e30 0 0 1 1", r"a\.txt, line 1: the class 1e30 must be a number from 0 to"),
    "a negative width": (
        "a.txt",
        "0 0.5 0.5 -0.005 0.5",
        r"a\.txt, line 1: the width or height of the box is negative$",
    ),
    "a repeated line": (
        "classes.txt",
        "a\nb\na\n",
        r"classes\.txt, line 3: repeats 'a'; write one class per",
    ),
    "an empty line": (
        "classes.txt",
        "a\n\nb\n",
        r"classes\.txt, line 2: is empty; write one class per line$",
    ),
    "deep YAML": ("data.yaml", "[" * 5000, r"data\.yaml is not .*: it is nested too deeply$"),
    "no date": ("data.yaml", "a: 2020-99-99", r"data\.yaml is not YAML: month must be in"),
    "other keys": (
        "data.yaml",
        "train: .\nnames: {0: a, x: b}",
        r"the names must be numbered from 0 without",
    ),
    "repeated names": ("data.yaml", "train: .\nnames: [a, a]", r"the name 'a' of class 1 is repeated$"),
    "equal numbers": ("data.yaml", "train: .\nnames: [1, 01]", r"the name '1' of class 1 is repeated$"),
    "a truth value": (
        "data.yaml",
        "train: .\nnames: [x, no]",
        r"the name False of class 1 must be text; quote",
    ),
    "no list of images": (
        "data.yaml",
        "train: a.txt",
        r"a\.txt, line 1: the image '1 .+' does not exist in .*yolo$",
    ),
    "pixels": (
        "a.txt",
        "0 120 30 40 20",
        r"a\.txt, line 1: a box must be fractions of the image, from 0 to 1$",
    ),
    "no YAML": ("data.yaml", "a: [", r"data\.yaml is not YAML: "),
    "a list": ("data.yaml", "[1]", r"data\.yaml is not a data\.yaml of Ultralytics$"),
    "gaps": ("data.yaml", "names: {1: a}", r"data\.yaml: the names must be numbered from 0 without gaps$"),
    "one name": ("data.yaml", "names: a", r"data\.yaml: names must be a list, or a name for each number$"),
    "no folder": (
        "data.yaml",
        "train: none",
        r"data\.yaml: names the folder 'none', which is not in .*; name its",
    ),
    "no splits": ("data.yaml", "names: [a]", r"yolo has no images; there is nothing to build$"),
    "too few names": ("data.yaml", "names: [a]\ntrain: .", r"a\.txt, line 1: the class 1 must be 0 to 0$"),
}


@pytest.mark.parametrize(("name", "text", "message"), WRONG_YOLO.values(), ids=WRONG_YOLO.keys())
def test_what_is_not_yolo_is_reported(name, text, message, tmp_path):
    write_yolo(tmp_path / "yolo", ".", ".")
    (tmp_path / "yolo" / name).write_text(text)
    with pytest.raises(InputError, match=message):
        Table(tmp_path / "yolo", form="yolo").stage(tmp_path)


def test_sources_of_yolo_that_are_no_folders_are_reported(tmp_path):
    with raises(InputError, "path-missing"):
        Table(tmp_path / "none", form="yolo").stage(tmp_path)
    (tmp_path / "x.txt").write_text("")
    with raises(InputError, "yolo-path"):
        Table(tmp_path / "x.txt", form="yolo").stage(tmp_path)


def test_only_text_files_in_the_source_are_read(quick, tmp_path, log):
    write_yolo(tmp_path / "images" / "ds", ".", ".")
    other = tmp_path / "labels" / "ds" / "a.txt"
    other.parent.mkdir(parents=True)
    other.write_text("0 0.5 0.5 1 1")
    (tmp_path / "images" / "ds" / "z.txt").write_text("0 0.5 0.5 1 1")
    (tmp_path / "images" / "ds" / "classes.txt").write_text("\n".join(NAMES))
    quick(tmp_path / "images" / "ds", "yolo")
    check_yolo(tmp_path / "out", "train")
    extra = str(tmp_path / "images" / "ds" / "z.txt")
    assert f"warning: 1 text file belongs to no image of the dataset, such as {extra!r}" in log
    (tmp_path / "images" / "ds" / "a.txt").unlink()
    (tmp_path / "images" / "ds" / "a.txt").symlink_to(other)
    with raises(InputError, "outside"):
        quick(tmp_path / "images" / "ds", "yolo", "linked")
    quick(tmp_path / "images" / "ds", "yolo", "linked", follow_links=True)
    assert examples(tmp_path / "linked", "train")["a.jpg"]["objects/bbox"].tolist() == [[0.5, 0.5, 1, 1]]


def test_images_without_any_text_file_are_not_yolo(tmp_path):
    write_yolo(tmp_path / "images", ".", "../labels")
    with raises(InputError, "yolo-no-boxes"):
        Table(tmp_path / "images", form="yolo").stage(tmp_path)


def test_a_root_without_a_yaml_has_no_effect(tmp_path):
    write_yolo(tmp_path, ".", ".")
    with raises(OptionsError, "yolo-root-useless"):
        Table(tmp_path, form="yolo", root=tmp_path).stage(tmp_path)


def test_a_yaml_may_name_folders_that_are_not_there(quick, tmp_path, log):
    root = tmp_path / "yolo"
    write_yolo(root, "train/images", "train/labels")
    write_yolo(root, "more/images", "more/labels")
    (root / "data.yaml").write_text("train: ../train/images\ntest: ../test/images\nholdout: more/images\n")
    assert list(quick(root, "yolo").splits) == ["train"]
    config = root / "data.yaml"
    assert (
        f"warning: {config} names the folder '../test/images', which does not exist: there is no split 'test'"
        in log
    )
    line = "names the folder 'more/images' as 'holdout', which is not train, val or test: it is left out"
    assert f"warning: {config} {line}" in log
    (root / "data.yaml").write_text("train: ../none/images\nval: train/images\n")
    with raises(InputError, "yolo-folder-missing", missing="../none/images"):
        quick(root, "yolo", "wrong")


def test_captions_of_coco_are_refused_with_the_table_to_write(tmp_path):
    path = tmp_path / "captions_val2017.json"
    path.write_text(json.dumps({"images": [], "annotations": [{"id": 1, "image_id": 1, "caption": "a"}]}))
    with raises(InputError, "coco-captions"):
        Table(path, form="coco").stage(tmp_path)
