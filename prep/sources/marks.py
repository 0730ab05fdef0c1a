"""Marks: names of files and folders which show that the classes of images are not their folders."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

from tfshards.prep.sources.keys import to_text
from tfshards.schemas import InputError

PAGE = "docs/datasets.md"
_IMAGES = "images/|image/|imgs/|img/|rgb/"
_MASKS = "masks/|mask/|labels/|label/|annotations/|segmentation/|segmentations/|gt/|ground_truth/"
_INPUTS = "input/|inputs/|source/|low/|lr/|LR/|blur/|blurry/|noisy/|hazy/|rainy/|degraded/"
_TARGETS = "target/|targets/|output/|outputs/|high/|hr/|HR/|sharp/|clean/|clear/|groundtruth/"
_TABLES = "train.csv|train_labels.csv|trainLabels.csv|labels.csv|Training_set.csv"
# A mark refuses any folder, one with a split that lacks the class folders of others, one without classes in
# its folders, or none; then the file is only reported as not read.
NOTHING, ALWAYS, SPLIT_LACKS_CLASSES, NO_CLASSES, NEVER = range(5)
# Sections of the page, and names in one folder, all of which are needed: "|" separates alternatives, a slash
# ends a folder, and "*" is anything, or anything after a first word, before the suffix.
MARKS: Sequence[tuple[int, str, str]] = (
    (ALWAYS, "pascal-voc", "JPEGImages/ Annotations/"),
    (ALWAYS, "cub-200-2011", "image_class_labels.txt"),
    (ALWAYS, "celeba", "list_attr_celeba.txt|list_attr_celeba.csv"),
    (ALWAYS, "cityscapes", "leftImg8bit/ gtFine/"),
    (ALWAYS, "tiny-imagenet", "val_annotations.txt images/"),
    (ALWAYS, "open-images", "oidv6-train-annotations-bbox.csv|validation-annotations-bbox.csv"),
    (ALWAYS, "coco", "instances_*.json|person_*.json|captions_*.json|_annotations.coco.json"),
    (ALWAYS, "oxford-iiit-pet", "trainval.txt trimaps/"),
    (ALWAYS, "oxford-flowers-102", "imagelabels.mat"),
    (ALWAYS, "svhn", "digitStruct.mat"),
    (ALWAYS, "market-1501", "bounding_box_train/"),
    (ALWAYS, "fgvc-aircraft", "images_variant_train.txt"),
    (ALWAYS, "inaturalist", "train_val2017/|train_val2018/|train_val2019/"),
    (ALWAYS, "mvtec-ad", "train/ test/ ground_truth/"),
    (ALWAYS, "other-layouts", "image_2/ label_2/"),
    (ALWAYS, "other-layouts", "trainA/ trainB/"),
    (ALWAYS, "other-layouts", "WIDER_train/|DIV2K_train_HR/|val_256/"),
    (ALWAYS, "other-layouts", "HAM10000_metadata.csv|Data_Entry_2017.csv"),
    (ALWAYS, "images-and-masks", f"{_IMAGES} {_MASKS}"),
    (ALWAYS, "pairs-of-images", f"{_INPUTS} {_TARGETS}"),
    (SPLIT_LACKS_CLASSES, "imagenet", "ILSVRC2012_*.txt|LOC_val_solution.csv|imagenet_*.txt"),
    (NO_CLASSES, "yolo", "data.yaml"),
    (NO_CLASSES, "yolo", "images/ labels/"),
    (NO_CLASSES, "food-101", "images/ meta/"),
    (NO_CLASSES, "hugging-face", "metadata.csv|metadata.jsonl|metadata.parquet"),
    (NO_CLASSES, "kaggle", f"{_TABLES} train/|train_images/"),
    (NO_CLASSES, "pascal-voc", "*.xml"),
    (NEVER, "kaggle", "*.csv|*.tsv|*.jsonl"),
    (NEVER, "masks-of-hugging-face", "*.parquet"),
    (NEVER, "mnist", "train-images-idx3-ubyte|train-images-idx3-ubyte.gz"),
    (NEVER, "cifar-10", "data_batch_1|data_batch_1.bin"),
    (NEVER, "svhn", "*.mat"),
    (NEVER, "webdataset", "*.tar"),
    (NEVER, "rlds", "*.tfrecord"),
    (NEVER, "other-layouts", "*.npy|*.npz|*.h5|*.hdf5|*.arrow|*.zip|*.gz|*.tgz|*.json"),
)
_NAMES = frozenset(re.split(rb"[ |]", " ".join(names for _, _, names in MARKS).encode()))
# By name of a mark and by folder, the first path in the folder that is the mark.
Marks: TypeAlias = "dict[bytes, dict[bytes, bytes]]"


def note(marks: Marks, folder: bytes, name: bytes) -> None:
    """Keep a file that is not an image, or a folder, with a slash at the end of its name, if it is a mark."""
    suffix = name[name.rfind(b".") :].partition(b"-")[0]
    for mark in _NAMES.intersection((name, b"*" + suffix, name[: name.find(b"_") + 1] + b"*" + suffix)):
        paths = marks.setdefault(mark, {})
        paths[folder] = min(folder + name, paths.get(folder, folder + name))


def check_marks(root: str, keys: Sequence[bytes], marks: Marks, last: int) -> list[str]:
    """Raise InputError for a mark up to the ``last`` kind; return warnings about files."""
    unread: dict[bytes, str] = {}
    for kind, section, names in MARKS:
        found = [_paths(marks, alternatives) for alternatives in names.split()]
        for folder in sorted(set(found[0]).intersection(*found)):
            paths = [each[folder] for each in found]
            if kind <= last and _fit(section, paths, keys):
                raise refusal(root, " and ".join(map(to_text, paths)), section)
            if paths[0] not in unread and not paths[0].endswith(b"/"):
                unread[paths[0]] = section
                break
    masked = (key.rpartition(b"_mask.")[0] for key in keys if b"_mask." in key)
    if last == ALWAYS and any(_starting(keys, stem + b".") for stem in masked):
        raise refusal(root, "masks next to their images", "images-and-masks")
    return [f"{to_text(path)} is not read; see {PAGE}#{section}" for path, section in unread.items()]


def _paths(marks: Marks, names: str) -> dict[bytes, bytes]:
    """Return the path of one of the names in each folder that has one."""
    return {
        folder: path for name in names.split("|") for folder, path in marks.get(name.encode(), {}).items()
    }


def _fit(section: str, paths: Sequence[bytes], keys: Sequence[bytes]) -> bool:
    """Return whether there are images of the marks, as far as names show."""
    if section == "images-and-masks":
        return all(_starting(keys, path) for path in paths)
    if section == "pairs-of-images":
        first, second = ({os.path.splitext(k[len(p) :])[0] for k in _starting(keys, p)} for p in paths)
        return bool(second) and second <= first
    return not paths[0].endswith(b".xml") or bool(_starting(keys, paths[0][:-3]))


def _starting(keys: Sequence[bytes], start: bytes) -> Sequence[bytes]:
    return keys[bisect_left(keys, start) : bisect_left(keys, start[:-1] + bytes([start[-1] + 1]))]


def refusal(root: str, seen: str, section: str) -> InputError:
    """Return the error for a folder in which something was seen that a section of the page builds."""
    return InputError(
        f"{root} holds {seen}; its folders do not show the classes of its images; build it as "
        f"{PAGE}#{section} shows, or give as_is=True to take its folders as classes and splits",
        code="layout-known",
    )
