"""The columns of rows: what a format returns, and how rows with roles are read, once.

Encoded images are written while they are read, templates make paths, and what else is needed is in memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import pyarrow as pa

from tfshards.prep.imaging.coordinates import Reference
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.classes import usual_splits
from tfshards.prep.sources.features import (
    TEXT,
    fields_of,
    flattened,
    is_image_struct,
    is_list_type,
    lacking,
    sampled,
    shown,
    unlisted,
)
from tfshards.prep.sources.image_paths import ImageFiles
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.labels import first_folders, groups_of
from tfshards.prep.sources.roles import (
    IMAGE_ROLES,
    check_undeclared,
    is_template,
    listed_columns,
    meant,
    unknown_column,
)
from tfshards.prep.sources.spill import Spill
from tfshards.schemas import Feature, InputError

# What a column of structs of images holds, for messages.
_IMAGE_STRUCTS = [{"bytes": None, "path": None}]
# What may follow a name in a template of paths.
_DIGITS = re.compile(r"(0?[0-9]{1,2}d?)?")
# Type of text in tables that ``flattened`` returns; that of bytes is TEXT.
STRING = pa.large_string()


@dataclass(frozen=True)
class TableRows:
    """What a reader of one file format returns: rows, and what their columns are for.

    Attributes:
        batches: one row for each example, in the order of the source; they are read once. Columns are of any
            Arrow type that ``features.py`` stores; a struct, or a list of structs, counts as columns
            ``NAME/FIELD``. Images are paths as text, which need not be UTF-8, or encoded images as bytes.
            Paths are relative to ``root``. Boxes and keypoints are lists of numbers, or lists of lists with
            one inner list for each object.
        roles: role of each column whose name alone does not decide it, see ``roles.py``: for COCO such as
            ``{"objects/bbox": "xywh", "objects/category": "label"}``. The columns ``file_name``, ``image``,
            ``label``, ``split`` and ``key`` need none. Columns without a role are stored as they are. The
            user's roles replace them.
        root: real path, or URL, of the folder to which paths of images are relative.
        where: path of the source, for messages.
        class_names: class names in label order, by column, where the source has them: the column then holds
            integers.
        faults: name of a column of text: why the row is rejected as an "invalid annotation", or null. It is
            not stored. The other columns of a rejected row hold valid values, such as empty lists.
        boxes_in: "file" or "upright" if the format fixes to which pixels coordinates refer.
        warnings: warnings for the user.
        owns_root: whether images below ``root`` that are in no row are reported.
        unread: columns of the source that are not in ``batches``, since the user drops them.
        separator: what separates classes in a text of the label column.
    """

    batches: pa.RecordBatchReader
    roles: Mapping[str, str] = field(default_factory=dict)
    root: bytes = b""
    where: str = ""
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    faults: str | None = None
    boxes_in: Reference | None = None
    warnings: tuple[str, ...] = ()
    owns_root: bool = False
    unread: tuple[str, ...] = ()
    separator: str | None = None


class Column(NamedTuple):
    """A column of rows, or a template of image paths.

    Attributes:
        name: name of the column, or the template.
        role: its role, or None: it is stored as it is.
        feature: name of the feature that it becomes; empty if it is not stored.
        kind: type of its values.
        is_embedded: whether the rows hold images, perhaps only some of them, rather than paths alone.
    """

    name: str
    role: str | None
    feature: str
    kind: pa.DataType
    is_embedded: bool

    @property
    def is_image(self) -> bool:
        """Whether the column holds images or masks."""
        return self.role in IMAGE_ROLES

    @property
    def struct(self) -> str:
        """Name of the struct of which the column is a field, or an empty text."""
        return self.name.rpartition("/")[0]


class Content(NamedTuple):
    """Rows that have been read.

    Attributes:
        read: the rows as the format describes them.
        columns: columns of features, in their order, and then others that have a role.
        num_rows: number of rows.
        table: columns that hold no images.
        paths: path of the image in each row by column, empty for none.
        spilled: what ``Spill.add_images`` has returned of encoded images, or None.
    """

    read: TableRows
    columns: Sequence[Column]
    num_rows: int
    table: pa.Table
    paths: dict[str, list[bytes]]
    spilled: pa.Table | None

    def of_role(self, role: str) -> Column | None:
        """Return the first column that has a role, or None."""
        return next((column for column in self.columns if column.role == role), None)


def template_columns(roles: Mapping[str, Any]) -> set[str]:
    """Return the columns that templates of paths name."""
    templates = [name for name, role in roles.items() if role in IMAGE_ROLES and is_template(name)]
    try:
        return {name for each in templates for _, name, _, _ in Formatter().parse(each) if name}
    except ValueError as error:
        raise _invalid(templates[0], str(error)) from None


def _invalid(template: str, why: str) -> InputError:
    return InputError(
        f"the template {template!r} of paths is not understood: {why}; write one such as train/{{id}}.jpg, "
        "with names of columns in braces"
    )


def read_once(
    read: TableRows, columns: Sequence[Column], needed: Collection[str | None], folder: Path | None
) -> Content:
    """Read the rows: encoded images are written, and all else that is stored or ``needed`` is in memory.

    Args:
        read: the rows.
        columns: their columns.
        needed: columns that are used, even if they are not stored.
        folder: where images are written; None to write nothing.
    """
    in_templates = template_columns({each.name: each.role for each in columns})
    undeclared = [each.name for each in columns if each.role is None and each.name not in in_templates]
    images = [column for column in columns if column.is_image and not is_template(column.name)]
    left = {each.name for each in columns if each.role == "drop" and each.name not in needed}
    left.update(column.name for column in images)
    empty = flattened(read.batches.schema.empty_table())
    parts = [empty.select([name for name in empty.column_names if name not in left])]
    paths: dict[str, list[bytes]] = {column.name: [] for column in images}
    spill: Spill | None = None
    spilled: list[pa.Table] = []
    num_rows = 0
    for batch in read.batches:
        rows = flattened(pa.Table.from_batches([batch]))
        for name in undeclared:
            values = unlisted(rows[name])[0]
            is_struct = is_image_struct(values.type)
            items = _IMAGE_STRUCTS if is_struct else sampled(values)
            check_undeclared(name, items, read.where, is_list=is_list_type(rows[name].type))
        encoded: dict[str, pa.Array] = {}
        for column in images:
            names, content = _image_values(column, rows[column.name])
            paths[column.name] += names
            if content is not None:
                encoded[column.feature] = content
        if encoded:
            if spill is None:
                spill = Spill(folder, [Feature(name, "bytes", "bytes", (None,)) for name in encoded])
            spilled.append(spill.add_images(encoded))
        num_rows += rows.num_rows
        parts.append(rows.select(parts[0].column_names))
    if not num_rows:
        raise InputError(f"{read.where} has no rows; there is nothing to build", code="no-inputs")
    table = pa.concat_tables(parts)
    templates = [column.name for column in columns if column.is_image and is_template(column.name)]
    paths |= {name: _template_paths(table, name, read.where) for name in templates}
    if spill is not None:
        spill.finish()
    return Content(read, columns, num_rows, table, paths, pa.concat_tables(spilled) if spilled else None)


def _image_values(column: Column, values: pa.ChunkedArray) -> tuple[list[bytes], pa.Array | None]:
    """Return the path of each row, empty for none, and the encoded images, or None if there are none."""
    content, paths = (values, None) if column.is_embedded else (None, values)
    if is_image_struct(column.kind):
        fields = fields_of(values)
        content, paths = fields["bytes"], fields.get("path")
    names = [None] * len(values) if paths is None else paths.cast(TEXT).to_pylist()
    return [name or b"" for name in names], None if content is None else content.cast(TEXT).combine_chunks()


def _template_paths(table: pa.Table, template: str, where: str) -> list[bytes]:
    """Return the path of each row that a template gives."""
    pieces: list[Sequence[bytes]] = []
    for literal, name, digits, conversion in Formatter().parse(template):
        pieces.append([to_bytes(literal)] * table.num_rows)
        if name is None:
            continue
        if name not in table.column_names:
            raise unknown_column(name, table.column_names, where)
        column, digits = table[name], digits or ""
        is_integer = pa.types.is_integer(column.type)
        is_plain = not conversion and _DIGITS.fullmatch(digits) and (is_integer or not digits)
        if not is_plain or not (is_integer or column.type in (TEXT, STRING)):
            kind = shown(column.type)
            why = f"{name!r} holds {kind}; braces name text, or integers with digits, as {{id:06d}}"
            raise _invalid(template, why)
        values = (column if is_integer else column.cast(TEXT)).to_pylist()
        if count := sum(value in (None, b"") for value in values):
            raise lacking(name, count, "of which paths are made")
        pieces.append([format(value, digits).encode() for value in values] if is_integer else values)
    return [b"".join(row) for row in zip(*pieces, strict=True)]


def folder_splits(column: Column | None, content: Content) -> pa.ChunkedArray | None:
    """Return the splits that the first folders of the images name, or None.

    As in folders of images, all of them must have usual names of splits, and there must be several.
    """
    if column is None or column.is_embedded:
        return None
    folders = first_folders(content.paths[column.name])
    usual, others = usual_splits(sorted({*folders}))
    if len(usual) < 2:
        return None
    if others:
        raise InputError(
            f"column {column.name!r}: only some paths are in the folders {', '.join(usual)}; others are in "
            f"{', '.join(map(repr, others[:3]))}; add a column 'split', which names the split of each row"
        )
    report_line(
        f"the splits are the folders {', '.join(usual)} in column {column.name!r}; a column 'split' would "
        "name others, such as one for all rows"
    )
    return _texts(to_bytes(usual[name]) for name in folders)


def _texts(values: Iterable[bytes]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, TEXT)])


def row_groups(by: str, content: Content, files: Mapping[str, ImageFiles]) -> list[bytes]:
    """Return the group of each row: its value in the column ``by``, which need not be stored."""
    if by in files:
        # with links followed, so that all names of a file are one group
        pairs = zip(files[by].real, content.paths[by], strict=True)
        return groups_of(by, _texts(real or path for real, path in pairs))
    if by not in content.table.column_names:
        names = listed_columns(sorted([*files, *content.table.column_names]))
        names += meant(by, content.table.column_names)
        raise InputError(f"group_by={by!r} is not a column; the columns are {names}")
    return groups_of(by, content.table[by])
