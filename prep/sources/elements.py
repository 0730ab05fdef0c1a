"""What the values of an element, or of an example of an iterable, are: features by role, and their bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple, Protocol, cast, get_args

import numpy as np
import pyarrow as pa

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.imaging.pillow import Picture
from tfshards.prep.imaging.pixels import encoded_picture, encoded_pixels
from tfshards.prep.records.example import Values
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.fetching import unreadable
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.pictures import ImageRules, check_mask_depth, image_feature, mask_feature
from tfshards.prep.sources.roles import check_roles, check_undeclared, features_of, is_template, resolve_roles
from tfshards.schemas import Feature, InputError, OptionsError
from tfshards.schemas.coordinates import Coordinates, coordinates_of
from tfshards.schemas.declared import COORDINATES
from tfshards.schemas.errors import listed
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import name_fault
from tfshards.schemas.option import check_choices, check_instance, option
from tfshards.schemas.schema import ITEM_SIZES, KINDS
from tfshards.schemas.storage.untrusted import open_regular

# names in a message
_SHOWN = 20
# items of a list that may be images
_LOOKED_AT = 8


@dataclass(frozen=True)
class Elements:
    """How the values of elements are stored.

    Attributes:
        where: the source, for messages.
        roles: role of each value whose name does not decide it, see ``roles.py``.
        images: how images are checked, converted and stored.
        class_names: class names in label order; by default the sorted names in the data, if there are names.
        outside_boxes: what to do about boxes and keypoints outside of their image.
        boxes_in: whether boxes and keypoints refer to the pixels in the file or to the upright image.

    Raises:
        OptionsError: a role is unknown or given twice, or an option is not valid.
    """

    where: str
    roles: Mapping[str, str] = field(default_factory=dict)
    images: ImageOptions = field(default_factory=ImageOptions)
    class_names: Sequence[str] | None = None
    outside_boxes: Outside = option("reject", "", choices=get_args(Outside))
    boxes_in: Reference | None = option(None, "", choices=get_args(Reference))

    def __post_init__(self) -> None:
        check_choices(self)
        check_roles(self.roles)
        check_class_names(self.class_names)
        check_instance("images", self.images, ImageOptions)
        if template := next(filter(is_template, self.roles), None):
            raise OptionsError(f"roles: {template!r} is a template of paths, which only tables have")

    def rules(self, features: Sequence[Feature]) -> ImageRules:
        """Return how images are stored of elements with these features."""
        images = [feature.name for feature in features if feature.kind == "image"]
        masks = frozenset(feature.name for feature in features if feature.kind == "mask")
        coordinates, placed_in = coordinates_of(features), next(iter(images), None)
        return ImageRules(self.images, masks, coordinates, placed_in, self.outside_boxes, self.boxes_in)

    def recorded(self, roles: Mapping[str, str]) -> dict[str, Json]:
        """Return what manifests record of elements whose values have these roles."""
        found: dict[str, Json] = {"columns": dict(roles)}
        if self.outside_boxes != "reject":
            found["outside_boxes"] = self.outside_boxes
        return found if self.boxes_in is None else {**found, "boxes_in": self.boxes_in}

    def check_features(self, features: Sequence[Feature]) -> None:
        """Raise an error if an option has no effect on elements with these features."""
        kinds = {feature.kind for feature in features}
        names = listed([feature.name for feature in features], _SHOWN)
        if not kinds & {"image", "mask"} and self.images != ImageOptions():
            raise OptionsError(
                f"images= has no effect: there are no images; the values are {names} || the role image or "
                "mask declares one"
            )
        check_mask_depth(self.images, has_masks="mask" in kinds)
        if "label" not in kinds and self.class_names is not None:
            raise InputError(
                f"class_names= needs a label; the values are {names} || the role label declares one"
            )


class Described(Protocol):
    """What elements have in common."""

    @property
    def roles(self) -> Mapping[str, str]:
        """The roles of the values that have one."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that are stored."""


class Encoded(NamedTuple):
    """The values of one element.

    Attributes:
        roles: roles of the values that have one.
        features: features that are stored, images first; the order depends on names and roles only.
        values: value of each feature, as ``records.example`` encodes it; None for the label.
        label: number or name of the class; None for no class.
        split: name of the split; empty without one.
        key: value with the role ``key``, or None.
    """

    roles: Mapping[str, str]
    features: tuple[Feature, ...]
    values: tuple[Values | None, ...]
    label: int | str | None
    split: str
    key: object


class ElementEncoder:
    """Encodes elements, whose roles depend on their names and on what is declared."""

    def __init__(self, elements: Elements) -> None:
        self._elements = elements
        self._roles: dict[tuple[str, ...], tuple[dict[str, str], dict[str, str]]] = {}

    def roles_of(self, names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the roles of the values that have one, and the feature of each value that is stored."""
        known = tuple(sorted(names))
        if known not in self._roles:
            where = self._elements.where
            roles = resolve_roles(known, self._elements.roles, where)
            self._roles[known] = roles, features_of(known, roles, where)
        return self._roles[known]

    def encode(self, values: object, first: Sequence[Feature] = ()) -> Encoded:
        """Return the values of an element as they are stored.

        Args:
            values: values by name.
            first: the features of the first element, if these decide about lists and numbers of Python.

        Raises:
            InputError: a value cannot be stored, or does not fit its role.
        """
        values, known = flat_values(values), {feature.name: feature for feature in first}
        roles, names = self.roles_of(values)
        features: list[Feature] = []
        encoded: list[Values | None] = []
        label: int | str | None = None
        for name, feature_name in names.items():
            value, role = values[name], roles.get(name, "value")
            if role in ("image", "mask"):
                of_role = image_feature if role == "image" else mask_feature
                features.append(of_role(feature_name, self._elements.images))
                encoded.append(_image(name, value, self._elements.images.max_bytes))
            elif role == "label":
                features.append(Feature(feature_name, "label", "int64"))
                encoded.append(None)
                label = _label(name, value)
            else:
                if name not in roles:
                    sample = value[:_LOOKED_AT] if isinstance(value, list) else [value]
                    check_undeclared(name, sample, self._elements.where)
                feature, stored = encode_value(feature_name, value, role, known.get(feature_name))
                features.append(feature)
                encoded.append(stored)
        single = {role: values[name] for name, role in roles.items() if role in ("split", "key")}
        split = _split(single["split"]) if "split" in single else ""
        return Encoded(roles, tuple(features), tuple(encoded), label, split, single.get("key"))


def check_same(one: Described, other: Described, key: str, other_key: str) -> None:
    """Raise InputError if two elements, which have these keys, have different roles or features."""
    ours, theirs = (_described(each) for each in (one, other))
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            raise InputError(
                f"the elements differ: {name!r} is {ours.get(name, 'missing')} in {key!r} but "
                f"{theirs.get(name, 'missing')} in {other_key!r} || give every element the same values, each "
                "of one dtype and shape; with the role list, and in lists of Python, the length may differ; "
                "arrays of different sizes that are images have the role image"
            )


def _described(element: Described) -> dict[str, str]:
    """Return what each value of an element is, by name, for a message."""
    found = {name: f"of the role {role}" for name, role in element.roles.items()}
    for feature in element.features:
        shape = [side if side is not None else "?" for side in feature.shape]
        number = "text" if feature.kind == "bytes" else feature.dtype
        found[feature.name] = feature.kind if feature.is_encoded else f"{number} {shape}" if shape else number
    return found


def encode_key(key: object) -> bytes:
    """Return a key, text, bytes or an integer, as bytes, or raise InputError if it cannot be one."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, (str, bytes)):
        raise InputError(f"the key {key!r} is of type {type(key).__name__}; keys must be strings")
    try:
        encoded = key if isinstance(key, bytes) else to_bytes(key)
    except UnicodeEncodeError as error:
        raise InputError(f"the key {key!r} is not valid Unicode: {error.reason}") from None
    if not encoded or b"\0" in encoded:
        raise InputError(f"the key {key!r} must be one or more characters without NUL")
    return encoded


def flat_values(values: object, prefix: str = "") -> dict[str, object]:
    """Return values by name as text, bytes, numbers, arrays, lists or images; dicts become ``NAME/FIELD``."""
    if not isinstance(values, Mapping):
        raise InputError(f"the values must be a dict by name, not {type(values).__name__}")
    flat: dict[str, object] = {}
    for name, value in values.items():
        # a dict with these two is an image of Hugging Face's datasets
        if isinstance(value, Mapping) and {*value} != {"bytes", "path"}:
            inner = flat_values(value, f"{prefix}{name}/")
        else:
            inner = {f"{prefix}{name}": _plain(value)}
        if twice := flat.keys() & inner.keys():
            raise InputError(f"two values are named {min(twice)!r}; rename one")
        flat |= inner
    return flat


def _plain(value: Any) -> object:  # noqa: ANN401 -- values of other packages, which are not imported
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, bytes, int, float, list, PurePath, Picture, Mapping)):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise InputError("a value is a masked array || fill it, such as with array.filled(0)")
    if hasattr(value, "__array__"):
        # tensors, too
        value = np.asarray(value)
        # as tables and TensorFlow hold lists and text; only text has no other dtype where it is empty
        if value.dtype.hasobject:
            return value.tolist() if value.size else value.astype("S")
        return value
    return [*value] if isinstance(value, tuple) else value


def _image(name: str, value: object, most: int) -> bytes:
    """Return an image as the bytes of a file; ``most`` is the limit of its size."""
    if isinstance(value, Mapping):
        value = value["path"] if value["bytes"] is None else bytes(value["bytes"])
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, PurePath)):
        try:
            with open_regular(os.fspath(value)) as file:
                # one more than allowed, so that it is rejected
                return file.read(most + 1)
        except (OSError, ValueError) as error:
            fault = error if isinstance(error, OSError) else OSError(None, str(error))
            raise unreadable(os.fspath(value), fault) from None
    try:
        if isinstance(value, Picture):
            return encoded_picture(value)
        return encoded_pixels(np.asarray(value))
    except (OSError, ValueError) as error:
        raise InputError(f"the image {name!r}: {error}") from None


def _label(name: str, value: object) -> int | str | None:
    if value is None or (isinstance(value, (str, bytes)) and not value):
        return None
    if isinstance(value, (str, bytes)):
        return str(value) if isinstance(value, str) else to_text(value)
    array = np.asarray(value)
    if not array.shape and array.dtype.kind in "biu" and -1 <= int(array) < 1 << 63:
        return int(array)
    raise InputError(
        f"the label {name!r} is {_shown(array)}, which is not a class || give the number of a class, or its "
        f"name; the role value stores it as it is"
    )


def label_values(labels: Sequence[int | str | None]) -> pa.ChunkedArray:
    """Return the labels of all elements as a column."""
    try:
        return pa.chunked_array([pa.array(labels)])
    except pa.ArrowException:
        raise InputError("the labels are both integers and text || make them one of the two") from None


def _split(value: object) -> str:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = str(value)
    text = to_text(value) if isinstance(value, bytes) else value
    fault = name_fault(text) if isinstance(text, str) else f"{value!r} must be a string"
    if fault:
        raise InputError(f"the split {fault}")
    return str(text)


def encode_value(name: str, value: object, role: str, first: Feature | None = None) -> tuple[Feature, Values]:
    """Return the feature of a value that is neither an image nor a label, and the value as it is encoded.

    Integers become int64 lists, text and bytes byte strings, and other numbers and arrays raw little-endian
    bytes. Lists of Python, and arrays with the role ``list``, may have any length: they become lists of int64
    or of float32, to which floating point numbers of Python are rounded, or of byte strings.

    Args:
        name: name of the feature.
        value: a value as ``flat_values`` returns it.
        role: ``value``, ``list``, or a format of coordinates.
        first: the feature of the first example: an empty list has its dtype, and so have integers of Python
            where it has floating point numbers.
    """
    try:
        if role in COORDINATES:
            return _coordinates(name, value, role)
        is_list = role == "list" or isinstance(value, list)
        if isinstance(value, list) and not value and first and first.shape[:1] == (None,):
            return first, []
        texts = _texts(name, value)
        if texts is not None:
            shape = np.shape(cast("Any", value))
            if is_list and len(shape) != 1:
                raise InputError(f"{name!r} has the shape {shape}; a list of text has one dimension")
            feature = Feature(name, "bytes", "bytes", (None,) if is_list else shape)
            return feature, texts if shape else texts[0]
        return _numbers(name, value, first, is_list=is_list)
    except (ValueError, OverflowError) as error:
        raise InputError(f"the value {name!r}: {error}") from None


def _texts(name: str, value: Any) -> list[bytes] | None:  # noqa: ANN401
    """Return the byte strings in a text, or in a list or an array of text; None for other values."""
    if isinstance(value, (str, bytes)):
        items: list[Any] = [value]
    elif isinstance(value, np.ndarray) and value.dtype.kind in "SU":
        items = value.ravel().tolist()
    elif isinstance(value, list) and any(isinstance(each, (str, bytes)) for each in value):
        items = value
    else:
        return None
    try:
        return [each if isinstance(each, bytes) else to_bytes(each) for each in items]
    except AttributeError:
        raise InputError(f"the list {name!r} holds text and other values") from None
    except UnicodeEncodeError as error:
        raise InputError(f"the value {name!r} is not valid Unicode: {error.reason}") from None


def _numbers(name: str, value: Any, first: Feature | None, *, is_list: bool) -> tuple[Feature, Values]:  # noqa: ANN401
    array = np.asarray(value)
    if array.dtype.name not in ITEM_SIZES:
        kind = type(value).__name__ if array.dtype.hasobject else f"{array.dtype}"
        raise InputError(
            f"the value {name!r} is of type {kind}, which cannot be stored || give text, bytes, or numbers "
            f"of one of the dtypes {', '.join(sorted(ITEM_SIZES))}"
        )
    if is_list and not array.shape:
        raise InputError(f"the value {name!r} is {_shown(array)}, a single value; the role list needs lists")
    if isinstance(value, list):
        array = _as_list(name, array, first)
    elif type(value) is int and first == Feature(name, "raw", "float64") and int(float(value)) == value:
        array = np.asarray(float(value))
    dtype = array.dtype.name
    if is_list:
        kind = "float" if dtype in KINDS["float"].dtypes else "int"
        if dtype not in KINDS[kind].dtypes:
            raise InputError(
                f"the value {name!r}: {dtype} fits neither a list of int64 nor one of float32 || convert it, "
                "such as with astype('float32')"
            )
        wide = array.astype(np.float32) if kind == "float" else array
        return Feature(name, kind, dtype, (None, *array.shape[1:])), wide.ravel().tolist()
    if not array.shape and dtype in KINDS["int"].dtypes - {"bool"}:
        return Feature(name, "int", dtype), int(array)
    data = np.ascontiguousarray(array).view(np.uint16) if dtype == "bfloat16" else array
    return Feature(name, "raw", dtype, array.shape), data.astype(data.dtype.newbyteorder("<")).tobytes()


def _as_list(name: str, array: Any, first: Feature | None) -> Any:  # noqa: ANN401 -- arrays of any dtype
    """Return the numbers in a list of Python with the dtype that they are stored as."""
    if not array.size:
        raise InputError(
            f"the list {name!r} is empty, which does not show what it holds || give an array with the role "
            "list, such as np.zeros((0, 4), 'float32')"
        )
    if array.dtype == np.float64 or (first and first.kind == "float" and array.dtype.kind in "iu"):
        with np.errstate(over="ignore"):
            short = array.astype(np.float32)
        if np.isfinite(array).all() and not np.isfinite(short).all():
            raise InputError(f"the list {name!r} holds a number that is too large for float32")
        return short
    return array


def _coordinates(name: str, value: object, role: str) -> tuple[Feature, Values]:
    """Return boxes or keypoints: one box, or a row for each object, whose number varies."""
    coordinates = Coordinates.parse(role)
    width = 4 if coordinates.are_boxes else len(coordinates.order)
    array = np.asarray(value, np.float64)
    if array.shape == (0,):
        array = array.reshape(0, width)
    if array.ndim not in (1, 2) or not array.shape[-1] or array.shape[-1] % width:
        raise InputError(
            f"the value {name!r} is {_shown(array)}; the role {role} needs a row of {width} numbers for each "
            f"{'box' if coordinates.are_boxes else 'keypoint'}"
        )
    # numbers beyond float32 become infinite, which is reported with their image
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    shape = array.shape if array.ndim == 1 else (None, array.shape[1])
    return Feature(name, "float", "float32", shape, role), numbers.ravel().tolist()


def _shown(array: Any) -> str:  # noqa: ANN401
    return f"{array.dtype} {array.shape}" if array.shape else repr(array.item())
