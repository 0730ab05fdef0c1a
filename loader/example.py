"""What is done to one example before batches are made: images are decoded, the user's function is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from tfshards.loader.augment import draws_of
from tfshards.loader.images import decode_image
from tfshards.loader.map_fn import map_seeds
from tfshards.loader.reading import Batch, Reading, Values, with_elements
from tfshards.loader.stages import as_written
from tfshards.loader.targets import one_hot_vectors

_SEED = "map seed"
# what goes on into the batches
_KEPT = ("real", "weight")


def example_work(reading: Reading) -> Callable[..., Batch]:
    """Return the function for ``tf.data``'s map that takes the values of one example as they were parsed."""

    @as_written
    def decode(values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]) -> Values:
        decoded = _decode_images(reading, values, beside)
        return decoded, {name: value for name, value in beside.items() if name in _KEPT}

    user_map = reading.user_map
    if user_map is None:
        return decode

    @as_written
    def prepare(values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]) -> Values:
        decoded, kept = decode(values, beside)
        example = with_elements(reading, decoded)
        for feature in reading.features:
            if feature.name in reading.one_hot:
                depth = reading.one_hot[feature.name]
                example[feature.name] = one_hot_vectors(example[feature.name], feature, depth)
        # goes on, so that there is an element even if the function returns nothing, which load() then refuses
        return example, {**kept, _SEED: beside[_SEED]}

    # not marked, so that AutoGraph rewrites what is called here: the user's function, and nothing else
    def work(values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]) -> Batch:
        example, kept = prepare(values, beside)
        return user_map(example, beside[_SEED]), kept

    return work


def example_randomness(reading: Reading, epoch: tf.Tensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return, by name, the randomness that the work on the examples ``numbers`` in an epoch needs."""
    randomness = draws_of(reading.images.values(), epoch, numbers)
    if reading.user_map is not None:
        randomness[_SEED] = map_seeds(reading.user_map.seed, epoch, numbers)
    return randomness


def _decode_images(
    reading: Reading, values: Mapping[str, tf.Tensor], beside: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Return the values of one example with its images decoded."""
    decoded = dict(values)
    for feature in reading.features:
        image = reading.images.get(feature.name)
        if image is not None:
            pixels = decode_image(decoded[feature.name], image, beside)
            if image.size is None:
                pixels = tf.ensure_shape(pixels, [*feature.shape[:2], image.channels])
            decoded[feature.name] = pixels
    return decoded
