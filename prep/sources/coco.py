"""Read the objects of COCO: ``instances_*.json``, ``person_keypoints_*.json``, ``_annotations.coco.json``."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import normalize

import numpy as np

from tfshards.prep.imaging.options import MAX_BYTES
from tfshards.prep.imaging.stored import stored_header
from tfshards.prep.sources.annotations import Annotations, ImageRows, Values, is_text
from tfshards.prep.sources.classes import usual_split
from tfshards.prep.sources.fetching import Boundary, read_file
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.row_columns import TableRows
from tfshards.schemas import InputError
from tfshards.schemas.errors import listed
from tfshards.schemas.json_reader import load_json, shown
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.local import read_most

# Annotation files of a folder: those of the first form that it has are read.
_FORMS = ("annotations/instances_*.json", "annotations/person_keypoints_*.json", "*/_annotations.coco.json")
# The folder of images train2017, and the split train.
_NAME = re.compile(r"(?:instances|person_keypoints)_((.+?)(?:20\d\d)?)\.json")
# Images whose sizes are compared with those that their annotation file states.
_NUM_COMPARED = 100
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Coco(Annotations):
    """The images and objects in annotation files of COCO.

    Without ``root`` the images are searched for next to the annotations. ``objects/bbox`` is ``xywh`` in
    pixels. Other features are ``image_id``, ``objects/area``, ``objects/iscrowd`` and, if any object has
    keypoints, ``objects/keypoints`` as ``xyv``. Other attributes are those of ``Annotations``.

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
        rows = ImageRows(Path(str(root or (path if path.is_dir() else above))))
        # what is not stored is not checked
        dropped = {name for name, role in self.roles.items() if role == "drop"}
        names = [name for name in _ROLES if dropped.isdisjoint(("objects", f"objects/{name}"))]
        names += ["polygons"] * self.segmentations
        class_names: dict[tuple[str, ...], Path] = {}
        sizes: dict[bytes, tuple[object, object]] = {}
        unread = Counter[str]()
        for file, split in splits.items():
            if file != path:
                Boundary(path, follow_links=self.follow_links).check(file)
            document = _document(file)
            images = _by_id(file, document, "images", "file_name")
            if not images:
                raise InputError(f"{file} has no images; correct the file")
            # Windows writes paths with backslashes
            paths = {n: each["file_name"].replace("\\", "/") for n, each in images.items()}
            folder = _image_folder(file, [*paths.values()], rows.root)
            by_id = {n: rows.add(folder / name, split, image_id=n) for n, name in paths.items()}
            stated = {n: (each.get("width"), each.get("height")) for n, each in images.items()}
            sizes |= {by_id[n]["file_name"]: size for n, size in stated.items() if None not in size}
            categories = _by_id(file, document, "categories", "name") if "category" in names else {}
            labels = {number: label for label, number in enumerate(sorted(categories))}
            _add_objects(file, _entries(file, document, "annotations"), by_id, labels, names, unread)
            class_names.setdefault(tuple(categories[number]["name"] for number in labels), file)
        if len(class_names) > 1:
            first, other, *_ = class_names.values()
            raise InputError(f"{other}: its categories differ from those of {first}; build two datasets")
        roles = {**_ROLES, **({"polygons": "xy"} if self.segmentations else {})}
        if "keypoints" in names and not _complete_keypoints(rows.by_path.values()):
            del roles["keypoints"]
        inside = Boundary(rows.root, follow_links=self.follow_links)
        warnings = [*_warnings(path, splits, unread), *_other_sizes(rows.root, sizes, inside)]
        return rows.table_rows(path, roles, next(iter(class_names)), warnings)


def _splits(path: Path) -> dict[Path, str]:
    """Return the split of an annotation file, or of each in a folder.

    A single file has a split only if its name is that of a usual one, but not of train, which may be divided.
    """
    found = [sorted(path.glob(form)) for form in _FORMS] if path.is_dir() else [[path]]
    files = next(filter(None, found), [])
    if not files:
        raise InputError(f"{path} has none of {', '.join(_FORMS)}; name the file")
    splits = {file: usual_split(_names_in(file)[1]) or "" for file in files}
    if len(files) == 1:
        return {file: "" if split.startswith("train") else split for file, split in splits.items()}
    for file in files:
        if not splits[file]:
            raise InputError(
                f"{file} is not of a usual split, such as train or val, as others are; build each file by "
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
        f"{file}: none of its images, such as {paths[0]!r}, is found in {', '.join(map(str, tried))}; name "
        "the folder of images with root="
    )


def _document(file: Path) -> Values:
    """Return the content of an annotation file."""
    try:
        content = load_json(read_file(file))
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from None
    return content if isinstance(content, dict) else {}


def _entries(file: Path, document: Mapping[str, Any], kind: str) -> list[Values]:
    """Return a list of objects of JSON; in place of another value there is an empty object."""
    found = document.get(kind)
    if not isinstance(found, list):
        raise InputError(f"{file}: {kind} is {shown(found)}, must be a list; name a file of COCO's objects")
    return [each if isinstance(each, dict) else {} for each in found]


def _by_id(file: Path, document: Mapping[str, Any], kind: str, key: str) -> dict[int, Values]:
    """Return the images or categories, which have a text ``key``, by their ids."""
    found: dict[int, Values] = {}
    for index, each in enumerate(_entries(file, document, kind)):
        where, number, text = f"{file}: {kind}[{index}]", each.get("id"), each.get(key)
        if type(number) is not int or not 0 <= number < 1 << 63 or number in found:
            raise InputError(f"{where}.id is {shown(number)}, must be another integer from 0 to 2^63 - 1")
        if not is_text(text):
            raise InputError(f"{where}.{key} is {shown(text)}, must be text that is not empty")
        found[number] = each
    return found


def _add_objects(
    file: Path,
    annotations: Sequence[Values],
    rows: Mapping[int, Values],
    labels: Mapping[int, int],
    names: Collection[str],
    unread: Counter[str],
) -> None:
    """Add these values of the annotations to the rows of their images, by id; count what is not read."""
    num_lone = 0
    for index, each in enumerate(annotations if names else []):
        number: Any = each.get("image_id")
        if type(number) not in (int, float):
            raise InputError(
                f"{file}: annotations[{index}].image_id is {shown(number)} ({type(number).__name__}); write "
                "the id of its image, an integer"
            )
        if number not in rows:
            num_lone += 1
            continue
        found: Values = {}
        try:
            for name in names:
                key, allowed, read = _VALUES[name]
                found[name] = read(each, labels)
        except (KeyError, TypeError, ValueError):
            fault = f"{key} is {shown(each.get(key))}, must be {allowed}"
            rows[number].setdefault("fault", f"{file.name}: annotations[{index}].{fault}")
        else:
            rows[number]["objects"].append(found)
            unread["objects without polygons"] += found.get("polygons") == []
        unread["annotations.segmentation"] += "segmentation" in each and "polygons" not in names
    if 0 < num_lone == len(annotations):
        raise InputError(
            f"{file}: no annotation has its image: annotations[0].image_id is {annotations[0]['image_id']}, "
            f"but images have the ids {listed([*map(str, rows)], 3)}; correct the ids"
        )
    unread["annotations without their image"] += num_lone


def _floats(values: object, count: int) -> list[float]:
    """Return so many numbers of a list, or raise ValueError."""
    if not isinstance(values, list) or len(values) != count:
        raise ValueError
    if not all(type(value) in (int, float) and abs(value) <= _LARGEST for value in values):
        raise ValueError
    return [*map(float, values)]


def _area(each: Values, _: object) -> float:
    if each.get("area") is not None:
        return _floats([each["area"]], 1)[0]
    _, _, width, height = _floats(each["bbox"], 4)
    return width * height


def _keypoints(each: Values, _: object) -> list[float]:
    points = each.get("keypoints") or []
    return _floats(points, len(points) // 3 * 3)


def _polygons(each: Values, _: object) -> list[list[float]]:
    shape = each.get("segmentation") or []
    # RLE has no polygons
    is_rle = isinstance(shape, dict) and {"counts", "size"} <= {*shape}
    return [] if is_rle else [_floats(polygon, max(6, len(polygon) // 2 * 2)) for polygon in shape]


_CROWD = {None: False, 0: False, 1: True}
# Returns a value of an annotation; the second argument is the label of each category.
_Read: TypeAlias = Callable[[Values, Mapping[int, int]], Any]
# Of each value of an object: its key in an annotation, what is allowed there, and how it is read.
_VALUES: Mapping[str, tuple[str, str, _Read]] = {
    "bbox": ("bbox", "4 numbers", lambda each, _: _floats(each["bbox"], 4)),
    "category": ("category_id", "the id of a category", lambda each, labels: labels[each["category_id"]]),
    "area": ("area", "a number", _area),
    "iscrowd": ("iscrowd", "0 or 1", lambda each, _: _CROWD[each.get("iscrowd")]),
    "keypoints": ("keypoints", "x, y and visibility of each point", _keypoints),
    "polygons": ("segmentation", "polygons of 3 points or more, or RLE", _polygons),
}
_ROLES = {"bbox": "xywh", "category": "label", "area": "list", "iscrowd": "list", "keypoints": "xyv"}


def _complete_keypoints(rows: Collection[Values]) -> bool:
    """Give all objects as many keypoints as some have, and return whether any object has some.

    Objects without keypoints get zeros: a visibility of 0 means that a point is not labeled. An image with
    another number of them is rejected.
    """
    counts = {len(each["keypoints"]) for row in rows for each in row["objects"]}
    most = max(counts, default=0)
    for row in rows:
        for each in row["objects"]:
            if (count := len(each["keypoints"])) != most:
                each["keypoints"] = [0.0] * most
                if count:
                    fault = f"an object has {count // 3} keypoints, but another has {most // 3}"
                    row.setdefault("fault", fault)
    return most > 0


def _warnings(path: Path, files: Collection[Path], unread: Counter[str]) -> Iterator[str]:
    """Yield warnings about files that are not read, and about what is not read of annotations."""
    others = sorted(file.name for file in {*path.glob("annotations/*.json")} - {*files})
    if others:
        yield f"not read in {path / 'annotations'}: {', '.join(others)}; each can be built by its name"
    counts = [f"{name} ({count:,})" for name, count in sorted((+unread).items())]
    if counts:
        remedy = "; segmentations=True keeps polygons" * (unread["annotations.segmentation"] > 0)
        yield f"not stored: {', '.join(counts)}{remedy}"


def _other_sizes(root: Path, sizes: Mapping[bytes, tuple[object, object]], inside: Boundary) -> Iterator[str]:
    """Yield a warning if some of the images have other sizes than the annotation files state by path."""
    compared = [*sizes][:: len(sizes) // _NUM_COMPARED + 1]
    wrong = []
    for name in compared:
        path = os.path.join(os.fsencode(root), name)
        inside.check(path, to_text(name))
        with suppress(OSError):
            header = stored_header(read_most(path, MAX_BYTES)[1] or b"")
            # an EXIF tag may turn an image
            if header and sizes[name] not in (header.size, header.size[::-1]):
                wrong.append(f"{to_text(name)!r}: {header.size}, not {sizes[name]}")
    if wrong:
        yield (
            f"{len(wrong)} of {len(compared)} images that were compared have another width and height than "
            f"their annotations state, such as {wrong[0]}; their boxes may not fit"
        )
