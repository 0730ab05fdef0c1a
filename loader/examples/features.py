"""The features that are delivered, and how the images among them are decoded, checked against the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tfshards.loader.options.image import FLOAT_DTYPES, Image
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
        given = select.split(",") if isinstance(select, str) else ["image"]
        meant = tuple(name.strip() for name in given)
        raise OptionsError(f"select={select!r} must be a tuple of names, such as select={meant!r}")
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
    """Return the options of decoded images and masks by name; those left out stay encoded.

    Args:
        features: the features that are delivered.
        image: options for all images, or for some by name.
        is_mapped: whether the user's function follows, which may make images equal in size.

    Returns:
        By name: with channels, dtype and method given, masks aligned with the images.

    Raises:
        OptionsError: ``image`` names other features than these, does not fit one of them, or leaves one
            without the size that a batch needs.
    """
    if image is None:
        return {}
    encoded = {feature.name: feature for feature in features if feature.is_encoded}
    if not encoded:
        names = _listed([feature.name for feature in features])
        arrays = [feature.name for feature in features if feature.kind == "raw" and len(feature.shape) > 1]
        hint = (
            f"; {arrays[0]!r} comes as a tensor: leave image= out, and resize or scale it in map_fn="
            if arrays
            else ""
        )
        raise OptionsError(
            f"image= is given, but none of the selected features is an image or a mask: {names}{hint}"
        )
    given = dict.fromkeys(encoded, image) if isinstance(image, Image) else dict(image)
    for name in given:
        if name not in encoded:
            raise OptionsError(
                f"image= names {name!r}, which is not a delivered image; those are {_listed(encoded)}"
            )
    chosen = _with_aligned_masks(encoded, given, is_for_all=isinstance(image, Image))
    for name, value in chosen.items():
        _check_fits(encoded[name], value)
        shape = encoded[name].shape
        if value.size is None and None in shape[:2] and not is_mapped:
            raise OptionsError(
                f"the sizes of the images in {name!r} are not known to be equal (shape {shape}), so they "
                "cannot be batched; use Image(size=(height, width)), leave image= out, or resize in map_fn="
            )
    return {
        name: replace(
            value,
            channels=value.channels or encoded[name].shape[2] or 3,
            dtype=value.dtype or encoded[name].dtype,
            method=value.method or ("nearest" if encoded[name].kind == "mask" else "bilinear"),
        )
        for name, value in chosen.items()
    }


def _with_aligned_masks(
    encoded: Mapping[str, Feature], given: Mapping[str, Image], *, is_for_all: bool
) -> dict[str, Image]:
    """Return the options with the size, the crop and the flip of the images in those of the masks.

    Images that differ in these give them to no mask.
    """
    cuts = {
        (value.size, value.crop, value.flip, value.seed)
        for name, value in given.items()
        if encoded[name].kind == "image"
    }
    if len(cuts) != 1:
        return dict(given)
    size, crop, flip, seed = cuts.pop()
    chosen = {}
    for name, value in given.items():
        if encoded[name].kind == "mask" and is_for_all:
            value = Image(size=size, crop=crop, flip=flip, seed=seed)
        elif encoded[name].kind == "mask" and value.crop is None and value.flip is None:
            value = replace(value, size=value.size or size, crop=crop, flip=flip, seed=seed)
        chosen[name] = value
    return chosen


def _check_fits(feature: Feature, image: Image) -> None:
    """Raise OptionsError if an image or a mask cannot be decoded in this way."""
    given, name, stored = f"image {feature.name!r}", feature.name, feature.dtype
    if feature.kind == "image":
        if image.dtype not in (None, stored, *FLOAT_DTYPES):
            allowed = ", ".join((stored, *FLOAT_DTYPES))
            raise OptionsError(
                f"{given} is stored as {stored}; Image.dtype={image.dtype!r} must be {allowed}"
            )
        if (stored, image.dtype, image.normalize) == ("uint16", "float16", None):
            raise OptionsError(
                f"{given} is stored as uint16, and Image.dtype='float16' ends at 65504; use 'float32', or "
                "normalize="
            )
        return
    given = f"{name!r} is a mask, whose values are numbers of classes"
    if image.method not in (None, "nearest"):
        raise OptionsError(
            f"{given}: Image.method={image.method!r} would mix them; leave it out for 'nearest'"
        )
    if image.dct_scaling:
        raise OptionsError(f"{given}: Image.dct_scaling=True would mix them; leave it out")
    if image.normalize is not None or image.dtype in FLOAT_DTYPES:
        raise OptionsError(
            f"{given}: give image={{{name!r}: Image(...)}} without normalize=, and with an integer dtype"
        )
    if (stored, image.dtype) == ("uint16", "uint8"):
        raise OptionsError(f"{given}, stored as uint16; Image.dtype='uint8' cannot hold them")
    if image.channels not in (None, 1):
        raise OptionsError(f"{given}, in one channel; Image.channels={image.channels} must be 1 or left out")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
