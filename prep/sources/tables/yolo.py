"""Read the annotations of YOLO: a text file for each image, and perhaps the ``data.yaml`` of Ultralytics."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml

from tfshards.prep.sources.tables.annotations import (
    AnnotatedImage,
    Annotations,
    annotation_table,
    read_annotation,
    relative,
)
from tfshards.prep.sources.tree import images_in
from tfshards.prep.sources.usual_splits import SPLIT_FOLDERS
from tfshards.schemas import InputError

_YAML = (".yaml", ".yml")
_SPLITS = ("train", "val", "test")
# files with one class name per line
_CLASS_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "images/classes.txt")
# numbers may exceed 0 and 1 by rounding
_SLACK = 0.01


def read_yolo(
    source: str | os.PathLike[str], root: str | os.PathLike[str] | None, *, follow_links: bool
) -> Annotations:
    """Return the images and boxes of a folder, or of those that a ``data.yaml`` names.

    Boxes are ``[center x, center y, width, height]`` as fractions of the image. The boxes of ``x.jpg`` are in
    ``x.txt``, next to it or in ``labels/`` instead of ``images/``; an image without this file has no boxes.

    Args:
        source: a folder, or a ``data.yaml`` of Ultralytics; that of the folder is used if there is one.
        root: folder to which the paths in ``data.yaml`` are relative, if it is neither its ``path`` nor its
            own folder.
        follow_links: follow links to folders and out of the folder.

    Raises:
        InputError: a file is missing or not of this form, or there are no images.
    """
    path = Path(source)
    if not path.exists():
        raise InputError(f"{path} does not exist")
    config = path if path.suffix.lower() in _YAML else path / "data.yaml"
    parts: list[tuple[bytes, bytes]] = []
    if config.is_file():
        content = read_annotation(config)
        folder, splits, names = _described(config, content, Path(root) if root is not None else None)
        parts.append((os.fsencode(config.name), content))
    elif path.is_dir():
        folder, names = path, _names_in(path)
        splits = {split: [where] for split, where in _split_folders(path).items()}
    else:
        raise InputError(f"{path}: must be a folder or a data.yaml")
    images, num_alone = [], 0
    for split, folders in splits.items():
        for where in folders:
            for file in _images(where, follow_links=follow_links):
                image = AnnotatedImage(relative(file, folder), split)
                text = _text_of(file)
                if text is None:
                    num_alone += 1
                else:
                    content = read_annotation(text)
                    _add(image, text, content, len(names))
                    parts.append((relative(text, folder), content))
                images.append(image)
    if not images:
        raise InputError(f"{path} has no images; there is nothing to build")
    warnings = [f"{num_alone} images have no text file, and so no boxes"] if num_alone else []
    return Annotations(annotation_table(images, {}, names, parts, warnings), folder)


def _described(
    config: Path, content: bytes, root: Path | None
) -> tuple[Path, dict[str, list[Path]], tuple[str, ...]]:
    """Return the root, the folders of images by split, and the class names, as ``data.yaml`` names them."""
    try:
        described = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{config}: is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(described, dict):
        raise InputError(f"{config}: is not a data.yaml of Ultralytics")
    names = described.get("names", ())
    if isinstance(names, dict):
        if sorted(names) != list(range(len(names))):
            raise InputError(f"{config}: the names must be numbered from 0 without gaps")
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, (list, tuple)):
        raise InputError(f"{config}: names must be a list, or a name for each number")
    base = root or config.parent / str(described.get("path") or ".")
    base = base if base.is_dir() else config.parent
    splits = {}
    for split in _SPLITS:
        given = described.get(split) or []
        folders = [
            _folder(config, base, str(each)) for each in (given if isinstance(given, list) else [given])
        ]
        if folders:
            splits[split] = folders
    return base, splits, tuple(map(str, names))


def _folder(config: Path, base: Path, given: str) -> Path:
    # Roboflow writes ../train/images where it means train/images
    for folder in (base / given, base / given.removeprefix("../")):
        if folder.is_dir():
            return folder
    raise InputError(
        f"{config}: names the folder {given!r}, which is not in {base}; name its root with root="
    )


def _split_folders(path: Path) -> dict[str, Path]:
    """Return the folders of images by split, or the folder of all images as the split without a name."""
    images = path / "images" if (path / "images").is_dir() else path
    folders = sorted(
        folder for folder in images.iterdir() if folder.is_dir() and folder.name not in ("images", "labels")
    )
    if folders and all(os.fsencode(folder.name.lower()) in SPLIT_FOLDERS for folder in folders):
        return {folder.name: folder for folder in folders}
    return {"": images}


def _names_in(folder: Path) -> tuple[str, ...]:
    found = next((folder / name for name in _CLASS_FILES if (folder / name).is_file()), None)
    if found is None:
        return ()
    lines = read_annotation(found).decode("utf-8", "replace").splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def _images(folder: Path, *, follow_links: bool) -> Iterator[str]:
    real = os.path.realpath(os.fsencode(folder))
    for file in sorted(images_in(real, Counter(), follow_links=follow_links)):
        yield os.path.join(folder, os.fsdecode(file.key))


def _text_of(image: str) -> Path | None:
    """Return the text file of an image: in ``labels/`` instead of the last ``images/``, or next to it."""
    stem = os.path.splitext(image)[0] + ".txt"
    head, found, tail = stem.rpartition("/images/")
    candidates = [Path(f"{head}/labels/{tail}")] if found else []
    return next((path for path in (*candidates, Path(stem)) if path.is_file()), None)


def _add(image: AnnotatedImage, path: Path, content: bytes, num_classes: int) -> None:
    """Add the boxes in a text file to its image."""
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 5:
            raise InputError(
                f"{path}, line {number}: has {len(words)} values; a box has 5: class, center x, center y, "
                "width and height"
            )
        try:
            values = [float(word) for word in words]
        except ValueError:
            values = [math.nan]
        category = values[0]
        if not category.is_integer() or category < 0 or (num_classes and category >= num_classes):
            allowed = f"0 to {num_classes - 1}" if num_classes else "a number of at least 0"
            raise InputError(f"{path}, line {number}: the class {words[0]} must be {allowed}")
        box = values[1:]
        if not all(-_SLACK <= value <= 1 + _SLACK for value in box):
            raise InputError(f"{path}, line {number}: a box must be fractions of the image, from 0 to 1")
        image.boxes.append(box)
        image.categories.append(int(category))
