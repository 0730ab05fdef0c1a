"""What the graph of one ``load`` is made from, and what travels through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.assign import Assignment
from tfshards.loader.image_options import Image
from tfshards.loader.map_fn import UserMap
from tfshards.loader.options import Lists, Shuffle
from tfshards.loader.read import Shards
from tfshards.loader.weights import Weighing
from tfshards.schemas import Feature

# What the user's function makes of an example: a tensor, or dicts and tuples of such.
Nest: TypeAlias = "tf.Tensor"
# By name; the second holds what travels beside the features until the batches are made: "real", "weight", and
# the randomness of the work on an example.
Values: TypeAlias = "tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]"
Batch: TypeAlias = "tuple[Nest, dict[str, tf.Tensor]]"


@dataclass(frozen=True)
class Ahead:
    """How much is worked on before the training step asks for it.

    Attributes:
        decoded: examples that are decoded at the same time.
        batches: that are ready.
        parsed: groups of records that are parsed at the same time.
    """

    decoded: int
    batches: int = 2
    parsed: int = 2


@dataclass(frozen=True)
class Reading:
    """All that the graph of one ``load`` is made from.

    Attributes:
        shards: of the split.
        assignment: what this worker reads.
        features: to deliver, in order.
        as_tuple: whether batches are tuples, else dicts.
        shuffle: the order, None for the stored one.
        images: how images are decoded, by feature; the others are not.
        lists: how lists of any length are delivered.
        one_hot: the lengths of the vectors that classes become, by feature.
        weighing: where sample weights come from, if anywhere.
        user_map: what is done to each example by the user's function, if anything.
        ahead: how much is worked on ahead of the training step.
    """

    shards: Shards
    assignment: Assignment
    features: tuple[Feature, ...]
    as_tuple: bool
    shuffle: Shuffle | None
    images: Mapping[str, Image]
    lists: Lists
    one_hot: Mapping[str, int]
    weighing: Weighing | None
    user_map: UserMap | None
    ahead: Ahead

    @property
    def parsed(self) -> tuple[Feature, ...]:
        """The features that are read: those to deliver, and what else is needed."""
        source = self.weighing.feature if self.weighing else None
        return self.features if source is None or source in self.features else (*self.features, source)

    @property
    def by_example(self) -> bool:
        """Whether there is anything to do that is done to one example at a time."""
        return bool(self.images) or self.user_map is not None

    @property
    def randomly_worked(self) -> bool:
        """Whether the work on an example differs from epoch to epoch."""
        return self.user_map is not None or any(image.is_random for image in self.images.values())

    @property
    def adds_weight(self) -> bool:
        """Whether sample weights are delivered."""
        return self.weighing is not None or self.assignment.remainder == "pad"


def without_elements(features: Sequence[Feature]) -> list[Feature]:
    """Return those whose values have no elements; a stand-in travels for each, see ``batches.py``."""
    return [feature for feature in features if feature.kind != "image" and 0 in feature.shape]


def with_elements(reading: Reading, values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the features of a batch or an example by name, in order, with tensors for the stand-ins."""
    whole = {feature.name: values[feature.name] for feature in reading.features}
    for feature in without_elements(reading.features):
        dtype = tf.string if feature.dtype == "bytes" else feature.dtype
        stand_in = whole[feature.name]
        empty = tf.zeros(tf.concat([tf.shape(stand_in), feature.shape], axis=0), dtype)
        whole[feature.name] = tf.ensure_shape(empty, [*stand_in.shape, *feature.shape])
    return whole
