"""The table of known datasets and formats: by which names they are recognized, and what builds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Folders of pictures in two forms: images and masks, or images and images.
_IMAGES = "images/|image/|imgs/|img/|rgb/"
_MASKS = "masks/|mask/|labels/|label/|annotations/|segmentation/|segmentations/|gt/|ground_truth/"
_INPUTS = "input/|inputs/|source/|low/|lr/|LR/|blur/|blurry/|noisy/|hazy/|rainy/|degraded/"
_TARGETS = "target/|targets/|output/|outputs/|high/|hr/|HR/|sharp/|clean/|clear/|groundtruth/"
_LISTS = "train.csv|train_labels.csv|trainLabels.csv|labels.csv|Training_set.csv"
_IMAGENET_LISTS = (
    "ILSVRC2012_validation_ground_truth.txt|*/data/ILSVRC2012_validation_ground_truth.txt"
    "|imagenet_2012_validation_synset_labels.txt"
)
_IDX = "train-images-idx3-ubyte|train-images.idx3-ubyte|train-images-idx3-ubyte.gz"
PAGE = "docs/datasets.md"
_HOW_TO = "How do I build from files of other formats?"


class Known(NamedTuple):
    """A dataset, or a kind of files, that names of folders and files show.

    Attributes:
        name: name of the dataset.
        marks: patterns of paths below one folder, all of which must match: folders, if they end with a slash,
            or files that are not images; ``|`` separates alternatives. A last name with ``*`` has a suffix.
        commands: what builds it, a command on each line: SOURCE is the folder of the marks, and ``%0`` what
            the first mark matched. Empty if the page has lines of Python. Of files that are only named in a
            warning, what to do.
        check: a condition that names alone do not show, see ``CHECKS`` in recognition.py.
        section: its section in docs/datasets.md, if that has another name.
        is_refused: whether a folder of images that has the marks is refused; otherwise a warning names them.
    """

    name: str
    marks: tuple[str, ...]
    commands: str = ""
    check: str = ""
    section: str = ""
    is_refused: bool = True


KNOWN: Sequence[Known] = (
    Known(
        "Pascal VOC",
        ("JPEGImages/", "Annotations/", "SegmentationClass/", "ImageSets/Segmentation/"),
        "tfshards build images SOURCE/JPEGImages DATASET --mask-dir ../SegmentationClass "
        "--split-list train=../ImageSets/Segmentation/train.txt "
        "--split-list val=../ImageSets/Segmentation/val.txt",
    ),
    Known("Pascal VOC", ("JPEGImages/", "Annotations/")),
    Known("Pascal VOC", ("*.xml|*/*.xml",), check="texts of images"),
    Known(
        "CUB-200-2011",
        ("images.txt", "image_class_labels.txt", "train_test_split.txt", "bounding_boxes.txt"),
    ),
    Known(
        "CelebA",
        ("list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba/"),
    ),
    Known(
        "CelebA",
        ("list_attr_celeba.csv", "list_eval_partition.csv", "img_align_celeba/img_align_celeba/"),
    ),
    Known("Cityscapes", ("leftImg8bit/", "gtFine/")),
    Known("Tiny ImageNet", ("wnids.txt", "val/val_annotations.txt", "val/images/")),
    Known("ImageNet", (_IMAGENET_LISTS, "val/"), check="flat"),
    Known("ImageNet", ("LOC_val_solution.csv", "ILSVRC/Data/CLS-LOC/val/"), check="flat"),
    Known("Open Images", ("*train-annotations-bbox.csv|*validation-annotations-bbox.csv",)),
    Known(
        "COCO",
        ("annotations/instances_*.json|*/_annotations.coco.json",),
        "tfshards build table SOURCE DATASET --from coco",
    ),
    Known("COCO", ("_annotations.coco.json",), "tfshards build table SOURCE/%0 DATASET --from coco"),
    Known("COCO", ("annotations/person_keypoints_*.json|annotations/captions_*.json",)),
    Known(
        "Oxford-IIIT Pet",
        ("images/", "annotations/trainval.txt", "annotations/test.txt", "annotations/trimaps/"),
    ),
    Known(
        "Food-101",
        ("images/", "meta/train.txt", "meta/test.txt"),
        "tfshards build images SOURCE/images DATASET --split-list train=../meta/train.txt "
        "--split-list test=../meta/test.txt",
    ),
    Known("Oxford Flowers-102", ("jpg/", "imagelabels.mat")),
    Known("SVHN", ("digitStruct.mat",)),
    Known("Market-1501", ("bounding_box_train/", "bounding_box_test/")),
    Known("FGVC-Aircraft", ("images/", "images_variant_train.txt")),
    *(
        Known(name, marks, section="Other layouts")
        for name, marks in (
            ("KITTI", ("training/image_2/", "training/label_2/")),
            ("WIDER FACE", ("WIDER_train/", "wider_face_split/")),
            ("DIV2K", ("DIV2K_train_HR/",)),
            ("CycleGAN", ("trainA/", "trainB/")),
        )
    ),
    Known("iNaturalist", ("train_val2017/|train_val2018/|train_val2019/", "train20*.json")),
    Known("MVTec AD", ("ground_truth/", "train/good/", "test/good/")),
    Known(
        "YOLO",
        ("data.yaml", "labels/|*/labels/"),
        "tfshards build table SOURCE/%0 DATASET --from yolo",
    ),
    Known(
        "YOLO",
        ("images/", "labels/*.txt|labels/*/*.txt"),
        "tfshards build table SOURCE DATASET --from yolo",
        check="texts of images",
    ),
    Known(
        "Hugging Face",
        ("metadata.csv|metadata.jsonl|metadata.parquet",),
        "tfshards build table SOURCE DATASET",
        check="images without classes",
    ),
    Known(
        "Kaggle",
        (_LISTS, "train/|train_images/"),
        "tfshards build table SOURCE/%0 DATASET",
        check="names images",
    ),
    Known(
        "a table of images in several folders",
        ("*.csv",),
        check="names images in parts",
        section="Other layouts",
    ),
    Known(
        "Images and masks",
        (_IMAGES, _MASKS),
        "tfshards build images SOURCE/%0 DATASET --mask-dir ../%1",
        check="equal names",
    ),
    Known("images and masks in one folder", (), check="masks among images", section="Images and masks"),
    Known("Pairs of images", (_INPUTS, _TARGETS), check="equal names"),
    Known("Pairs of images", (), check="two folders of equal names"),
    Known(
        "texts of images",
        ("**/*.txt|**/*.json",),
        "docs/datasets.md, Other layouts, shows how to build from such files",
        check="texts of images",
        is_refused=False,
    ),
    Known(
        "tables",
        ("*.csv|*.tsv|*.jsonl|*.parquet",),
        "'tfshards build table' stores its columns with the images",
        is_refused=False,
    ),
    Known(
        "NumPy",
        ("**/*.npy",),
        "'tfshards build arrays' takes .npy files, stacked into one array per feature",
        is_refused=False,
    ),
    *(
        Known(name, (mark,), f"{_HOW_TO!r} in docs/how-to.md converts {name}", is_refused=False)
        for name, mark in (
            ("idx files", _IDX),
            ("CIFAR's batches", "data_batch_1|data_batch_1.bin|test_batch|test_batch.bin"),
            ("files of MATLAB", "*.mat"),
            ("HDF5", "*.h5|*.hdf5"),
            ("archives", "*.tar|*.tar.gz|*.tgz|*.zip"),
            ("what save_to_disk wrote", "data-*.arrow"),
        )
    ),
    Known(
        "TFRecord", ("*.tfrecord|*.tfrecord-*",), "'tfshards adopt' makes a dataset of it", is_refused=False
    ),
)
