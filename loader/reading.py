"""What the graph of one ``load`` is made from, and what travels through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tensorflow as tf

from tfshards.loader.assign import Assignment
from tfshards.loader.image_options import Image
from tfshards.loader.options import Lists, Shuffle
from tfshards.loader.read import Shards
from tfshards.schemas import Feature

# By name; the second holds what travels beside the features until the batches are made: "real", and what
# is drawn for random crops and flips.
Values: TypeAlias = "tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]"


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
    """

    shards: Shards
    assignment: Assignment
    features: tuple[Feature, ...]
    as_tuple: bool
    shuffle: Shuffle | None
    images: Mapping[str, Image]
    lists: Lists


def without_elements(features: Sequence[Feature]) -> list[Feature]:
    """Return those whose values have no elements; a stand-in travels for each, see ``batches.py``."""
    return [feature for feature in features if feature.kind != "image" and 0 in feature.shape]
