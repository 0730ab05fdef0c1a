"""The annotations of COCO and YOLO, in their own layouts, become boxes and classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.prep.test_table_nested import encoded
from tfshards import loader
from tfshards.prep import ImageOptions, Table
from tfshards.prep.cli.main import main
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.reader import read_records
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
    def run(source, form, name="out", **given):
        return quiet_build(Table(source, form=form, **given), tmp_path / name)

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


WRONG_COCO = {
    "no JSON": ("{", r"\.json: is not a file of COCO's objects: Expecting"),
    "captions": (
        json.dumps({**coco(), "annotations": [{"id": 1, "image_id": 0, "caption": "x", "category_id": 1}]}),
        r"\.json: is not a file of COCO's objects: 'bbox' is missing$",
    ),
    "a list": ("[]", r"\.json: is not a file of COCO's objects: list indices"),
    "no images": (
        json.dumps({**coco(), "images": [], "annotations": []}),
        r"\.json: has no images; correct the fi",
    ),
    "an image twice": (
        json.dumps({**coco(), "images": coco()["images"] * 2}),
        r"\.json: repeats the id of an im",
    ),
    "a name twice": (
        json.dumps(coco(categories=[*CATEGORIES, {"id": 90, "name": "dog"}])),
        r"\.json: repeats the id of an image, or the name of a category; correct the file$",
    ),
    "three numbers": (
        json.dumps(
            {**coco(), "annotations": [{"id": 4, "image_id": 0, "category_id": 1, "bbox": [1, 2, 3]}]}
        ),
        r"\.json: is not a file of COCO's objects: the bbox of the annotation 4 has 3 numbers instead of 4$",
    ),
    "images elsewhere": (
        json.dumps(coco()),
        r"\.json: its image '000000000009\.jpg' is not found next to it; name the folder of images",
    ),
}


@pytest.mark.parametrize(("text", "message"), WRONG_COCO.values(), ids=WRONG_COCO.keys())
def test_a_file_that_is_not_coco_is_reported(text, message, tmp_path):
    (tmp_path / "instances_train.json").write_text(text)
    with pytest.raises(InputError, match=message):
        Table(tmp_path / "instances_train.json", form="coco").stage(tmp_path)


def test_folders_that_are_not_coco_are_reported(tmp_path):
    with pytest.raises(
        InputError, match=r"has neither annotations/instances_\*\.json nor \*/_annotations\.coco"
    ):
        Table(tmp_path, form="coco").stage(tmp_path)
    with pytest.raises(InputError, match=r"none\.json: cannot be read: No such file"):
        Table(tmp_path / "none.json", form="coco").stage(tmp_path)
    write_coco(tmp_path, {"train": "train", "val": "val"})
    other = json.dumps(coco(categories=[{"id": 1, "name": "dog"}, *CATEGORIES[1:]], annotations=[]))
    (tmp_path / "annotations" / "instances_val.json").write_text(other)
    with pytest.raises(
        InputError, match=r"instances_val\.json: repeats|its categories are not those of .*train"
    ):
        Table(tmp_path, form="coco").stage(tmp_path)


def test_options_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(OptionsError, match=r"^form='voc' must be one of table, coco, yolo$"):
        Table(tmp_path, form="voc")
    with pytest.raises(
        OptionsError, match=r"^resize='short=8' would not resize the boxes, which are in pixels;"
    ):
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


def test_one_folder_of_yolo_has_no_splits(quick, tmp_path, log):
    write_yolo(tmp_path / "yolo", "images", "labels")
    (tmp_path / "yolo" / "images" / "background.png").write_bytes(encoded(9))
    manifest = quick(tmp_path / "yolo", "yolo")
    assert manifest.splits["train"].num_examples == 4
    check_yolo(tmp_path / "out", "train")
    assert examples(tmp_path / "out", "train")["background.png"]["objects/bbox"].shape == (0, 4)
    assert "warning: 1 images have no text file, and so no boxes" in log


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
        r"a\.txt, line 2: the class x must be a number of at least 0$",
    ),
    "a fraction": ("a.txt", "0.5 0 0 1 1", r"a\.txt, line 1: the class 0\.5 must be a number of at least 0$"),
    "pixels": (
        "a.txt",
        "0 120 30 40 20",
        r"a\.txt, line 1: a box must be fractions of the image, from 0 to 1$",
    ),
    "no YAML": ("data.yaml", "a: [", r"data\.yaml: is not YAML: "),
    "a list": ("data.yaml", "[1]", r"data\.yaml: is not a data\.yaml of Ultralytics$"),
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
    with pytest.raises(InputError, match=r"none does not exist$"):
        Table(tmp_path / "none", form="yolo").stage(tmp_path)
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(InputError, match=r"x\.txt: must be a folder or a data\.yaml$"):
        Table(tmp_path / "x.txt", form="yolo").stage(tmp_path)
