"""The weight of each example: balanced by class, given by class, or from a feature."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import BALANCED, SampleWeights
from tfshards.loader.options.validation import invalid
from tfshards.loader.reading.source import split_name
from tfshards.schemas import Feature, FormatError, InputError, Manifest, Problem, read_manifest
from tfshards.schemas.storage import any_path

_UNCOUNTED = "no labels, or examples without a class (-1), among which named classes are not counted"


def class_weights(path: str | os.PathLike[str], split: str | None = None) -> dict[int, float]:
    """Return a weight for each class, for Keras's ``class_weight``.

    The weight of a class is ``num_examples / (num_classes * examples of the class)``, so that all classes
    have the same total weight and the mean over the examples is 1 (scikit-learn's "balanced" rule, after King
    and Zeng: Logistic Regression in Rare Events Data, 2001). Classes without examples do not count, and have
    weight 0, nor do examples without a class (-1).

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
    counts = {label: count for label, count in class_numbers(manifest, name).items() if label >= 0}
    if not any(counts.values()):
        raise InputError(f"split {name!r} of {path} has {_UNCOUNTED}, so that no classes can be weighted")
    return even_weights(counts)


def class_numbers(manifest: Manifest, split: str) -> dict[int, int]:
    """Return the number of examples of each class of a split, by class number in ascending order."""
    numbers = {name: number for number, name in enumerate(manifest.schema.class_names)}
    counts = manifest.splits[split].label_counts
    return dict(sorted((numbers[key] if numbers else int(key), count) for key, count in counts.items()))


def even_weights(counts: Mapping[int, int]) -> dict[int, float]:
    """Return the weights of ``class_weights`` for the counts of the classes, which are not all 0.

    The label -1, of examples without a class, has weight 0.
    """
    held = {label: count for label, count in counts.items() if count and label >= 0}
    share = sum(held.values()) / len(held)
    return {label: share / held[label] if label in held else 0.0 for label in counts}


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

    def of(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the weights of examples with these values of the feature, a vector.

        Raises:
            FormatError: a label is a class that no example has according to the manifest.
        """
        if not self.classes:
            return values.astype(np.float32)
        classes = np.array(self.classes, np.int64)
        index = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
        wrong = values[classes[index] != values]
        if len(wrong):
            fault = f"holds the class {wrong[0]}, which no example has according to the manifest"
            raise FormatError(
                "the labels of the records (`tfshards verify DATASET --deep` lists them)",
                [Problem(f"feature {self.feature.name}", fault)],
            )
        return np.array(self.weights, np.float32)[index]


def weighing(manifest: Manifest, split: str, sample_weights: SampleWeights | None) -> Weighing | None:
    """Return the source of the weights of a split; None without ``sample_weights``."""
    if sample_weights is None:
        return None
    if isinstance(sample_weights, str) and sample_weights != BALANCED:
        return Weighing(_weight_feature(manifest, sample_weights))
    label, counts = manifest.schema.label, class_numbers(manifest, split)
    if label is None or not any(count for number, count in counts.items() if number >= 0):
        allowed = f"the name of a feature, since split {split!r} has {_UNCOUNTED}"
        raise invalid("sample_weights", sample_weights, allowed)
    if isinstance(sample_weights, str):
        weights = even_weights(counts)
    else:
        weights = _by_number(manifest, counts, sample_weights)
        if missing := [number for number, count in counts.items() if count and number not in weights]:
            allowed = f"weights of all classes; {_class_text(manifest, missing[0])} has none, 0 leaves it out"
            raise invalid("sample_weights", sample_weights, allowed)
    classes = sorted(weights)
    return Weighing(label, tuple(classes), tuple(float(weights[number]) for number in classes))


def _weight_feature(manifest: Manifest, name: str) -> Feature:
    found = next((feature for feature in manifest.schema.features if feature.name == name), None)
    is_number = found is not None and any(word in found.dtype for word in ("int", "float"))
    if found is None or found.is_image or found.is_label or found.shape != () or not is_number:
        names = ", ".join(map(repr, manifest.schema.names))
        allowed = f"{BALANCED!r}, weights by class, or a feature of one number that is no label, of {names}"
        raise invalid("sample_weights", name, allowed)
    return found


def _by_number(
    manifest: Manifest, counts: Mapping[int, int], given: Mapping[str, float] | Mapping[int, float]
) -> dict[int, float]:
    names = manifest.schema.class_names
    numbers = {name: number for number, name in enumerate(names)}
    known = range(len(names)) if names else counts
    weights: dict[int, float] = {}
    for key, weight in given.items():
        number = numbers.get(key, key) if isinstance(key, str) else key
        if isinstance(number, str) or number not in known or int(number) in weights:
            allowed = f"one of {', '.join(map(repr, names or counts))}, named once"
            raise invalid("a class in sample_weights", key, allowed)
        weights[int(number)] = weight
    return weights


def _class_text(manifest: Manifest, number: int) -> str:
    names = manifest.schema.class_names
    return repr(names[number]) if names else str(number)
