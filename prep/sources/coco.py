"""Read the objects of COCO: ``instances_*.json``, ``person_keypoints_*.json``, ``_annotations.coco.json``."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfshards.prep.sources.annotations import (
    FAULT,
    AnnotatedImage,
    Annotations,
    annotation_table,
    existing_path,
    is_text,
    read_annotation,
    with_slashes,
)
from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.splits import usual_split
from tfshards.prep.sources.table_rows import TableRows
from tfshards.schemas import InputError
from tfshards.schemas.json_reader import load_json, shown

# instances_train2017.json, of which a folder has the first kind; or train/_annotations.coco.json
_NAME = re.compile(r"(?P<kind>instances|person_keypoints)_(?P<folder>(?P<split>.+?)(20\d\d)?)\.json")
_ROBOFLOW = "_annotations.coco.json"
_SIZES = ("width", "height")
# Keys of images and annotations that are read, and those of values.
_READ = {"id", "file_name", "image_id", *_SIZES}
# Values of objects: their keys in the file, and what is allowed.
_VALUES = {
    "bbox": ("bbox", "4 numbers"),
    "category": ("category_id", "the id of a category"),
    "area": ("area", "a number"),
    "iscrowd": ("iscrowd", "0 or 1"),
    "keypoints": ("keypoints", "x, y and visibility of each point"),
    "polygons": ("segmentation", "polygons of 3 points or more, or RLE"),
}
_LARGEST = float(np.finfo(np.float32).max)

Json = dict[str, Any]


@dataclass(frozen=True)
class Coco(Annotations):
    """The images and objects in annotation files of COCO.

    ``path`` is a file; or a folder with ``annotations/instances_SPLIT.json``, or if it has none
    ``annotations/person_keypoints_SPLIT.json``, or ``SPLIT/_annotations.coco.json``, each of which is a
    split.
    Without ``root`` the images are searched for next to the annotations. ``objects/bbox`` is ``xywh`` in
    pixels; without ``boxes_in``, the size that the annotations state of an image shows whether boxes refer to
    the pixels in its file. Other features are ``image_id``, ``objects/area``, ``objects/iscrowd`` and, if any
    object has keypoints, ``objects/keypoints`` as ``xyv``. Other attributes are those of ``Annotations``.
    """

    kind = "coco"

    def read(self, path: Path, root: Path | None) -> TableRows:
        """Return the rows of the annotation files.

        Raises:
            InputError: a file is not JSON or has no images, no image is found, or a path leaves the folder.
        """
        warnings: list[str] = []
        splits = _splits(path, warnings)
        bases = [path if path.is_dir() else path.parent]
        if path in splits and path.parent.name == "annotations":
            # this folder is next to those of images
            bases.append(path.parent.parent)
        in_source = Boundary(bases[-1], follow_links=self.follow_links)
        inside = in_source if root is None else Boundary(root, follow_links=self.follow_links)
        dropped = {name for name, role in self.roles.items() if role == "drop"}
        stored = [name for name in _VALUES if dropped.isdisjoint(("objects", f"objects/{name}"))]
        stored = [name for name in stored if self.segmentations or name != "polygons"]
        # paths are relative to the folder of all splits, or to that of the images of the only file
        folder = root or (path if path.is_dir() else None)
        images: list[AnnotatedImage] = []
        split_of: dict[bytes, str] = {}
        class_names: dict[tuple[str, ...], Path] = {}
        left_out = Counter[str]()
        for file, split in splits.items():
            if file != path:
                in_source.check(file)
            found, categories = _read(file, stored, left_out)
            class_names.setdefault(categories, file)
            own = _image_folder(file, found, [root] if root else bases)
            inside.check(own)
            folder = folder or own
            for image in found:
                name = with_slashes(own, os.fsdecode(image.path))
                image.path, image.split = os.fsencode(os.path.relpath(own / name, folder)), split
                # a folder of one split would serve the others if their images have the same names
                if split_of.setdefault(image.path, split) != split:
                    raise InputError(
                        f"{file}: {name!r} in {own} is an image of another split, too || name the folder "
                        "that holds the images of all splits with root="
                    )
            images += found
        if len(class_names) > 1:
            first, other, *_ = class_names.values()
            raise InputError(f"{other}: its categories differ from those of {first} || build two datasets")
        names, formats = ["bbox", "category", "area", "iscrowd"], {"objects/bbox": "xywh"}
        if "keypoints" not in stored or _complete_keypoints(images):
            names, formats["objects/keypoints"] = [*names, "keypoints"], "xyv"
        if self.segmentations:
            formats["polygons/points"] = "xy"
            objects = [each for image in images for each in image.objects]
            left_out["objects without polygons"] = sum(not each["polygons"] for each in objects)
        table, roles = annotation_table(images, names, formats)
        return TableRows(
            table,
            roles,
            os.path.realpath(os.fsencode(str(folder))),
            str(path),
            {"objects/category": next(iter(class_names))} if "category" in stored else {},
            sizes=_SIZES,
            faults=FAULT,
            warnings=(*warnings, *_not_stored(left_out)),
        )


def _splits(path: Path, warnings: list[str]) -> dict[Path, str]:
    """Return the split of an annotation file, or of each in a folder, and add a warning about others.

    A single file has a split only if its name is that of a usual one, but not of train, which may be divided.
    """
    files = [path]
    if path.is_dir():
        named = {file: _NAME.fullmatch(file.name) for file in sorted(path.glob("annotations/*.json"))}
        kinds = [match["kind"] for match in named.values() if match]
        files = [file for file, match in named.items() if match and match["kind"] == kinds[0]]
        left = [file.name for file in named if files and file not in files]
        if left:
            warnings.append(
                f"not read in {path / 'annotations'}: {', '.join(left)}; each can be built by its name"
            )
        files = files or sorted(path.glob(f"*/{_ROBOFLOW}"))
        if not files:
            raise InputError(
                f"{path} has neither annotations/instances_*.json nor */{_ROBOFLOW} || name the file"
            )
    splits = {}
    for file in files:
        match = _NAME.fullmatch(file.name)
        name = match["split"] if match else file.parent.name if file.name == _ROBOFLOW else ""
        splits[file] = usual_split(name) or ""
        if len(files) > 1 and not splits[file]:
            raise InputError(
                f"{file} is not of a usual split, such as train or val, as others are || build each file by "
                "its name, and join them with 'tfshards merge'"
            )
    if len(files) == 1 and splits[files[0]].startswith("train"):
        splits[files[0]] = ""
    return splits


def _image_folder(file: Path, images: Sequence[AnnotatedImage], bases: Sequence[Path]) -> Path:
    """Return the first folder that has any of the images of an annotation file.

    For ``instances_train2017.json`` the folders are ``train2017``, ``train``, ``images/train2017``,
    ``images/train``, ``images`` and ``.``; for other files in ``train`` they are ``train``, ``images/train``,
    ``images`` and ``.``. They are relative to ``root``; without it to the folder of the source, and for a
    file in ``annotations`` also to the folder above.
    """
    match = _NAME.fullmatch(file.name)
    places = [match["folder"], match["split"]] if match else [file.absolute().parent.name]
    places += [f"images/{place}" for place in places] + ["images", "."]
    tried = [*dict.fromkeys(base / place for place in places for base in bases)]
    names = [os.fsdecode(image.path) for image in images]
    for folder in filter(Path.is_dir, tried):
        if any(existing_path(folder, name) for name in names):
            return folder
    raise InputError(
        f"{file}: none of its images, such as {names[0]!r}, is found in {', '.join(map(str, tried))} || name "
        "the folder of images with root="
    )


def _read(
    file: Path, stored: Collection[str], left_out: Counter[str]
) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    """Return the images of a file, and the names of its categories in the order of their ids.

    Args:
        file: an annotation file.
        stored: names of the values of objects that are stored.
        left_out: counts what is not stored.
    """
    try:
        document = load_json(read_annotation(file))
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from None
    annotations = [each if isinstance(each, dict) else {} for each in _list(file, document, "annotations")]
    if annotations and all("caption" in each and "bbox" not in each for each in annotations):
        raise InputError(f"{file} has captions, not objects || write a table of file_name and caption")
    categories = _by_id(file, document, "categories", "name") if "category" in stored else {}
    labels = {number: label for label, number in enumerate(sorted(categories))}
    names = tuple(str(categories[number]["name"]) for number in labels)
    if len({*names}) < len(names):
        raise InputError(f"{file}: the names of categories must be different, not {shown([*names])}")
    entries = _by_id(file, document, "images", "file_name")
    if not entries:
        raise InputError(f"{file} has no images || correct the file")
    images = {number: _image(number, each) for number, each in entries.items()}
    read = {key for name, (key, _) in _VALUES.items() if name in stored or name != "polygons"} | _READ
    for kind, some in (("images", entries.values()), ("annotations", annotations)):
        left_out.update(f"{kind}.{key}" for each in some for key in each if key not in read)
    for index, each in enumerate(annotations):
        number: Any = each.get("image_id")
        if type(number) not in (int, float) or number not in images:
            left_out["annotations without their image"] += 1
            continue
        values: dict[str, Any] = {}
        try:
            for name in stored:
                values[name] = _value(name, each, labels)
        except (KeyError, TypeError, ValueError):
            key, allowed = _VALUES[name]
            fault = f"{key} is {shown(each.get(key))}, must be {allowed}"
            images[number].reject(f"{file.name}: annotations[{index}].{fault}")
        else:
            images[number].objects.append(values)
    return [*images.values()], names


def _image(number: int, each: Json) -> AnnotatedImage:
    """Return an image, and its size if the file states it."""
    size = {name: each.get(name) for name in _SIZES}
    if not all(type(side) is int and 0 < side < 1 << 31 for side in size.values()):
        size = dict.fromkeys(_SIZES)
    return AnnotatedImage(os.fsencode(each["file_name"]), values={"image_id": number, **size})


def _list(file: Path, document: Any, kind: str) -> list[Any]:  # noqa: ANN401 -- of JSON
    found = document.get(kind) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise InputError(f"{file}: {kind} is {shown(found)}, must be a list || name a file of COCO's objects")
    return found


def _by_id(file: Path, document: Any, kind: str, key: str) -> dict[int, Json]:  # noqa: ANN401
    """Return the images or categories of a file, which have a text ``key``, by their ids."""
    found: dict[int, Json] = {}
    for index, each in enumerate(_list(file, document, kind)):
        where, values = f"{file}: {kind}[{index}]", each if isinstance(each, dict) else {}
        number: Any = values.get("id")
        text = values.get(key)
        if type(number) not in (int, float) or not 0 <= number < 1 << 63 or number != int(number):
            raise InputError(f"{where}.id is {shown(number)}, must be an integer from 0 to 2^63 - 1")
        if number in found:
            raise InputError(f"{where}.id is {number}, which is repeated")
        if not is_text(text):
            raise InputError(f"{where}.{key} is {shown(text)}, must be text that is not empty")
        found[int(number)] = values
    return found


def _value(name: str, each: Json, labels: Mapping[int, int]) -> Any:  # noqa: ANN401
    """Return a value of an annotation as it is stored, or raise an error of Python's if it is not valid."""
    match name:
        case "bbox":
            return _floats(each["bbox"], 4)
        case "category":
            return labels[each["category_id"]]
        case "area" if each.get("area") is None:
            _, _, width, height = _floats(each["bbox"], 4)
            return width * height
        case "area":
            return _floats([each["area"]], 1)[0]
        case "iscrowd":
            return {None: False, 0: False, 1: True}[each.get("iscrowd")]
        case "keypoints":
            points = each.get("keypoints") or []
            return _floats(points, len(points) // 3 * 3)
    shape = each.get("segmentation") or []
    if isinstance(shape, dict) and {"counts", "size"} <= {*shape}:
        # RLE
        return []
    return [_floats(polygon, max(6, len(polygon) // 2 * 2)) for polygon in shape]


def _floats(values: object, count: int) -> list[float]:
    """Return so many numbers of a list, or raise ValueError."""
    if not isinstance(values, list) or len(values) != count:
        raise ValueError
    if not all(type(value) in (int, float) and abs(value) <= _LARGEST for value in values):
        raise ValueError
    return [*map(float, values)]


def _complete_keypoints(images: Sequence[AnnotatedImage]) -> int:
    """Give all objects as many keypoints as most have, and return the number of their numbers.

    Those without keypoints get zeros: a visibility of 0 means that a point is not labeled.
    """
    counts = Counter(len(each.get("keypoints", ())) for image in images for each in image.objects)
    del counts[0]
    most = max(counts, key=counts.__getitem__, default=0)
    for image in images:
        for each in image.objects:
            found = len(each.get("keypoints", ()))
            if found not in (0, most):
                image.reject(f"an object has {found // 3} keypoints, but most objects have {most // 3}")
            each["keypoints"] = each["keypoints"] if found == most else [0.0] * most
    return most


def _not_stored(left_out: Counter[str]) -> list[str]:
    listed = ", ".join(f"{name} ({count:,})" for name, count in sorted(left_out.items()) if count)
    more = "; segmentations=True keeps polygons" if "annotations.segmentation" in left_out else ""
    return [f"not stored: {listed}{more}"] if listed else []
