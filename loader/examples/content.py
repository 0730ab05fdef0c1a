"""``Content``: the content of a batch, and the types of the tensors that pass from stage to stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.examples.boxes import checked_boxes
from tfshards.loader.examples.features import decoded_images, selected_features
from tfshards.loader.examples.map_fn import UserMap
from tfshards.loader.examples.weights import Weighing, weighing
from tfshards.loader.options.boxes import Boxes
from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import WEIGHT, LoadOptions
from tfshards.loader.order.source import Source
from tfshards.schemas import Feature

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
        features: the features to deliver, in order.
        as_tuple: whether batches are tuples, otherwise dicts.
        images: options of the images that are decoded, by feature.
        boxes: options of the boxes that move with one of the images; None for no boxes.
        weighing: the source of sample weights; None for no weights.
        user_map: the user's function on each example; None for no function.
        adds_weight: whether weights are delivered.
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


def make_content(options: LoadOptions, source: Source) -> Content:
    """Return the content of the batches of ``source``.

    Raises:
        OptionsError: options do not fit the features or the classes of the dataset.
    """
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
