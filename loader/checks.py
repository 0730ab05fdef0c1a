"""What is asked of a dataset against what it has: splits, features, images, classes, positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from tfshards.loader.assign import Assignment, divisors
from tfshards.loader.image_options import Image
from tfshards.loader.options import WEIGHT, Position, Shuffle
from tfshards.schemas import Feature, InputError, Manifest, OptionsError, Schema


def split_name(manifest: Manifest, split: str | None, root: Path) -> str:
    """Return ``split``, or the name of the only split.

    Raises:
        InputError: there is no such split, or ``split`` is None and there are several.
    """
    names = ", ".join(map(repr, manifest.splits))
    if split is not None and not isinstance(split, str):
        raise OptionsError(f"split={split!r} must be one name; there is {names}")
    if split is None and len(manifest.splits) > 1:
        raise InputError(f"{root} has several splits; name one of {names}")
    if split is not None and split not in manifest.splits:
        raise InputError(f"{root} has no split {split!r}; there is {names}")
    return split if split is not None else next(iter(manifest.splits))


def no_steps(name: str, assignment: Assignment) -> str:
    """Return the sentence that says why an epoch has no steps."""
    return (
        f"split {name!r} has {assignment.num_examples} examples, fewer than the global batch size "
        f"{assignment.global_batch_size} (batch_size={assignment.batch_size} on each of "
        f"{assignment.worker.count} workers), so that remainder={assignment.remainder!r} leaves no steps; "
        "use a smaller batch size or remainder='pad'"
    )


def selected_features(schema: Schema, select: Sequence[str] | None, adds_name: bool) -> tuple[Feature, ...]:
    """Return the features to deliver, in order: those named in ``select``, or all.

    Args:
        schema: of the dataset.
        select: names, or None.
        adds_name: whether a dict is to have ``sample_weight`` besides.

    Raises:
        OptionsError: ``select`` is not a tuple or list of names of features, or repeats one; or
            there is a feature of the name that is added.
    """
    if select is not None and not isinstance(select, (tuple, list)):
        name = select if isinstance(select, str) else "image"
        raise OptionsError(f"select={select!r} must be a tuple of names, such as select=({name!r},)")
    names = schema.names if select is None else tuple(select)
    there_are = f"there are {_listed(schema.names)}"
    if not names:
        raise OptionsError(f"select={select!r} is empty; {there_are}")
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise OptionsError(f"select={tuple(names)!r} has no feature for {unknown[0]!r}; {there_are}")
    if len(set(names)) < len(names):
        raise OptionsError(f"select={tuple(names)!r} names a feature twice")
    if adds_name and select is None and WEIGHT in names:
        raise OptionsError(
            f"remainder='pad' and sample_weights= add {WEIGHT!r}, which is a feature already; use select=, "
            f"or sample_weights={WEIGHT!r} to multiply it in"
        )
    return tuple(schema[name] for name in names)


def decoded_images(
    features: Sequence[Feature], image: Image | Mapping[str, Image] | None, is_mapped: bool
) -> dict[str, Image]:
    """Return how the images among ``features`` are decoded, by name and with channels; others stay encoded.

    Args:
        features: that are delivered.
        image: how to decode all of them, or some by name.
        is_mapped: whether a function of the user's follows, which may make images equal in size.

    Raises:
        OptionsError: ``image`` names something else than these images, or leaves one without the size that a
            batch needs.
    """
    images = {feature.name: feature for feature in features if feature.kind == "image"}
    if image is None or isinstance(image, Image):
        chosen = dict.fromkeys(images, image) if image is not None else {}
    else:
        chosen = dict(image)
    if image is not None and not images:
        names = _listed([feature.name for feature in features])
        raise OptionsError(f"image= is given, but none of {names} is of kind 'image'")
    for name, value in chosen.items():
        if name not in images:
            raise OptionsError(
                f"image= names {name!r}, which is no image that is delivered; these are {_listed(images)}"
            )
        shape = images[name].shape
        if value.size is None and None in shape[:2] and not is_mapped:
            raise OptionsError(
                f"image {name!r} differs in size from example to example, shape {shape}, so "
                "that it cannot be batched; use Image(size=(height, width)), "
                "leave image= out, or resize in map_fn="
            )
    return {
        name: replace(value, channels=value.channels or images[name].shape[2] or 3)
        for name, value in chosen.items()
    }


def check_class_names(schema: Schema, class_names: Sequence[str] | None, root: Path) -> None:
    """Raise unless the dataset's classes are ``class_names``, in that order; None asks for nothing.

    Raises:
        OptionsError: they differ; the message has the first difference.
    """
    if class_names is None:
        return
    wanted, found = list(class_names), list(schema.class_names)
    if wanted == found:
        return
    if not found:
        difference = f"has no class names, but class_names= asks for {len(wanted)}"
    else:
        pairs = enumerate(zip_longest(wanted, found))
        number, asked, there = next((i, one, other) for i, (one, other) in pairs if one != other)
        difference = _class_difference(number, asked, there, wanted, found)
    raise OptionsError(
        f"{root} {difference}; a model trained with one numbering misreads the other: load the dataset "
        "that belongs to these names, or take the names from the class_names in its dataset.json"
    )


def _class_difference(
    number: int, asked: str | None, there: str | None, wanted: Sequence[str], found: Sequence[str]
) -> str:
    """Return how the classes differ at ``number``, the first place where they do."""
    if asked is not None and asked not in found:
        return f"lacks the class {asked!r}, number {number} of class_names="
    if asked is None or (there is not None and there not in wanted):
        return f"has a class {there!r}, number {number}, that is not in class_names="
    return f"has the class {asked!r} as number {found.index(asked)}, class_names= as number {number}"


def check_start(start: Position, epochs: int | None, assignment: Assignment, shuffle: Shuffle | None) -> None:
    """Raise unless the run has the epoch and the step at which it starts.

    Raises:
        OptionsError: it does not, or the order before ``start`` cannot be told.
    """
    if epochs is not None and epochs < 1:
        raise OptionsError(f"epochs={epochs} must be at least 1, or None for no end")
    # a run that has come to its end, and is started once more, has nothing left
    is_done = start.order is not None and (start.epoch, start.step) == (epochs, 0)
    if epochs is not None and start.epoch >= epochs and not is_done:
        raise OptionsError(
            f"start={start} lies behind the end, epochs={epochs}; epochs counts from the run's beginning, "
            f"use at least {start.epoch + 1}"
        )
    if start.step and start.step >= assignment.num_steps:
        raise OptionsError(f"start={start} does not exist: an epoch has {assignment.num_steps} steps")
    if assignment.lanes and shuffle is not None and shuffle.lanes is None and start != Position():
        usual = assignment.usual_lanes
        if assignment.lanes != usual:
            raise OptionsError(
                f"{assignment.worker.count} workers do not divide the {usual} lanes of the default order, so "
                f"that this run cannot be told to be the one to resume; use {divisors(usual)} workers, or "
                f"Shuffle(lanes={assignment.lanes}) if the run began with {assignment.worker.count}"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
