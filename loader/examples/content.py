"""``Content``: the features of a batch, how images among them are decoded, and the function of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.examples.boxes import checked_boxes
from tfshards.loader.examples.weights import Weighing, weighing
from tfshards.loader.options.image import FLOAT_DTYPES, Boxes, Image
from tfshards.loader.options.load_options import WEIGHT, LoadOptions
from tfshards.loader.order.epoch import MAP, random_bits
from tfshards.loader.order.source import OpenSplit
from tfshards.schemas import Feature, OptionsError, Schema


def traced(
    user_map: Callable[..., object], example: Mapping[str, tf.TensorSpec]
) -> tuple[Callable[..., object], object]:
    """Return the user's function traced once, and the specification of its result."""

    def call(example: Mapping[str, tf.Tensor], seed: tf.Tensor) -> object:
        return user_map(example, seed)

    function = tf.function(call, input_signature=[example, tf.TensorSpec([2], tf.int64)])
    return function, function.get_concrete_function().structured_outputs


def map_seeds(seed: int, epoch: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Return the seeds of the examples ``numbers`` (int64) in an epoch: shape ``(*numbers, 2)`` int64."""
    return random_bits(seed, MAP, epoch, numbers[..., tf.newaxis], tf.range(2, dtype=tf.int64))


def check_returned(spec: object, adds_weight: bool) -> None:
    """Raise unless results of ``map_fn`` with this ``element_spec`` can be batched."""
    leaves = tf.nest.flatten(spec)
    if not leaves:
        raise OptionsError("map-fn-result", spec=spec)
    for leaf in leaves:
        if not isinstance(leaf, (tf.TensorSpec, tf.RaggedTensorSpec)):
            kind = type(leaf).__name__.removesuffix("Spec").replace("NoneTensor", "None")
            raise OptionsError("map-fn-value", kind=kind)
        is_whole = leaf.shape.rank is not None and None not in leaf.shape.as_list()
        if isinstance(leaf, tf.TensorSpec) and not is_whole and not is_list(leaf.shape):
            raise OptionsError("map-fn-shape", shape=leaf.shape)
    if not adds_weight:
        return
    if isinstance(spec, dict):
        if WEIGHT in spec:
            raise OptionsError("map-fn-weight", weight=WEIGHT)
    elif type(spec) is not tuple:
        kind = "a tensor" if isinstance(spec, tf.TypeSpec) else f"a {type(spec).__name__}"
        raise OptionsError("map-fn-kind", kind=kind)


def is_list(shape: tf.TensorShape) -> bool:
    """Whether an example's tensor is a list of any length, or a list of rows of one length."""
    sides = [] if shape.rank is None else shape.as_list()
    return sides[:1] == [None] and len(sides) <= 2 and None not in sides[1:]


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
    mixes = image.method not in (None, "nearest") or image.dct_scaling or image.normalize is not None
    shallow = (stored, image.dtype) == ("uint16", "uint8")
    if mixes or shallow or image.dtype in FLOAT_DTYPES or image.channels not in (None, 1):
        raise OptionsError("mask-options", name=name, stored=stored, image=image)


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
    user_map: Callable[..., object] | None
    map_seed: int
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
    images = decoded_images(features, options.image, is_mapped=is_mapped)
    return Content(
        features=features,
        as_tuple=options.select is not None,
        images=images,
        boxes=checked_boxes(options.boxes, features, images, source.manifest.options),
        weighing=weighing(source.manifest, source.name, options.sample_weights),
        user_map=options.map_fn,
        map_seed=options.shuffle.seed if options.shuffle is not None else 0,
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
