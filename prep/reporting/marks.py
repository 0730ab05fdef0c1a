"""Masks and boxes over their images: which features hold them, and the examples that show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tfshards.prep.reporting.boxes import box_feature, boxes_in, meaning_of
from tfshards.prep.reporting.catalog import Catalog
from tfshards.prep.reporting.glimpse import Glimpse, Roles, image_of, read_values
from tfshards.prep.reporting.options import ReportOptions
from tfshards.prep.reporting.pictures import Shown, label_name, shown
from tfshards.schemas import Feature, Manifest, Schema
from tfshards.schemas.storage import AnyPath

_SHOWN = 24
# Records whose boxes are read to find out what their numbers mean.
_READ = 200
_SHOWN_CLASSES = 6


def roles_of(root: AnyPath, manifest: Manifest, catalog: Catalog, options: ReportOptions) -> Roles:
    """Return the features from which pictures are drawn; some records are read for the meaning of boxes."""
    schema = manifest.schema
    image, boxes = image_of(schema), box_feature(schema)
    if image is None or not image.is_encoded:
        return Roles(image)
    mask = next((feature for feature in schema.features if feature.kind == "mask"), None)
    if boxes is None:
        return Roles(image, mask)
    values = [
        boxes_in(found[boxes.name])
        for part, places in catalog.by_part(catalog.some(_READ, options.seed).tolist())
        for _, found in read_values(root, manifest, part, [record for _, record in places], _no_tick)
        if not isinstance(found, str)
    ]
    meaning = meaning_of(manifest, boxes, values, options.boxes)
    return Roles(image, mask, meaning, _categories(schema, boxes))


def choose_marked(catalog: Catalog, roles: Roles, seed: int) -> list[int]:
    """Return the rows whose masks and boxes are shown; none without masks and boxes."""
    has_marks = roles.mask is not None or roles.boxes is not None
    return catalog.some(_SHOWN, seed).tolist() if has_marks else []


def marked_examples(
    rows: Sequence[int], seen: Mapping[int, Glimpse], manifest: Manifest, roles: Roles
) -> list[Shown]:
    """Return the examples as a page shows them, with the classes of their boxes as captions."""
    return [shown(seen[row], _caption(seen[row], manifest, roles)) for row in rows]


def marks_note(roles: Roles) -> str:
    """Return what the masks and boxes are, in one sentence; empty without any."""
    parts = [f"mask {roles.mask.name!r}, a color for each number but 0"] if roles.mask else []
    if roles.boxes is not None:
        unit = "fractions of the image" if roles.boxes.is_normalized else "pixels"
        guess = ", a guess from the values; --boxes states it" if roles.boxes.is_guessed else ""
        parts.append(f"boxes {roles.boxes.feature!r} as {roles.boxes.format} in {unit}{guess}")
    return "; ".join(parts)


def _caption(seen: Glimpse, manifest: Manifest, roles: Roles) -> str:
    if roles.boxes is None:
        return label_name(manifest, seen.label)
    if not seen.marks:
        return "no boxes"
    if roles.categories is None:
        return f"{len(seen.marks)} boxes" if len(seen.marks) > 1 else "1 box"
    counts = Counter(label_name(manifest, label) for label in seen.marks)
    named = [f"{count} {name}" for name, count in counts.most_common(_SHOWN_CLASSES)]
    return ", ".join(named) + (", …" if len(counts) > len(named) else "")


def _categories(schema: Schema, boxes: Feature) -> Feature | None:
    """Return the labels with the prefix of the boxes, such as ``objects/``."""
    prefix = boxes.name.rpartition("/")[0]
    lists = [one for one in schema.features if one.kind == "label" and one.is_ragged]
    return next((one for one in lists if one.name.rpartition("/")[0] == prefix), None)


def _no_tick(_: int) -> None:
    return
