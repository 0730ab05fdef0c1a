"""What elements of a pipeline, and examples of an iterable, are stored as: features by role, and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.records.example import Values
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.element_values import (
    feature_of,
    image_value,
    label_value,
    plain_value,
    split_value,
    stored_value,
)
from tfshards.prep.sources.features import StoredColumn
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.labels import label_column
from tfshards.prep.sources.pictures import ImageRules, check_mask_depth, mask_options
from tfshards.prep.sources.roles import check_roles, check_undeclared, features_of, is_template, resolve_roles
from tfshards.schemas import Feature, InputError, OptionsError
from tfshards.schemas.coordinates import coordinates_of
from tfshards.schemas.errors import listed
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import check_choices, check_instance, option

# names in a message
_SHOWN = 20
# items of a list that may be images
_LOOKED_AT = 8


class Form(NamedTuple):
    """What all elements have in common.

    Attributes:
        roles: pairs of a value that has a role, and the role.
        features: features that are stored, images first; the order depends on names and roles only.
    """

    roles: tuple[tuple[str, str], ...]
    features: tuple[Feature, ...]

    def first(self, kind: str) -> str | None:
        """Return the name of the first feature of this kind; None without one."""
        return next((feature.name for feature in self.features if feature.kind == kind), None)

    def has_role(self, role: str) -> bool:
        """Return whether a value has this role."""
        return any(role == each for _, each in self.roles)

    def to_json(self) -> dict[str, Json]:
        """Return the form as ``from_json`` takes it."""
        return {"roles": dict(self.roles), "features": [feature.to_json() for feature in self.features]}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Form:
        """Return the form that ``to_json`` has described."""
        features = (Feature(**{**each, "shape": tuple(each["shape"])}) for each in found["features"])
        return cls(tuple(found["roles"].items()), tuple(features))

    def warnings(self) -> list[str]:
        """Return warnings about elements of this form."""
        # without the role list, only lists of Python become lists
        roles = dict(self.roles)
        warnings = [
            f"{feature.name!r}: lists of numbers are stored as float32"
            for feature in self.features
            if feature.kind == "float" and roles.get(feature.name, "value") == "value"
        ]
        images = [feature.name for feature in self.features if feature.kind == "image"]
        if len(images) > 1 and coordinates_of(self.features):
            warnings.append(f"boxes and keypoints belong to the image {images[0]!r}")
        return warnings

    def check_same(self, key: str, other: Form, other_key: str) -> None:
        """Raise InputError unless two elements, which have these keys, have the same form."""
        ours, theirs = self._described(), other._described()
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                raise InputError(
                    f"the elements differ: {name!r} is {ours.get(name, 'missing')} in {key!r} but "
                    f"{theirs.get(name, 'missing')} in {other_key!r} || give every element the same values, "
                    "each of one dtype and shape; with the role list, and in lists of Python, the length may "
                    "differ; arrays of different sizes that are images have the role image"
                )

    def _described(self) -> dict[str, str]:
        """Return what each value of an element is, by name, for a message."""
        described = {name: f"of the role {role}" for name, role in self.roles}
        for feature in self.features:
            shape = [side if side is not None else "?" for side in feature.shape]
            number = "text" if feature.kind == "bytes" else feature.dtype
            number += f" {shape}" if shape else ""
            described[feature.name] = feature.kind if feature.is_encoded else number
        return described


class Encoded(NamedTuple):
    """One element as it is stored.

    Attributes:
        form: roles and features.
        values: value of each feature but the label, as ``records.example`` encodes it.
        label: number or name of the class; None for no class.
        split: name of the split; empty without one.
        key: value with the role ``key``, or None.
    """

    form: Form
    values: Sequence[Values]
    label: int | str | None
    split: str
    key: object


@dataclass(frozen=True)
class Elements:
    """How the values of elements are stored.

    Attributes:
        source: what gives the elements, as manifests and messages name it.
        roles: role of each value whose name does not decide it, see ``roles.py``.
        images: how images are checked, converted and stored.
        class_names: class names in label order; by default the sorted names in the data, if there are names.
        outside_boxes: what to do about boxes and keypoints outside of their image.
        boxes_in: whether boxes and keypoints refer to the pixels in the file or to the upright image.

    Raises:
        OptionsError: a role is unknown or given twice, or an option is not valid.
    """

    source: str
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

    def encode(self, values: object, first: Form | None = None) -> Encoded:
        """Return an element as it is stored.

        Args:
            values: values by name.
            first: the form of the first element, if it decides about lists and numbers of Python.

        Raises:
            InputError: a value cannot be stored, or does not fit its role.
        """
        given = _flat(values)
        roles, stored_names = _roles_of(tuple(sorted(given)), tuple(self.roles.items()), self.source)
        firsts = {} if first is None else {feature.name: feature for feature in first.features}
        features: list[Feature] = []
        encoded: list[Values] = []
        label: int | str | None = None
        split, key = "", None
        for name, feature_name in stored_names:
            value, role = given[name], roles.get(name)
            if role == "label":
                label = label_value(name, value)
                features.append(feature_of(feature_name, "label", "int64"))
                continue
            if role in ("image", "mask"):
                options = self.images if role == "image" else mask_options(self.images)
                feature = feature_of(feature_name, role, options.dtype, options.shape)
                stored: Values = image_value(name, value)
            else:
                if role is None:
                    items = value[:_LOOKED_AT] if isinstance(value, list) else [value]
                    check_undeclared(name, items, self.source)
                feature, stored = stored_value(name, value, role or "value", firsts.get(name))
            features.append(feature)
            encoded.append(stored)
        for name, role in roles.items():
            if role == "split":
                split = split_value(given[name])
            elif role == "key":
                key = given[name]
        return Encoded(Form(tuple(roles.items()), tuple(features)), encoded, label, split, key)

    def check(self, form: Form) -> None:
        """Raise an error if an option has no effect on elements of this form."""
        names = listed([feature.name for feature in form.features], _SHOWN)
        if not form.has_role("image") and not form.has_role("mask") and self.images != ImageOptions():
            raise OptionsError(
                f"images= has no effect: there are no images; the values are {names} || the role image or "
                "mask declares one"
            )
        check_mask_depth(self.images, has_masks=form.has_role("mask"))
        if not form.has_role("label") and self.class_names is not None:
            raise InputError(
                f"class_names= needs a label; the values are {names} || the role label declares one"
            )

    def rules(self, form: Form) -> ImageRules:
        """Return how images are stored of elements of this form."""
        masks = frozenset(feature.name for feature in form.features if feature.kind == "mask")
        coordinates, image = coordinates_of(form.features), form.first("image")
        return ImageRules(self.images, masks, coordinates, image, self.outside_boxes, self.boxes_in)

    def recorded(self, form: Form) -> dict[str, Json]:
        """Return what manifests record of elements of this form."""
        recorded: dict[str, Json] = {"source": self.source, "columns": dict(form.roles)}
        if self.outside_boxes != "reject":
            recorded["outside_boxes"] = self.outside_boxes
        if self.boxes_in is not None:
            recorded["boxes_in"] = self.boxes_in
        return recorded

    def labels(self, form: Form, labels: pa.ChunkedArray) -> StoredColumn | None:
        """Return the class numbers of all elements, and the class names; None without a label."""
        name = form.first("label")
        return None if name is None else label_column(name, labels, self.class_names)


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


def _flat(values: object, prefix: str = "") -> dict[str, Any]:
    """Return plain values by name; dicts become ``NAME/FIELD``."""
    if not isinstance(values, Mapping):
        raise InputError(f"the values must be a dict by name, not {type(values).__name__}")
    flat: dict[str, object] = {}
    for name, value in values.items():
        # a dict with these two is an image of Hugging Face's datasets
        if isinstance(value, Mapping) and {*value} != {"bytes", "path"}:
            inner = _flat(value, f"{prefix}{name}/")
        else:
            inner = {f"{prefix}{name}": plain_value(value)}
        if twice := flat.keys() & inner.keys():
            raise InputError(f"two values are named {min(twice)!r}; rename one")
        flat |= inner
    return flat


# elements have one set of names
@lru_cache(maxsize=16)
def _roles_of(
    names: tuple[str, ...], declared: tuple[tuple[str, str], ...], source: str
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return the roles of the values that have one, and the names and features of those that are stored."""
    roles = resolve_roles(names, dict(declared), source)
    return roles, tuple(features_of(names, roles, source).items())
