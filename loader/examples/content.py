"""``Content``: the features of a batch, how images among them are decoded, and types of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.examples.boxes import checked_boxes
from tfshards.loader.examples.map_fn import UserMap
from tfshards.loader.examples.weights import Weighing, weighing
from tfshards.loader.options.image import FLOAT_DTYPES, Boxes, Image
from tfshards.loader.options.load_options import WEIGHT, LoadOptions
from tfshards.loader.order.source import OpenSplit
from tfshards.schemas import Feature, OptionsError, Schema


def selected_features(
    schema: Schema, select: Sequence[str] | None, *, adds_name: bool
) -> tuple[Feature, ...]:
    """Return the features to deliver, in order: those named in ``select``, or all."""
    if select is not None and not isinstance(select, (tuple, list)):
        raise OptionsError("select-type", select=select)
    names = schema.names if select is None else tuple(select)
    known = f"the features are {', '.join(map(repr, schema.names))}"
    if not names:
        raise OptionsError("select-empty", select=select, known=known)
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise OptionsError("select-feature-unknown", names=tuple(names), unknown=unknown[0], known=known)
    if len(set(names)) < len(names):
        raise OptionsError("select-repeated", names=tuple(names))
    if adds_name and select is None and WEIGHT in names:
        raise OptionsError("weight-name-taken", weight=WEIGHT)
    return tuple(schema[name] for name in names)


def decoded_images(
    features: Sequence[Feature], image: Image | Mapping[str, Image] | None, *, is_mapped: bool
) -> dict[str, Image]:
    """Return the options of decoded images and masks by name, complete, masks aligned with the images."""
    if image is None:
        return {}
    encoded = {feature.name: feature for feature in features if feature.is_encoded}
    if not encoded:
        raise OptionsError("image-no-images", names=[feature.name for feature in features])
    given = dict.fromkeys(encoded, image) if isinstance(image, Image) else dict(image)
    for name in given:
        if name not in encoded:
            raise OptionsError("image-unknown", name=name, encoded=[*encoded])
    chosen = _with_aligned_masks(encoded, given, is_for_all=isinstance(image, Image))
    for name, value in chosen.items():
        _check_fits(encoded[name], value)
        shape = encoded[name].shape
        if value.size is None and None in shape[:2] and not is_mapped:
            raise OptionsError("image-sizes-differ", name=name, shape=shape)
    return {
        name: replace(
            value,
            channels=value.channels or encoded[name].shape[2] or 3,
            dtype=value.dtype or encoded[name].dtype,
            method=value.method or ("nearest" if encoded[name].kind == "mask" else "bilinear"),
        )
        for name, value in chosen.items()
    }


def _with_aligned_masks(
    encoded: Mapping[str, Feature], given: Mapping[str, Image], *, is_for_all: bool
) -> dict[str, Image]:
    """Return the options with the size, the crop and the flip of the images in those of the masks.

    Images that differ in these give them to no mask.
    """
    cuts = {
        (value.size, value.crop, value.flip, value.seed)
        for name, value in given.items()
        if encoded[name].kind == "image"
    }
    if len(cuts) != 1:
        return dict(given)
    size, crop, flip, seed = cuts.pop()
    chosen = {}
    for name, value in given.items():
        if encoded[name].kind == "mask" and is_for_all:
            value = Image(size=size, crop=crop, flip=flip, seed=seed)
        elif encoded[name].kind == "mask" and value.crop is None and value.flip is None:
            value = replace(value, size=value.size or size, crop=crop, flip=flip, seed=seed)
        chosen[name] = value
    return chosen


def _check_fits(feature: Feature, image: Image) -> None:
    """Raise OptionsError if an image or a mask cannot be decoded in this way."""
    given, name, stored = f"image {feature.name!r}", feature.name, feature.dtype
    if feature.kind == "image":
        if image.dtype not in (None, stored, *FLOAT_DTYPES):
            allowed = ", ".join((stored, *FLOAT_DTYPES))
            raise OptionsError(
                "image-dtype-stored", given=given, stored=stored, dtype=image.dtype, allowed=allowed
            )
        if (stored, image.dtype, image.normalize) == ("uint16", "float16", None):
            raise OptionsError("image-float16", given=given)
        return
    given = f"{name!r} is a mask, whose values are numbers of classes"
    if image.method not in (None, "nearest"):
        raise OptionsError("mask-method", given=given, method=image.method)
    if image.dct_scaling:
        raise OptionsError("mask-scaling", given=given)
    if image.normalize is not None or image.dtype in FLOAT_DTYPES:
        raise OptionsError("mask-values", given=given, name=name)
    if (stored, image.dtype) == ("uint16", "uint8"):
        raise OptionsError("image-depth-dtype", given=given)
    if image.channels not in (None, 1):
        raise OptionsError("mask-channels", given=given, channels=image.channels)


# The result of the user's function for an example: a tensor, or dicts and tuples of tensors.
Nest: TypeAlias = "tf.Tensor"
# The features by name, and the tensors that accompany them until batches are made, by name: "real", "weight",
# and the random draws for an example.
Values: TypeAlias = "tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]"
Batch: TypeAlias = "tuple[Nest, dict[str, tf.Tensor]]"


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of a batch.

    Attributes:
        images: options of the images that are decoded, by feature.
    """

    features: tuple[Feature, ...]
    as_tuple: bool
    images: Mapping[str, Image]
    boxes: Boxes | None
    weighing: Weighing | None
    user_map: UserMap | None
    adds_weight: bool

    @property
    def parsed(self) -> tuple[Feature, ...]:
        """The features that are parsed: those to deliver, and the source of weights."""
        source = self.weighing.feature if self.weighing else None
        return self.features if source is None or source in self.features else (*self.features, source)

    @property
    def by_example(self) -> bool:
        """Whether examples are processed one by one."""
        return bool(self.images) or self.user_map is not None

    @property
    def is_random(self) -> bool:
        """Whether the processing of an example needs random draws."""
        return self.user_map is not None or any(image.is_random for image in self.images.values())


def make_content(options: LoadOptions, source: OpenSplit) -> Content:
    """Return the content of the batches of ``source``."""
    is_mapped = options.map_fn is not None
    adds_name = options.adds_weight and options.sample_weights != WEIGHT and not is_mapped
    features = selected_features(source.manifest.schema, options.select, adds_name=adds_name)
    seed = options.shuffle.seed if options.shuffle is not None else 0
    images = decoded_images(features, options.image, is_mapped=is_mapped)
    return Content(
        features=features,
        as_tuple=options.select is not None,
        images=images,
        boxes=checked_boxes(options.boxes, features, images, source.manifest.options),
        weighing=weighing(source.manifest, source.name, options.sample_weights),
        user_map=None if options.map_fn is None else UserMap(options.map_fn, seed),
        adds_weight=options.adds_weight,
    )


def example_spec(content: Content) -> dict[str, tf.TensorSpec]:
    """Return the specification of one example by feature, with decoded images, before the user's function."""
    specs = {}
    for feature in content.features:
        image = content.images.get(feature.name)
        if image is not None:
            sides = feature.shape[:2] if image.size is None else image.size
            specs[feature.name] = tf.TensorSpec([*sides, image.channels], image.dtype)
        elif feature.is_encoded:
            specs[feature.name] = tf.TensorSpec([], tf.string)
        else:
            dtype = tf.string if feature.dtype == "bytes" else feature.dtype
            if content.boxes is not None and content.boxes.feature == feature.name:
                dtype = tf.float32
            specs[feature.name] = tf.TensorSpec(feature.shape, dtype)
    return specs


def without_elements(features: Sequence[Feature]) -> list[Feature]:
    """Return the features whose values have no elements; see ``batches.py`` for what replaces them."""
    return [feature for feature in features if not feature.is_encoded and 0 in feature.shape]


def with_elements(content: Content, values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the features of a batch or an example by name, in order, including those without elements."""
    whole = {feature.name: values[feature.name] for feature in content.features}
    for feature in without_elements(content.features):
        dtype = tf.string if feature.dtype == "bytes" else feature.dtype
        replaced = whole[feature.name]
        empty = tf.zeros(tf.concat([tf.shape(replaced), feature.shape], axis=0), dtype)
        whole[feature.name] = tf.ensure_shape(empty, [*replaced.shape, *feature.shape])
    return whole
