"""From ``take=``, ``classes=`` and ``Mix`` to the population of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.selection import Mix, Part
from tfshards.loader.order.population import (
    Groups,
    Members,
    Population,
    grouped,
    quotas_of,
    ranges_of,
    taken,
)
from tfshards.loader.order.source import Source
from tfshards.schemas import OptionsError


def choose_population(options: LoadOptions, source: Source) -> Population:
    """Return the population of an epoch: which examples of ``source`` it contains, and how often.

    Raises:
        OptionsError: a class does not exist, or there are too few examples.
        FormatError: the labels that are needed differ from the manifest.
    """
    take, classes = options.take, options.classes
    part = take if isinstance(take, Part) else None
    if isinstance(options.path, Mix):
        bases = np.cumsum([0, *source.sizes[:-1]])
        members = [
            taken(np.arange(base, base + size), part) for base, size in zip(bases, source.sizes, strict=True)
        ]
        ratios = {str(path): weight for path, weight in options.path.weights.items()}
        return _resampled(members, ratios, take, source)
    num_examples = source.split.num_examples
    if classes is None:
        _check_take_fits(take, num_examples, source.label)
        return ranges_of(num_examples, take)
    if source.manifest.schema.label is None:
        raise OptionsError("classes-no-label", label=source.label)
    numbers = [_class_number(source, name) for name in classes]
    labels = source.labels()
    if isinstance(classes, Mapping):
        members = [taken(np.flatnonzero(labels == number), part) for number in numbers]
        return _resampled(members, classes, take, source)
    chosen = np.flatnonzero(np.isin(labels, numbers))
    if not len(chosen):
        raise OptionsError("classes-no-examples", label=source.label, classes=list(classes))
    _check_take_fits(take, len(chosen), f"{source.label} with classes={list(classes)!r}")
    return Members(tf.constant(taken(chosen, take), tf.int64))


def _resampled(
    members: Sequence[npt.NDArray[np.int64]],
    ratios: Mapping[str, float] | Mapping[int, float],
    take: int | Part | None,
    source: Source,
) -> Groups:
    """Return groups in these ratios, with ``take`` positions per epoch; by default the number of examples.

    Raises:
        OptionsError: a group has no examples, or no positions.
    """
    for name, numbers in zip(ratios, members, strict=True):
        if not len(numbers):
            raise OptionsError("ratio-no-examples", label=source.label, name=name)
    num_positions = int(take) if isinstance(take, (int, np.integer)) else sum(map(len, members))
    quotas = quotas_of(list(ratios.values()), num_positions)
    for name, quota in zip(ratios, quotas, strict=True):
        if not quota:
            raise OptionsError("ratio-no-positions", name=name, num_positions=num_positions)
    return grouped(members, quotas)


def _check_take_fits(take: int | Part | None, num_examples: int, what: str) -> None:
    if isinstance(take, (int, np.integer)) and take > num_examples:
        raise OptionsError("take-too-many", take=take, num_examples=num_examples, what=what)


def _class_number(source: Source, name: object) -> int:
    names = source.manifest.schema.class_names
    if isinstance(name, str) and name in names:
        return names.index(name)
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        number = int(name)
        if not names or 0 <= number < len(names):
            return number
    known = ", ".join(map(repr, names)) if names else "numbers only"
    raise OptionsError("classes-unknown", name=name, known=known)
