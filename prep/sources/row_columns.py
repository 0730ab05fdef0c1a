"""The columns of rows: what a format returns, and how rows with roles are read, once.

Encoded images are written while they are read, templates make paths, and what else is needed is in memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from string import Formatter

import pyarrow as pa

from tfshards.prep.imaging.coordinates import Reference
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.classes import usual_splits
from tfshards.prep.sources.features import (
    TEXT,
    fields_of,
    flattened,
    is_image_struct,
    lacking,
    sampled,
    shown,
    unlisted,
)
from tfshards.prep.sources.image_paths import ImageFiles
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.labels import groups_of
from tfshards.prep.sources.roles import (
    IMAGE_ROLES,
    check_no_repeats,
    check_undeclared,
    unknown_column,
)
from tfshards.prep.sources.staged import Spill
from tfshards.schemas import Feature, InputError

# What a column of structs of images holds, for messages.
_IMAGE_STRUCTS = [{"bytes": None, "path": None}]
# What may follow a name of integers in a template of paths.
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
        is_scattered: whether ``root`` is only one of the folders in which the files of the source are.
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
    is_scattered: bool = False


@dataclass
class SourceColumn:
    """A column of rows; a template of image paths is one, too.

    Attributes:
        name: name of the column, or the template.
        role: its role, or None: it is stored as it is.
        feature: name of the feature that it becomes; empty if it is not stored.
        kind: type of its values.
        chunks: its values, except images, as they are read.
        paths: path of the image in each row, as they are read; empty for none.
    """

    name: str
    role: str | None
    feature: str
    kind: pa.DataType
    chunks: list[pa.Array] = field(default_factory=list)
    paths: list[bytes] = field(default_factory=list)

    @property
    def values(self) -> pa.ChunkedArray:
        """The values that are read, except images."""
        return pa.chunked_array(self.chunks, self.kind)

    @property
    def is_image(self) -> bool:
        """Whether the column holds images or masks."""
        return self.role in IMAGE_ROLES

    @property
    def is_embedded(self) -> bool:
        """Whether the rows hold images, perhaps only some of them, rather than paths alone."""
        return self.is_image and (self.kind == TEXT or is_image_struct(self.kind))

    @property
    def struct(self) -> str:
        """Name of the struct of which the column is a field, or an empty text."""
        return self.name.rpartition("/")[0]


def fields_in(template: str) -> set[str]:
    """Return the columns that a template of paths names."""
    try:
        return {name for _, name, _, _ in Formatter().parse(template) if name}
    except ValueError as error:
        raise _invalid(template, str(error)) from None


def _invalid(template: str, why: str) -> InputError:
    return InputError(
        f"the template {template!r} of paths is not understood: {why}; write one such as train/{{id}}.jpg, "
        "with names of columns in braces"
    )


def plain_rows(read: TableRows, templates: Sequence[str]) -> TableRows:
    """Return rows of the types of ``flattened``, in which each template is a column of paths.

    Raises:
        InputError: two columns have one name, or a template names none, or one that cannot be in paths.
    """

    def plain(table: pa.Table) -> pa.Table:
        rows = flattened(table)
        paths = [pa.array(_template_paths(rows, template, read.where), TEXT) for template in templates]
        for template, column in zip(templates, paths, strict=True):
            # paths are text, even if they are not UTF-8
            rows = rows.append_column(template, column.view(STRING))
        return rows

    empty = pa.Table.from_batches([], read.batches.schema)
    check_no_repeats(flattened(empty).column_names, read.where)
    tables = (plain(pa.Table.from_batches([batch])) for batch in read.batches)
    batches = chain.from_iterable(table.to_batches() for table in tables)
    return replace(read, batches=pa.RecordBatchReader.from_batches(plain(empty).schema, batches))


def read_columns(
    read: TableRows, columns: Sequence[SourceColumn], unchecked: Collection[str], folder: Path | None
) -> tuple[int, pa.Table | None]:
    """Read the rows into the columns, except encoded images, which are written into a folder, if any.

    Returns:
        The number of rows, and what ``Spill.add_images`` has returned of encoded images, or None.

    Raises:
        InputError: there are no rows, or a column without a role, unless it is ``unchecked``, holds images.
    """
    spill: Spill | None = None
    spilled: list[pa.Table] = []
    num_rows = 0
    for batch in read.batches:
        rows = pa.Table.from_batches([batch])
        encoded: dict[str, pa.Array] = {}
        for column in columns:
            name, values = column.name, rows[column.name]
            if column.is_image:
                paths, content = _image_values(column, values)
                column.paths += paths
                encoded |= {} if content is None else {column.feature: content}
                continue
            column.chunks += values.chunks
            if column.role is None and name not in unchecked:
                flat = unlisted(values)[0]
                items = _IMAGE_STRUCTS if is_image_struct(flat.type) else sampled(flat)
                check_undeclared(name, items, read.where)
        if encoded:
            if spill is None:
                spill = Spill(folder, [Feature(name, "bytes", "bytes", (None,)) for name in encoded])
            spilled.append(spill.add_images(encoded))
        num_rows += rows.num_rows
    if not num_rows:
        raise InputError(f"{read.where} has no rows; there is nothing to build", code="no-inputs")
    if spill is not None:
        spill.finish()
    return num_rows, pa.concat_tables(spilled) if spilled else None


def _image_values(column: SourceColumn, values: pa.ChunkedArray) -> tuple[list[bytes], pa.Array | None]:
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
        is_plain = _DIGITS.fullmatch(digits) if is_integer else column.type in (TEXT, STRING) and not digits
        if conversion or not is_plain:
            why = (
                f"{name!r} holds {shown(column.type)}; braces name text, or integers with digits, {{id:06d}}"
            )
            raise _invalid(template, why)
        values = (column if is_integer else column.cast(TEXT)).to_pylist()
        if count := sum(value in (None, b"") for value in values):
            raise lacking(name, count, "of which paths are made")
        pieces.append([format(value, digits).encode() for value in values] if is_integer else values)
    return [b"".join(row) for row in zip(*pieces, strict=True)]


def folder_splits(column: SourceColumn | None) -> pa.ChunkedArray | None:
    """Return the splits that the first folders of the images name, or None.

    As in folders of images, all of them must have usual names of splits, and there must be several.
    """
    if column is None or column.is_embedded:
        return None
    parted = [os.path.normpath(path).partition(b"/") for path in column.paths]
    folders = [to_text(first) if slash else "" for first, slash, _ in parted]
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


def row_groups(by: str, columns: Sequence[SourceColumn], files: Mapping[str, ImageFiles]) -> list[bytes]:
    """Return the group of each row: its value in the column ``by``, which need not be stored."""
    if by in files:
        # with links followed, so that all names of a file are one group
        pairs = zip(files[by].real, files[by].given, strict=True)
        return groups_of(by, _texts(real or path for real, path in pairs))
    by_name = {column.name: column for column in columns}
    if by not in by_name:
        raise unknown_column(by, sorted(by_name), "group_by: the source")
    return groups_of(by, by_name[by].values)
