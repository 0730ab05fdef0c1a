"""The features of arrays by dtype and shape: values, classes and splits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.options import parse_resize
from tfshards.prep.records.example import Values
from tfshards.prep.sources.arrays.mapped import AnyArray, Layout, MappedArray
from tfshards.prep.sources.classes import MAX_CLASSES, unused_numbers
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.splits import usual_order
from tfshards.schemas import Feature, InputError
from tfshards.schemas.declared import RAW_PIXELS
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import name_fault
from tfshards.schemas.pixels import as_image, left_behind, likely_images, pixel_images
from tfshards.schemas.schema import ITEM_SIZES, KINDS


# elements of a pipeline, and examples of an iterable, have the same ones
@lru_cache(maxsize=256)
def feature_of(name: str, layout: Layout, *, as_list: bool, is_label: bool) -> Feature:
    """Return the feature that an array is stored as, or raise InputError if its dtype cannot be stored so."""
    shape, dtype = layout.shape[1:], layout.name
    try:
        if layout.is_text:
            if as_list:
                raise InputError("list-of-strings", name=name)
            return Feature(name, "label", "int64") if is_label else Feature(name, "bytes", "bytes", shape)
        if dtype not in ITEM_SIZES:
            raise InputError("array-dtype", name=name, dtype=dtype, allowed=sorted(ITEM_SIZES))
        if is_label:
            return Feature(name, "label", dtype if is_class_dtype(layout) else "int64", shape)
        scalar_int = not shape and dtype in KINDS["int"].dtypes and dtype != "bool"
        if not as_list and not scalar_int:
            return Feature(name, "raw", dtype, shape)
        kind = "float" if dtype in KINDS["float"].dtypes else "int"
        if dtype not in KINDS[kind].dtypes:
            raise InputError("list-dtype", name=name, dtype=dtype)
        return Feature(name, kind, dtype, shape)
    except ValueError as error:
        raise InputError("array-fault", name=name, error=error) from None


def as_images(
    features: Sequence[Feature], names: Sequence[str], resize: str | None
) -> tuple[list[Feature], list[str]]:
    """Return the features with those declared that are images, resized, and a warning if that is unclear.

    Args:
        features: features of the arrays.
        names: the arrays that are declared as images.
        resize: size as in ``ImageOptions``, or None.

    Raises:
        InputError: an array is missing or cannot be an image, or it is not certain which one to resize.
    """
    by_name = {feature.name: feature for feature in features}
    for name in names:
        if name not in by_name:
            raise InputError("array-unknown", role="image_arrays", name=name, names=[*by_name])
        if not as_image(by_name[name]):
            found = by_name[name]
            raise InputError("array-no-image", name=name, dtype=found.dtype, shape=found.shape)
        by_name[name] = replace(by_name[name], pixels=RAW_PIXELS)
    images, likely = pixel_images(by_name.values()), likely_images(by_name.values())
    if resize is None:
        listed = " and ".join(map(repr, likely))
        unclear = f"the arrays {listed} may be images; image_arrays= names those that are"
        return [*by_name.values()], [unclear] if likely and not images else []
    if not images:
        raise InputError("resize-no-images", resize=resize, likely=likely or "none")
    if left := left_behind(by_name.values(), images.values()):
        raise InputError("resize-other-arrays", resize=resize, image=next(iter(images)), name=left[0])
    for name in images:
        height, width, *channels = by_name[name].shape
        width, height = parse_resize(resize).size(width or 0, height or 0)
        by_name[name] = replace(by_name[name], shape=(height, width, *channels))
    return [*by_name.values()], []


def values_of(feature: Feature, block: AnyArray, layout: Layout) -> Sequence[Values]:
    """Return the values of each row of ``block``, in the form that the encoder expects."""
    if feature.kind == "raw":
        data = block.astype(block.dtype.newbyteorder("<"), copy=False).tobytes()
        step = feature.num_bytes
        return [data[row * step : (row + 1) * step] for row in range(len(block))]
    if feature.kind == "bytes":
        found, number = strings(feature.name, block), feature.num_elements
        if not feature.shape:
            return found
        return [found[row * number : (row + 1) * number] for row in range(len(block))]
    block = widened(block, layout)
    values: Sequence[Values] = block.reshape(len(block), -1).tolist() if feature.shape else block.tolist()
    return values


def widened(block: AnyArray, layout: Layout) -> AnyArray:
    """Return values of bfloat16, which are mapped as uint16, as float32; others as they are."""
    # the upper half of a float32
    return (block.astype(np.uint32) << 16).view(np.float32) if layout.is_bfloat16 else block


def is_class_dtype(layout: Layout) -> bool:
    """Return whether a label is stored with the dtype of an array, rather than as int64."""
    return layout.name in KINDS["label"].dtypes


def strings(name: str, block: AnyArray) -> list[bytes]:
    """Return the elements in row-major order: bytes, or text as UTF-8 with surrogate escapes as bytes."""
    if block.dtype.kind == "S":
        return cast("list[bytes]", block.ravel().tolist())
    block = np.ascontiguousarray(block, block.dtype.newbyteorder("="))
    # a file may hold numbers that are not characters
    if block.size and block.itemsize and int(block.view(np.uint32).max()) > sys.maxunicode:
        raise InputError("array-bad-character", name=name, maxunicode=sys.maxunicode)
    try:
        return [item.encode("utf-8", "surrogateescape") for item in block.ravel().tolist()]
    except UnicodeEncodeError as error:
        raise InputError("array-not-unicode", name=name, error=error) from None


_LABEL_NAMES = ("label", "labels", "y")
# kinds of integers, and of booleans, which are the classes 0 and 1
_INTEGERS = "biu"


@dataclass(frozen=True)
class Labels:
    """The class number of each example, and the class names in label order; empty if there are none."""

    numbers: IntArray
    class_names: tuple[str, ...]


def usual_label(names: Sequence[str]) -> str | None:
    """Return the array of labels: the first of label, labels and y that exists, or else in capitals."""
    found = {name.lower(): name for name in names} | {name: name for name in names}
    usual = sorted((name for name in _LABEL_NAMES if name in found), key=lambda name: found[name] != name)
    return found[usual[0]] if usual else None


def read_labels(
    name: str, array: MappedArray | None, class_names: Sequence[str], *, may_lack: bool = False
) -> Labels | None:
    """Return the classes in the array of labels, or None if it does not hold classes.

    Integers that ``may_lack`` may be -1, which means no class.

    Raises:
        InputError: a string is empty; or there are class names, and the array is missing or has other labels.
    """
    if class_names and array is None:
        raise InputError("class-names-no-label")
    layout = array.layout if array else Layout("", ())
    is_class = len(layout.shape) == 1 and (layout.is_text or layout.kind in _INTEGERS)
    if array is None or not is_class:
        if class_names:
            raise InputError("array-label-shape", name=name, dtype=layout.name, shape=layout.shape[1:])
        return None
    values = array.whole()
    if layout.is_text:
        return _text_labels(values, name, class_names)
    lowest = -1 if may_lack else 0
    if class_names:
        return Labels(_numbers(values, name, lowest, len(class_names)), tuple(class_names))
    distinct = np.unique(values)
    is_class = len(distinct) <= MAX_CLASSES and (
        not len(distinct) or (distinct[0] >= lowest and int(distinct[-1]) < 1 << 63)
    )
    return Labels(values.astype(np.int64), ()) if is_class else None


def unused_label(name: str | None, array: MappedArray | None) -> list[str]:
    """Return a warning if an array that does not hold classes has numbers that look like classes."""
    if name is None or array is None:
        return []
    shape, kind = array.layout.shape, array.layout.kind
    if shape[1:] == (1,):
        return [
            f"the array {name!r} has the shape (n, 1), so the values are not classes; if they are, save them "
            "with the shape (n,), by reshape(-1)"
        ]
    if len(shape) != 1 or kind not in "if":
        return []
    return unused_numbers("array", name, array.whole(), f"label={name!r}")


def _numbers(values: AnyArray, name: str, lowest: int, num_classes: int) -> IntArray:
    # uint64 may exceed int64
    numbers = cast("npt.NDArray[np.int64]", values)
    for row in np.flatnonzero((numbers < lowest) | (numbers >= num_classes)).tolist():
        found = numbers[row]
        raise InputError("array-label-range", name=name, row=row, numbers=found, last=num_classes - 1)
    return values.astype(np.int64)


def _text_labels(values: AnyArray, name: str, class_names: Sequence[str]) -> Labels | None:
    distinct, first, indexes = np.unique(values, return_index=True, return_inverse=True)
    if not class_names and len(distinct) > MAX_CLASSES:
        return None
    names = strings(name, distinct)
    # sorted by bytes, like folders; different strings may have the same bytes
    in_order = [to_bytes(each) for each in class_names] or sorted(set(names) - {b""})
    number_of = {each: number for number, each in enumerate(in_order)}
    unknown = [(row, each) for row, each in zip(first.tolist(), names, strict=True) if each not in number_of]
    if unknown:
        row, each = min(unknown)
        if not class_names:
            raise InputError("array-label-empty", name=name, row=row)
        num_names = len(class_names)
        raise InputError(
            "array-label-unknown", name=name, row=row, each=to_text(each), num_class_names=num_names
        )
    numbers = np.array([number_of[each] for each in names], dtype=np.int64)[indexes]
    return Labels(numbers, tuple(map(to_text, in_order)))


# Arrays with more distinct values do not hold splits.
_MAX_SPLITS = 100


def is_split_array(array: MappedArray) -> bool:
    """Return whether an array holds one string or one integer per example."""
    return len(array.layout.shape) == 1 and array.layout.kind in "SUiu"


def splits_of(name: str, array: MappedArray) -> dict[str, IntArray]:
    """Return the examples of each split that the array ``name`` names, in the usual order of splits."""
    if not is_split_array(array):
        raise InputError("split-array-shape", name=name)
    distinct, indexes = np.unique(array.whole(), return_inverse=True)
    if len(distinct) > _MAX_SPLITS:
        raise InputError("split-array-many", name=name, num_distinct=len(distinct), max_splits=_MAX_SPLITS)
    names = (
        [to_text(each) for each in strings(name, distinct)]
        if array.layout.is_text
        else [str(number) for number in distinct.tolist()]
    )
    for number, each in enumerate(names):
        if fault := name_fault(each):
            row = int(np.flatnonzero(indexes == number)[0])
            raise InputError("split-array-name", name=name, row=row, fault=fault)
    order = sorted(range(len(names)), key=lambda number: usual_order(names[number]))
    return {names[number]: np.flatnonzero(indexes == number).astype(np.int64) for number in order}
