"""Columns of images that nobody declared, and columns of masks that are declared as images."""

from __future__ import annotations

import io
import os
from functools import partial

import pyarrow as pa

from tfshards.prep.imaging.formats import SUFFIXES, is_encoded
from tfshards.prep.imaging.masks import may_be_mask
from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.remote_tree import Tree, tree_of
from tfshards.prep.sources.tables.assigned_columns import AssignedColumns
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.features import fields_of, is_image_struct, is_list_type, sampled, unlisted
from tfshards.schemas import InputError

# Number of images whose headers are read.
_FEW = 20
_SHOWN = 100


def check_undeclared(table: pa.Table, assigned: AssignedColumns) -> None:
    """Raise InputError if half of the values of a column without a role look like images, or their paths.

    A sample of the values is examined, but no file. Web addresses may be stored next to images, and so may
    the columns in a template of paths.
    """
    for name, role in assigned.stored.items():
        if role != "value" or any(f"{{{name}}}" in image for image in assigned.images):
            continue
        values = sampled(unlisted(table[name])[0])
        if assigned.images:
            values = [value for value in values if not value.startswith((b"http://", b"https://"))]
        images = [value for value in values if is_encoded(value) or _suffix(value) in SUFFIXES]
        if not images or 2 * len(images) < len(values):
            continue
        if is_list_type(table[name].type):
            raise InputError("image-list", name=name)
        first = "encoded bytes" if is_encoded(images[0]) else repr(to_text(images[0][:_SHOWN]))
        raise InputError("column-undeclared", name=name, first=first)


def check_like_masks(table: pa.Table, assigned: AssignedColumns, roles: ColumnRoles, root: bytes) -> None:
    """Raise InputError if a column next to photos in color seems to have masks, and no role is declared.

    All of its images in a sample have a palette or one channel, in a format that keeps numbers.
    """
    columns = [name for name, feature in assigned.images.items() if feature not in assigned.masks]
    if len(columns) < 2:
        return
    tree = tree_of(root, follow_links=True)
    found = {name: tree.map(partial(_may_be_mask, tree), _few_images(table[name])) for name in columns}
    like = [name for name, each in found.items() if each and all(each)]
    for name in like:
        if name not in roles.images and len(like) < len(columns):
            photo = next(each for each in columns if each not in like)
            raise InputError("column-may-be-mask", name=name, photo=photo)


def _few_images(column: pa.ChunkedArray) -> list[bytes]:
    """Return some encoded images, or paths of images, of a column."""
    fields = fields_of(column) if is_image_struct(column.type) else {"path": column}
    found = (sampled(fields[name]) for name in ("bytes", "path") if name in fields)
    return next(filter(None, found), [])[:_FEW]


def _may_be_mask(tree: Tree, value: bytes) -> bool:
    try:
        with io.BytesIO(value) if is_encoded(value) else tree.opened(value) as file:
            return may_be_mask(file)
    except (OSError, ValueError):
        return False


def _suffix(path: bytes) -> bytes:
    return os.path.splitext(path)[1].lower()
