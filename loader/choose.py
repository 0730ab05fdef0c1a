"""From ``take=``, ``classes=`` and ``Mix`` to the population of a split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfshards.loader.examples import Classes, Part
from tfshards.loader.population import (
    Groups,
    Members,
    Population,
    grouped,
    quotas_of,
    ranges_of,
    taken,
)
from tfshards.schemas import OptionsError, Schema

Labels = Callable[[], npt.NDArray[np.int64]]


def check_take_fits(take: int | Part | None, num_examples: int, what: str) -> None:
    """Raise if more examples are to be taken than there are.

    Raises:
        OptionsError: so it is.
    """
    if isinstance(take, (int, np.integer)) and take > num_examples:
        raise OptionsError(f"take={take} exceeds the {num_examples} examples of {what}; use at most that")


def choose(
    num_examples: int,
    what: str,
    take: int | Part | None,
    classes: Classes | None,
    schema: Schema,
    labels: Labels,
) -> Population:
    """Return the population of one dataset.

    Args:
        num_examples: of the split.
        what: the split, for errors.
        take: how many of the chosen, or which part of them.
        classes: the classes to choose, or their ratios; None for all examples.
        schema: of the dataset.
        labels: gives the label of each example, in stored order.

    Raises:
        OptionsError: there are no such classes, or not as many examples.
    """
    if classes is None:
        check_take_fits(take, num_examples, what)
        return ranges_of(num_examples, take)
    if schema.label is None:
        raise OptionsError(f"classes= chooses by labels, but {what} has no feature of kind 'label'")
    numbers = [_class_number(schema, name) for name in classes]
    found = labels()
    if not isinstance(classes, Mapping):
        members = np.flatnonzero(np.isin(found, numbers))
        if not len(members):
            raise OptionsError(f"{what} has no examples of classes={list(classes)!r}")
        check_take_fits(take, len(members), f"{what} with classes={list(classes)!r}")
        return Members(tf.constant(taken(members, take), tf.int64))
    part = take if isinstance(take, Part) else None
    members_of = [taken(np.flatnonzero(found == number), part) for number in numbers]
    return resampled(members_of, list(classes.values()), list(classes), take, what)


def mixed(sizes: Sequence[int], weights: Mapping[str, float], take: int | Part | None, what: str) -> Groups:
    """Return the population of several datasets of so many examples, one behind the other, by their weights.

    Raises:
        OptionsError: one has no examples.
    """
    part = take if isinstance(take, Part) else None
    bases = np.cumsum([0, *sizes[:-1]])
    members = [taken(np.arange(base, base + size), part) for base, size in zip(bases, sizes, strict=True)]
    return resampled(members, list(weights.values()), list(weights), take, what)


def resampled(
    members: Sequence[npt.NDArray[np.int64]],
    ratios: Sequence[float],
    names: Sequence[object],
    take: int | Part | None,
    what: str,
) -> Groups:
    """Return groups in these ratios: ``take`` places an epoch, or as many as there are examples.

    Raises:
        OptionsError: a group has no examples, or none of the places.
    """
    for name, numbers in zip(names, members, strict=True):
        if not len(numbers):
            raise OptionsError(f"{what} has no examples of {name!r}; leave it out of the ratios")
    num_places = int(take) if isinstance(take, (int, np.integer)) else sum(map(len, members))
    quotas = quotas_of(ratios, num_places)
    for name, quota in zip(names, quotas, strict=True):
        if not quota:
            raise OptionsError(
                f"{name!r} would have none of the {num_places} places of an epoch; give it a larger share, "
                "or the epoch more places by take="
            )
    return grouped(members, quotas)


def _class_number(schema: Schema, name: object) -> int:
    names = schema.class_names
    if isinstance(name, str) and name in names:
        return names.index(name)
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        number = int(name)
        if not names or 0 <= number < len(names):
            return number
    there_are = ", ".join(map(repr, names)) if names else "numbers only"
    raise OptionsError(f"classes= names {name!r}, which is no class; there are {there_are}")
