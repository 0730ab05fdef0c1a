"""What optional fields of a feature declare, and what is wrong with them: coordinates and pixels."""

from __future__ import annotations

from tfshards.schemas.json_reader import shown

# The orders of the numbers of a box and of a keypoint; each may have the ending.
BOX_ORDERS = ("xywh", "xyxy", "cxcywh", "yxyx")
POINT_ORDERS = ("xy", "xyv")
NORMALIZED = "-normalized"
COORDINATES = tuple(order + ending for order in (*BOX_ORDERS, *POINT_ORDERS) for ending in ("", NORMALIZED))

# How pixels are stored that are not in an image file.
RAW_PIXELS = "raw"


def coordinates_fault(coordinates: str | None, kind: str, shape: tuple[int | None, ...]) -> str | None:
    """Return what is wrong with the coordinates of a valid feature with this kind and shape, or None."""
    if coordinates is None:
        return None
    if coordinates not in COORDINATES:
        return f"is {shown(coordinates)}, must be one of {', '.join(COORDINATES)}"
    order = coordinates.removesuffix(NORMALIZED)
    # each row of keypoints is an object, and all have the same number of keypoints
    width, last = (4 if order in BOX_ORDERS else len(order)), (shape[-1] if shape else None)
    if kind not in ("int", "float") or not last or last % width or (width == 4 and last != width):
        what = f"has not {width} numbers of each {'box' if width == 4 else 'keypoint'}"
        return f"is {shown(coordinates)}, but kind {kind!r} with shape {shown(list(shape))} {what}"
    return None


def pixels_fault(pixels: str | None, kind: str, dtype: str, shape: tuple[int | None, ...]) -> str | None:
    """Return what is wrong with the pixels of a valid feature with this kind, dtype and shape, or None."""
    if pixels is None:
        return None
    if pixels != RAW_PIXELS:
        return f"is {shown(pixels)}, must be {RAW_PIXELS!r}"
    is_image = len(shape) in (2, 3) and all(shape) and (*shape, 1)[2] in (1, 3, 4)
    # an image is what the loader makes of a raw feature
    if kind in ("raw", "image") and dtype in ("uint8", "uint16") and is_image:
        return None
    what = "pixels are uint8 or uint16 of shape [height, width] or [height, width, 1, 3 or 4]"
    return f"is {shown(pixels)}, but the feature is {dtype} of shape {shown(list(shape))}; {what}"
