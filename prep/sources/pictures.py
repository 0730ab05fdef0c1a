"""The images of one example: read, check and convert them, and place its boxes and keypoints in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias, cast

from tfshards.prep.imaging.coordinates import Outside, Reference, check_numbers, placed
from tfshards.prep.imaging.masks import Geometry
from tfshards.prep.imaging.normalize import Normalized, normalize
from tfshards.prep.imaging.options import CONVERSION, MAX_BYTES, ImageOptions
from tfshards.prep.imaging.pillow import decoder_versions
from tfshards.prep.imaging.reasons import ImageError, Reason
from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Outcome, Rejected
from tfshards.prep.sources.fetching import read_as_listed
from tfshards.schemas import Feature, OptionsError
from tfshards.schemas.coordinates import Coordinates, coordinates_of
from tfshards.schemas.errors import listed
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath

# of features in a message
_SHOWN_NAMES = 5


# The bytes of an image before it is converted, or why there are none.
EncodedImage: TypeAlias = "bytes | Rejected"


def read_image(path: bytes | AnyPath, size: int, stamp: int) -> EncodedImage:
    """Return the image in a file or an object that was listed, unread if it is too large."""
    return _too_large(size) if size > MAX_BYTES else read_as_listed(path, size, stamp)


def _too_large(size: int) -> Rejected:
    return Rejected(Reason.TOO_LARGE, f"{size} bytes; at most {MAX_BYTES}")


@dataclass(frozen=True)
class ImageRules:
    """How the images of the examples of a source are stored.

    Attributes:
        options: image options.
        masks: features that are masks, whose values are kept.
        coordinates: features that hold boxes or keypoints.
        placed_in: feature of the image to which the coordinates refer; None in a source without images.
        outside: what to do about coordinates outside of the image.
        boxes_in: whether coordinates refer to the pixels in the file or to the upright image, if declared.

    Raises:
        OptionsError: images that masks or coordinates must fit would be stored unchecked.
    """

    options: ImageOptions
    masks: frozenset[str] = frozenset()
    coordinates: Mapping[str, Coordinates] = field(default_factory=dict)
    placed_in: str | None = None
    outside: Outside = "reject"
    boxes_in: Reference | None = None

    @classmethod
    def of(
        cls, features: Sequence[Feature], options: ImageOptions, outside: Outside, boxes_in: Reference | None
    ) -> ImageRules:
        """Return the rules of examples of these features; coordinates refer to the first image."""
        masks = frozenset(feature.name for feature in features if feature.is_mask)
        placed_in = next((feature.name for feature in features if feature.is_image), None)
        return cls(options, masks, coordinates_of(features), placed_in, outside, boxes_in)

    def __post_init__(self) -> None:
        if self.options.check == "none" and (self.masks or self.coordinates):
            names = listed([*map(repr, sorted({*self.masks, *self.coordinates}))], _SHOWN_NAMES)
            raise OptionsError(
                f"check='none' neither measures nor turns images, which {names} must fit; leave out "
                "check='none'; the role drop leaves out masks, boxes and keypoints"
            )


def convert_images(
    rules: ImageRules,
    images: Mapping[str, EncodedImage],
    values: dict[str, Values],
    names: Sequence[str],
) -> Outcome:
    """Convert the images of an example, and place its boxes and keypoints in them.

    Args:
        rules: how images are stored.
        images: the images and masks of the example by feature.
        values: values of the other features; those of coordinates are replaced by the ones that fit the
            stored image.
        names: the features, in the order of the schema.
    """
    conversions: list[str] = []
    views: list[Geometry] = []
    try:
        # a mask must fit its image
        for name in sorted(images, key=rules.masks.__contains__):
            is_mask = name in rules.masks
            options = mask_options(rules.options) if is_mask else rules.options
            try:
                found = _normalized(images[name], options, views if is_mask else ())
            except ImageError as fault:
                return Rejected(fault.reason, f"{name}: " * (len(images) > 1) + fault.detail)
            values[name] = found.data
            conversions += found.conversions
            if rules.masks and not is_mask and found.view is not None:
                views.append(found.view)
            if name == rules.placed_in and found.view is not None:
                conversions += _place(rules, values, found.view)
        if rules.placed_in is None:
            for name, coordinates in rules.coordinates.items():
                check_numbers(name, cast("list[float]", values[name]), coordinates)
    except ImageError as fault:
        return Rejected(fault.reason, fault.detail)
    return Accepted([values[name] for name in names], tuple(conversions))


def _normalized(data: EncodedImage, options: ImageOptions, views: Sequence[Geometry]) -> Normalized:
    """Return the normalized image, or raise ImageError; a mask belongs to the images in ``views``."""
    if isinstance(data, bytes) and len(data) > MAX_BYTES:
        data = _too_large(len(data))
    if isinstance(data, Rejected):
        raise ImageError(*data)
    return normalize(data, options, views)


def _place(rules: ImageRules, values: dict[str, Values], file: Geometry) -> list[str]:
    """Replace the coordinates in ``values`` by those in the stored image, and return what was done.

    Raises:
        ImageError: a number is wrong, or it is not known where it is in the stored image.
    """
    given = {name: cast("list[float]", values[name]) for name in rules.coordinates}
    if not given:
        return []
    if rules.boxes_in is None and file.orientation != 1 and any(given.values()):
        raise ImageError(
            Reason.BOXES,
            f"EXIF orientation {file.orientation} turns the image; boxes_in='file' or 'upright' states to "
            "which pixels boxes and keypoints refer",
        )
    view = file if rules.boxes_in == "file" else Geometry(file.upright)
    resize = rules.options.size
    size = resize.size(*file.upright) if resize else file.upright
    notes: list[str] = []
    for name, numbers in given.items():
        values[name], done = placed(name, numbers, rules.coordinates[name], view, size, rules.outside)
        notes += done
    return list(dict.fromkeys(notes))


# features check themselves, and elements have one set of them
@lru_cache(maxsize=256)
def image_feature(name: str, images: ImageOptions, role: str = "image") -> Feature:
    """Return the feature of images, or of masks, that are stored with these options of images."""
    options = images if role == "image" else mask_options(images)
    return Feature(name, role, options.dtype, options.shape)


@lru_cache(maxsize=8)
def mask_options(images: ImageOptions) -> ImageOptions:
    """Return the options of masks next to images with these options: pixel values are kept."""
    depth = images.depth if images.mask_depth is None else images.mask_depth
    kept = replace(images, check="decode", format="keep", jpeg_quality=None, channels=1, mask=True)
    return replace(kept, depth=depth, mask_depth=None)


def check_mask_depth(options: ImageOptions, *, has_masks: bool) -> None:
    """Raise OptionsError if a depth of masks is given where there are none."""
    if options.mask_depth is not None and not has_masks:
        raise OptionsError(
            f"mask_depth={options.mask_depth!r} has no effect, since there are no masks; name them with "
            "mask_dir= or masks=, or leave it out"
        )


def decoders_of(options: ImageOptions, *, has_masks: bool) -> dict[str, Json]:
    """Return the versions of the code on which images that are stored with ``options`` depend."""
    if options.check == "none" and not has_masks:
        return {}
    return {"conversion": CONVERSION, **decoder_versions()}
