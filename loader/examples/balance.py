"""Weights that balance classes, from the counts in the manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tfshards.loader.order.source import split_name
from tfshards.schemas import InputError, Manifest, read_manifest
from tfshards.schemas.storage import any_path


def class_weights(path: str | os.PathLike[str], split: str | None = None) -> dict[int, float]:
    """Return a weight for each class, for Keras's ``class_weight``.

    The weight of a class is ``num_examples / (num_classes * examples of the class)``, so that all classes
    have the same total weight and the mean over the examples is 1 (scikit-learn's "balanced" rule, after King
    and Zeng: Logistic Regression in Rare Events Data, 2001). Classes without examples do not count, and have
    weight 0.

    Args:
        path: directory that contains ``dataset.json``.
        split: name of the split; may be omitted if there is only one.

    Returns:
        The weights by class number, in ascending order.

    Raises:
        InputError: the dataset or the split does not exist, or the split has no labels.
    """
    manifest = read_manifest(path)
    name = split_name(manifest, split, any_path(path))
    counts = class_numbers(manifest, name)
    if not any(counts.values()):
        raise InputError("weights-no-labels", name=name, path=path)
    return even_weights(counts)


def class_numbers(manifest: Manifest, split: str) -> dict[int, int]:
    """Return the number of examples of each class of a split, by class number in ascending order."""
    names = manifest.schema.class_names
    counts = manifest.splits[split].label_counts
    return dict(sorted((names.index(key) if names else int(key), count) for key, count in counts.items()))


def even_weights(counts: Mapping[int, int]) -> dict[int, float]:
    """Return the weights of ``class_weights`` for the counts of the classes, which are not all 0."""
    share = sum(counts.values()) / sum(count > 0 for count in counts.values())
    return {label: share / count if count else 0.0 for label, count in counts.items()}
