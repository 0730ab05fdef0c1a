"""Read the annotations of YOLO: a text file for each image, and perhaps the ``data.yaml`` of Ultralytics."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tfshards.prep.sources.annotations import Annotations, ImageRows, Values, is_text
from tfshards.prep.sources.classes import MAX_CLASSES, read_class_names, usual_split, usual_splits
from tfshards.prep.sources.fetching import Boundary, decoded, read_file, read_text
from tfshards.prep.sources.keys import in_any_form
from tfshards.prep.sources.row_columns import TableRows
from tfshards.prep.sources.tree import is_hidden, tree_of
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.json_reader import shown
from tfshards.schemas.schema import NORMALIZED
from tfshards.schemas.storage import AnyPath, LocalPath
from tfshards.schemas.storage.stored import OPTIONS

# Files with one class name per line.
_CLASS_FILES = ("classes.txt", "obj.names", "labels/classes.txt", "images/classes.txt")
# Numbers of the smallest polygon; a box and a keypoint have as many.
_TRIANGLE = 6
# The last folder "images" in a path.
_IMAGES = re.compile(rb"^(.*/)?images/", re.DOTALL)
# Keys of a data.yaml that are not splits; others may be misspelled.
_KEYS = {"path", "names", "nc", "kpt_shape", "flip_idx", "download", "channels", "roboflow"}
_USUAL_KEYS = "the usual keys are path, train, val, test, names, nc and kpt_shape"


@dataclass(frozen=True)
class Yolo(Annotations):
    """The images of a folder, and their objects in text files of YOLO.

    The boxes of ``x.jpg`` are in ``x.txt``, in ``labels`` instead of ``images`` or next to it; an image
    without this file has no boxes. ``root`` is the folder to which the paths in ``data.yaml`` are relative,
    if it is neither its ``path`` nor its own folder. ``objects/bbox`` is ``cxcywh-normalized``; boxes refer
    to the upright image unless ``boxes_in`` is "file". If ``kpt_shape`` in ``data.yaml`` declares keypoints,
    they are ``objects/keypoints``. With ``segmentations``, lines may be polygons, whose boxes enclose them.
    Other attributes are those of ``Annotations``.

    Attributes:
        source: data.yaml of Ultralytics, or a folder with this file, with "images" and "labels", or with text
            files next to the images.
    """

    kind = "yolo"

    def rows(self, root: AnyPath | None, needed: Collection[str | None]) -> TableRows:
        """Return the rows of the text files.

        Raises:
            InputError: ``data.yaml`` is not valid, there are no images or no text files, or a path leaves the
                folder.
        """
        path, root = Path(self.source), None if root is None else LocalPath(str(root))
        if not path.exists():
            raise InputError(f"{path} does not exist")
        folder = path if path.is_dir() else path.parent
        inside = Boundary(root or folder, follow_links=self.follow_links)
        config = folder / "data.yaml" if path == folder else path
        if not config.is_file():
            if root is not None:
                raise OptionsError(f"root= has no effect, since {path} has no data.yaml; leave it out")
            layout = _found(path, inside)
        else:
            if config != path:
                Boundary(path, follow_links=self.follow_links).check(config)
            layout = _described(config, root, inside)
        if layout.num_points and self.segmentations:
            raise InputError(
                f"segmentations=True has no effect, since {config} has kpt_shape (keypoints); leave it out"
            )
        rows = ImageRows(layout.root)
        # by text file, or None for images without one
        rows_of: dict[Path | None, list[Values]] = {}
        for split, place in layout.places:
            for file in _images_in(place, inside, follow_links=self.follow_links):
                row = rows.add(file, split)
                rows_of.setdefault(_text_of(row["file_name"], layout.root), []).append(row)
        without = [os.fsdecode(row["file_name"]) for row in rows_of.pop(None, [])]
        texts = {text: some for text, some in rows_of.items() if text is not None}
        if not texts:
            raise InputError(
                f"{path} has no image with a text file of boxes; the files must be next to the images, or "
                "in labels/ where these are in images/"
            )
        for text, some in texts.items():
            inside.check(text)
            _add_objects(some, text, layout, has_polygons=self.segmentations)
        roles = {"bbox": f"cxcywh{NORMALIZED}", "category": "label"}
        if layout.num_points:
            roles["keypoints"] = ("xyv" if layout.width == 3 else "xy") + NORMALIZED
        if self.segmentations:
            roles["polygons"] = f"xy{NORMALIZED}"
        warnings = [*layout.warnings, *_unpaired(without, texts)]
        objects = [each for row in rows.by_path.values() for each in row["objects"]]
        lengths = {len(polygon) for each in objects for polygon in each.get("polygons", ())}
        if len(lengths) == 1 and lengths != {_TRIANGLE}:
            warnings.append(
                f"all polygons have {lengths.pop() // 2} points, so that they may be boxes and keypoints; "
                "declare these by kpt_shape in data.yaml, without segmentations="
            )
        read = rows.table_rows(path, roles, layout.class_names, warnings)
        # Ultralytics reads images with OpenCV, which turns them upright
        return replace(read, boxes_in="upright")


def _images_in(place: Path, inside: Boundary, *, follow_links: bool) -> Iterator[str]:
    """Yield the path of each image in a folder, or in a file that lists one per line."""
    if place.is_dir():
        keys = tree_of(place, follow_links=follow_links).files().keys
        yield from (os.path.join(place, os.fsdecode(key)) for key in keys)
        return
    # Windows writes paths with backslashes
    for line in filter(None, map(str.strip, read_text(place).replace("\\", "/").splitlines())):
        file = os.path.normpath(os.path.join(place.parent, line))
        inside.check(file, line)
        yield file


class _Layout(NamedTuple):
    """Where the images are, and what the lines of their text files hold.

    Attributes:
        root: folder to which the paths of images are relative.
        places: split, or empty, of each folder of images, or of each file that lists images.
        class_names: names in label order, or empty.
        num_points: number of keypoints.
        width: number of numbers of each keypoint.
        warnings: what is not read.
    """

    root: Path
    places: Sequence[tuple[str, Path]]
    class_names: tuple[str, ...]
    num_points: int = 0
    width: int = 0
    warnings: tuple[str, ...] = ()


def _described(config: Path, root: Path | None, inside: Boundary) -> _Layout:
    """Return the layout that a ``data.yaml`` describes."""
    described = _yaml(config)
    (stated,) = _texts(config, "path", [described.get("path", ".")])
    base = root or config.parent / stated
    base = base if os.path.isdir(base) else config.parent
    inside.check(base, stated)
    places: list[tuple[str, Path]] = []
    for key, value in described.items():
        split = usual_split(key)
        for given in _texts(config, key, value if isinstance(value, list) else [value]) if split else []:
            # Roboflow writes ../train/images where it means train/images
            tried = base / given.removeprefix("../"), base / given
            place = next(filter(os.path.exists, tried), None)
            if place is None:
                raise InputError(
                    f"{config}: {key} names {given!r}, but there is no {' or '.join(map(str, tried))}; "
                    "correct the path, leave it out, or name its root with root="
                )
            inside.check(place, given)
            places.append((split or "", place))
    unknown = listed([shown(key) for key in described if key not in _KEYS and not usual_split(key)], 5)
    warnings = (f"{config}: not read: {unknown}; {_USUAL_KEYS}",) if unknown else ()
    if not places:
        raise InputError(f"{config} names neither train, val nor test; add a folder of images", *warnings)
    names = described.get("names", [])
    if isinstance(names, dict):
        numbers = [*map(str, range(len(names)))]
        if names.keys() != {*numbers}:
            given = listed([*map(shown, names)], 5)
            raise InputError(f"{config}: names has the numbers {given}; number them from 0 to {numbers[-1]}")
        names = [names[number] for number in numbers]
    shape = _texts(config, "kpt_shape", described.get("kpt_shape", ["0", "2"]))
    if not re.fullmatch("[0-9]{1,4} [23]", " ".join(shape)):
        raise InputError(
            f"{config}: kpt_shape must be the number of keypoints and 2 or 3 numbers for each, such as "
            f"[17, 3], not {shown([*shape])}"
        )
    num_points, width = map(int, shape)
    class_names = tuple(_texts(config, "names", names))
    if class_names and str(described.get("nc", len(class_names))) != str(len(class_names)):
        raise InputError(
            f"{config}: nc is {shown(described['nc'])}, but names has {len(class_names)} classes; correct one"
        )
    return _Layout(base, places, class_names, num_points, width, warnings)


def _yaml(config: Path) -> dict[str, Any]:
    """Return the values in a ``data.yaml`` that are not empty.

    All values are text: ``no`` is a name of a class, and a long number takes no time.
    """
    try:
        described = yaml.BaseLoader(read_file(config, OPTIONS)).get_single_data()
    except RecursionError:
        raise InputError(f"{config}: it is nested too deeply; write plain values") from None
    except (yaml.YAMLError, ValueError) as error:
        # with the line and the column
        raise InputError(f"{config} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(described, dict):
        raise InputError(f"{config} is not a data.yaml of Ultralytics")
    return {key: value for key, value in described.items() if value not in ("", "~", "null")}


def _texts(config: Path, key: str, texts: Any) -> list[str]:  # noqa: ANN401 -- of YAML
    """Return the texts that a ``data.yaml`` has for a key."""
    wrong = [text for text in texts if not is_text(text)] if isinstance(texts, list) else [texts]
    if wrong:
        raise InputError(f"{config}: {key} must be a list of texts, not {shown(wrong[0])[:100]}")
    return [*texts]


def _found(folder: Path, inside: Boundary) -> _Layout:
    """Return the layout of a folder without a ``data.yaml``.

    The folders in ``images/``, or else in the source, are splits if all have names of usual splits.
    """
    images = folder / "images" if (folder / "images").is_dir() else folder
    names = sorted(file.name for file in images.iterdir() if file.is_dir())
    names = [name for name in names if name not in ("images", "labels") and not is_hidden(os.fsencode(name))]
    splits, others = usual_splits(names)
    if others and len(splits) > 1:
        raise InputError(
            f"{images / others[0]} is not a usual split, such as train or val, as others next to it are; "
            "name the folders of the splits in a data.yaml; 'tfshards build coco' reads annotations in .json"
        )
    places = [] if others else [(split, images / name) for name, split in splits.items()]
    class_names: tuple[str, ...] = ()
    for file in [file for name in _CLASS_FILES if (file := folder / name).is_file()][:1]:
        inside.check(file)
        class_names = read_class_names(file)
    return _Layout(folder, places or [("", images)], class_names)


def _text_of(image: bytes, folder: Path) -> Path | None:
    """Return the text file of an image: in ``labels/`` instead of the last ``images/``, or next to it.

    Folders above ``folder``, to which the path of the image is relative, are not replaced.
    """

    def existing(path: bytes) -> Path | None:
        file = folder / os.fsdecode(path)
        return file if os.path.isfile(file) else None

    stem = os.path.splitext(image)[0]
    tried = (each + b".txt" for each in (_IMAGES.sub(rb"\1labels/", stem), stem))
    return next(filter(None, (in_any_form(each, existing) for each in tried)), None)


def _unpaired(images: Sequence[str], texts: Collection[Path]) -> Iterator[str]:
    """Yield warnings about images without a text file, and about text files without an image."""
    known = {Path(name).name for name in _CLASS_FILES}
    others = {file for folder in {text.parent for text in texts} for file in folder.glob("*.txt")} - {*texts}
    left = sorted(str(file) for file in others if file.name not in known)
    for names, noun, lacking in ((images, "image", "a text file"), (left, "text file", "an image")):
        if names:
            yield f"{counted(len(names), noun)} without {lacking}, such as {names[0]!r}"


def _add_objects(rows: Sequence[Values], text: Path, layout: _Layout, *, has_polygons: bool) -> None:
    """Add the objects in a text file to its image, or reject all images that have this file."""
    where = name = os.path.relpath(text, layout.root)
    content = read_file(text)
    try:
        if len(rows) > 1:
            raise ValueError("several images have the same text file")
        for number, line in enumerate(decoded(content).splitlines(), 1):
            where = f"{name}:{number}"
            if words := line.split():
                rows[0]["objects"].append(_object(words, layout, has_polygons=has_polygons))
    except ValueError as error:
        for row in rows:
            row |= {"fault": f"{where}: {error}", "objects": []}


def _object(words: Sequence[str], layout: _Layout, *, has_polygons: bool) -> Values:
    """Return the class, box, keypoints and polygons in a line, or raise ValueError."""
    category, *numbers = map(_number, words)
    most = (len(layout.class_names) or MAX_CLASSES) - 1
    if not category.is_integer() or not 0 <= category <= most:
        raise ValueError(f"the class {words[0]} must be a number from 0 to {most}")
    values: Values = {"category": int(category), "bbox": numbers[:4]}
    if layout.num_points:
        values["keypoints"] = numbers[4:]
    if has_polygons:
        values["polygons"] = []
    allowed = 4 + layout.num_points * layout.width
    if has_polygons and len(numbers) >= 6 and len(numbers) % 2 == 0:
        (left, right), (top, bottom) = ((min(each), max(each)) for each in (numbers[::2], numbers[1::2]))
        values["bbox"] = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        values["polygons"] = [numbers]
    elif len(numbers) != allowed:
        shape = f" by kpt_shape [{layout.num_points}, {layout.width}]" * bool(layout.num_points)
        raise ValueError(
            f"{len(numbers)} numbers after the class, not {allowed}{shape}; leave out a confidence, declare "
            "keypoints by kpt_shape in data.yaml, or keep polygons with segmentations=True"
        )
    return values


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{word[:30]!r} is not a number, such as 0.5") from None
