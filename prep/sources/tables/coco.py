"""Read the object annotations of COCO: ``instances_*.json``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.tables.annotations import (
    AnnotatedImage,
    Annotations,
    annotation_table,
    name_fault,
    read_annotation,
)
from tfshards.schemas import InputError
from tfshards.schemas.json_reader import load_json

# instances_train2017.json; in folders: train/_annotations.coco.json
_NAME = re.compile(r"instances_(?P<folder>(?P<split>.+?)(20\d\d)?)\.json")
_ROBOFLOW = "_annotations.coco.json"
_OTHERS = {
    "image_id": pa.int64(),
    "objects/area": pa.large_list(pa.float32()),
    "objects/iscrowd": pa.large_list(pa.bool_()),
}
_LARGEST = float(np.finfo(np.float32).max)
# Number of images of a file to look for in each folder.
_SAMPLE = 20
_SHOWN = 60


class _FaultError(Exception):
    """What is wrong in an annotation file, with the name of the object."""


def read_coco(
    source: str | os.PathLike[str], root: str | os.PathLike[str] | None, *, follow_links: bool
) -> Annotations:
    """Return the images and boxes of an annotation file, or of those in a folder as splits.

    Boxes are ``[left, top, width, height]`` in pixels; classes are numbered in the order of their ids.

    Args:
        source: a file; or a folder with ``annotations/instances_*.json`` or ``*/_annotations.coco.json``.
        root: folder of the images; by default found next to the annotations.
        follow_links: follow links out of the folder.

    Raises:
        InputError: a file is missing, is not of this form, its images are not found, or two files name the
            same image.
    """
    path = Path(source)
    if root is not None and not Path(root).is_dir():
        raise InputError("root-not-a-folder", root=os.fspath(root))
    if path.is_dir():
        files = sorted(file for file in path.glob("annotations/*.json") if _NAME.fullmatch(file.name))
        files = files or sorted(path.glob(f"*/{_ROBOFLOW}"))
        if not files:
            raise InputError("coco-no-files", path=path, roboflow=_ROBOFLOW)
    else:
        files = [path]
    folder = Path(root) if root is not None else path if path.is_dir() else None
    # annotations/ is next to the folders of images
    is_next = path.parent.name == "annotations"
    above = path if path.is_dir() else path.parent.parent if is_next else path.parent
    in_source = Boundary(above, follow_links=follow_links)
    inside = in_source if root is None else Boundary(root, follow_links=follow_links)
    images, parts, names = [], [], None
    file_of: dict[bytes, Path] = {}
    for file in files:
        if file != path:
            in_source.check(file)
        content = read_annotation(file)
        found, file_names = _read(file, content)
        if names not in (None, file_names):
            raise InputError("coco-categories-differ", file=file, files=files[0])
        names = file_names
        split = _split_of(file) if path.is_dir() else ""
        own = _folder_of(file, found, [folder] if folder else [file.parent, *([above] if is_next else [])])
        inside.check(own)
        folder = own if folder is None else folder
        for image in found:
            image.split = split
            image.path = os.fsencode(os.path.relpath(own / os.fsdecode(image.path), folder))
            # a folder of one split would serve the others if their images have the same names
            if file_of.setdefault(image.path, file) != file:
                raise InputError(
                    "coco-images-repeated",
                    file=file,
                    file_of=file_of[image.path],
                    path=os.fsdecode(image.path),
                    folder=folder,
                )
        images += found
        parts.append((os.fsencode(file.name), content))
    assert folder is not None
    return Annotations(annotation_table(images, _OTHERS, names or (), parts), folder)


def _split_of(file: Path) -> str:
    found = _NAME.fullmatch(file.name)
    return found["split"] if found else file.parent.name


def _folder_of(file: Path, images: Sequence[AnnotatedImage], above: Sequence[Path]) -> Path:
    """Return the folder in one of those above in which most images of an annotation file exist."""
    found = _NAME.fullmatch(file.name)
    names = [file.parent.name] if found is None else [found["folder"], found["split"]]
    names += [f"images/{name}" for name in names] + ["images", "."]
    tried = [above[0]] if above[0] == file.parent else []
    tried += [folder / name for folder in above for name in names]
    numbers = np.unique(np.linspace(0, len(images) - 1, _SAMPLE).astype(np.int64)).tolist()
    for some in ([images[number] for number in numbers], images):
        counts = [sum((folder / os.fsdecode(image.path)).is_file() for image in some) for folder in tried]
        if any(counts):
            return tried[counts.index(max(counts))]
    where = "next to it" if above[0] == file.parent else f"in {above[0]}"
    raise InputError("coco-images-missing", file=file, path=os.fsdecode(images[0].path), where=where)


def _read(file: Path, content: bytes) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    try:
        document = load_json(content)
        if _holds_captions(document):
            raise InputError("coco-captions", file=file)
        names, numbers = _categories(document)
        images: dict[int, AnnotatedImage] = {}
        for number, each in _objects(document, "images", "image"):
            if number in images:
                raise _FaultError(f"the id {number} of an image is repeated")
            images[number] = _image(number, each)
        for shown, each in _annotations(document):
            _add(images, numbers, shown, each)
    except _FaultError as fault:
        raise InputError("coco-invalid", file=file, fault=fault) from None
    except (ValueError, RecursionError) as error:
        raise InputError("coco-unreadable", file=file, error=error) from None
    if not images:
        raise InputError("coco-no-images", file=file)
    return list(images.values()), names


def _holds_captions(document: object) -> bool:
    found = document.get("annotations") if isinstance(document, dict) else None
    if not isinstance(document, dict) or "categories" in document or not isinstance(found, list):
        return False
    return any(isinstance(each, dict) and "caption" in each for each in found[:1])


def _list(document: object, name: str) -> list[object]:
    found = document.get(name) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise _FaultError(f"it has no list of {name}")
    return found


def _objects(document: object, name: str, noun: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the id of each object in a list, and the object."""
    for each in _list(document, name):
        if not isinstance(each, dict) or "id" not in each:
            raise _FaultError(f"an object in {name} has no id")
        yield _integer(each["id"], f"the id of the {noun}"), each


def _annotations(document: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each annotation with the words that name it."""
    for number, each in enumerate(_list(document, "annotations")):
        if not isinstance(each, dict):
            raise _FaultError(f"annotations[{number}] is not an object")
        yield f"the annotation {_shown(each['id'])}" if "id" in each else f"annotations[{number}]", each


def _categories(document: object) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the class names in the order of the ids, and the class number of each id."""
    names: dict[int, str] = {}
    for number, each in _objects(document, "categories", "category"):
        name = each.get("name")
        fault = name_fault(name)
        if fault:
            raise _FaultError(f"the name {_shown(name)} of the category {number} {fault}")
        if number in names:
            raise _FaultError(f"the id {number} of a category is repeated")
        if name in names.values():
            raise _FaultError(f"the name {name!r} of a category is repeated")
        names[number] = str(name)
    ids = sorted(names)
    return tuple(names[number] for number in ids), {number: index for index, number in enumerate(ids)}


def _image(number: int, each: dict[str, Any]) -> AnnotatedImage:
    name = each.get("file_name")
    if not isinstance(name, str) or not name or "\0" in name:
        raise _FaultError(f"the file_name {_shown(name)} of the image {number} must be a path")
    others: dict[str, object] = {"image_id": number, "objects/area": [], "objects/iscrowd": []}
    try:
        path = os.fsencode(name)
    except UnicodeEncodeError:
        raise _FaultError(f"the file_name {_shown(name)} of the image {number} is not Unicode") from None
    sides = [each.get(side) for side in ("width", "height")]
    if None in sides:
        return AnnotatedImage(path, others=others)
    width, height = (_integer(side, f"the width or height of the image {number}") for side in sides)
    return AnnotatedImage(path, others=others, size=(width, height))


def _add(
    images: dict[int, AnnotatedImage], numbers: dict[int, int], shown: str, each: dict[str, Any]
) -> None:
    """Add the box of an annotation to its image."""
    for field, known, what in (("image_id", images, "images"), ("category_id", numbers, "categories")):
        found = each.get(field)
        if field not in each:
            raise _FaultError(f"{shown} has no {field}")
        if not isinstance(found, (int, float)) or isinstance(found, bool) or found not in known:
            raise _FaultError(f"{shown} has the {field} {_shown(found)}, which is not among the {what}")
    box = each.get("bbox")
    if not isinstance(box, list) or len(box) != 4:
        raise _FaultError(f"{shown} has the bbox {_shown(box)} instead of 4 numbers")
    left, top, width, height = (_number(value, f"the bbox of {shown}") for value in box)
    if width < 0 or height < 0:
        raise _FaultError(f"the bbox of {shown} has a negative width or height: {_shown(box)}")
    area = each.get("area")
    crowd = each.get("iscrowd", 0)
    if not isinstance(crowd, (int, float)) or crowd not in (0, 1):
        raise _FaultError(f"the iscrowd of {shown} is {_shown(crowd)} instead of 0 or 1")
    image = images[each["image_id"]]
    image.boxes.append([left, top, width, height])
    image.categories.append(numbers[each["category_id"]])
    areas, crowds = image.others["objects/area"], image.others["objects/iscrowd"]
    assert isinstance(areas, list)
    assert isinstance(crowds, list)
    largest = min(width * height, _LARGEST)
    areas.append(largest if area is None else _number(area, f"the area of {shown}"))
    crowds.append(bool(crowd))


def _number(value: object, what: str) -> float:
    """Return a number that float32 can hold."""
    is_bool = isinstance(value, bool)
    # NaN is not in this range, nor is an integer that is too large for float()
    if isinstance(value, (int, float)) and not is_bool and -_LARGEST <= value <= _LARGEST:
        return float(value)
    raise _FaultError(f"{what} has {_shown(value)}, which is not a number that float32 can hold")


def _integer(value: object, what: str) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # before 3.12, integers have no is_integer
        is_whole = isinstance(value, int) or value.is_integer()
        if is_whole and 0 <= value < 1 << 63:
            return int(value)
    raise _FaultError(f"{what} is {_shown(value)}, which is not an integer from 0 to 2^63 - 1")


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
