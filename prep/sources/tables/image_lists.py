"""Columns of lists of images, as one column for each place in the lists: only readers put them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.sources.tables.assigned_columns import AssignedColumns
from tfshards.prep.sources.tables.features import is_list_type, unlisted
from tfshards.schemas import InputError
from tfshards.schemas.index import IntArray

MAX_IMAGES = 1000


@dataclass(frozen=True)
class ImageLists:
    """The lists of images of a table.

    Attributes:
        places: names of the images of each feature that is a list, as staged.
        lengths: number of images in each row, by feature.
    """

    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lengths: Mapping[str, IntArray] = field(default_factory=dict)

    def dimension(self, feature: str) -> tuple[int | None, ...]:
        """Return the leading dimension of a list of images; none if the feature is not a list."""
        if feature not in self.places:
            return ()
        lengths = {*self.lengths[feature].tolist()}
        return (lengths.pop() or None,) if len(lengths) == 1 else (None,)


def with_places(table: pa.Table, assigned: AssignedColumns) -> tuple[pa.Table, AssignedColumns, ImageLists]:
    """Return the table, and its columns, with a column for each place in lists of images, and these lists.

    Rows with fewer images have null in other places.
    """
    images, masks = dict[str, str](), set(assigned.masks)
    places, all_lengths = {}, {}
    for column, feature in assigned.images.items():
        if not is_list_type(table[column].type):
            images[column] = feature
            continue
        flat, lengths = unlisted(table[column])
        assert lengths is not None
        num_places = int(lengths.max(initial=0))
        if num_places > MAX_IMAGES or is_list_type(flat.type):
            raise InputError("image-list-long", name=column, found=num_places, most=MAX_IMAGES)
        starts = pa.array(lengths.cumsum() - lengths)
        names = tuple(f"{feature}[{place}]" for place in range(num_places))
        for place, name in enumerate(names):
            rows = pc.if_else(pa.array(lengths > place), pc.add(starts, place), None)
            table = table.append_column(name, flat.take(rows))
            images[name] = name
        places[feature], all_lengths[feature] = names, lengths
        masks |= {*names} if feature in assigned.masks else set()
    assigned = replace(assigned, images=images, masks=frozenset(masks))
    return table, assigned, ImageLists(places, all_lengths)
