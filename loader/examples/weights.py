"""The weight of each example: balanced by class, given by class, or from a feature."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tfshards.loader.options.load_options import BALANCED, SampleWeights
from tfshards.loader.order.source import split_name
from tfshards.schemas import Feature, InputError, Manifest, OptionsError, read_manifest
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


@dataclass(frozen=True)
class Weighing:
    """The source of the weight of an example.

    Attributes:
        feature: the label, or the feature that holds the weight.
        classes: the classes that have weights, ascending; empty if the feature is the weight.
        weights: the weights of the classes.
    """

    feature: Feature
    classes: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()


def weighing(manifest: Manifest, split: str, sample_weights: SampleWeights | None) -> Weighing | None:
    """Return the source of the weights of a split; None without ``sample_weights``."""
    if sample_weights is None:
        return None
    if isinstance(sample_weights, str) and sample_weights != BALANCED:
        return Weighing(_weight_feature(manifest, sample_weights))
    label, counts = manifest.schema.label, class_numbers(manifest, split)
    if label is None or not any(counts.values()):
        raise OptionsError("weights-no-classes", sample_weights=sample_weights, split=split)
    if isinstance(sample_weights, str):
        weights = even_weights(counts)
    else:
        weights = _by_number(manifest, counts, sample_weights)
        missing = [number for number, count in counts.items() if count and number not in weights]
        if missing:
            raise OptionsError(
                "weights-missing",
                manifest=_class_text(manifest, missing[0]),
                counts=counts[missing[0]],
                split=split,
            )
    classes = sorted(weights)
    return Weighing(label, tuple(classes), tuple(float(weights[number]) for number in classes))


def _weight_feature(manifest: Manifest, name: str) -> Feature:
    schema = manifest.schema
    if name not in schema.names:
        raise OptionsError("weights-unknown", name=name, names=schema.names)
    feature = schema[name]
    is_number = any(word in feature.dtype for word in ("int", "float"))
    if feature.is_label or feature.shape != () or not is_number:
        raise OptionsError(
            "weights-feature", name=name, kind=feature.kind, shape=feature.shape, dtype=feature.dtype
        )
    return feature


def _by_number(
    manifest: Manifest, counts: Mapping[int, int], given: Mapping[str, float] | Mapping[int, float]
) -> dict[int, float]:
    names = manifest.schema.class_names
    weights: dict[int, float] = {}
    for key, weight in given.items():
        number = names.index(key) if key in names else key
        known = range(len(names)) if names else counts
        if isinstance(number, str) or number not in known:
            listed = ", ".join(map(repr, names)) if names else ", ".join(map(str, counts))
            raise OptionsError("weights-class-unknown", key=key, listed=listed)
        if int(number) in weights:
            shown = _class_text(manifest, int(number))
            raise OptionsError("weights-repeated", shown=shown)
        weights[int(number)] = weight
    return weights


def _class_text(manifest: Manifest, number: int) -> str:
    names = manifest.schema.class_names
    return repr(names[number]) if names else str(number)
