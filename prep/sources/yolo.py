"""Read the annotations of YOLO: a text file for each image, and perhaps the ``data.yaml`` of Ultralytics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tfshards.prep.sources.annotations import (
    FAULT,
    AnnotatedImage,
    Annotations,
    annotation_table,
    is_text,
    lines_of,
    read_annotation,
    with_slashes,
)
from tfshards.prep.sources.boundary import Boundary
from tfshards.prep.sources.classes import MAX_CLASSES, read_class_names, repeated
from tfshards.prep.sources.remote_tree import tree_of
from tfshards.prep.sources.splits import usual_split
from tfshards.prep.sources.table_rows import TableRows
from tfshards.prep.sources.tree import is_hidden
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.declared import NORMALIZED
from tfshards.schemas.errors import counted
from tfshards.schemas.storage.untrusted import OPTIONS

_YAML = (".yaml", ".yml")
# files with one class name per line
_CLASS_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "images/classes.txt")
# Most characters of a value in YAML: reading a number takes the square of its length.
_LONGEST = 10_000
_DEEPEST = 50
_OPENING = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


@dataclass(frozen=True)
class Yolo(Annotations):
    """The images of a folder, and their objects in text files of YOLO.

    ``path`` is a ``data.yaml`` of Ultralytics, or a folder with this file, with ``images`` and ``labels``, or
    with text files next to the images. The boxes of ``x.jpg`` are in ``x.txt``, in ``labels`` instead of
    ``images`` or next to it; an image without this file has no boxes. ``root`` is the folder to which the
    paths in ``data.yaml`` are relative, if it is neither its ``path`` nor its own folder. ``objects/bbox`` is
    ``cxcywh-normalized``; boxes refer to the upright image unless ``boxes_in`` is "file". If ``kpt_shape`` in
    ``data.yaml`` declares keypoints, they are ``objects/keypoints``. With ``segmentations``, lines may be
    polygons, whose boxes enclose them. Other attributes are those of ``Annotations``.
    """

    kind = "yolo"

    def read(self, path: Path, root: Path | None) -> TableRows:
        """Return the rows of the text files.

        Raises:
            InputError: ``data.yaml`` is not valid, there are no images or no text files, or a path leaves the
                folder.
        """
        if not path.exists():
            raise InputError("path-missing", path=path)
        in_source = Boundary(path if path.is_dir() else path.parent, follow_links=self.follow_links)
        inside = in_source if root is None else Boundary(root, follow_links=self.follow_links)
        config = path if path.suffix.lower() in _YAML else path / "data.yaml"
        warnings: list[str] = []
        if config.is_file():
            in_source.check(config)
            layout = _described(config, root, inside, warnings)
        elif not path.is_dir():
            raise InputError(f"{path} must be a folder or a data.yaml")
        elif root is not None:
            raise OptionsError(f"root= has no effect, since {path} has no data.yaml || leave it out")
        else:
            layout = _Layout(path, _split_folders(path), _names_in(path, inside))
        count, width = layout.points
        if count and self.segmentations:
            raise InputError(
                f"segmentations=True has no effect, since {config} has kpt_shape (keypoints) || leave it out"
            )
        layout = layout._replace(has_polygons=self.segmentations)
        images: list[AnnotatedImage] = []
        images_of: dict[Path, list[AnnotatedImage]] = {}
        for split, file in self._files(layout.splits, inside):
            image = AnnotatedImage(os.fsencode(os.path.relpath(file, layout.root)), split)
            images.append(image)
            text = _text_of(image.path, layout.root)
            if text is not None:
                inside.check(text)
                images_of.setdefault(text, []).append(image)
        if not images:
            raise InputError(f"{path} has no images || name the folder that has them")
        if not images_of:
            raise InputError(
                f"{path}: no image has a text file of boxes, such as {os.fsdecode(images[0].path)!r} || the "
                "files must be next to the images, or in labels/ where these are in images/"
            )
        for text, own in images_of.items():
            _add_objects(own, text, layout)
        names, formats = ["bbox", "category"], {"objects/bbox": f"cxcywh{NORMALIZED}"}
        if count:
            names.append("keypoints")
            formats["objects/keypoints"] = ("xyv" if width == 3 else "xy") + NORMALIZED
        if self.segmentations:
            formats["polygons/points"] = f"xy{NORMALIZED}"
        table, roles = annotation_table(images, names, formats)
        return TableRows(
            table,
            roles,
            os.path.realpath(os.fsencode(layout.root)),
            str(path),
            {"objects/category": layout.class_names} if layout.class_names else {},
            faults=FAULT,
            # Ultralytics reads images with OpenCV, which turns them upright
            boxes_in="upright",
            warnings=(*warnings, *_unpaired(images, images_of)),
        )

    def _files(self, splits: Mapping[str, Sequence[Path]], inside: Boundary) -> Iterator[tuple[str, str]]:
        """Yield the split and the path of each image."""
        for split, places in splits.items():
            for where in places:
                if where.is_file():
                    yield from ((split, file) for file in _listed(where, inside))
                    continue
                tree = tree_of(where, follow_links=self.follow_links)
                for key in tree.files().keys:
                    yield split, os.path.join(where, os.fsdecode(key))


class _Layout(NamedTuple):
    """Where the images are, and what the lines of their text files hold.

    Attributes:
        root: folder to which the paths of images are relative.
        splits: folders of images, and files that list images, by split.
        class_names: names in label order, or empty.
        points: number of keypoints, and of numbers of each, from ``kpt_shape``; 0 without keypoints.
        has_polygons: lines may be polygons.
    """

    root: Path
    splits: dict[str, list[Path]]
    class_names: tuple[str, ...]
    points: tuple[int, int] = (0, 0)
    has_polygons: bool = False


def _described(config: Path, root: Path | None, inside: Boundary, warnings: list[str]) -> _Layout:
    """Return the layout that a ``data.yaml`` describes, and add warnings about folders that are left out."""
    described = _yaml(config)
    stated = str(described.get("path") or ".")
    base = root or config.parent / stated
    base = base if base.is_dir() else config.parent
    inside.check(base, stated)
    splits: dict[str, list[Path]] = {}
    others = {key: value for key, value in described.items() if isinstance(value, str) and key != "path"}
    for key, value in described.items():
        if split := usual_split(str(key)):
            others.pop(key, None)
            given = filter(None, value if isinstance(value, list) else [value])
            places = [_place(config, base, key, str(each), inside) for each in given]
            splits.setdefault(split, []).extend(places)
    for key, value in others.items():
        if inside.holds(base / value) and os.path.isdir(base / value):
            warnings.append(f"{config}: {key} names the folder {value!r}, but is not a split: it is left out")
    match described.get("kpt_shape") or [0, 0]:
        case [int(count), 0 | 2 | 3 as width] if count >= 0:
            return _Layout(base, splits, _class_names(config, described.get("names")), (count, width))
        case other:
            raise InputError(
                f"{config}: kpt_shape must be the number of keypoints and 2 or 3 numbers for each, such as "
                f"[17, 3], not {other!r}"
            )


def _class_names(config: Path, names: object) -> tuple[str, ...]:
    """Return the class names in a ``data.yaml``, which are a list or a name for each number."""
    if isinstance(names, dict):
        # a number that is missing has a name that is none
        names = [names.get(number) for number in range(len(names))]
    listed = names if isinstance(names, list) else [] if names is None else [names, names]
    # YAML reads 7 as a number, and no and on as truth values
    texts: list[Any] = [str(name) if type(name) in (int, float) else name for name in listed]
    wrong = [name for name in texts if not is_text(name)] or repeated(texts)
    if wrong:
        raise InputError(
            f"{config}: names must be a list of different names, or a name for each number from 0, not "
            f"{wrong[0]!r} || quote words that YAML reads as truth values"
        )
    return tuple(texts)


def _yaml(config: Path) -> dict[Any, Any]:
    """Return the values in a ``data.yaml``."""
    content = read_annotation(config, OPTIONS)
    depth = 0
    try:
        for token in yaml.scan(content):
            # few lines may stand for more values than fit into memory, or take hours to read
            depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
            is_alias = isinstance(token, (yaml.AnchorToken, yaml.AliasToken))
            is_long = isinstance(token, yaml.ScalarToken) and len(token.value) > _LONGEST
            if is_alias or is_long or depth > _DEEPEST:
                fault = (
                    f"a value has more than {_LONGEST:,} characters" if is_long else "it is nested too deeply"
                )
                fault = f"{token.value!r} is an anchor or an alias" if is_alias else fault
                raise InputError(f"{config}, line {token.start_mark.line + 1}: {fault} || write plain values")
        described = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError) as error:
        # with the line and the column
        raise InputError(f"{config} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(described, dict):
        raise InputError(f"{config} is not a data.yaml of Ultralytics")
    return described


def _place(config: Path, base: Path, key: str, given: str, inside: Boundary) -> Path:
    """Return the folder of images, or the file that lists images, of a split in a ``data.yaml``."""
    # Roboflow writes ../train/images where it means train/images
    tried = [*dict.fromkeys((base / given, base / given.removeprefix("../")))]
    places = [place for place in tried if os.path.exists(place)]
    if not places:
        raise InputError(
            f"{config}: {key} names {given!r}, but there is no {' or '.join(map(str, tried))} || correct the "
            "path, leave it out, or name its root with root="
        )
    allowed = [place for place in places if inside.holds(place)]
    if not allowed:
        inside.check(places[0], given)
    return allowed[0]


def _split_folders(path: Path) -> dict[str, list[Path]]:
    """Return the folders of images by split, or the folder of all images as the split without a name.

    They are splits if all folders in ``images/``, or else in the source, have names of usual splits.
    """
    images = path / "images" if (path / "images").is_dir() else path
    folders = [folder for folder in sorted(images.iterdir()) if folder.is_dir()]
    folders = [folder for folder in folders if not is_hidden(os.fsencode(folder.name))]
    folders = [folder for folder in folders if folder.name not in ("images", "labels")]
    others = [folder for folder in folders if usual_split(folder.name) is None]
    if others and len(folders) - len(others) > 1:
        raise InputError(
            f"{others[0]} is not a usual split, such as train or val, as others next to it are || remove "
            "it, or name the folders of the splits in a data.yaml"
        )
    splits: dict[str, list[Path]] = {}
    for folder in [] if others else folders:
        splits.setdefault(usual_split(folder.name) or "", []).append(folder)
    return splits or {"": [images]}


def _names_in(folder: Path, inside: Boundary) -> tuple[str, ...]:
    for file in (folder / name for name in _CLASS_FILES):
        if file.is_file():
            inside.check(file)
            return read_class_names(file)
    return ()


def _listed(path: Path, inside: Boundary) -> Iterator[str]:
    """Yield the images that a text file lists, one per line, relative to the folder of the file."""
    try:
        lines = lines_of(read_annotation(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    for line in filter(None, map(str.strip, lines)):
        file = os.path.join(path.parent, os.path.normpath(with_slashes(path.parent, line)))
        inside.check(file, line)
        yield file


def _text_of(image: bytes, folder: Path) -> Path | None:
    """Return the text file of an image: in ``labels/`` instead of the last ``images/``, or next to it.

    Folders above ``folder``, to which the path of the image is relative, are not replaced.
    """
    stem = "/" + os.path.splitext(os.fsdecode(image))[0] + ".txt"
    head, found, tail = stem.rpartition("/images/")
    candidates = [f"{head}/labels/{tail}"] if found else []
    paths = [folder / each[1:] for each in (*candidates, stem)]
    return next(filter(os.path.isfile, paths), None)


def _unpaired(
    images: Sequence[AnnotatedImage], images_of: Mapping[Path, Sequence[AnnotatedImage]]
) -> list[str]:
    """Return warnings about images without a text file, and about text files without an image."""
    paired = {image.path for own in images_of.values() for image in own}
    alone = [os.fsdecode(image.path) for image in images if image.path not in paired]
    known = {Path(name).name for name in _CLASS_FILES}
    folders = {text.parent for text in images_of}
    texts = {file for folder in folders for file in folder.glob("*.txt") if file.name not in known}
    left = sorted(map(str, texts - {*images_of}))
    return [
        f"{counted(len(found), noun)} without {what}, such as {found[0]!r}"
        for noun, what, found in (("image", "a text file", alone), ("text file", "an image", left))
        if found
    ]


def _add_objects(images: Sequence[AnnotatedImage], text: Path, layout: _Layout) -> None:
    """Add the objects in a text file to its image, which a list may name several times."""
    where = name = os.path.relpath(text, layout.root)
    objects = []
    try:
        paths = sorted({os.fsdecode(image.path) for image in images})
        if len(paths) > 1:
            raise ValueError(f"the images {paths[0]!r} and {paths[1]!r} have the same text file")
        for number, line in enumerate(lines_of(read_annotation(text)), 1):
            where = f"{name}:{number}"
            if words := line.split():
                objects.append(_object(words, layout))
    except ValueError as error:
        for image in images:
            image.reject(f"{where}: {error}")
        return
    for image in images:
        image.objects = objects


def _object(words: Sequence[str], layout: _Layout) -> dict[str, Any]:
    """Return the class, box, keypoints and polygons in a line, or raise ValueError."""
    count, width = layout.points
    category, *numbers = map(float, words)
    most = (len(layout.class_names) or MAX_CLASSES) - 1
    if not category.is_integer() or not 0 <= category <= most:
        raise ValueError(f"the class {words[0]} must be a number from 0 to {most}")
    values = {"category": int(category), "bbox": numbers[:4], "keypoints": numbers[4:], "polygons": []}
    if layout.has_polygons and len(words) >= 7 and len(words) % 2 == 1:
        (left, right), (top, bottom) = ((min(each), max(each)) for each in (numbers[::2], numbers[1::2]))
        values["bbox"] = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        values["polygons"] = [numbers]
    elif len(numbers) != 4 + count * width:
        hint = "" if count else "; keypoints need kpt_shape in data.yaml, polygons --segmentations"
        raise ValueError(f"{len(numbers)} numbers after the class, not {4 + count * width}{hint}")
    return values
