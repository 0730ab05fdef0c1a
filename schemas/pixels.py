"""Arrays that are images: raw features whose elements are pixels, as declared or as they can only be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tfshards.schemas.schema import RAW_PIXELS, Feature, are_pixels

# Smaller arrays may be anything.
_LEAST_SIDE = 8


def as_image(feature: Feature) -> Feature | None:
    """Return a raw feature as the image ``(height, width, channels)`` that it may be; None for others."""
    if not feature.is_raw or not are_pixels(feature):
        return None
    shape = feature.shape if len(feature.shape) == 3 else (*feature.shape, 1)
    return replace(feature, kind="image", shape=shape, pixels=RAW_PIXELS)


def likely_images(features: Iterable[Feature]) -> list[str]:
    """Return the names of the features that have dtype, shape and size of images."""
    found = [(feature.name, as_image(feature)) for feature in features]
    return [name for name, image in found if image and min(_sides(image)) >= _LEAST_SIDE]


def pixel_images(features: Iterable[Feature]) -> dict[str, Feature]:
    """Return the raw features that are images, as images, by name.

    These are the declared ones. Without any, and without encoded images, it is the only one that looks like
    an image, or the one of several that is named ``image``.
    """
    features = list(features)
    names = [feature.name for feature in features if feature.pixels]
    if not names and not any(feature.is_encoded for feature in features):
        likely = likely_images(features)
        names = likely if len(likely) == 1 else [name for name in likely if name == "image"]
    found = {feature.name: as_image(feature) for feature in features if feature.name in names}
    return {name: image for name, image in found.items() if image}


def _sides(image: Feature) -> tuple[int, ...]:
    return tuple(side or 0 for side in image.shape[:2])
