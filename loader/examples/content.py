"""``Content``: the features of a batch, how images among them are decoded, and the function of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfshards.loader.examples.boxes import checked_boxes
from tfshards.loader.examples.keypoints import checked_keypoints
from tfshards.loader.examples.weights import Weighing, weighing
from tfshards.loader.options.boxes import Boxes, Keypoints
from tfshards.loader.options.image import FLOAT_DTYPES, Image
from tfshards.loader.options.load_options import WEIGHT, LoadOptions
from tfshards.loader.options.selection import select_features
from tfshards.loader.order.source import OpenSplit
from tfshards.schemas import Feature, OptionsError, Schema
from tfshards.schemas.coordinates import coordinates_of
from tfshards.schemas.pixels import as_image, left_behind, likely_images, pixel_images


def selected_features(
    schema: Schema, select: Sequence[str] | None, *, adds_name: bool
) -> tuple[Feature, ...]:
    """Return the features to deliver, in order: those named in ``select``, or all."""
    if adds_name and select is None and WEIGHT in schema.names:
        raise OptionsError("weight-name-taken", weight=WEIGHT)
    return select_features(schema, select)


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
    if not encoded:
        likely = likely_images(features)
        if likely:
            raise OptionsError("image-arrays-unclear", names=likely, name=likely[0])
        raise OptionsError("image-no-images", names=[feature.name for feature in features])
    given = dict.fromkeys(encoded, image) if isinstance(image, Image) else dict(image)
    for name in given:
        if name not in encoded:
            raise OptionsError("image-unknown", name=name, encoded=[*encoded])
    chosen = _with_aligned_masks(encoded, given, is_for_all=isinstance(image, Image))
    for name, value in chosen.items():
        _check_fits(encoded[name], value)
        shape = encoded[name].shape
        if value.size is None and None in shape[:2] and not is_mapped:
            raise OptionsError("image-sizes-differ", name=name, shape=shape)
    return {
        name: replace(
            value,
            channels=value.channels or encoded[name].shape[-1] or 3,
            dtype=value.dtype or encoded[name].dtype,
            method=value.method or ("nearest" if encoded[name].is_mask else "bilinear"),
        )
        for name, value in chosen.items()
    }


def unmoved_arrays(features: Sequence[Feature], images: Mapping[str, Image]) -> list[str]:
    """Return warnings about arrays that are delivered as stored although the images next to them are not."""
    moved = [
        feature
        for feature in features
        if feature.pixels and (each := images.get(feature.name)) and (each.size or each.flip)
    ]
    return [
        f"{name!r} is delivered as stored, but {moved[0].name!r}, which has the same sides, is resized, "
        f"cropped or flipped; give both the same seed, as image={{{name!r}: loader.Image(...)}}, with "
        'method="nearest" for numbers of classes, or leave it out with select='
        for name in left_behind(features, moved)
    ]


def _with_aligned_masks(
    encoded: Mapping[str, Feature], given: Mapping[str, Image], *, is_for_all: bool
) -> dict[str, Image]:
    """Return the options in which masks have the size, the crop and the flip of the images.

    If images differ in these, masks keep their own.
    """
    cuts = {_aligned(Image(value.size), value) for name, value in given.items() if encoded[name].is_image}
    if len(cuts) != 1:
        return dict(given)
    cut = cuts.pop()
    chosen = {}
    for name, value in given.items():
        if encoded[name].is_mask and is_for_all:
            value = cut
        elif encoded[name].is_mask and value.crop is None and value.flip is None:
            value = _aligned(replace(value, size=value.size or cut.size), cut)
            _check_same_box(name, value, cut)
        chosen[name] = value
    return chosen


def _check_same_box(name: str, mask: Image, image: Image) -> None:
    """Raise OptionsError if the crop of an image is another one in a mask of this size."""
    if mask.crop is None or mask.size == image.size:
        return
    # Image refuses a crop without a size
    assert mask.size is not None
    assert image.size is not None
    if mask.crop == "shift" or mask.size[0] * image.size[1] != mask.size[1] * image.size[0]:
        raise OptionsError("mask-size-crop", name=name, size=mask.size, crop=mask.crop, wanted=image.size)


def _aligned(image: Image, other: Image) -> Image:
    """Return the options of an image with the crop and the flip of another one of the same example."""
    names = ("crop", "scale", "ratio", "crop_fraction", "flip", "seed")
    return replace(image, **{name: getattr(other, name) for name in names})


def _check_fits(feature: Feature, image: Image) -> None:
    """Raise OptionsError if an image or a mask cannot be decoded in this way."""
    given, name, stored = f"image {feature.name!r}", feature.name, feature.dtype
    channels = feature.shape[-1]
    if feature.pixels and image.channels not in (None, channels) and (channels, image.channels) != (1, 3):
        raise OptionsError("image-array-channels", name=name, channels=image.channels, stored=channels)
    if feature.is_image:
        if image.dtype not in (None, stored, *FLOAT_DTYPES):
            allowed = ", ".join((stored, *FLOAT_DTYPES))
            raise OptionsError(
                "image-dtype-stored", given=given, stored=stored, dtype=image.dtype, allowed=allowed
            )
        if (stored, image.dtype, image.normalize) == ("uint16", "float16", None):
            raise OptionsError("image-float16", given=given)
        return
    mixes = image.method == "bilinear" or image.normalize is not None
    shallow = (stored, image.dtype) == ("uint16", "uint8")
    if mixes or shallow or image.dtype in FLOAT_DTYPES or image.channels not in (None, 1):
        raise OptionsError("mask-options", name=name, stored=stored, image=image)


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of a batch.

    Attributes:
        images: options of the images that are decoded, by feature.
    """

    features: tuple[Feature, ...]
    as_tuple: bool
    images: Mapping[str, Image]
    boxes: Boxes | None
    keypoints: Keypoints | None
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
        return {each.feature for each in (self.boxes, self.keypoints) if each is not None}

    @property
    def by_example(self) -> bool:
        """Whether examples are processed one by one."""
        return bool(self.images) or self.user_map is not None

    @property
    def is_random(self) -> bool:
        """Whether the processing of an example needs random draws."""
        return self.user_map is not None or any(image.is_random for image in self.images.values())


def make_content(options: LoadOptions, source: OpenSplit) -> Content:
    """Return the content of the batches of ``source``."""
    is_mapped = options.map_fn is not None
    adds_name = options.adds_weight and options.sample_weights != WEIGHT and not is_mapped
    schema = source.manifest.schema
    features = selected_features(schema, options.select, adds_name=adds_name)
    features = with_pixel_images(features, schema, options.image)
    images = decoded_images(features, options.image, is_mapped=is_mapped)
    known = coordinates_of(source.manifest.schema.features)
    return Content(
        features=features,
        as_tuple=options.select is not None,
        images=images,
        boxes=checked_boxes(options.boxes, features, images, known),
        keypoints=checked_keypoints(options.keypoints, features, images, known),
        weighing=weighing(source.manifest, source.name, options.sample_weights),
        user_map=options.map_fn,
        map_seed=options.shuffle.seed if options.shuffle is not None else 0,
        adds_weight=options.adds_weight,
    )


def pixels_shape(feature: Feature, image: Image) -> tuple[int | None, ...]:
    """Return height, width and channels of a decoded image."""
    return (*(feature.shape[:2] if image.size is None else image.size), image.channels)


def without_elements(features: Sequence[Feature]) -> list[Feature]:
    """Return the features whose values have no elements; see ``loader/tensors`` for what replaces them."""
    return [feature for feature in features if not feature.is_encoded and 0 in feature.shape]
