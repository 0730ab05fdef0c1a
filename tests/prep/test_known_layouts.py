"""Folders that look like known datasets are refused with what builds them; other folders are not."""

import shlex

import pytest

from tests.errors import raises
from tests.prep.table_files import encoded
from tfshards.prep import ImageFolder, append
from tfshards.prep.cli.main import main
from tfshards.prep.sources.known import KNOWN
from tfshards.prep.sources.recognition import note
from tfshards.schemas import InputError, read_manifest

BUILD = "tfshards build "
HOW_TO = "'How do I build from files of other formats?' in docs/how-to.md"
COCO = BUILD + "table SOURCE DATASET --from coco"
CUB = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "bounding_boxes.txt")
COLUMNS = b"\xef\xbb\xbfid,label\r\n0007,cat\r\n"
BY_TEMPLATE = ["a/1.png", "a/5.png", "a/9.png", "a/10.png"]
# what is in the folder besides images; files of layouts -> name, and commands if there are any
LAYOUTS = {
    "VOC": (["VOCdevkit/VOC2012/JPEGImages/1.png", "VOCdevkit/VOC2012/Annotations/1.xml"], "Pascal VOC"),
    "CUB": ([*CUB, "images/001.Black/1.png"], "CUB-200-2011"),
    "CelebA": (["list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba/1.png"], "CelebA"),
    "CelebA of Kaggle": (
        ["list_attr_celeba.csv", "list_eval_partition.csv", "img_align_celeba/img_align_celeba/1.png"],
        "CelebA",
    ),
    "boxes in XML beside the images": (["1.png", "1.xml"], "Pascal VOC"),
    "Cityscapes": (
        ["leftImg8bit/train/bochum/1_leftImg8bit.png", "gtFine/train/bochum/1_gtFine_labelIds.png"],
        "Cityscapes",
    ),
    "Tiny ImageNet": (
        ["wnids.txt", "train/n01/images/1.png", "val/images/1.png", "val/val_annotations.txt"],
        "Tiny ImageNet",
    ),
    "ImageNet": (["train/n01/1.png", "val/1.png", "imagenet_2012_validation_synset_labels.txt"], "ImageNet"),
    "ImageNet with its devkit": (
        ["val/1.png", "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"],
        "ImageNet",
    ),
    "Open Images": (["train/1.png", "oidv6-train-annotations-bbox.csv"], "Open Images"),
    "COCO": (["annotations/instances_train2017.json", "train2017/1.png"], "COCO", COCO),
    "COCO of Roboflow": (["train/_annotations.coco.json", "train/1.png", "valid/2.png"], "COCO", COCO),
    "a split of it": (
        ["_annotations.coco.json", "1.png"],
        "COCO",
        BUILD + "table SOURCE/_annotations.coco.json DATASET --from coco",
    ),
    "keypoints": (["annotations/person_keypoints_val2017.json", "val2017/1.png"], "COCO"),
    "MVTec AD": ([f"bottle/{n}/1.png" for n in ("train/good", "test/good", "ground_truth/cut")], "MVTec AD"),
    "YOLO": (["images/1.png", "labels/1.txt"], "YOLO", BUILD + "table SOURCE DATASET --from yolo"),
    "YOLO with data.yaml": (
        ["data.yaml", "train/images/1.png", "train/labels/1.txt"],
        "YOLO",
        BUILD + "table SOURCE/data.yaml DATASET --from yolo",
    ),
    "Hugging Face": (
        {"metadata.csv": b"file_name,label\n", "images/1.png": 1},
        "Hugging Face",
        BUILD + "table SOURCE DATASET",
    ),
    "Hugging Face, with splits": (
        {
            "train/metadata.jsonl": b'{"file_name": "1.png"}',
            "test/metadata.jsonl": b'{"file_name": "2.png"}',
            "train/1.png": 1,
            "test/2.png": 2,
        },
        "Hugging Face",
        BUILD + "table SOURCE/test DATASET-test",
        BUILD + "table SOURCE/train DATASET-train",
        "tfshards merge --as-splits test=DATASET-test train=DATASET-train DATASET",
    ),
    "Hugging Face, Parquet": (["metadata.parquet", "1.png"], "Hugging Face", BUILD + "table SOURCE DATASET"),
    "Kaggle": (
        {"train.csv": COLUMNS, "train/0007.png": 1, "test/8.png": 2},
        "Kaggle",
        BUILD + "table SOURCE/train.csv DATASET --image 'train/{id}.png'",
    ),
    "names with suffixes": (
        {"labels.csv": b"path,breed\n7.png,cat\n", "train/7.png": 1},
        "Kaggle",
        BUILD + "table SOURCE/labels.csv DATASET --image 'train/{path}' --label breed",
    ),
    "paths": (
        {"train.csv": b"x,y,file\n1,2,train/7.png\n", "train/7.png": 1},
        "Kaggle",
        BUILD + "table SOURCE/train.csv DATASET --image file",
    ),
    "paths in folders": (
        {"train.csv": b"Path,Edema\ntrain/patient1/study1/7.png,1\n", "train/patient1/study1/7.png": 1},
        "Kaggle",
        BUILD + "table SOURCE/train.csv DATASET --image Path --label Edema",
    ),
    "a table beside folders of parts": (
        {"meta10.csv": b"age,id,dx\n3,x_7,cat\n", "all10_part_1/x_7.png": 1, "all10_part_2/x_8.png": 2},
        "a table of images in several folders",
    ),
    "folders in folders of parts": (
        {"data.csv": b"name,dx\n7.png,cat\n", "x01/images/7.png": 1, "x02/images/8.png": 2},
        "a table of images in several folders",
    ),
    "KITTI": (["training/image_2/1.png", "training/label_2/1.txt"], "KITTI"),
    "images and labels": (
        ["data/images/train/1.png", "data/labels/train/1.png", "data/images/train/2.png"],
        "Images and masks",
        BUILD + "images SOURCE/data/images DATASET --mask-dir ../labels",
    ),
    "masks among images": (
        ["benign/b (1).png", "benign/b (1)_mask.png", "normal/n (1).png"],
        "images and masks in one folder",
    ),
    "pairs by the names of their folders": (["input/1.png", "target/1.png"], "Pairs of images"),
    "pairs by names of files": ([*BY_TEMPLATE, *(f"b{name[1:]}" for name in BY_TEMPLATE)], "Pairs of images"),
}


def files_of(names):
    if isinstance(names, dict):
        return names
    return {name: number if name.endswith(".png") else b"" for number, name in enumerate(names)}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_known_layout_is_refused_with_what_builds_it(layout, image_folder):
    names, name, *commands = layout
    root = str(image_folder(files_of(names), "my photos"))
    with raises(InputError, "layout-known", name=name, root=root) as caught:
        ImageFolder(root).listing()
    *lines, page = caught.value.lines
    sections = {known.section or known.name for known in KNOWN if known.name == name}
    assert page in {f"  see docs/datasets.md, {section}" for section in sections}
    if commands:
        found = [[word.replace(root, "SOURCE") for word in shlex.split(line)] for line in lines]
        assert found == [shlex.split(command) for command in commands]
    # what the user states is done
    listing = ImageFolder(root, as_is=True).listing()
    assert len(listing.keys) == sum(name.endswith(".png") for name in names)


NO_FALSE_ALARM = {
    "classes": ["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"],
    "classes of equal numbers": [f"{name}/{n:03}.png" for name in ("cat", "dog") for n in range(9)],
    "lists in labels": ["images/1.png", "x/2.png", "labels/train1.txt"],
    "a table of numbered classes": {"x.csv": b"id,class\n7,c1\n", "c0/6.png": 1, "c1/7.png": 2},
    "a table of other things": {"x.csv": b"class,name\nc0,cat\n", "c0/6.png": 1, "c1/7.png": 2},
    "a table beside numbers": {"x.csv": b"id\n7\n", "0/7.png": 1, "1/8.png": 2},
    "few equal names": [f"{name}/{n}.png" for name in ("cat", "dog") for n in (3, 8, 20)],
    "splits of equal names": [f"{name}/{n}.png" for name in ("train", "val") for n in (3, 8, 20, 31)],
    "equal names further down": [f"{c}/{n}.png" for c in ("cat", "dog") for n in ("3", "8", "x/20", "x/31")],
    "three classes of equal names": [f"{name}/{n}.png" for name in "abc" for n in (3, 8, 20, 31)],
    "splits of classes": ["train/cat/1.png", "train/dog/2.png", "val/cat/3.png"],
    "masks alone": ["cat/1_mask.png", "dog/2_mask.png"],
    "flat": ["1.png", "2.png", "notes.txt", "labels.csv"],
    "images and masks": ["images/1.png", "masks/1.png"],
    "classes named like pictures": ["input/1.png", "target/2.png"],
    "classes and a list": ["train/n01/1.png", "val/n01/2.png", "imagenet_2012_validation_synset_labels.txt"],
    "a table of the classes": {"train.csv": COLUMNS, "train/cat/0007.png": 1, "train/dog/8.png": 2},
    "an empty table": {"train.csv": b"", "train/1.png": 1},
    "two suffixes": {"train.csv": COLUMNS, "train/0007.png": 1, "train/0007.jpg": encoded(1, "JPEG")},
    "paths in classes": {"train.csv": b"path,x\ntrain/cat/7.png,cat\n", "train/cat/7.png": 1},
    "a table of classes": {"metadata.csv": b"file_name,x\n", "cat/1.png": 1, "dog/1.png": 2},
    "a table without names of files": {"metadata.csv": b"class,count\n", "cat/1.png": 1, "dog/1.png": 2},
    "hidden marks": {".git/JPEGImages/a": b"", ".Annotations/a": b"", "cat/1.png": 1, "dog/1.png": 2},
    "marks that are deep": ["a/1.png", "b/1.png", "a/b/c/JPEGImages/1.png", "a/b/c/Annotations/1.xml"],
    "marks of different folders": ["a/2.png", "a/JPEGImages/1.png", "b/Annotations/1.png"],
}


@pytest.mark.parametrize("names", NO_FALSE_ALARM.values(), ids=NO_FALSE_ALARM)
def test_ordinary_folders_are_not_refused(names, image_folder):
    assert len(ImageFolder(image_folder(files_of(names))).listing().keys)


def test_the_command_names_the_dataset_and_runs_as_printed(image_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image_folder(files_of(LAYOUTS["Kaggle"][0]), "my photos")
    for verb in ("build", "plan"):
        assert main([verb, "images", "my photos", "my data/out"]) == 1
        message = capsys.readouterr().err
        (line,) = (line for line in message.splitlines() if line.startswith("  tfshards"))
        assert "--as-is" in message
        assert line == "  tfshards build table 'my photos/train.csv' 'my data/out' --image 'train/{id}.png'"
    assert main(shlex.split(line)[1:]) == 0
    assert read_manifest("my data/out").schema.class_names == ("cat",)


def test_what_a_build_took_as_it_is_can_be_extended(image_folder, tmp_path, quiet_build):
    root = image_folder(files_of(["input/1.png", "target/1.png"]))
    manifest = quiet_build(ImageFolder(root, as_is=True), tmp_path / "out")
    assert manifest.options["as_is"] is True
    image_folder({"input/2.png": 3})
    assert append(root, tmp_path / "out").num_examples == 3
    # options that state what folders are
    assert ImageFolder(root, split_folders={}).listing().schema.class_names == ("input", "target")
    assert len(ImageFolder(root / "input", mask_dir="../target").listing().keys) == 2


def test_a_folder_without_images_shows_what_builds_its_files(image_folder):
    root = image_folder(
        {"train-images-idx3-ubyte.gz": b"x", "a/x.h5": b"", "annotations/instances_val2017.json": b"{}"}
    )
    with raises(InputError, "folder-no-images") as caught:
        ImageFolder(root).listing()
    assert caught.value.lines == (
        f"  tfshards build table {root} DATASET --from coco",
        "  see docs/datasets.md, COCO",
        f"train-images-idx3-ubyte.gz is not read; {HOW_TO} converts idx files",
        f"a/x.h5 is not read; {HOW_TO} converts HDF5",
    )


@pytest.mark.parametrize("command", ["build images", "build table", "build arrays"])
def test_a_file_of_a_known_format_is_refused_with_what_converts_it(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.mat").touch()
    assert main([*command.split(), "x.mat", "out"]) in (1, 2)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(f"{HOW_TO} converts files of MATLAB")


def test_no_path_is_a_mark_by_two_patterns():
    for mark in (mark for known in KNOWN for mark in known.marks):
        for pattern in mark.split("|"):
            seen = {}
            note(seen, pattern.replace("**/", "").replace("*", "7").encode())
            assert pattern in seen
