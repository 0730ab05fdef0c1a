"""Read the objects of COCO: ``instances_*.json``, ``person_keypoints_*.json``, ``_annotations.coco.json``."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unicodedata import normalize

import numpy as np

from tfshards.prep.sources.annotations import (
    AnnotatedImage,
    AnnotatedImages,
    Annotations,
    is_text,
)
from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.row_columns import TableRows
from tfshards.prep.sources.splits import usual_split
from tfshards.prep.sources.text_files import read_file
from tfshards.schemas import InputError
from tfshards.schemas.errors import listed
from tfshards.schemas.json_reader import load_json, shown
from tfshards.schemas.storage import AnyPath

# Annotation files of a folder: those of the first form that it has are read.
_FORMS = ("annotations/instances_*.json", "annotations/person_keypoints_*.json", "*/_annotations.coco.json")
# The folder of images train2017, and the split train.
_NAME = re.compile(r"(?:instances|person_keypoints)_((.+?)(?:20\d\d)?)\.json")
_LARGEST = float(np.finfo(np.float32).max)
# An image, a category or an annotation in a file, by the names of its values.
_Entry: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class Coco(Annotations):
    """The images and objects in annotation files of COCO.

    Without ``root`` the images are searched for next to the annotations. ``objects/bbox`` is ``xywh`` in
    pixels; without ``boxes_in``, the size that the annotations state of an image shows whether boxes refer to
    the pixels in its file. Other features are ``image_id``, ``objects/area``, ``objects/iscrowd`` and, if any
    object has keypoints, ``objects/keypoints`` as ``xyv``. Other attributes are those of ``Annotations``.

    Attributes:
        source: annotation file such as instances_train2017.json; or a folder with
            annotations/instances_SPLIT.json, or if it has none annotations/person_keypoints_SPLIT.json, or
            SPLIT/_annotations.coco.json, each of which is a split.
    """

    kind = "coco"

    def rows(self, root: AnyPath | None, needed: Collection[str | None]) -> TableRows:
        """Return the rows of the annotation files.

        Raises:
            InputError: a file is not JSON or has no images, no image is found, or a path leaves the folder.
        """
        path = Path(self.source)
        splits = _splits(path)
        # a folder "annotations" is next to those of images
        above = path.parent.parent if path.parent.name == "annotations" else path.parent
        images = AnnotatedImages(Path(str(root or (path if path.is_dir() else above))))
        inside = Boundary(images.root, follow_links=self.follow_links)
        # what is not stored is not checked
        dropped = {name for name, role in self.roles.items() if role == "drop"}
        values = {n: value for n, value in _VALUES.items() if dropped.isdisjoint(("objects", f"objects/{n}"))}
        if self.segmentations:
            values["polygons"] = _POLYGONS
        class_names: dict[tuple[str, ...], Path] = {}
        unread = Counter[str]()
        for file, split in splits.items():
            if file != path:
                Boundary(path, follow_links=self.follow_links).check(file)
            document = _Document(file)
            # Windows writes paths with backslashes
            paths = {n: each["file_name"].replace("\\", "/") for n, each in document.images.items()}
            own = _image_folder(file, [*paths.values()], images.root)
            inside.check(own)
            by_id = {
                n: images.add(own / name, split, image_id=n, **_size(document.images[n]))
                for n, name in paths.items()
            }
            class_names.setdefault(_add_objects(document, by_id, values, unread), file)
        if len(class_names) > 1:
            first, other, *_ = class_names.values()
            raise InputError(f"{other}: its categories differ from those of {first} || build two datasets")
        roles = {name: value.role for name, value in (_VALUES | values).items()}
        if "keypoints" in values and not _complete_keypoints(images.by_path.values()):
            del roles["keypoints"]
        return images.table_rows(path, roles, next(iter(class_names)), _warnings(path, splits, unread))


def _splits(path: Path) -> dict[Path, str]:
    """Return the split of an annotation file, or of each in a folder.

    A single file has a split only if its name is that of a usual one, but not of train, which may be divided.
    """
    found = [sorted(path.glob(form)) for form in _FORMS] if path.is_dir() else [[path]]
    files = next(filter(None, found), [])
    if not files:
        raise InputError(f"{path} has none of {', '.join(_FORMS)} || name the file")
    splits = {file: usual_split(_names_in(file)[1]) or "" for file in files}
    if len(files) == 1:
        return {file: "" if split.startswith("train") else split for file, split in splits.items()}
    for file in files:
        if not splits[file]:
            raise InputError(
                f"{file} is not of a usual split, such as train or val, as others are || build each file by "
                "its name, and join them with 'tfshards merge'"
            )
    return splits


def _names_in(file: Path) -> tuple[str, str]:
    """Return the folder of images and the split that the path of an annotation file names, or empty."""
    above = file.absolute().parent.name
    match = _NAME.fullmatch(file.name)
    return (match[1], match[2]) if match else (above, above if file.match(_FORMS[-1]) else "")


def _image_folder(file: Path, paths: Sequence[str], base: Path) -> Path:
    """Return the first folder that has any of the images of an annotation file.

    For ``instances_train2017.json`` the folders are ``train2017``, ``train``, ``images/train2017``,
    ``images/train``, ``images`` and ``.``; for other files in ``train`` they are ``train``, ``images/train``,
    ``images`` and ``.``.
    """
    named = [*filter(None, _names_in(file))]
    tried = dict.fromkeys(
        base / each for each in (*named, *(f"images/{each}" for each in named), "images", ".")
    )
    # whether a letter and its accent are one character makes no difference
    forms = [normalize(form, path) for form in ("NFC", "NFD") for path in paths if not path.isascii()]
    for folder in filter(Path.is_dir, tried):
        if any(os.path.isfile(folder / path) for path in (*paths, *forms)):
            return folder
    raise InputError(
        f"{file}: none of its images, such as {paths[0]!r}, is found in {', '.join(map(str, tried))} || name "
        "the folder of images with root="
    )


class _Document:
    """The content of an annotation file.

    Attributes:
        file: its path.
        images: the images by id, each with a text ``file_name``.
        annotations: the annotations of all images.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self._content = load_json(read_file(file))
        except ValueError as error:
            raise InputError(f"{file} is not JSON: {error}") from None
        self.annotations = self._list("annotations")
        if self.annotations and all("caption" in each and "bbox" not in each for each in self.annotations):
            raise InputError(f"{file} has captions, not objects || write a table of file_name and caption")
        self.images = self.by_id("images", "file_name")
        if not self.images:
            raise InputError(f"{file} has no images || correct the file")

    def by_id(self, kind: str, key: str) -> dict[int, _Entry]:
        """Return the images or categories, which have a text ``key``, by their ids."""
        found: dict[int, _Entry] = {}
        for index, each in enumerate(self._list(kind)):
            where, number, text = f"{self.file}: {kind}[{index}]", each.get("id"), each.get(key)
            if type(number) is not int or not 0 <= number < 1 << 63 or number in found:
                raise InputError(f"{where}.id is {shown(number)}, must be another integer from 0 to 2^63 - 1")
            if not is_text(text):
                raise InputError(f"{where}.{key} is {shown(text)}, must be text that is not empty")
            found[number] = each
        return found

    def _list(self, kind: str) -> list[_Entry]:
        found = self._content.get(kind) if isinstance(self._content, dict) else None
        if not isinstance(found, list):
            raise InputError(
                f"{self.file}: {kind} is {shown(found)}, must be a list || name a file of COCO's objects"
            )
        return [each if isinstance(each, dict) else {} for each in found]


def _size(image: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the width and height of an image, or None if the file does not state them."""
    size = {name: image.get(name) for name in ("width", "height")}
    is_stated = all(type(side) is int and 0 < side < 1 << 31 for side in size.values())
    return size if is_stated else dict.fromkeys(size)


def _add_objects(
    document: _Document,
    images: Mapping[int, AnnotatedImage],
    values: Mapping[str, _Value],
    unread: Counter[str],
) -> tuple[str, ...]:
    """Add the annotations to their images, count what is not read, and return the names of categories."""
    categories = document.by_id("categories", "name") if "category" in values else {}
    labels = {number: label for label, number in enumerate(sorted(categories))}
    read = _READ | {value.key for value in values.values()}
    unread.update(f"annotations.{key}" for each in document.annotations for key in each if key not in read)
    num_lone = 0
    for index, each in enumerate(document.annotations if values else []):
        number: Any = each.get("image_id")
        if type(number) not in (int, float):
            raise InputError(
                f"{document.file}: annotations[{index}].image_id is {shown(number)} "
                f"({type(number).__name__}) || write the id of its image, an integer"
            )
        if number not in images:
            num_lone += 1
            continue
        found: dict[str, Any] = {}
        try:
            for name, value in values.items():
                found[name] = value.read(each, labels)
        except (KeyError, TypeError, ValueError):
            fault = f"{value.key} is {shown(each.get(value.key))}, must be {value.allowed}"
            images[number].reject(f"{document.file.name}: annotations[{index}].{fault}")
        else:
            images[number].objects.append(found)
            unread["objects without polygons"] += found.get("polygons") == []
    if 0 < num_lone == len(document.annotations):
        raise InputError(
            f"{document.file}: no annotation has its image: annotations[0].image_id is "
            f"{document.annotations[0]['image_id']}, but images have the ids "
            f"{listed([*map(str, images)], 3)} || correct the ids"
        )
    unread["annotations without their image"] += num_lone
    return tuple(categories[number]["name"] for number in labels)


class _Value(NamedTuple):
    """A value of an object: its key in an annotation, what is allowed there, and the role of its column."""

    key: str
    allowed: str
    role: str
    # from an annotation and the labels of categories; raises an error of Python's if it is not valid
    read: Callable[[_Entry, Mapping[int, int]], Any]


def _floats(values: object, count: int) -> list[float]:
    """Return so many numbers of a list, or raise ValueError."""
    if not isinstance(values, list) or len(values) != count:
        raise ValueError
    if not all(type(value) in (int, float) and abs(value) <= _LARGEST for value in values):
        raise ValueError
    return [*map(float, values)]


def _area(each: _Entry, _: object) -> float:
    if each.get("area") is not None:
        return _floats([each["area"]], 1)[0]
    _, _, width, height = _floats(each["bbox"], 4)
    return width * height


def _keypoints(each: _Entry, _: object) -> list[float]:
    points = each.get("keypoints") or []
    return _floats(points, len(points) // 3 * 3)


def _polygons(each: _Entry, _: object) -> list[list[float]]:
    shape = each.get("segmentation") or []
    # RLE has no polygons
    is_rle = isinstance(shape, dict) and {"counts", "size"} <= {*shape}
    return [] if is_rle else [_floats(polygon, max(6, len(polygon) // 2 * 2)) for polygon in shape]


_CROWD = {None: False, 0: False, 1: True}
_VALUES = {
    "bbox": _Value("bbox", "4 numbers", "xywh", lambda each, _: _floats(each["bbox"], 4)),
    "category": _Value(
        "category_id", "the id of a category", "label", lambda each, of: of[each["category_id"]]
    ),
    "area": _Value("area", "a number", "list", _area),
    "iscrowd": _Value("iscrowd", "0 or 1", "list", lambda each, _: _CROWD[each.get("iscrowd")]),
    "keypoints": _Value("keypoints", "x, y and visibility of each point", "xyv", _keypoints),
}
_POLYGONS = _Value("segmentation", "polygons of 3 points or more, or RLE", "xy", _polygons)
_READ = {"id", "image_id", *(value.key for value in _VALUES.values())}


def _complete_keypoints(images: Collection[AnnotatedImage]) -> bool:
    """Give all objects as many keypoints as most have, and return whether any object has some.

    Objects without keypoints get zeros: a visibility of 0 means that a point is not labeled. An image with
    another number of them is rejected.
    """
    counts = Counter(len(each["keypoints"]) for image in images for each in image.objects)
    del counts[0]
    most = max(counts, key=lambda count: (counts[count], count), default=0)
    for image in images:
        for each in image.objects:
            number = len(each["keypoints"])
            if number not in (0, most):
                image.reject(f"an object has {number // 3} keypoints, but most have {most // 3}")
            each["keypoints"] = each["keypoints"] if number == most else [0.0] * most
    return most > 0


def _warnings(path: Path, files: Collection[Path], unread: Counter[str]) -> Iterator[str]:
    """Yield warnings about files that are not read, and about what is not read of annotations."""
    others = sorted(file.name for file in {*path.glob("annotations/*.json")} - {*files})
    if others:
        yield f"not read in {path / 'annotations'}: {', '.join(others)}; each can be built by its name"
    counts = [f"{name} ({count:,})" for name, count in sorted(unread.items()) if count]
    if counts:
        remedy = "; segmentations=True keeps polygons" * ("annotations.segmentation" in unread)
        yield f"not stored: {', '.join(counts)}{remedy}"
