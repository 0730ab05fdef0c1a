"""Read the metadata of TensorFlow Datasets (TFDS 4.9): names of dataset and classes, features."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tfshards.prep.adoption.seen import FeatureRoles, Seen
from tfshards.prep.views.tfds import FEATURES_NAME, INFO_NAME, MARK, labels_name
from tfshards.schemas import Feature, InputError
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
        try:
            info = load_json(read_whole(root / folder / INFO_NAME, METADATA))
        except ValueError:
            continue
        name = info.get("name") if isinstance(info, dict) else None
        names |= {name} if isinstance(name, str) else set()
    return names.pop() if len(names) == 1 else None


def tfds_class_names(root: AnyPath, folders: Iterable[str], feature: str) -> tuple[str, ...]:
    """Return the names of a feature's classes in label order; empty if TFDS has none.

    Raises:
        InputError: the file of the names cannot be read, or two folders have different names.
    """
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


def _is_of_tfds(info: AnyPath) -> bool:
    # tfshards writes this file as well
    return info.is_file() and MARK.encode("ascii") not in read_whole(info, METADATA)


Shape = tuple[int | None, ...]

# The fields of features.json that describe one feature.
_CONTENTS = ("tensor", "image", "classLabel", "boundingBox", "audio")


@dataclass(frozen=True)
class Declared:
    """A feature as TFDS declares it.

    Attributes:
        python_class: the name of its class in TFDS, such as ``ClassLabel``.
        dtype: its dtype.
        shape: its shape, with the lengths of sequences first; None for a dimension that varies.
        encoding: ``none``, or how a tensor is stored as a byte string.
    """

    python_class: str
    dtype: str
    shape: Shape
    encoding: str = "none"


def declared_features(root: AnyPath, paths: Iterable[str]) -> dict[str, Declared]:
    """Return the features that TFDS declares in the folders of ``paths``, by the name in the records.

    Features that two folders declare differently are left out.
    """
    found: dict[str, Declared] = {}
    differing: set[str] = set()
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        try:
            document = load_json(read_whole(root / folder / FEATURES_NAME, METADATA))
        except (OSError, ValueError):
            continue
        for name, declared in _flattened("", document, ()):
            if found.setdefault(name, declared) != declared:
                differing.add(name)
    return {name: declared for name, declared in found.items() if name not in differing}


def with_label(roles: FeatureRoles, declared: Mapping[str, Declared]) -> FeatureRoles:
    """Return the roles with the only class that TFDS declares as the label, unless one was given."""
    others = {name for name in declared if name not in roles.names}
    classes = [name for name in sorted(others) if declared[name].python_class == "ClassLabel"]
    single = [name for name in classes if declared[name].shape == ()] or classes
    return replace(roles, label=single[0]) if roles.label is None and len(single) == 1 else roles


def refined(feature: Feature, declared: Declared, seen: Seen) -> tuple[Feature, str | None]:
    """Return a feature with the declared kind, dtype and shape, as far as all records agree.

    Args:
        feature: the feature that was inferred from the records.
        declared: the declaration of TFDS.
        seen: the values in the records.

    Returns:
        The feature, and how the records contradict the declaration, or None.
    """
    if feature.kind == "image":
        return _as_image(feature, declared), None
    if feature.kind == "bytes" and feature.shape == () and declared.encoding == "bytes":
        return _as_tensor(feature, declared, seen)
    if feature.wire == "bytes" or declared.dtype == "string":
        return feature, None
    shape, fault = _shape(feature, declared, seen)
    if feature.wire == "int64" and declared.dtype in KINDS[feature.kind].dtypes:
        least, greatest = _limits(declared.dtype)
        if least <= seen.least_int and seen.greatest_int <= greatest:
            return _changed(feature, feature.kind, declared.dtype, shape), fault
        fault = f"holds integers from {seen.least_int} to {seen.greatest_int}"
    elif declared.dtype in KINDS[feature.kind].dtypes:
        return _changed(feature, feature.kind, declared.dtype, shape), fault
    return _changed(feature, feature.kind, feature.dtype, shape), fault


def _flattened(name: str, node: Json, lengths: Shape) -> Iterator[tuple[str, Declared]]:
    """Yield the features of a node of features.json; ``lengths`` are those of the sequences around it."""
    if not isinstance(node, dict):
        return
    features, sequence = _field(node, "featuresDict", "features"), node.get("sequence")
    for inner in features or {}:
        yield from _flattened(f"{name}/{inner}" if name else inner, (features or {})[inner], lengths)
    if isinstance(sequence, dict):
        yield from _flattened(name, sequence.get("feature"), (*lengths, _dim(sequence.get("length", -1))))
    for content in (node.get(key) for key in _CONTENTS):
        if isinstance(content, dict):
            dims = (_field(content, "shape") or {}).get("dimensions", [])
            shape = tuple(map(_dim, dims if isinstance(dims, list) else []))
            python_class = str(node.get("pythonClassName")).rpartition(".")[2]
            dtype = str(content.get("dtype", "int64" if python_class == "ClassLabel" else ""))
            encoding = str(content.get("encoding", "none")).lower()
            yield name, Declared(python_class, dtype, lengths + shape, encoding)


def _field(node: Mapping[str, Json], *names: str) -> dict[str, Json] | None:
    for name in names[:-1]:
        inner = node.get(name)
        node = inner if isinstance(inner, dict) else {}
    found = node.get(names[-1])
    return found if isinstance(found, dict) else None


def _dim(value: Json) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() else None


def _as_image(feature: Feature, declared: Declared) -> Feature:
    """Return an image with the declared channels, to which TFDS decodes, or a mask."""
    if declared.python_class == "LabeledImage":
        return _changed(feature, "mask", feature.dtype, (*feature.shape[:2], 1))
    if declared.python_class != "Image" or len(declared.shape) != 3:
        return feature
    height, width, channels = feature.shape
    return _changed(feature, "image", feature.dtype, (height, width, declared.shape[2] or channels))


def _as_tensor(feature: Feature, declared: Declared, seen: Seen) -> tuple[Feature, str | None]:
    if None in declared.shape:
        return feature, None
    tensor = _changed(feature, "raw", declared.dtype, declared.shape)
    if tensor.kind == "raw" and {seen.least_bytes, seen.most_bytes} != {tensor.num_bytes}:
        return feature, f"holds {seen.least_bytes:,} to {seen.most_bytes:,} bytes"
    return tensor, None


def _shape(feature: Feature, declared: Declared, seen: Seen) -> tuple[Shape, str | None]:
    """Return the declared shape if the numbers of values in all records allow it, or the inferred one."""
    known = math.prod(dim for dim in declared.shape if dim is not None)
    is_even = seen.fewest == seen.most and not seen.num_listless
    if None not in declared.shape:
        return (declared.shape, None) if is_even and seen.most == known else (feature.shape, _values(seen))
    if declared.shape[0] is not None or None in declared.shape[1:] or len(declared.shape) > 2:
        # a schema has no such shape
        return feature.shape, None
    return (
        (declared.shape, None) if not known or seen.divisor % known == 0 else (feature.shape, _values(seen))
    )


def _values(seen: Seen) -> str:
    return f"holds {seen.fewest:,} to {seen.most:,} values"


def _changed(feature: Feature, kind: str, dtype: str, shape: Shape) -> Feature:
    """Return the feature with another kind, dtype and shape, or itself if a schema does not allow them."""
    if feature_faults(feature.name, kind, dtype, shape):
        return feature
    return Feature(feature.name, kind, dtype, shape)


def _limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
