"""Read the object annotations of COCO: ``instances_*.json`` and ``person_keypoints_*.json``."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.classes import SPLIT_FOLDERS
from tfshards.prep.sources.tables.annotations import (
    KEYPOINTS,
    POLYGONS,
    TEXTS,
    AnnotatedImage,
    annotation_table,
    is_class_name,
    read_annotation,
    relative,
)
from tfshards.prep.sources.tables.files import TableFile
from tfshards.schemas import InputError
from tfshards.schemas.errors import counted
from tfshards.schemas.json_reader import load_json

# instances_train2017.json, of which a folder has the first kind; or train/_annotations.coco.json
_NAME = re.compile(r"(?P<kind>instances|person_keypoints)_(?P<folder>(?P<split>.+?)(20\d\d)?)\.json")
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


def read_coco(
    path: Path, root: Path | None, segmentations: str | None = None, *, follow_links: bool
) -> tuple[TableFile, Path]:
    """Return the images and boxes of an annotation file, or of those in a folder as splits, and their folder.

    Boxes are ``[left, top, width, height]`` in pixels; classes are numbered in the order of their ids.

    Args:
        path: a file; or a folder with ``annotations/instances_*.json``, or ``person_keypoints_*.json``, or
            with ``*/_annotations.coco.json``. A file such as ``instances_val2017.json`` is a split, val; that
            of train may be divided.
        root: folder of the images; by default found next to the annotations.
        segmentations: "polygons", "text" or None, see ``ColumnRoles``.
        follow_links: follow links out of the folder.
    """
    files, folder, notes = [path], root, list[str]()
    # annotations/ is next to the folders of images
    is_next = path.parent.name == "annotations"
    above = path.parent.parent if is_next else path.parent
    if path.is_dir():
        named = {file: _NAME.fullmatch(file.name) for file in sorted(path.glob("annotations/*.json"))}
        kinds = [match["kind"] for match in named.values() if match]
        files = [file for file, match in named.items() if match and match["kind"] == kinds[0]]
        left = [file.name for file in named if files and file not in files]
        notes += (
            [f"not read in {path / 'annotations'}: {', '.join(left)}; each can be built by its name"]
            if left
            else []
        )
        files = files or sorted(path.glob(f"*/{_ROBOFLOW}"))
        if not files:
            raise InputError("coco-no-files", path=path, roboflow=_ROBOFLOW)
        folder, above = root or path, path
    in_source = Boundary(above, follow_links=follow_links)
    inside = in_source if root is None else Boundary(root, follow_links=follow_links)
    images, parts, names, keys = [], [], None, Counter[str]()
    file_of: dict[bytes, Path] = {}
    for file in files:
        if file != path:
            in_source.check(file)
        content = read_annotation(file)
        found, file_names = _read(file, content, segmentations, keys)
        if names not in (None, file_names):
            raise InputError("coco-categories-differ", file=file, files=files[0])
        names = file_names
        own = _folder_of(file, found, [folder] if folder else [file.parent, *([above] if is_next else [])])
        inside.check(own)
        folder = folder or own
        for image in found:
            name = _NAME.fullmatch(file.name)
            split = name["split"] if name else file.parent.name if path.is_dir() else ""
            is_known = os.fsencode(split.lower()) in SPLIT_FOLDERS and split != "train"
            image.split = split if path.is_dir() or (name and is_known) else ""
            image.path = relative(own / os.fsdecode(image.path), folder)
            # a folder of one split would serve the others if their images have the same names
            other = file_of.setdefault(image.path, file)
            if other != file:
                shown = os.fsdecode(image.path)
                raise InputError("coco-images-repeated", file=file, file_of=other, path=shown, folder=folder)
        images += found
        parts.append((os.fsencode(file.name), content))
    assert folder is not None
    others = _OTHERS if segmentations != "text" else {**_OTHERS, TEXTS: pa.large_list(pa.string())}
    formats = {KEYPOINTS: "xyv", **({POLYGONS: "xy"} if segmentations == "polygons" else {})}
    notes += _left_out(images, keys)
    return annotation_table(images, others, names or (), parts, notes, formats), folder


def _left_out(images: Sequence[AnnotatedImage], keys: Counter[str]) -> list[str]:
    """Return lines on what the annotations have and the table does not."""
    without = sum(not image.boxes for image in images)
    crowds = sum(sum(image.others["objects/iscrowd"]) for image in images)
    listed = ", ".join(f"{key} ({number:,})" for key, number in sorted(keys.items()))
    more = "; segmentations= keeps segmentation" if "annotations.segmentation" in keys else ""
    return [
        *([f"{counted(without, 'image')} without annotations, stored without boxes"] if without else []),
        *([f"{counted(crowds, 'crowd region')}, which objects/iscrowd marks"] if crowds else []),
        *([f"keys that are not stored: {listed}{more}"] if keys else []),
    ]


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
    raise InputError("coco-images-missing", file=file, path=os.fsdecode(images[0].path), where=above[0])


class _FaultError(Exception):
    """What is wrong in an annotation file: where, what was found, and what is allowed."""


class _Field(NamedTuple):
    """What a value in an annotation file must be."""

    allowed: str
    is_valid: Callable[[Any], bool]
    is_optional: bool = False


def _is_number(value: object) -> bool:
    # NaN is not in this range
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def _is_integer(value: Any) -> bool:  # noqa: ANN401 -- of JSON
    return _is_number(value) and 0 <= value < 1 << 63 and int(value) == value


def _is_box(value: Any) -> bool:  # noqa: ANN401
    is_box = isinstance(value, list) and len(value) == 4 and all(map(_is_number, value))
    return is_box and min(value[2:]) >= 0


def _are_points(value: Any, width: int = 3, fewest: int = 0) -> bool:  # noqa: ANN401
    is_list = isinstance(value, list) and len(value) % width == 0 and len(value) >= fewest
    return is_list and all(map(_is_number, value))


def _is_segmentation(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, list):
        return all(_are_points(each, 2, 6) for each in value)
    return isinstance(value, dict) and {"counts", "size"} <= set(value)


_ID = _Field("an integer from 0 to 2^63 - 1", _is_integer)
_CATEGORY = {"id": _ID, "name": _Field("text that is not empty", is_class_name)}
_IMAGE = {
    "id": _ID,
    "file_name": _Field("a path", lambda value: is_class_name(value) and "\0" not in value),
    "width": _ID._replace(is_optional=True),
    "height": _ID._replace(is_optional=True),
}
_ANNOTATION = {
    "image_id": _ID,
    "category_id": _ID,
    "bbox": _Field("4 numbers that float32 can hold, the last two at least 0", _is_box),
    "area": _Field("a number that float32 can hold", _is_number, is_optional=True),
    "iscrowd": _Field("0 or 1", lambda value: _is_number(value) and value in (0, 1), is_optional=True),
    "keypoints": _Field("a list of x, y and visibility of each", _are_points, is_optional=True),
    "segmentation": _Field(
        "a list of polygons, of x and y of 3 points or more, or RLE", _is_segmentation, is_optional=True
    ),
}
# Keys that are in the table, or decide what is in it.
_KNOWN = {"annotations": {*_ANNOTATION}, "images": {*_IMAGE}}


def _read(
    file: Path, content: bytes, segmentations: str | None, keys: Counter[str]
) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    """Return the images with their boxes, and the class names in the order of their ids.

    Keys of images and annotations that are left out are counted in ``keys``.
    """
    widths: set[int] = set()
    try:
        document = load_json(content)
        categories = _by_id(document, "categories", _CATEGORY)
        names = tuple(categories[number]["name"] for number in sorted(categories))
        if len(set(names)) < len(names):
            raise _FaultError(f"the names of categories must be different, not {_value_text(names)}")
        number_of = {number: index for index, number in enumerate(sorted(categories))}
        images = {number: _image(number, each) for number, each in _by_id(document, "images", _IMAGE).items()}
        for index, each in enumerate(_records(document, "annotations", _ANNOTATION)):
            for name, known in (("image_id", images), ("category_id", number_of)):
                if each[name] not in known:
                    raise _FaultError(
                        f"annotations[{index}].{name} is {_value_text(each[name])}, which does not exist"
                    )
            image = images[each["image_id"]]
            image.boxes.append(each["bbox"])
            image.categories.append(number_of[each["category_id"]])
            area, (_, _, width, height) = each.get("area"), each["bbox"]
            image.others["objects/area"].append(
                float(min(width * height, _LARGEST) if area is None else area)
            )
            image.others["objects/iscrowd"].append(bool(each.get("iscrowd")))
            image.keypoints.append(each.get("keypoints") or [])
            shape = each.get("segmentation")
            if segmentations == "polygons":
                image.polygons.append(shape if isinstance(shape, list) else [])
            elif segmentations == "text":
                image.others[TEXTS].append(json.dumps(shape, separators=(",", ":")))
            widths |= {len(image.keypoints[-1])} - {0}
            if len(widths) > 1:
                raise _FaultError(
                    f"annotations[{index}].keypoints are {max(widths)} numbers, and {min(widths)} elsewhere"
                )
        for kind, stored in _KNOWN.items():
            keys.update(f"{kind}.{key}" for each in document[kind] for key in each if key not in stored)
        if segmentations is None:
            keys["annotations.segmentation"] += sum(
                "segmentation" in each for each in document["annotations"]
            )
            keys += Counter()
    except _FaultError as fault:
        raise InputError("coco-invalid", file=file, fault=fault) from None
    except (ValueError, RecursionError) as error:
        raise InputError("coco-unreadable", file=file, error=error) from None
    if not images:
        raise InputError("coco-no-images", file=file)
    return list(images.values()), names


def _image(number: int, each: dict[str, Any]) -> AnnotatedImage:
    others = {"image_id": number, "objects/area": [], "objects/iscrowd": [], TEXTS: []}
    size = (each.get("width"), each.get("height"))
    return AnnotatedImage(
        os.fsencode(each["file_name"]), others=others, size=(None, None) if None in size else size
    )


def _records(document: object, name: str, fields: dict[str, _Field]) -> list[dict[str, Any]]:
    """Return a list of objects whose fields are valid."""
    found = document.get(name) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise _FaultError(f"{name} is {_value_text(found)}, but must be a list")
    for index, each in enumerate(found):
        for key, (allowed, is_valid, is_optional) in fields.items():
            value = each.get(key) if isinstance(each, dict) else None
            if not (is_valid(value) or (is_optional and value is None)):
                raise _FaultError(f"{name}[{index}].{key} is {_value_text(value)}, but must be {allowed}")
    return found


def _by_id(document: object, name: str, fields: dict[str, _Field]) -> dict[int, dict[str, Any]]:
    records: dict[int, dict[str, Any]] = {}
    for index, each in enumerate(_records(document, name, fields)):
        if records.setdefault(int(each["id"]), each) is not each:
            raise _FaultError(f"{name}[{index}].id is {each['id']}, which is repeated")
    return records


def _value_text(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
