"""A table whose rows are examples: files of rows, or any Arrow stream, and what their columns are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True)
class TableRows:
    """What a reader of one file format returns: rows, and what their columns are for.

    ``Table``, ``Coco`` and ``Yolo`` all read their source into this value, and ``stage_table`` stores it.

    Attributes:
        table: one row for each example, in the order of the source. Columns are of any Arrow type that
            ``features.py`` stores; a struct, or a list of structs, counts as columns ``NAME/FIELD``. Paths of
            images are text or bytes, relative to ``root``. Boxes and keypoints are lists of numbers, or lists
            of lists with one inner list for each object.
        roles: role of each column whose name alone does not decide it, see ``roles.py``: for COCO such as
            ``{"objects/bbox": "xywh", "objects/category": "label"}``. The columns ``file_name``, ``image``,
            ``label``, ``split`` and ``key`` need none. Columns without a role are stored as they are. The
            user's roles replace them.
        root: real path, or URL, of the folder to which paths of images are relative.
        where: path of the source, for messages.
        class_names: class names in label order, by column, where the source has them: the column then holds
            integers.
        sizes: names of two columns of integers, the width and height in pixels of the image to which the
            coordinates of the row refer; null where the source does not state them. They are not stored, and
            need no role.
        faults: name of a column of text: why the row is rejected with the reason "boxes do not fit", or null.
            It is not stored. The other columns of a rejected row hold valid values, such as empty lists.
        boxes_in: "file" or "upright" if the format fixes to which pixels coordinates refer.
        warnings: warnings for the user.
        skipped: number of entries of the source that are no rows, by reason.
    """

    table: pa.Table
    roles: Mapping[str, str] = field(default_factory=dict)
    root: bytes = b""
    where: str = ""
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: tuple[str, str] | None = None
    faults: str | None = None
    boxes_in: str | None = None
    warnings: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
