"""``Content``: the features of a batch, how images among them are decoded, and the function of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tfshards.loader.examples.boxes import Points, checked_points, moved_points
from tfshards.loader.examples.crops import draws_of
from tfshards.loader.examples.ops import Array, Ops
from tfshards.loader.examples.weights import Weighing, weighing
from tfshards.loader.options.image import FLOAT_DTYPES, Image
from tfshards.loader.options.load_options import WEIGHT, LoadOptions
from tfshards.loader.options.selection import select_features
from tfshards.loader.options.validation import invalid
from tfshards.loader.order.epoch import MAP, random_bits
from tfshards.loader.reading.source import OpenSplit
from tfshards.schemas import Feature, OptionsError, Schema
from tfshards.schemas.coordinates import coordinates_of
from tfshards.schemas.index import IntArray as Ints
from tfshards.schemas.pixels import as_image, pixel_images

# The name of the seeds of the user's function, among draws.
MAP_SEED = "map seed"


def with_pixel_images(
    features: Sequence[Feature], schema: Schema, image: Image | Mapping[str, Image] | None
) -> tuple[Feature, ...]:
    """Return the features to deliver; arrays that ``image`` names, or that are images, as images."""
    names = pixel_images(schema.features) if isinstance(image, Image) else image or {}
    views = {feature.name: as_image(feature) for feature in features if feature.name in names}
    return tuple(views.get(feature.name) or feature for feature in features)


def decoded_images(
    features: Sequence[Feature], image: Image | Mapping[str, Image] | None, *, is_mapped: bool
) -> dict[str, Image]:
    """Return the options of decoded images and masks by name, complete, masks aligned with the images."""
    if image is None:
        return {}
    encoded = {feature.name: feature for feature in features if feature.is_encoded}
    given = dict.fromkeys(encoded, image) if isinstance(image, Image) else dict(image)
    if not encoded or not {*given} <= {*encoded}:
        allowed = f"for delivered images and masks: {', '.join(encoded) or 'name arrays that are images'}"
        raise invalid("image", image, allowed)
    chosen = _with_aligned_masks(encoded, given, is_for_all=isinstance(image, Image))
    for name, value in chosen.items():
        feature = encoded[name]
        _check_fits(feature, value)
        if value.size is None and None in feature.shape[:2] and not is_mapped:
            allowed = (
                f"(height, width): the sizes of the images in {name!r} are not known to be equal, so they "
                "cannot be batched; or leave image= out, or resize in map_fn="
            )
            raise invalid("Image.size", None, allowed)
        chosen[name] = replace(
            value,
            channels=value.channels or feature.shape[-1] or 3,
            dtype=value.dtype or feature.dtype,
            method=value.method or ("nearest" if feature.is_mask else "bilinear"),
        )
    return chosen


# What a mask has in common with its image.
_ALIGNED = ("size", "crop", "scale", "ratio", "crop_fraction", "flip", "seed")


def _with_aligned_masks(
    encoded: Mapping[str, Feature], given: Mapping[str, Image], *, is_for_all: bool
) -> dict[str, Image]:
    """Return the options in which masks have the size, the crop and the flip of the images.

    If images differ in these, or none is decoded, masks have their own.
    """
    views = {
        tuple(getattr(value, each) for each in _ALIGNED)
        for name, value in given.items()
        if encoded[name].is_image
    }
    chosen = dict(given)
    for view in views if len(views) == 1 else ():
        aligned = dict(zip(_ALIGNED, view, strict=True))
        for name, value in given.items():
            if not encoded[name].is_mask:
                continue
            own = [
                each for each in aligned if getattr(value, each) not in (getattr(Image, each), aligned[each])
            ]
            if own:
                allowed = f"left out, since {name!r} is a mask, and always has that of the image"
                raise invalid(f"Image.{own[0]}", getattr(value, own[0]), allowed)
            # of one Image for all, the rest is for images
            chosen[name] = replace(Image() if is_for_all else value, **aligned)
    return chosen


def _check_fits(feature: Feature, image: Image) -> None:
    """Raise OptionsError if an image or a mask cannot be decoded in this way."""
    name, stored, channels = feature.name, feature.dtype, feature.shape[-1]
    if feature.pixels and image.channels not in (None, channels) and (channels, image.channels) != (1, 3):
        raise invalid(
            "Image.channels", image.channels, f"the {channels} of the array {name!r}, or 3 for gray"
        )
    if feature.is_image:
        overflows = (stored, image.dtype, image.normalize) == ("uint16", "float16", None)
        if image.dtype not in (None, stored, *FLOAT_DTYPES) or overflows:
            allowed = f"{stored}, as {name!r} is stored, or {', '.join(FLOAT_DTYPES)}"
            raise invalid(
                "Image.dtype", image.dtype, f"{allowed}; float16 ends at 65504" if overflows else allowed
            )
        return
    mixes = image.method == "bilinear" or image.normalize is not None
    shallow = (stored, image.dtype) == ("uint16", "uint8")
    if mixes or shallow or image.dtype in FLOAT_DTYPES or image.channels not in (None, 1):
        allowed = (
            f"with method='nearest', one channel and an integer dtype that holds {stored}, since {name!r} is "
            "a mask, whose values are numbers of classes"
        )
        raise invalid("Image", image, allowed)


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of a batch.

    Attributes:
        images: options of the images that are decoded, by feature.
        points: the keypoints and boxes that move with them.
    """

    features: tuple[Feature, ...]
    as_tuple: bool
    images: Mapping[str, Image]
    points: tuple[Points, ...]
    weighing: Weighing | None
    user_map: Callable[..., object] | None
    map_seed: int
    adds_weight: bool

    @property
    def parsed(self) -> tuple[Feature, ...]:
        """The features that are parsed: those to deliver, and the source of weights."""
        source = self.weighing.feature if self.weighing else None
        return self.features if source is None or source in self.features else (*self.features, source)

    @property
    def moved(self) -> set[str]:
        """The features of boxes and keypoints that move with their image, and are float32."""
        return {each.feature for each in self.points}

    @property
    def by_example(self) -> bool:
        """Whether examples are processed one by one."""
        return bool(self.images) or self.user_map is not None

    @property
    def is_random(self) -> bool:
        """Whether the processing of an example needs random draws."""
        return self.user_map is not None or any(image.is_random for image in self.images.values())

    def decoded(
        self,
        ops: Ops,
        decode_image: Callable[..., Sequence[Array]] | None,
        values: Mapping[str, Array],
        draws: Mapping[str, Array],
    ) -> dict[str, Array]:
        """Return the values of one example with its images decoded, and its boxes moved with them.

        ``decode_image`` is that of the library of ``ops``; None if there are no images.
        """
        decoded = dict(values)
        for feature in self.features:
            image, name = self.images.get(feature.name), feature.name
            if image is None or decode_image is None:
                continue
            with_region = any(each.image == name for each in self.points)
            pixels, *region = decode_image(decoded[name], image, draws, feature, with_region=with_region)
            if with_region:
                decoded = moved_points(ops, decoded, self.points, name, image, region[0], draws)
            decoded[name] = pixels
        return decoded

    def delivered(self, values: Any, weights: Array | None) -> Any:  # noqa: ANN401
        """Return a batch as the user gets it.

        Args:
            values: the features by name, or what the user's function returned.
            weights: the weights of the examples, if they are delivered.
        """
        batch = values
        if self.user_map is None:
            batch = {feature.name: values[feature.name] for feature in self.features}
            batch = tuple(batch.values()) if self.as_tuple else batch
        if weights is None:
            return batch
        if self.user_map is not None and (
            WEIGHT in batch if isinstance(batch, dict) else type(batch) is not tuple
        ):
            raise OptionsError(
                f"map_fn must return a tuple, such as (value,), or a dict without {WEIGHT!r}, to which the "
                "weights of remainder='pad' and sample_weights= are added"
            )
        return {**batch, WEIGHT: weights} if isinstance(batch, dict) else (*batch, weights)

    def draws(self, epoch: int, numbers: Ints) -> dict[str, npt.NDArray[Any]]:
        """Return the random draws for some examples of an epoch by name, of each the rows of an array."""
        draws = draws_of(self.images.values(), epoch, numbers)
        if self.user_map is not None:
            words = numbers[:, np.newaxis], np.arange(2)
            draws[MAP_SEED] = random_bits(self.map_seed, MAP, epoch, *words)
        return draws


def make_content(options: LoadOptions, source: OpenSplit) -> Content:
    """Return the content of the batches of ``source``."""
    is_mapped = options.map_fn is not None
    adds_name = options.adds_weight and options.sample_weights != WEIGHT and not is_mapped
    schema = source.manifest.schema
    if adds_name and options.select is None and WEIGHT in schema.names:
        raise OptionsError(
            f"remainder='pad' and sample_weights= add {WEIGHT!r}, which is a feature already; use select=, "
            f"or sample_weights={WEIGHT!r} to multiply it with the others"
        )
    features = with_pixel_images(select_features(schema, options.select), schema, options.image)
    images = decoded_images(features, options.image, is_mapped=is_mapped)
    known = coordinates_of(source.manifest.schema.features)
    return Content(
        features=features,
        as_tuple=options.select is not None,
        images=images,
        points=checked_points(options.boxes, options.keypoints, features, images, known),
        weighing=weighing(source.manifest, source.name, options.sample_weights),
        user_map=options.map_fn,
        map_seed=options.shuffle.seed if options.shuffle is not None else 0,
        adds_weight=options.adds_weight,
    )


def notes_of(content: Content, source: OpenSplit) -> list[str]:
    """Return a warning about what is delivered as stored although the images next to it are not."""
    known = coordinates_of(source.manifest.schema.features)
    images = {feature: image for feature in content.features if (image := content.images.get(feature.name))}
    # arrays with the sides of an array that is an image may be its masks
    sides = [each.shape[:2] for each, image in images.items() if each.pixels and (image.size or image.flip)]
    left = []
    for feature in content.features:
        stored = known.get(feature.name)
        if feature in images or feature.name in content.moved:
            continue
        # fractions of an image stay true as it is resized
        is_moved = stored is not None and any(
            image.crop or image.flip or (image.size and not stored.is_normalized) for image in images.values()
        )
        if is_moved or (feature.is_raw and feature.shape[:2] in sides):
            left.append(feature.name)
    return [
        f"{', '.join(left)} is delivered as stored, but the images are resized, cropped or flipped: name "
        "boxes in boxes=, keypoints in keypoints=, arrays of the same sides in image= with the same seed, or "
        "leave it out with select="
    ][: len(left)]


def pixels_shape(feature: Feature, image: Image) -> tuple[int | None, ...]:
    """Return height, width and channels of a decoded image."""
    return (*(feature.shape[:2] if image.size is None else image.size), image.channels)
