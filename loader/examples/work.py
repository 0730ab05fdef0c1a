"""The processing of one example before batching: decode its images, call the user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from tfshards.loader.examples.boxes import moved_boxes
from tfshards.loader.examples.content import Batch, Content, Values, with_elements
from tfshards.loader.examples.images import decode_image, decode_with_region, draws_of
from tfshards.loader.examples.map_fn import map_seeds
from tfshards.loader.graph.raw_ops import without_autograph

_SEED = "map seed"
# what is kept until batches are made
_KEPT = ("real", "weight")


def example_work(content: Content) -> Callable[..., Batch]:
    """Return the function for ``tf.data``'s map that is called with the parsed values of one example."""

    @without_autograph
    def decode(values: Mapping[str, tf.Tensor], extra: Mapping[str, tf.Tensor]) -> Values:
        decoded = _decode_images(content, values, extra)
        return decoded, {name: value for name, value in extra.items() if name in _KEPT}

    user_map = content.user_map
    if user_map is None:
        return decode

    @without_autograph
    def prepare(values: Mapping[str, tf.Tensor], extra: Mapping[str, tf.Tensor]) -> Values:
        decoded, kept = decode(values, extra)
        example = with_elements(content, decoded)
        # the seed is kept, so that there is an element even if the function returns nothing, which is refused
        return example, {**kept, _SEED: extra[_SEED]}

    # not marked, so that AutoGraph converts the user's function, and nothing else
    def work(values: Mapping[str, tf.Tensor], extra: Mapping[str, tf.Tensor]) -> Batch:
        example, kept = prepare(values, extra)
        return user_map(example, extra[_SEED]), kept

    return work


def example_randomness(content: Content, epoch: tf.Tensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return, by name, the random draws and seeds for the examples ``numbers`` in an epoch."""
    randomness = draws_of(content.images.values(), epoch, numbers)
    if content.user_map is not None:
        randomness[_SEED] = map_seeds(content.user_map.seed, epoch, numbers)
    return randomness


def _decode_images(
    content: Content, values: Mapping[str, tf.Tensor], extra: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Return the values of one example with its images decoded, and its boxes moved with them."""
    decoded, boxes = dict(values), content.boxes
    for feature in content.features:
        image = content.images.get(feature.name)
        if image is not None:
            encoded = decoded[feature.name]
            if boxes is not None and boxes.image == feature.name:
                pixels, region = decode_with_region(encoded, image, extra, feature.dtype)
                decoded |= moved_boxes(values, boxes, image, region, extra)
            else:
                pixels = decode_image(encoded, image, extra, feature.dtype)
            if image.size is None:
                pixels = tf.ensure_shape(pixels, [*feature.shape[:2], image.channels])
            decoded[feature.name] = pixels
    return decoded
