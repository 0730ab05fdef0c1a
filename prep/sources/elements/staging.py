"""Stage the descriptions of all elements as one table, after checking that they belong together."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from tfshards.prep.sources.classes import MAX_CLASSES
from tfshards.prep.sources.elements.source import Elements
from tfshards.prep.sources.elements.spill import Description, read_features
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.tables.staging import KEY, SPLIT, stage_table
from tfshards.schemas import Feature, InputError
from tfshards.schemas.errors import listed

TABLE_NAME = "elements.arrow"
SIZE, LABEL, DIGEST, ORIGIN = "size", "label", "digest", "origin"
# keys of the table's metadata: the digest of the features, and the class names as JSON
FEATURES, CLASS_NAMES = b"features", b"class_names"

_SHOWN = 5


def stage_elements(elements: Elements, descriptions: Iterable[Description], folder: Path) -> None:
    """Write the table of all elements into their folder, sorted by key.

    Args:
        elements: what the features are.
        descriptions: one for each element, in any order.
        folder: folder of their features and values.

    Raises:
        InputError: two elements have the same key, or differ in their features; or a label is not allowed.
    """
    # equal keys stay in the order of their digests, so that messages do not depend on the runner
    rows = sorted(descriptions, key=lambda row: (row.key, row.digest))
    _check_unique([row.key for row in rows])
    features = _check_features(rows, elements, folder)
    labels, class_names = _classes(rows, elements)
    table = pa.table(
        {
            KEY: pa.array([row.key for row in rows], pa.large_binary()),
            SIZE: pa.array([row.size for row in rows], pa.int64()),
            LABEL: pa.array(labels, pa.int64()),
            SPLIT: pa.array([row.split.encode() for row in rows], pa.large_binary()),
            DIGEST: pa.array([row.digest for row in rows], pa.large_binary()),
            ORIGIN: pa.array([row.origin for row in rows], pa.large_binary()),
        }
    ).replace_schema_metadata({FEATURES: features, CLASS_NAMES: json.dumps(class_names)})
    # a runner may repeat this step while others read the table
    unfinished = folder / f"{TABLE_NAME}.{secrets.token_hex(8)}"
    stage_table(table, unfinished)
    os.replace(unfinished, folder / TABLE_NAME)


def _check_unique(keys: Sequence[bytes]) -> None:
    twice = [one for one, following in pairwise(keys) if one == following]
    if twice:
        names = [repr(to_text(key)) for key in dict.fromkeys(twice)]
        raise InputError("element-keys-repeated", names=listed(names, _SHOWN))


def _check_features(rows: Sequence[Description], elements: Elements, folder: Path) -> bytes:
    """Return the digest of the features that all elements have.

    Raises:
        InputError: they differ.
    """
    first = rows[0]
    other = next((row for row in rows if row.features != first.features), None)
    if other is None:
        return first.features
    ours, theirs = (
        {feature.name: feature for feature in read_features(folder, row.features)} for row in (first, other)
    )
    name = next(name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name))
    found = [
        f"{_shown(have.get(name))} in {to_text(row.key)!r}" for have, row in ((ours, first), (theirs, other))
    ]
    remedy = "give every element the same features"
    if name in ours and name in theirs:
        remedy = "give it one dtype and shape"
        if name not in elements.named:
            remedy += ", or name it in lists= if only its first dimension differs"
    raise InputError("elements-differ", name=name, join=" but ".join(found), remedy=remedy)


def _shown(feature: Feature | None) -> str:
    if feature is None:
        return "missing"
    if feature.kind == "bytes":
        return "text"
    return f"{feature.dtype} {list(feature.shape)}"


def _classes(rows: Sequence[Description], elements: Elements) -> tuple[list[int], Sequence[str]]:
    """Return the number of each element's class, and the class names.

    Raises:
        InputError: a class is not among the given names, or there are too many.
    """
    given = elements.class_names
    if isinstance(rows[0].label, int):
        numbers = [int(row.label) for row in rows]
        beyond = next((row for row in rows if given and int(row.label) >= len(given)), None)
        if given and beyond:
            raise InputError(
                "element-label-range",
                key=to_text(beyond.key),
                label=beyond.label,
                num_given=len(given),
                num_given2=len(given) - 1,
            )
        return numbers, tuple(given or ())
    # sorted by bytes, like folders
    names = given or sorted({str(row.label) for row in rows}, key=to_bytes)
    if len(names) > MAX_CLASSES:
        raise InputError(
            "element-labels-many", label=elements.label, num_names=len(names), max_classes=MAX_CLASSES
        )
    number_of = {name: number for number, name in enumerate(names)}
    unknown = next((row for row in rows if row.label not in number_of), None)
    if unknown:
        raise InputError(
            "element-label-unknown", key=to_text(unknown.key), label=unknown.label, num_names=len(names)
        )
    return [number_of[str(row.label)] for row in rows], tuple(names)
