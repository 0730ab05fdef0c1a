"""Read the metadata of TensorFlow Datasets (TFDS 4.9): names of dataset and classes, features."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.adoption.seen import FeatureRoles, Seen
from tfshards.prep.views.tfds import FEATURES_NAME, INFO_NAME, MARK, labels_name
from tfshards.schemas import Feature, InputError
from tfshards.schemas.declared import coordinates_fault
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.schema import KINDS, feature_faults
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import METADATA, read_whole


def tfds_folders(root: AnyPath, paths: Iterable[str]) -> list[str]:
    """Return the folders of ``paths``, relative to ``root``, that TFDS wrote."""
    folders = sorted({path.rpartition("/")[0] for path in paths})
    return [folder for folder in folders if _is_of_tfds(root / folder / INFO_NAME)]


def tfds_name(root: AnyPath, folders: Iterable[str]) -> str | None:
    """Return the name that TFDS gave the dataset, if there is one name."""
    names = set()
    for folder in folders:
        info = _json(root / folder / INFO_NAME)
        name = info.get("name") if isinstance(info, dict) else None
        names |= {name} if isinstance(name, str) else set()
    return names.pop() if len(names) == 1 else None


def tfds_class_names(root: AnyPath, folders: Iterable[str], feature: str) -> tuple[str, ...]:
    """Return the names of a feature's classes in label order; empty if TFDS has none."""
    found: dict[tuple[str, ...], AnyPath] = {}
    for folder in folders:
        path = root / folder / labels_name(feature)
        if not path.is_file():
            continue
        try:
            lines = read_whole(path, METADATA).decode("utf-8").replace("\r", "\n").split("\n")
        except UnicodeDecodeError as error:
            raise InputError("tfds-classes-unreadable", path=path, error=error) from None
        # TFDS strips lines and skips empty ones
        found[tuple(line.strip() for line in lines if line.strip())] = path
    if len(found) > 1:
        one, other = list(found.values())[:2]
        raise InputError("tfds-classes-differ", one=one, other=other)
    return next(iter(found), ())


def _json(path: AnyPath) -> Json:
    """Return the content of a file, or None if it is missing or damaged."""
    found: Json = None
    with suppress(OSError, ValueError):
        found = load_json(read_whole(path, METADATA))
    return found


def _is_of_tfds(info: AnyPath) -> bool:
    # tfshards writes this file as well
    return info.is_file() and MARK.encode("ascii") not in read_whole(info, METADATA)


Shape = tuple[int | None, ...]

# Formats of boxes; TFDS writes top, left, bottom, right, and it is unclear what it means by the others.
_COORDINATES = {"YXYX": "yxyx", "REL_YXYX": "yxyx-normalized"}
# The fields of features.json that describe one feature.
_CONTENTS = ("tensor", "image", "classLabel", "boundingBox", "audio")


@dataclass(frozen=True)
class Declared:
    """A feature as TFDS declares it.

    The shape begins with the lengths of sequences, and has None for a dimension that varies. The encoding is
    ``none``, or how a tensor is stored as a byte string. The coordinates say how boxes are stored, if stated.
    """

    python_class: str
    dtype: str
    shape: Shape
    encoding: str = "none"
    coordinates: str | None = None


def declared_features(root: AnyPath, paths: Iterable[str]) -> dict[str, Declared]:
    """Return the features that TFDS declares in the folders of ``paths``, by the name in the records.

    Features that two folders declare differently are left out.
    """
    found: dict[str, Declared] = {}
    differing: set[str] = set()
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        for name, declared in _flattened("", _json(root / folder / FEATURES_NAME), ()):
            if found.setdefault(name, declared) != declared:
                differing.add(name)
    return {name: declared for name, declared in found.items() if name not in differing}


def with_label(roles: FeatureRoles, declared: Mapping[str, Declared]) -> FeatureRoles:
    """Return the roles with the only class that TFDS declares as the label, unless one was given."""
    others = {name for name in declared if name not in roles.names}
    classes = [name for name in sorted(others) if declared[name].python_class == "ClassLabel"]
    single = [name for name in classes if declared[name].shape == ()] or classes
    return replace(roles, label=single[0]) if roles.label is None and len(single) == 1 else roles


def refined(feature: Feature, declared: Declared, seen: Seen) -> tuple[Feature, bool]:
    """Return a feature with the declared kind, dtype and shape, as far as all records agree.

    Returns:
        The feature, and whether all records agree.
    """
    if feature.kind == "image":
        return _as_image(feature, declared), True
    if feature.kind == "bytes" and feature.shape == () and declared.encoding == "bytes":
        return _as_tensor(feature, declared, seen)
    if feature.wire == "bytes" or declared.dtype == "string":
        return feature, True
    shape, fits = _shape(feature, declared, seen)
    dtype = declared.dtype if declared.dtype in KINDS[feature.kind].dtypes else feature.dtype
    if feature.wire == "int64":
        limits = np.iinfo("uint8" if dtype == "bool" else dtype)
        most = 1 if dtype == "bool" else limits.max
        if seen.least_int < limits.min or seen.greatest_int > most:
            dtype, fits = feature.dtype, False
    found = _changed(feature, feature.kind, dtype, shape)
    if fits and not coordinates_fault(declared.coordinates, found.kind, found.shape):
        found = replace(found, coordinates=declared.coordinates)
    return found, fits


def _flattened(name: str, node: Json, lengths: Shape) -> Iterator[tuple[str, Declared]]:
    """Yield the features of a node of features.json; ``lengths`` are those of the sequences around it."""
    held = _dict(node)
    for inner, feature in _dict(_dict(held.get("featuresDict")).get("features")).items():
        yield from _flattened(f"{name}/{inner}" if name else inner, feature, lengths)
    if sequence := _dict(held.get("sequence")):
        yield from _flattened(name, sequence.get("feature"), (*lengths, _dim(sequence.get("length", -1))))
    for content in filter(None, (_dict(held.get(key)) for key in _CONTENTS)):
        dims = _dict(content.get("shape")).get("dimensions", [])
        shape = tuple(map(_dim, dims if isinstance(dims, list) else []))
        python_class = str(held.get("pythonClassName")).rpartition(".")[2]
        dtype = str(content.get("dtype", "int64" if python_class == "ClassLabel" else ""))
        encoding = str(content.get("encoding", "none")).lower()
        coordinates = _COORDINATES.get(str(content.get("bboxFormat")))
        yield name, Declared(python_class, dtype, lengths + shape, encoding, coordinates)


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _dim(value: Json) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() else None


def _as_image(feature: Feature, declared: Declared) -> Feature:
    """Return an image with the declared channels, to which TFDS decodes, or a mask."""
    if declared.python_class == "LabeledImage":
        return _changed(feature, "mask", feature.dtype, (*feature.shape[:-1], 1))
    if declared.python_class != "Image" or len(declared.shape) < 3:
        return feature
    *others, channels = feature.shape
    return _changed(feature, "image", feature.dtype, (*others, declared.shape[-1] or channels))


def _as_tensor(feature: Feature, declared: Declared, seen: Seen) -> tuple[Feature, bool]:
    if None in declared.shape:
        return feature, True
    tensor = _changed(feature, "raw", declared.dtype, declared.shape)
    fits = tensor.kind != "raw" or {seen.least_bytes, seen.most_bytes} == {tensor.num_bytes}
    return (tensor if fits else feature), fits


def _shape(feature: Feature, declared: Declared, seen: Seen) -> tuple[Shape, bool]:
    """Return the declared shape if the numbers of values in all records allow it, or the inferred one."""
    known = math.prod(dim for dim in declared.shape if dim is not None)
    if None not in declared.shape:
        fits = seen.fewest == seen.most == known and not seen.num_listless
    elif declared.shape[0] is not None or None in declared.shape[1:] or len(declared.shape) > 2:
        # a schema has no such shape
        return feature.shape, True
    else:
        fits = not known or seen.divisor % known == 0
    return (declared.shape if fits else feature.shape), fits


def _changed(feature: Feature, kind: str, dtype: str, shape: Shape) -> Feature:
    """Return the feature with another kind, dtype and shape, or itself if a schema does not allow them."""
    if feature_faults(feature.name, kind, dtype, shape):
        return feature
    return replace(feature, kind=kind, dtype=dtype, shape=shape)
