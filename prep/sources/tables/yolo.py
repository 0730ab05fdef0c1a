"""Read the annotations of YOLO: a text file for each image, and perhaps the ``data.yaml`` of Ultralytics."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.classes import MAX_CLASSES, SPLIT_FOLDERS, read_class_names, repeated
from tfshards.prep.sources.remote_tree import tree_of
from tfshards.prep.sources.tables.annotations import (
    KEYPOINTS,
    POLYGONS,
    AnnotatedImage,
    annotation_table,
    is_class_name,
    read_annotation,
    relative,
)
from tfshards.prep.sources.tables.files import TableFile
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.declared import NORMALIZED
from tfshards.schemas.errors import counted
from tfshards.schemas.storage.untrusted import OPTIONS

_YAML = (".yaml", ".yml")
_SPLITS = ("train", "val", "test")
# files with one class name per line
_CLASS_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "images/classes.txt")
# numbers may exceed 0 and 1 by rounding
_SLACK = 0.01
# Longest class name, and other value.
_LONGEST = 10_000


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A loader of plain values.

    A few lines of aliases may stand for more values than fit into memory, and numbers of many digits take the
    square of their length.
    """

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        """Compose the next value."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(None, None, f"it has the alias *{event.anchor}; write the value out")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > _LONGEST:
            raise yaml.MarkedYAMLError(None, None, f"a value has more than {_LONGEST:,} characters")
        return super().compose_node(parent, index)


class _Layout(NamedTuple):
    """What the lines of the text files hold, after the class and, unless it is a polygon, the box.

    Attributes:
        points: number of keypoints, and of numbers of each, from ``kpt_shape``; 0 without keypoints.
        has_polygons: whether a line may be a polygon, of which the box is the enclosing one.
        num_classes: number of class names; 0 if there are none.
    """

    points: tuple[int, int]
    has_polygons: bool
    num_classes: int


def read_yolo(
    path: Path, root: Path | None, segmentations: str | None = None, *, follow_links: bool
) -> tuple[TableFile, Path]:
    """Return the images and boxes of a folder, or of those that a ``data.yaml`` names, and the folder.

    Boxes are ``[center x, center y, width, height]`` as fractions of the image. The boxes of ``x.jpg`` are in
    ``x.txt``, next to it or in ``labels/`` instead of ``images/``; an image without this file has no boxes.

    Args:
        path: a folder, or a ``data.yaml`` of Ultralytics; that of the folder is used if there is one.
        root: folder to which the paths in ``data.yaml`` are relative, if it is neither its ``path`` nor its
            own folder.
        segmentations: "polygons" if lines may be polygons, see ``ColumnRoles``.
        follow_links: follow links to folders and out of the folder.
    """
    if not path.exists():
        raise InputError("path-missing", path=path)
    in_source = Boundary(path if path.is_dir() else path.parent, follow_links=follow_links)
    inside = in_source if root is None else Boundary(root, follow_links=follow_links)
    config = path if path.suffix.lower() in _YAML else path / "data.yaml"
    parts: list[tuple[bytes, bytes]] = []
    warnings: list[str] = []
    points = (0, 0)
    if config.is_file():
        if config != path:
            in_source.check(config)
        content = read_annotation(config, OPTIONS)
        folder, splits, names, points, warnings = _described(config, content, root, inside)
        parts.append((os.fsencode(config.name), content))
    elif root is not None:
        raise OptionsError("yolo-root-useless", path=path)
    elif path.is_dir():
        folder, names = path, _names_in(path, inside)
        splits = {split: [where] for split, where in _split_folders(path).items()}
    else:
        raise InputError("yolo-path", path=path)
    if points[0] and segmentations:
        raise InputError("yolo-pose-polygons", config=config)
    layout = _Layout(points, segmentations == "polygons", len(names))
    images: list[AnnotatedImage] = []
    alone: list[str] = []
    read: set[Path] = set()
    for split, places in splits.items():
        for where in places:
            files = (
                _from_list(where, inside) if where.is_file() else _images(where, follow_links=follow_links)
            )
            for file in files:
                image = AnnotatedImage(relative(file, folder), split)
                images.append(image)
                text = _text_of(image.path, folder)
                if text is None:
                    alone.append(file)
                    continue
                inside.check(text)
                content = read_annotation(text)
                _add(image, text, content, layout)
                parts.append((relative(text, folder), content))
                read.add(text)
    if not images:
        raise InputError("yolo-no-images", path=path)
    if not read:
        raise InputError("yolo-no-boxes", path=path, alone=alone[0])
    if alone:
        number = counted(len(alone), "image")
        warnings.append(f"{number} without a text file, and so without boxes, such as {alone[0]!r}")
    warnings += _without_images(read)
    order = "xyv" if points[1] == 3 else "xy"
    formats = {KEYPOINTS: order + NORMALIZED} if points[0] else {}
    formats |= {POLYGONS: f"xy{NORMALIZED}"} if layout.has_polygons else {}
    return annotation_table(images, {}, names, parts, warnings, formats), folder


def _described(
    config: Path, content: bytes, root: Path | None, inside: Boundary
) -> tuple[Path, dict[str, list[Path]], tuple[str, ...], tuple[int, int], list[str]]:
    """Return the root, the folders or lists of images by split, the names, keypoints, and warnings."""
    try:
        described = yaml.load(content, _Loader)
    except RecursionError:
        raise InputError("yolo-not-yaml", config=config, splitlines="it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError("yolo-not-yaml", config=config, splitlines=reason) from None
    if not isinstance(described, dict):
        raise InputError("yolo-not-config", config=config)
    stated = str(described.get("path") or ".")
    base = root or config.parent / stated
    base = base if base.is_dir() else config.parent
    inside.check(base, stated)
    given = {split: described.get(split) or [] for split in _SPLITS}
    splits: dict[str, list[Path]] = {}
    for split, names in given.items():
        for each in map(str, names if isinstance(names, list) else [names]):
            found = _place(base, each, inside)
            if found is None:
                lines = content.decode("utf-8", "replace").splitlines()
                line = next((number for number, text in enumerate(lines, 1) if text.startswith(split)), 1)
                raise InputError(
                    "yolo-folder-missing", config=config, line=line, split=split, missing=each, base=base
                )
            splits.setdefault(split, []).append(found)
    warnings = [
        f"{config} names the folder {each!r} as {key!r}, which is not train, val or test: it is left out"
        for key, each in described.items()
        if isinstance(each, str)
        and key not in (*_SPLITS, "path")
        and inside.holds(base / each)
        and (base / each).is_dir()
    ]
    points = described.get("kpt_shape") or (0, 0)
    if (
        not isinstance(points, (list, tuple))
        or [*map(type, points)] != [int, int]
        or points[1] not in (0, 2, 3)
    ):
        raise InputError("yolo-kpt-shape", config=config, found=points)
    return base, splits, _names(config, described.get("names", ())), (points[0], points[1]), warnings


def _names(config: Path, names: object) -> tuple[str, ...]:
    """Return the class names in a ``data.yaml``, which are a list or a name for each number."""
    if isinstance(names, dict):
        # without gaps: a number that is missing has a name that is none
        names = [names.get(number) for number in range(len(names))]
    if not isinstance(names, (list, tuple)):
        raise InputError("yolo-names", config=config, found=names)
    # YAML reads 7 as a number, and no and on as truth values
    texts = [str(name) if type(name) in (int, float) else name for name in names]
    wrong = [name for name in texts if not is_class_name(name)] or repeated(texts)
    if wrong:
        raise InputError("yolo-names", config=config, found=wrong[0])
    return tuple(map(str, texts))


def _place(base: Path, given: str, inside: Boundary) -> Path | None:
    """Return the folder, or the list, that a ``data.yaml`` names; None if there is none."""
    # Roboflow writes ../train/images where it means train/images
    places = [place for place in (base / given, base / given.removeprefix("../")) if place.exists()]
    allowed = [place for place in places if inside.holds(place)]
    if places and not allowed:
        inside.check(places[0], given)
    return allowed[0] if allowed else None


def _split_folders(path: Path) -> dict[str, Path]:
    """Return the folders of images by split, or the folder of all images as the split without a name."""
    images = path / "images" if (path / "images").is_dir() else path
    folders = sorted(
        folder for folder in images.iterdir() if folder.is_dir() and folder.name not in ("images", "labels")
    )
    if folders and all(os.fsencode(folder.name.lower()) in SPLIT_FOLDERS for folder in folders):
        return {folder.name: folder for folder in folders}
    return {"": images}


def _names_in(folder: Path, inside: Boundary) -> tuple[str, ...]:
    for found in (folder / name for name in _CLASS_FILES):
        if found.is_file():
            inside.check(found)
            return read_class_names(found)
    return ()


def _images(folder: Path, *, follow_links: bool) -> Iterator[str]:
    for file in sorted(tree_of(folder, follow_links=follow_links).images(Counter())):
        yield os.path.join(folder, os.fsdecode(file.key))


def _from_list(path: Path, inside: Boundary) -> Iterator[str]:
    """Yield the images that a text file lists, one per line, relative to the folder of the file."""
    for line in read_annotation(path).decode("utf-8", "surrogateescape").splitlines():
        if line.strip():
            file = os.path.join(path.parent, os.path.normpath(line.strip()))
            inside.check(file, line.strip())
            yield file


def _text_of(image: bytes, folder: Path) -> Path | None:
    """Return the text file of an image: in ``labels/`` instead of the last ``images/``, or next to it.

    Folders above ``folder``, to which the path of the image is relative, are not replaced.
    """
    stem = "/" + os.path.splitext(os.fsdecode(image))[0] + ".txt"
    head, found, tail = stem.rpartition("/images/")
    candidates = [f"{head}/labels/{tail}"] if found else []
    paths = [folder / each[1:] for each in (*candidates, stem)]
    return next((path for path in paths if path.is_file()), None)


def _without_images(read: Collection[Path]) -> list[str]:
    """Return a warning if folders of text files that were read hold others."""
    known = {Path(name).name for name in _CLASS_FILES}
    found = sorted(
        file
        for folder in {text.parent for text in read}
        for file in folder.glob("*.txt")
        if file not in read and file.name not in known
    )
    if not found:
        return []
    return [f"{counted(len(found), 'text file')} without an image in the dataset, such as {str(found[0])!r}"]


def _add(image: AnnotatedImage, path: Path, content: bytes, layout: _Layout) -> None:
    """Add the boxes, keypoints and polygons in a text file to its image."""
    count, width = layout.points
    expected = 5 + count * width
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        is_polygon = layout.has_polygons and len(words) >= 7 and len(words) % 2 == 1
        if len(words) != expected and not is_polygon:
            raise InputError(
                "yolo-box-values", path=path, number=number, num_words=len(words), count=expected
            )
        try:
            category, *numbers = (float(word) for word in words)
        except ValueError:
            category, numbers = math.nan, []
        most = (layout.num_classes or MAX_CLASSES) - 1
        if not category.is_integer() or not 0 <= category <= most:
            raise InputError("yolo-class", path=path, number=number, words=words[0], most=most)
        shares = [value for at, value in enumerate(numbers) if at < 4 or width != 3 or (at - 4) % 3 < 2]
        if not all(-_SLACK <= value <= 1 + _SLACK for value in shares) or (
            not is_polygon and min(numbers[2:4]) < 0
        ):
            raise InputError("yolo-box-range", path=path, number=number)
        image.boxes.append(_enclosing(numbers) if is_polygon else numbers[:4])
        image.keypoints.append(numbers[4:] if count else [])
        image.polygons.append([numbers] if is_polygon else [])
        image.categories.append(int(category))


def _enclosing(polygon: list[float]) -> list[float]:
    """Return center, width and height of the box around the points of a polygon."""
    (left, right), (top, bottom) = ((min(each), max(each)) for each in (polygon[::2], polygon[1::2]))
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
