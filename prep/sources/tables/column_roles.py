"""What each column of a table is used for: by its name, by the user's choice, or by what it holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES, format_of, is_tiff
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.remote_tree import Tree, tree_of
from tfshards.prep.sources.tables.features import fields_of, is_bytes_type, is_image_struct, is_text_type
from tfshards.prep.sources.tables.images import is_url, leaves
from tfshards.prep.sources.tables.staging import IMAGE, PATH, SIZE
from tfshards.prep.sources.tree import starts_like_an_image
from tfshards.schemas import InputError
from tfshards.schemas.errors import listed
from tfshards.schemas.option import check_strings, option

_FILE_NAME = "file_name"
_SUFFIX = "_file_name"
_SHOWN_COLUMNS = 20


@dataclass(frozen=True)
class ColumnRoles:
    """The roles that the user assigns to columns; the names of other columns determine their roles.

    Attributes:
        images: columns of image paths; each becomes a feature with the name of the column.
        masks: columns of paths of masks, whose pixel values are classes.
        label: column of classes; by default ``label``, if it exists.
        split: column of split names; by default ``split``, if it exists. If it is a column of image paths,
            as by default if their first folders are two or more of train, val, test and the like, these name
            the splits. An empty string is none of these.
        drop: columns that are not stored; the name of a struct stands for all of its fields.
        no_images: store paths of images as text, and encoded images as bytes, unless their column has the
            name of the convention or is among ``images`` or ``masks``.

    Raises:
        OptionsError: ``images``, ``masks`` or ``drop`` is not a list of strings.
    """

    images: tuple[str, ...] = option(
        (),
        "column of image paths or images, in addition to file_name and NAME_file_name",
        flag="image",
        metavar="COLUMN",
        is_repeatable=True,
        default_text="the only column that holds images",
    )
    masks: tuple[str, ...] = option(
        (),
        "column of mask paths; the pixel values of masks are never interpolated",
        flag="mask",
        metavar="COLUMN",
        is_repeatable=True,
    )
    label: str | None = option(
        None,
        "column of classes: text, integers, or lists of these",
        metavar="COLUMN",
        default_text="label, if it exists",
    )
    split: str | None = option(
        None,
        "column that names the split of each row, or of image paths whose first folder names it; '' for none",
        flag="split-column",
        metavar="COLUMN",
        default_text="split, if it exists, or the folders if they are train, test, ...",
    )
    drop: tuple[str, ...] = option((), "column that is not stored", metavar="COLUMN", is_repeatable=True)
    no_images: bool = option(
        False, "store paths and encoded images in columns with other names as text and bytes"
    )

    def __post_init__(self) -> None:
        for name in ("images", "masks", "drop"):
            check_strings(name, getattr(self, name))


@dataclass(frozen=True)
class AssignedColumns:
    """What each column of a table is used for.

    Attributes:
        images: feature name by column of paths; the paths of the first column are the keys.
        stored: role by column of the columns that are stored as values, in the order of their features; see
            ``STORES`` in ``source.py``.
        split: column of split names, or None.
        masks: features among ``images`` that are masks.
        embedded: features among ``images`` whose columns hold encoded images rather than paths.
    """

    images: Mapping[str, str]
    stored: Mapping[str, str]
    split: str | None
    masks: frozenset[str] = frozenset()
    embedded: frozenset[str] = frozenset()

    @property
    def label(self) -> str | None:
        """Column of classes, or None."""
        return next((name for name, role in self.stored.items() if role == "label"), None)

    def with_label(self, label: str | None) -> AssignedColumns:
        """Return the columns with another column of classes, or none; it comes first."""
        stored = {name: "value" if role == "label" else role for name, role in self.stored.items()}
        first = {} if label is None else {label: "label"}
        return replace(self, stored=first | {name: role for name, role in stored.items() if name != label})


def assign_columns(names: Sequence[str], columns: ColumnRoles, path: str) -> AssignedColumns:
    """Return what the columns ``names`` of the table in ``path`` are used for.

    By the convention of Hugging Face's datasets, ``file_name`` holds the paths of images, and
    ``NAME_file_name`` the paths of another image ``NAME``.
    """
    if len(names) == 1 and any(mark in names[0] for mark in ";|\t"):
        raise InputError("table-one-column", path=path, names=names[0])
    given = [
        *((name, "image") for name in columns.images),
        *((name, "mask") for name in columns.masks),
        *((field, "drop") for name in columns.drop for field in _fields(name, names) or [name]),
        *((name, "label") for name in filter(None, [columns.label])),
    ]
    # a column of paths may give the splits, too
    is_of_paths = columns.split in columns.images or _is_by_name(columns.split or "")
    if columns.split and not is_of_paths:
        given.append((columns.split, "split"))
    named = [name for name, _ in given]
    for name in named:
        if name not in names:
            raise InputError("column-unknown", path=path, name=name, names=listed_columns(names))
        if named.count(name) > 1:
            raise InputError("column-roles-repeated", name=name)
    role_of = {name: _usual_role(name, columns) for name in names} | dict(given)
    images = {name: name.removesuffix(_SUFFIX) for name in names if role_of[name] in ("image", "mask")}
    if _FILE_NAME in images:
        # its path is the key, whatever the order of the columns
        images = {_FILE_NAME: "image"} | {name: images[name] for name in images if name != _FILE_NAME}
    stored = {name: role for role in ("label", "value") for name in names if role_of[name] == role}
    _check_features([*images.values(), *stored], path)
    split = next((name for name in names if role_of[name] == "split"), None)
    if is_of_paths:
        split = columns.split
        if split not in images:
            raise InputError("column-unknown", path=path, name=split, names=listed_columns(names))
    masks = frozenset(feature for column, feature in images.items() if column in columns.masks)
    return AssignedColumns(images, stored, split, masks)


def listed_columns(names: Sequence[str]) -> str:
    """Return names on one line, for a message."""
    return listed([name if name.isprintable() else repr(name) for name in names], _SHOWN_COLUMNS)


def _usual_role(name: str, columns: ColumnRoles) -> str:
    """Return the role that a column has by its name, unless the user gave the role to another one."""
    if _is_by_name(name):
        return "image"
    is_usual = (name == "label" and not columns.label) or (name == "split" and columns.split is None)
    return name if is_usual else "value"


def _is_by_name(name: str) -> bool:
    """Return whether a column has the name of the convention for paths of images."""
    return name == _FILE_NAME or (name.endswith(_SUFFIX) and name != _SUFFIX)


def _fields(name: str, names: Sequence[str]) -> list[str]:
    """Return the columns of the fields of the struct ``name``, unless there is a column of that name."""
    return [] if name in names else [each for each in names if each.startswith(f"{name}/")]


def _check_features(features: Sequence[str], path: str) -> None:
    if not features:
        raise InputError("table-no-columns", path=path)
    for name in features:
        if features.count(name) > 1:
            raise InputError("columns-same-feature", path=path, name=name)
        if name in ("", "key") or not name.isprintable():
            raise InputError("column-name", path=path, name=name)


# Number of rows to examine, evenly spaced.
_SAMPLE = 100
# Usual names of columns of paths.
_USUAL = frozenset(
    {"image", "img", "photo", "picture", "filename", "image_path", "img_path", "image_file", "image_name"}
    | {"filepath", "file_path", "path"}
)
_URL = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://")
_SHOWN = 100


def with_found_images(
    table: pa.Table, assigned: AssignedColumns, root: bytes
) -> tuple[AssignedColumns, list[str]]:
    """Return the columns with the one that holds images, unless the table has images, and lines on it.

    A column of text holds images if every path in a sample leads to an image file below ``root``; a column
    of bytes, if every value is an encoded image.
    """
    if any(feature not in assigned.masks for feature in assigned.images.values()):
        return assigned, []
    values = [name for name, role in assigned.stored.items() if role == "value"]
    samples = {name: _sample(table[name]) for name in values if is_bytes_type(table[name].type)}
    tree = tree_of(root, follow_links=True)
    found = {name: tree.map(partial(_is_image, tree), sample) for name, sample in samples.items() if sample}
    whole = [name for name, are_images in found.items() if all(are_images)]
    if len(whole) > 1:
        raise InputError("columns-of-images", whole=listed_columns(whole))
    if whole:
        name = whole[0]
        stored = {other: role for other, role in assigned.stored.items() if other != name}
        line = f"column {name!r} holds images, as with images={name!r}; no_images=True stores it as it is"
        return replace(assigned, images={**assigned.images, name: name}, stored=stored), [line]
    for name, are_images in found.items():
        sample = samples[name]
        have_suffixes = all(_suffix(value) in SUFFIXES and not _URL.match(value) for value in sample)
        if any(are_images) or have_suffixes:
            raise InputError(
                "column-names-no-images",
                name=name,
                num_missing=are_images.count(False),
                num_samples=len(sample),
                missing=to_text(sample[are_images.index(False)][:_SHOWN]),
                root=os.fsdecode(root),
            )
    return assigned, [line for name in values for line in _unused(name, table[name], samples.get(name, []))]


def check_header(names: Sequence[str], root: bytes) -> None:
    """Raise InputError if the name of a column is the path of an image file, which belongs to a row."""
    tree = tree_of(root, follow_links=True)
    for name in names:
        if _suffix(to_bytes(name)) in SUFFIXES and _is_image(tree, to_bytes(name)):
            raise InputError("table-no-header", name=name)


def check_found(rows: pa.Table, images: Mapping[str, str], root: bytes) -> None:
    """Raise InputError if no file of a column of paths exists, which is a wrong root rather than damage."""
    for column, name in images.items():
        paths = [path for path in rows[PATH + name].to_pylist() if path]
        if paths and IMAGE + name not in rows.column_names and pc.max(rows[SIZE + name]).as_py() < 0:
            first = to_text(paths[0])[:_SHOWN]
            raise InputError("column-no-image-exists", column=column, first=first, root=os.fsdecode(root))


def _unused(name: str, column: pa.ChunkedArray, sample: Sequence[bytes]) -> Iterator[str]:
    """Yield a warning if a column seems to name images, but its values are not paths."""
    if pa.types.is_integer(column.type):
        sample = [str(column[0]).encode()]
    are_names = bool(sample) and not any(_suffix(value) or b" " in value for value in sample)
    are_urls = any(_URL.match(value) and _suffix(value) in SUFFIXES for value in sample)
    if are_urls or (are_names and name.lower() in _USUAL):
        yield (
            f"column {name!r} seems to name images, but its values, such as {to_text(sample[0][:_SHOWN])!r}, "
            "are not paths of files: it is stored as it is; write paths such as 'photos/1.jpg' into it, or, "
            f"for URLs of objects in a store, name it with images={name!r}"
        )


def is_embedded(column: pa.ChunkedArray) -> bool:
    """Return whether a column of images holds encoded images rather than their paths."""
    if is_image_struct(column.type):
        return bool(fields_of(column)["bytes"].null_count < len(column))
    is_binary = is_bytes_type(column.type) and not is_text_type(column.type)
    return is_binary and any(map(_is_encoded, _sample(column)))


def _sample(column: pa.ChunkedArray) -> list[bytes]:
    """Return some values that are neither missing nor empty."""
    rows = np.unique(np.linspace(0, len(column) - 1, _SAMPLE).astype(np.int64))
    # one by one, because Arrow cannot take rows of every type of text
    buffers = [column[row].as_buffer() for row in rows.tolist()]
    return [buffer.to_pybytes() for buffer in buffers if buffer]


def _is_image(tree: Tree, value: bytes) -> bool:
    """Return whether a value is an encoded image, or the path of an image file."""
    if _is_encoded(value):
        return True
    # names of objects have at most 1024 bytes, and no control characters
    if is_url(tree.root) and (
        len(value) > 1024 or min(value) < 32 or is_url(value) or leaves(tree.root, value)
    ):
        return False
    try:
        with tree.opened(value) as file:
            suffix = _suffix(value)
            return suffix in SUFFIXES or starts_like_an_image(file.read(HEAD_BYTES), suffix)
    except (OSError, ValueError):
        return False


def _is_encoded(value: bytes) -> bool:
    head = value[:HEAD_BYTES]
    # text may begin with the signature of BMP, which the size of the file follows
    is_bitmap = head.startswith(b"BM") and int.from_bytes(head[2:6], "little") == len(value)
    return format_of(head) is not None or is_tiff(head) or is_bitmap


def _suffix(path: bytes) -> bytes:
    return os.path.splitext(path)[1].lower()
