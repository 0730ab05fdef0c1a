"""The features of elements: what they are, and the bytes from which a worker reads them later."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from tfshards.prep.imaging.options import ImageOptions
from tfshards.prep.records.example import Values, as_encoded, example_encoder
from tfshards.prep.sources.arrays.features import feature_of, values_of
from tfshards.prep.sources.arrays.mapped import AnyArray, Layout
from tfshards.prep.sources.classes import check_class_names
from tfshards.prep.sources.keys import KEY_FEATURE, to_bytes
from tfshards.prep.sources.pictures import check_mask_depth, image_feature, mask_feature
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.example import decode_example
from tfshards.schemas.names import name_fault
from tfshards.schemas.option import check_instance, check_strings


@dataclass(frozen=True)
class Elements:
    """The elements of a PCollection, ``(key, features)``: a string, and a dict of values by feature name.

    Every element has the same features. Values are NumPy arrays or scalars, numbers, ``str`` or ``bytes``:
    integer scalars are stored as int64 lists, strings as byte strings, and other values as raw little-endian
    bytes, so that they have the same dtype and shape in every element. The key becomes the feature ``key``.

    Attributes:
        images: names of the features that hold encoded images, as ``bytes``.
        masks: names of the features that hold encoded class maps, as ``bytes``; each fits an image.
        label: name of the feature that holds the class: an integer of at least 0, or the name of the class.
        split: name of the feature that names the split, which is not stored; by default all examples are in
            ``train``, or in the splits of ``Options.splits``.
        lists: names of the features to store as lists of int64, float or byte strings, whose first dimension
            may differ between elements.
        class_names: class names in label order; by default the sorted names in the data, if there are names.
        image_options: how images are checked, converted and stored.

    Raises:
        OptionsError: a feature has two roles, or an option has no effect.
    """

    images: Sequence[str] = ()
    label: str | None = None
    split: str | None = None
    lists: Sequence[str] = ()
    class_names: Sequence[str] | None = None
    image_options: ImageOptions = field(default_factory=ImageOptions)
    masks: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_strings("images", self.images)
        check_strings("masks", self.masks)
        check_strings("lists", self.lists)
        check_class_names(self.class_names)
        check_instance("image_options", self.image_options, ImageOptions)
        if twice := [name for name, times in Counter(self.named).items() if times > 1]:
            raise OptionsError("element-role-repeated", twice=twice[0])
        if self.class_names is not None and self.label is None:
            raise OptionsError("element-class-names-useless")
        if not self.encoded and self.image_options != ImageOptions():
            raise OptionsError("element-image-options-useless")
        check_mask_depth(self.image_options, has_masks=bool(self.masks))

    @property
    def encoded(self) -> list[str]:
        """The images, and after them the masks, which fit them."""
        return [*self.images, *self.masks]

    @property
    def named(self) -> list[str]:
        """The features that have a role, which every element must have."""
        return [*self.encoded, *self.lists, *(name for name in (self.label, self.split) if name is not None)]


DIGEST_BYTES = 16


class Encoded(NamedTuple):
    """The features of one element, sorted by name, its values as an example, and its label and split."""

    features: tuple[Feature, ...]
    data: bytes
    label: int | str
    split: str


def encode_key(key: object) -> bytes:
    """Return the key of an element as bytes, or raise InputError if it cannot be a key."""
    if not isinstance(key, str):
        raise InputError("element-key-type", key=key, kind=type(key).__name__)
    try:
        encoded = to_bytes(key)
    except UnicodeEncodeError as error:
        raise InputError("element-key-unicode", key=key, reason=error.reason) from None
    if not encoded or b"\0" in encoded:
        raise InputError("element-key-text", key=key)
    return encoded


def encode_element(elements: Elements, key: str, values: Mapping[str, object]) -> Encoded:
    """Return the features of an element, and its values as bytes; errors name the key."""
    if not isinstance(values, Mapping):
        raise InputError("element-type-of-features", key=key, kind=type(values).__name__)
    for name in elements.named:
        if name not in values:
            raise InputError("element-feature-missing", key=key, name=name, found=values)
    if KEY_FEATURE.name in values:
        raise InputError("element-named-key", key=key)
    label: int | str = -1
    split = ""
    features: list[Feature] = []
    parts: list[Values] = []
    feature: Feature
    value: Values
    try:
        for name in sorted(values):
            if name in elements.images:
                feature, value = image_feature(name, elements.image_options), _image(name, values[name])
            elif name in elements.masks:
                feature, value = mask_feature(name, elements.image_options), _image(name, values[name])
            elif name == elements.label:
                label = _label(name, values[name])
                feature, value = _stored(name, label, as_list=False)
            elif name == elements.split:
                split = _split(name, values[name])
                feature, value = _stored(name, split, as_list=False)
            else:
                feature, value = _stored(name, values[name], as_list=name in elements.lists)
            features.append(feature)
            parts.append(value)
    except InputError as error:
        raise InputError("element-fault", key=key, error=error) from None
    known = tuple(features)
    return Encoded(known, b"".join(_encoder(known)(parts)), label, split)


def decode_element(features: Sequence[Feature], data: bytes) -> dict[str, Values]:
    """Return the values by feature in the bytes of an element, as ``example_encoder`` expects them."""
    decoded = decode_example(data)
    return {feature.name: as_encoded(feature, decoded[feature.name]) for feature in features}


def data_digest(data: bytes) -> bytes:
    """Return the digest of an element's bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


# the elements of a pipeline have one set of features
@lru_cache(maxsize=16)
def _encoder(features: tuple[Feature, ...]) -> Callable[[Sequence[Values]], Sequence[bytes]]:
    return example_encoder(Schema(features))


def _image(name: str, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise InputError("element-image-type", name=name, kind=type(value).__name__)
    return value


def _label(name: str, value: object) -> int | str:
    if isinstance(value, str) and value:
        return str(value)
    array = np.asarray(value)
    if not array.shape and array.dtype.kind in "biu" and 0 <= int(array) < 1 << 63:
        return int(array)
    raise InputError("element-label", name=name, array=_array_text(array))


def _split(name: str, value: object) -> str:
    fault = name_fault(value) if isinstance(value, str) else f"{value!r} must be a string"
    if fault:
        raise InputError("element-split-name", name=name, fault=fault)
    return cast("str", value)


def _stored(name: str, value: object, *, as_list: bool) -> tuple[Feature, Values]:
    """Return the feature of a value that is not an image, and the value as the encoder expects it."""
    if isinstance(value, (str, bytes)) and not as_list:
        return Feature(name, "bytes", "bytes"), _text(name, value)
    array = np.asarray(value)
    if as_list and array.ndim == 1 and array.dtype.kind in "SUO":
        texts = cast("Sequence[object]", value)
        if all(isinstance(each, (str, bytes)) for each in texts):
            return Feature(name, "bytes", "bytes", (None,)), [_text(name, each) for each in texts]
    if array.dtype.hasobject:
        raise InputError("element-feature-type", name=name, kind=type(value).__name__)
    if as_list and not array.shape:
        raise InputError("element-list-single", name=name, array=_array_text(array))
    layout = Layout.of(array.dtype, (1, *array.shape))
    feature = feature_of(name, layout, as_list=as_list, is_label=False)
    block = array[np.newaxis].view(np.uint16) if layout.is_bfloat16 else array[np.newaxis]
    (stored,) = values_of(feature, block, layout)
    if not as_list:
        return feature, stored
    try:
        return replace(feature, shape=(None, *array.shape[1:])), stored
    except ValueError as error:
        raise InputError("element-list", name=name, error=error) from None


def _text(name: str, value: object) -> bytes:
    try:
        return value if isinstance(value, bytes) else to_bytes(cast("str", value))
    except UnicodeEncodeError as error:
        raise InputError("element-unicode", name=name, reason=error.reason) from None


def _array_text(array: AnyArray) -> str:
    return f"{array.dtype} {array.shape}" if array.shape else repr(array.item())
