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
        raise OptionsError("select-type", select=select, meant=meant)
    names = schema.names if select is None else tuple(select)
    known = f"the features are {_listed(schema.names)}"
    if not names:
        raise OptionsError("select-empty", select=select, known=known)
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise OptionsError("select-feature-unknown", names=tuple(names), unknown=unknown[0], known=known)
    if len(set(names)) < len(names):
        raise OptionsError("select-repeated", names=tuple(names))
    if adds_name and select is None and WEIGHT in names:
        raise OptionsError("weight-name-taken", weight=WEIGHT)
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
        raise OptionsError("image-no-images", names=names, hint=hint)
    given = dict.fromkeys(encoded, image) if isinstance(image, Image) else dict(image)
    for name in given:
        if name not in encoded:
            raise OptionsError("image-unknown", name=name, encoded=_listed(encoded))
    chosen = _with_aligned_masks(encoded, given, is_for_all=isinstance(image, Image))
    for name, value in chosen.items():
        _check_fits(encoded[name], value)
        shape = encoded[name].shape
        if value.size is None and None in shape[:2] and not is_mapped:
            raise OptionsError("image-sizes-differ", name=name, shape=shape)
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
                "image-dtype-stored", given=given, stored=stored, dtype=image.dtype, allowed=allowed
            )
        if (stored, image.dtype, image.normalize) == ("uint16", "float16", None):
            raise OptionsError("image-float16", given=given)
        return
    given = f"{name!r} is a mask, whose values are numbers of classes"
    if image.method not in (None, "nearest"):
        raise OptionsError("mask-method", given=given, method=image.method)
    if image.dct_scaling:
        raise OptionsError("mask-scaling", given=given)
    if image.normalize is not None or image.dtype in FLOAT_DTYPES:
        raise OptionsError("mask-values", given=given, name=name)
    if (stored, image.dtype) == ("uint16", "uint8"):
        raise OptionsError("image-depth-dtype", given=given)
    if image.channels not in (None, 1):
        raise OptionsError("mask-channels", given=given, channels=image.channels)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
