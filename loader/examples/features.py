"""The features that are delivered, and how the images among them are decoded, checked against the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tfshards.loader.options.image import Image
from tfshards.loader.options.load_options import WEIGHT
from tfshards.schemas import Feature, OptionsError, Schema


def selected_features(
    schema: Schema, select: Sequence[str] | None, *, adds_name: bool
) -> tuple[Feature, ...]:
    """Return the features to deliver, in order: those named in ``select``, or all.

    Args:
        schema: the schema of the dataset.
        select: names of features, or None.
        adds_name: whether a dict also gets ``sample_weight``.

    Raises:
        OptionsError: ``select`` is not a tuple or list of names of features, or repeats one; or a feature
            has the name that is added.
    """
    if select is not None and not isinstance(select, (tuple, list)):
        name = select if isinstance(select, str) else "image"
        raise OptionsError(f"select={select!r} must be a tuple of names, such as select=({name!r},)")
    names = schema.names if select is None else tuple(select)
    known = f"the features are {_listed(schema.names)}"
    if not names:
        raise OptionsError(f"select={select!r} is empty; {known}")
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise OptionsError(f"select={tuple(names)!r} has no feature for {unknown[0]!r}; {known}")
    if len(set(names)) < len(names):
        raise OptionsError(f"select={tuple(names)!r} names a feature twice")
    if adds_name and select is None and WEIGHT in names:
        raise OptionsError(
            f"remainder='pad' and sample_weights= add {WEIGHT!r}, which is a feature already; use select=, "
            f"or sample_weights={WEIGHT!r} to multiply it in"
        )
    return tuple(schema[name] for name in names)


def decoded_images(
    features: Sequence[Feature], image: Image | Mapping[str, Image] | None, *, is_mapped: bool
) -> dict[str, Image]:
    """Return the options of decoded images by name, with their channels; images left out stay encoded.

    Args:
        features: the features that are delivered.
        image: options for all images, or for some by name.
        is_mapped: whether the user's function follows, which may make images equal in size.

    Raises:
        OptionsError: ``image`` names other features than these images, or leaves one without the size that
            a batch needs.
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
                f"image= names {name!r}, which is not a delivered image; those are {_listed(images)}"
            )
        shape = images[name].shape
        if value.size is None and None in shape[:2] and not is_mapped:
            raise OptionsError(
                f"image {name!r} differs in size from example to example, shape {shape}, so "
                "it cannot be batched; use Image(size=(height, width)), "
                "leave image= out, or resize in map_fn="
            )
    return {
        name: replace(value, channels=value.channels or images[name].shape[2] or 3)
        for name, value in chosen.items()
    }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
