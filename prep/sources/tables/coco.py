"""Read the object annotations of COCO: ``instances_*.json``."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from tfshards.prep.sources.tables.annotations import (
    AnnotatedImage,
    Annotations,
    annotation_table,
    read_annotation,
)
from tfshards.schemas import InputError

# instances_train2017.json; in folders: train/_annotations.coco.json
_NAME = re.compile(r"instances_(?P<folder>(?P<split>.+?)(20\d\d)?)\.json")
_ROBOFLOW = "_annotations.coco.json"
_OTHERS = {
    "image_id": pa.int64(),
    "objects/area": pa.large_list(pa.float32()),
    "objects/iscrowd": pa.large_list(pa.bool_()),
}


def read_coco(source: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> Annotations:
    """Return the images and boxes of an annotation file, or of those in a folder as splits.

    Boxes are ``[left, top, width, height]`` in pixels; classes are numbered in the order of their ids.

    Args:
        source: a file; or a folder with ``annotations/instances_*.json`` or ``*/_annotations.coco.json``.
        root: folder of the images; by default found next to the annotations.

    Raises:
        InputError: a file is missing, is not of this form, or its images are not found.
    """
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.glob("annotations/*.json") if _NAME.fullmatch(file.name))
        files = files or sorted(path.glob(f"*/{_ROBOFLOW}"))
        if not files:
            raise InputError(
                f"{path} has neither annotations/instances_*.json nor */{_ROBOFLOW}; name the file"
            )
    else:
        files = [path]
    folder = Path(root) if root is not None else path if path.is_dir() else None
    images, parts, names = [], [], None
    for file in files:
        content = read_annotation(file)
        found, file_names = _read(file, content)
        if names not in (None, file_names):
            raise InputError(
                f"{file}: its categories are not those of {files[0]}; build them as two datasets"
            )
        names = file_names
        split = _split_of(file) if path.is_dir() else ""
        own = _folder_of(file, found, folder)
        folder = own if folder is None else folder
        for image in found:
            image.split = split
            image.path = os.fsencode(os.path.relpath(own / os.fsdecode(image.path), folder))
        images += found
        parts.append((os.fsencode(file.name), content))
    assert folder is not None
    return Annotations(annotation_table(images, _OTHERS, names or (), parts), folder)


def _split_of(file: Path) -> str:
    found = _NAME.fullmatch(file.name)
    return found["split"] if found else file.parent.name


def _folder_of(file: Path, images: list[AnnotatedImage], root: Path | None) -> Path:
    """Return the folder of the images of an annotation file: one in which the first of them exists."""
    found = _NAME.fullmatch(file.name)
    names = [file.parent.name] if found is None else [found["folder"], found["split"]]
    names += [f"images/{name}" for name in names] + ["images", "."]
    above = [file.parent, file.parent.parent] if root is None else [root]
    tried = [folder / name for folder in above for name in names]
    tried = [file.parent, *tried] if root is None else tried
    first = os.fsdecode(images[0].path)
    for folder in tried:
        if (folder / first).is_file():
            return folder
    raise InputError(
        f"{file}: its image {first!r} is not found next to it; name the folder of images with root="
    )


def _read(file: Path, content: bytes) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    try:
        document = json.loads(content)
        categories = sorted((each["id"], str(each["name"])) for each in document["categories"])
        images = {each["id"]: _image(each) for each in document["images"]}
        num_images = len(document["images"])
        numbers = {number: index for index, (number, _) in enumerate(categories)}
        for each in document["annotations"]:
            _add(images[each["image_id"]], each, numbers[each["category_id"]])
    except KeyError as error:
        raise InputError(f"{file}: is not a file of COCO's objects: {error} is missing") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{file}: is not a file of COCO's objects: {error}") from None
    names = tuple(name for _, name in categories)
    if not images or len(images) < num_images or len(set(names)) < len(names):
        fault = "has no images" if not images else "repeats the id of an image, or the name of a category"
        raise InputError(f"{file}: {fault}; correct the file")
    return list(images.values()), names


def _image(each: dict[str, Any]) -> AnnotatedImage:
    others = {"image_id": int(each["id"]), "objects/area": [], "objects/iscrowd": []}
    return AnnotatedImage(os.fsencode(each["file_name"]), others=others)


def _add(image: AnnotatedImage, each: dict[str, Any], category: int) -> None:
    box = [float(number) for number in each["bbox"]]
    if len(box) != 4:
        raise ValueError(f"the bbox of the annotation {each.get('id')} has {len(box)} numbers instead of 4")
    image.boxes.append(box)
    image.categories.append(category)
    area, crowd = image.others["objects/area"], image.others["objects/iscrowd"]
    assert isinstance(area, list)
    assert isinstance(crowd, list)
    area.append(float(each.get("area", box[2] * box[3])))
    crowd.append(bool(each.get("iscrowd", 0)))
