"""Rows and what their columns are for, as readers of file formats return them, and how they are staged."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from string import Formatter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tfshards.prep.imaging.coordinates import Outside, Reference
from tfshards.prep.imaging.formats import is_encoded
from tfshards.prep.imaging.options import ImageOptions, changed_images
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.classes import repeated
from tfshards.prep.sources.features import (
    TEXT,
    StoredColumn,
    fields_of,
    flattened,
    is_bytes_type,
    is_image_struct,
    is_list_type,
    is_text_type,
    item_type,
    sampled,
    shown,
    stored_column,
    unlisted,
)
from tfshards.prep.sources.image_paths import ImageFiles, check_found, is_url, stat_images, unmentioned
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.sources.labels import first_folders, groups_of, key_column, label_column, split_names
from tfshards.prep.sources.pictures import (
    ImageRules,
    check_mask_depth,
    image_feature,
    mask_feature,
)
from tfshards.prep.sources.roles import (
    USUAL,
    check_undeclared,
    feature_name,
    features_of,
    flag,
    is_template,
    listed_columns,
    recorded_roles,
    resolve_roles,
    unknown_column,
)
from tfshards.prep.sources.split_lists import (
    UNLISTED,
    read_split_lists,
)
from tfshards.prep.sources.splits import all_usual, usual_split
from tfshards.prep.sources.staged import Rows, Wide, WideWriter, stage
from tfshards.prep.sources.staged_reader import StagedReader
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.coordinates import coordinates_of
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath

# Roles of columns that are no features.
_NOT_STORED = ("split", "key", "drop")
# Rows of a table in memory that are looked at together.
_MANY_ROWS = 1 << 16
# Bytes that begin like no image are a path up to this length.
_LONGEST_PATH = 4096
# Column of row numbers while a table is read.
_ROW = "\0row"
# What may follow a name in a template of paths.
_DIGITS = re.compile(r"(0?[0-9]{1,2}d?)?")


class Batches(NamedTuple):
    """A table that is read once, batch by batch; fields of structs are columns of their own."""

    schema: pa.Schema
    tables: Iterator[pa.Table]


def in_memory(rows: pa.Table | Batches) -> pa.Table:
    """Return all rows as a table."""
    return rows if isinstance(rows, pa.Table) else pa.concat_tables([rows.schema.empty_table(), *rows.tables])


@dataclass(frozen=True)
class TableRows:
    """What a reader of one file format returns: rows, and what their columns are for.

    ``Table``, ``Coco`` and ``Yolo`` all read their source into this value, and ``stage_table`` stores it.

    Attributes:
        table: one row for each example, in the order of the source, or batches of them. Columns are of any
            Arrow type that ``features.py`` stores; a struct, or a list of structs, counts as columns
            ``NAME/FIELD``. Paths of images are text or bytes, relative to ``root``. Boxes and keypoints are
            lists of numbers, or lists of lists with one inner list for each object.
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
        faults: name of a column of text: why the row is rejected as an "invalid annotation", or null. It is
            not stored. The other columns of a rejected row hold valid values, such as empty lists.
        boxes_in: "file" or "upright" if the format fixes to which pixels coordinates refer.
        warnings: warnings for the user.
        skipped: number of entries of the source that are no rows, by reason.
        owns_root: whether images below ``root`` that are in no row are reported.
        unread: columns of the source that are not in ``table``, since the user drops them.
    """

    table: pa.Table | Batches
    roles: Mapping[str, str] = field(default_factory=dict)
    root: bytes = b""
    where: str = ""
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: tuple[str, str] | None = None
    faults: str | None = None
    boxes_in: Reference | None = None
    warnings: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    owns_root: bool = False
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowOptions:
    """What the user gives for rows of any file format; the attributes are those of ``Table``.

    Attributes:
        kind: name of the kind of source.
        folder_of_lists: folder to which the paths in ``split_list`` are relative.
        only: names of the features of the dataset to which rows are appended: other columns are left out.
        recorded: further options that manifests record.
    """

    kind: str
    roles: Mapping[str, str]
    images: ImageOptions
    root: str | os.PathLike[str] | None = None
    class_names: Sequence[str] | None = None
    follow_links: bool = False
    label_separator: str | None = None
    outside_boxes: Outside = "reject"
    boxes_in: Reference | None = None
    split_list: Mapping[str, str] = field(default_factory=dict)
    folder_of_lists: AnyPath = Path()
    only: frozenset[str] | None = None
    recorded: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self, roles: Mapping[str, str]) -> dict[str, Json]:
        """Return what manifests record; ``roles`` are the resolved ones."""
        given: dict[str, Json] = {
            "outside_boxes": None if self.outside_boxes == "reject" else self.outside_boxes,
            "boxes_in": self.boxes_in,
            "label_separator": self.label_separator,
            "split_list": dict(self.split_list) or None,
        }
        found = {name: value for name, value in given.items() if value is not None}
        return {"source": self.kind, "columns": dict(roles), **found, **self.recorded}


def is_image_role(role: str | None) -> bool:
    """Return whether columns of a role hold images or masks."""
    return role in ("image", "mask")


def stage_table(
    read: TableRows, options: RowOptions, folder: Path, *, group_by: str | None, preview: bool
) -> StagedReader:
    """Return a reader of rows that were read, after copying them into ``folder``.

    The steps: roles of all columns, one pass over the rows, features, files of images, staging.
    """
    where = read.where
    schema = read.table.schema
    hidden = {*(read.sizes or ()), *([read.faults] if read.faults else [])}
    types = {each.name: each.type for each in flattened(schema.empty_table()).schema}
    names = [name for name in types if name not in hidden]
    for name in repeated(names):
        raise InputError("column-repeated", path=where, twice=name)
    for column, of_column in read.class_names.items():
        # two numbers of one name would be two classes or one, depending on the reader
        for name in repeated(of_column):
            raise InputError("table-class-repeated", path=where, repeated=name, column=column)
    declared = _known_roles(names, options.roles, options.only)
    roles = resolve_roles([*names, *read.unread], declared, where, read.roles)
    features = features_of(names, roles, where)
    images = [name for name in features if is_image_role(roles.get(name))]
    masks = frozenset(features[name] for name in images if roles[name] == "mask")
    label = next((name for name, role in roles.items() if role == "label"), None)
    _check_options(read, options, images, masks, label)
    for name in images:
        if not is_template(name):
            _check_image_type(name, types[name])
    needed = {name for name in names if roles.get(name) != "drop"} | hidden
    needed |= {name for name in (*template_columns(roles), group_by) if name in types}
    writer = WideWriter(None if preview else folder)
    table, paths = _collect(
        read.table,
        needed,
        [name for name in images if not is_template(name)],
        partial(_check_undeclared, {*roles, *template_columns(roles)}, where),
        lambda encoded: writer.write({features[name]: column for name, column in encoded.items()}),
    )
    wide = writer.close()
    if not table.num_rows:
        raise InputError("table-no-rows", path=where)
    paths |= {name: _template_paths(table, name, where) for name in images if is_template(name)}
    skipped, lines = dict(read.skipped), list[str]()
    splits = next((split_names(name, table[name]) for name, role in roles.items() if role == "split"), None)
    if options.split_list:
        is_plain = images and splits is None and not (wide and features[images[0]] in wide.sizes)
        if not is_plain:
            raise InputError("split-list-table")
        kept, splits, lines = _listed_splits(paths[images[0]], options)
        skipped[UNLISTED] = table.num_rows - len(kept)
        table = table.take(pa.array(kept))
        paths = {name: [each[row] for row in kept] for name, each in paths.items()}
    elif splits is None:
        splits = _folder_splits([name for name in images if roles[name] == "image"], paths, wide, features)
    files: dict[str, ImageFiles] = {}
    for name in images:
        sizes = wide.sizes.get(features[name]) if wide else None
        embedded = (
            [None] * table.num_rows if sizes is None else [None if n < 0 else n for n in sizes.tolist()]
        )
        found = stat_images(read.root, paths[name], embedded, follow_links=options.follow_links)
        if sizes is None:
            check_found(name, found, read.root)
        files[name] = found
    stored = {
        feature: _stored(table[name], name, roles.get(name) or _plain_role(name, types), options, read)
        for name, feature in features.items()
        if name not in images
    }
    found_features = [
        *(
            mask_feature(features[name], options.images)
            if features[name] in masks
            else image_feature(features[name], options.images)
            for name in images
        ),
        *(column.feature for column in stored.values()),
    ]
    class_names = next((column.class_names for column in stored.values() if column.class_names), ())
    photos = [features[name] for name in images if roles[name] == "image"]
    coordinates = coordinates_of(found_features)
    rules = ImageRules(
        options.images,
        masks,
        coordinates,
        photos[0] if photos else None,
        options.outside_boxes,
        options.boxes_in or read.boxes_in,
    )
    warnings = [*read.warnings, *lines, *filter(None, (column.warning for column in stored.values()))]
    by_path = [name for name in images if not (wide and features[name] in wide.sizes)]
    warnings += _image_warnings(read, options, by_path, paths, lambda name: features[name] in masks)
    if coordinates and len(photos) > 1:
        warnings.append(f"boxes and keypoints belong to the image {photos[0]!r}")
    if label is None:
        warnings += [
            f"the column {name!r} has class names, which are not stored; {flag(name, 'label')} stores them"
            for name in read.class_names
            if name in features
        ]
    keys = next((key_column(name, table[name]) for name, role in roles.items() if role == "key"), None)
    return stage(
        Rows(
            num_rows=table.num_rows,
            features=found_features,
            rules=rules,
            recorded=options.to_json(recorded_roles(roles, [*names, *read.unread])),
            values={name: column.values for name, column in stored.items()},
            images={features[name]: found for name, found in files.items()},
            wide=wide,
            keys=keys,
            splits=splits,
            stated=(table[read.sizes[0]], table[read.sizes[1]]) if read.sizes else None,
            faults=table[read.faults] if read.faults else None,
            groups=None if group_by is None else _groups(group_by, table, paths, files, stored, label),
            image_column=images[0] if images else "",
            class_names=class_names,
            root=read.root,
            warnings=warnings,
            skipped=skipped,
        ),
        folder,
        preview=preview,
    )


def _known_roles(
    names: Sequence[str], declared: Mapping[str, str], only: frozenset[str] | None
) -> Mapping[str, str]:
    """Return the declared roles; of rows for a dataset, also ``drop`` for the columns that it does not have.

    These are reported. A column that the dataset dropped, or that named splits or keys, may be missing.
    """
    if only is None:
        return declared
    roles = {name: role for name, role in declared.items() if name in names or role not in _NOT_STORED}
    fields = {name for each in roles for name in names if name.startswith(f"{each}/")}
    left = [
        name
        for name in names
        if name not in {*roles, *fields}
        and (USUAL.get(name) in _NOT_STORED or feature_name(name, USUAL.get(name, "value")) not in only)
    ]
    if left:
        report_line(f"columns left out because the dataset does not have them: {listed_columns(left)}")
    return {**roles, **dict.fromkeys(left, "drop")}


def _check_options(
    read: TableRows,
    options: RowOptions,
    images: Sequence[str],
    masks: frozenset[str],
    label: str | None,
) -> None:
    """Raise an error if an option has no effect on these rows."""
    root = {} if options.root is None else {"root": os.fspath(options.root)}
    given = {} if images else {**changed_images(options.images.to_json()), **root}
    for name, value in given.items():
        raise OptionsError("image-option-useless", name=name, found=value, path=read.where)
    check_mask_depth(options.images, has_masks=bool(masks))
    if label is None and options.class_names is not None:
        raise InputError("table-no-label", path=read.where)
    if label is None and options.label_separator:
        raise InputError("label-separator-type", name="label", kind="a column that the table lacks")


def _check_image_type(name: str, kind: pa.DataType) -> None:
    items = item_type(kind)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if is_list_type(kind) and (is_bytes_type(items) or is_image_struct(items)):
        raise InputError("image-list", name=name)
    if not is_bytes_type(plain) and not is_image_struct(kind):
        raise InputError("column-paths-type", name=name, kind=shown(kind))


def _collect(
    rows: pa.Table | Batches,
    needed: set[str],
    images: Sequence[str],
    undeclared: Callable[[str, pa.ChunkedArray], None],
    write: Callable[[Mapping[str, pa.Array]], None],
) -> tuple[pa.Table, dict[str, list[bytes]]]:
    """Read rows once: encoded images are written, and all else is kept in memory.

    Args:
        rows: the rows.
        needed: columns that are needed.
        images: those of them that are images.
        undeclared: is called with parts of each other column, and raises if it may not be stored.
        write: is called with parts of the columns of encoded images.

    Returns:
        The columns that are ``needed`` and no images, and the path of each row by column of images.
    """
    empty = flattened(rows.schema.empty_table())
    paths: dict[str, list[bytes]] = {name: [] for name in images}
    narrow = [name for name in empty.column_names if name in needed and name not in paths]
    kept = [empty.select(narrow).append_column(_ROW, pa.array([], pa.int64()))]
    is_embedded: dict[str, bool] = {}
    for batch in rows.tables if isinstance(rows, Batches) else _batches_of(rows):
        flat = flattened(batch)
        for name in narrow:
            undeclared(name, flat[name])
        encoded: dict[str, pa.Array] = {}
        for name in paths:
            of_rows, values = _image_values(flat[name])
            if is_embedded.setdefault(name, values is not None):
                encoded[name] = pa.nulls(len(of_rows), TEXT) if values is None else values
            paths[name] += of_rows
        if encoded:
            write(encoded)
        # a table without columns has no rows
        kept.append(flat.select(narrow).append_column(_ROW, pa.array(np.arange(flat.num_rows))))
    return pa.concat_tables(kept), paths


def _check_undeclared(known: Collection[str], where: str, name: str, column: pa.ChunkedArray) -> None:
    """Raise InputError if a column whose role is not known evidently holds images."""
    if name in known:
        return
    is_struct = is_image_struct(item_type(column.type))
    check_undeclared(name, [{"bytes": None, "path": None}] * is_struct, where)
    check_undeclared(name, [] if is_struct else sampled(unlisted(column)[0]), where)


def _batches_of(table: pa.Table) -> Iterator[pa.Table]:
    return (table.slice(start, _MANY_ROWS) for start in range(0, table.num_rows, _MANY_ROWS))


def _image_values(column: pa.ChunkedArray) -> tuple[list[bytes], pa.Array | None]:
    """Return the path of each row, empty for none, and the encoded images; None if there are only paths."""
    if is_image_struct(column.type):
        fields = fields_of(column)
        paths = fields["path"].cast(TEXT).to_pylist() if "path" in fields else [None] * len(column)
        return [path or b"" for path in paths], fields["bytes"].cast(TEXT).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values = column.cast(TEXT)
    if not is_text_type(column.type):
        some = [value for value in values.slice(0, _MANY_ROWS).to_pylist() if value]
        if not some or any(is_encoded(value) or len(value) > _LONGEST_PATH for value in some):
            return [b""] * len(values), values.combine_chunks()
    return [path or b"" for path in values.to_pylist()], None


def template_columns(roles: Mapping[str, str]) -> set[str]:
    """Return the columns that templates of paths name."""
    templates = [name for name, role in roles.items() if is_image_role(role) and is_template(name)]
    try:
        return {name for each in templates for _, name, _, _ in Formatter().parse(each) if name}
    except ValueError as error:
        raise InputError("template-form", template=templates[0], why=str(error)) from None


def _template_paths(table: pa.Table, template: str, where: str) -> list[bytes]:
    """Return the path of each row that a template gives."""
    names = [name for name in table.column_names if name != _ROW]
    pieces: list[Sequence[bytes]] = []
    for literal, name, digits, conversion in Formatter().parse(template):
        pieces.append([to_bytes(literal)] * table.num_rows)
        if name is None:
            continue
        if name not in names:
            raise unknown_column(name, names, where)
        if conversion or not _DIGITS.fullmatch(digits or ""):
            why = "only digits as in {id:06d} may follow a name"
            raise InputError("template-form", template=template, why=why)
        pieces.append(_template_values(table[name], name, template, digits or ""))
    return [b"".join(row) for row in zip(*pieces, strict=True)]


def _template_values(column: pa.ChunkedArray, name: str, template: str, digits: str) -> list[bytes]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_integer = pa.types.is_integer(column.type)
    if not is_integer and (digits or not is_bytes_type(column.type)):
        raise InputError("template-column", template=template, name=name, kind=shown(column.type))
    values = (column if is_integer else column.cast(TEXT)).to_pylist()
    lacking = sum(value in (None, b"") for value in values)
    if lacking:
        where = "of which paths are made"
        raise InputError("column-missing-values", name=name, null_count=lacking, where=where)
    return [format(value, digits).encode() for value in values] if is_integer else values


def _stored(
    column: pa.ChunkedArray, name: str, role: str, options: RowOptions, read: TableRows
) -> StoredColumn:
    if role != "label":
        return stored_column(name, column, role)
    own = read.class_names.get(name, ())
    return label_column(name, column, options.class_names, own, options.label_separator)


def _plain_role(name: str, types: Mapping[str, pa.DataType]) -> str:
    """Return the role of a column that has none: a field next to a list of lists is a list of any length.

    Such are the classes of boxes: if all images have as many boxes, the next ones need not.
    """
    struct, slash, _ = name.rpartition("/")
    fields = [kind for each, kind in types.items() if slash and each.startswith(f"{struct}/")]
    is_along = any(is_list_type(kind) and is_list_type(kind.value_type) for kind in fields)
    return "list" if is_along and is_list_type(types[name]) else "value"


def _listed_splits(
    paths: Sequence[bytes], options: RowOptions
) -> tuple[list[int], pa.ChunkedArray, list[str]]:
    """Return the rows whose images are in lists of splits, their splits, and lines about others."""
    plain = [os.path.normpath(path) for path in paths]
    lists = read_split_lists(options.split_list, options.folder_of_lists, {*plain})
    left, lines = lists.unlisted({*plain})
    kept = [row for row, path in enumerate(plain) if path not in left]
    splits = [to_bytes(lists.split_of[plain[row]]) for row in kept]
    return kept, pa.chunked_array([pa.array(splits, TEXT)]), lines


def _folder_splits(
    photos: Sequence[str],
    paths: Mapping[str, Sequence[bytes]],
    wide: Wide | None,
    features: Mapping[str, str],
) -> pa.ChunkedArray | None:
    """Return the splits that the first folders of the images name, or None.

    As in folders of images, all of them must have usual names of splits, and there must be several.
    """
    if not photos or (wide is not None and features[photos[0]] in wide.sizes):
        return None
    column = photos[0]
    folders = first_folders(paths[column])
    usual, are_splits = all_usual(sorted({*folders}))
    if len(usual) < 2:
        return None
    if not are_splits:
        others = sorted({*folders} - {*usual})
        raise InputError(
            f"column {column!r}: only some paths are in the folders {', '.join(usual)}; others are in "
            f"{', '.join(map(repr, others[:3]))} || add a column 'split', which names the split of each row"
        )
    report_line(f"the splits are the folders {', '.join(usual)} in column {column!r}")
    return pa.chunked_array([pa.array([to_bytes(usual_split(name) or name) for name in folders], TEXT)])


def _groups(
    by: str,
    table: pa.Table,
    paths: Mapping[str, Sequence[bytes]],
    files: Mapping[str, ImageFiles],
    stored: Mapping[str, StoredColumn],
    label: str | None,
) -> list[bytes]:
    """Return the group of each row: its value in the column ``by``, which need not be stored."""
    if by in paths:
        # with links followed, so that all names of a file are one group
        real = [name or path for name, path in zip(files[by].real, paths[by], strict=True)]
        return groups_of(by, pa.chunked_array([pa.array(real, TEXT)]))
    if by not in table.column_names or by == _ROW:
        names = [*paths, *(name for name in table.column_names if name != _ROW)]
        raise InputError("group-by-column", by=by, columns=listed_columns(sorted(names)))
    if by == label and stored[label].class_names and not stored[label].feature.shape:
        # by name, because a new class changes the numbers
        numbers, classes = stored[label].values.to_pylist(), stored[label].class_names
        if without := sum(number < 0 for number in numbers):
            raise InputError("group-by-no-class", by=by, without=without)
        return [to_bytes(classes[number]) for number in numbers]
    return groups_of(by, table[by])


def _image_warnings(
    read: TableRows,
    options: RowOptions,
    images: Sequence[str],
    paths: Mapping[str, Sequence[bytes]],
    is_mask: Callable[[str], bool],
) -> Iterator[str]:
    """Yield warnings about images in no row, and about images that lose bits."""
    plain = {name: {path for path in paths[name] if path and not is_url(path)} for name in images}
    if read.owns_root and any(plain.values()):
        # by convention the folder belongs to the table
        yield from unmentioned(read.root, set().union(*plain.values()), follow_links=options.follow_links)
