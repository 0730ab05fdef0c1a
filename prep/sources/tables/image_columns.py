"""The columns of a table that hold images: by what they hold, and what is wrong with those that seem to."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.imaging.formats import HEAD_BYTES, SUFFIXES, is_encoded
from tfshards.prep.imaging.masks import may_be_mask
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.prep.sources.remote_tree import Tree, tree_of
from tfshards.prep.sources.tables.assigned_columns import AssignedColumns, listed_columns
from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.features import (
    fields_of,
    is_bytes_type,
    is_image_struct,
    is_text_type,
    unlisted,
)
from tfshards.prep.sources.tables.images import is_url, leaves
from tfshards.prep.sources.tables.staging import IMAGE, PATH, SIZE
from tfshards.prep.sources.tree import starts_like_an_image
from tfshards.schemas import InputError

# Number of rows to examine, evenly spaced.
_SAMPLE = 100
# Number of images whose headers are read.
_FEW = 20
# Usual names of columns of paths.
_USUAL = frozenset(
    {"image", "img", "photo", "picture", "filename", "image_path", "img_path", "image_file", "image_name"}
    | {"filepath", "file_path", "path"}
)
_JSON = re.compile(rb"\s*(\[\s*)?\{.*\}[\]\s]*", re.DOTALL)
_URL = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://")
_SHOWN = 100
# Folders, and entries of each, among which files are looked for whose names are values of a column.
_FOLDERS, _ENTRIES = 100, 10_000


def with_found_images(
    table: pa.Table, assigned: AssignedColumns, root: bytes
) -> tuple[AssignedColumns, list[str]]:
    """Return the columns with the one that holds images, unless the table has images, and lines on it.

    A column of text holds images if every path in a sample leads to an image file below ``root``; a column
    of bytes, if every value is an encoded image.

    Raises:
        InputError: images in a column, or in files that the values of a column name, would not be stored.
    """
    has_images = any(feature not in assigned.masks for feature in assigned.images.values())
    values = [name for name, role in assigned.stored.items() if role == "value"]
    samples = {
        name: _sample(unlisted(table[name])[0])
        for name in values
        if is_bytes_type(unlisted(table[name])[0].type)
    }
    lines = [
        f"column {name!r} holds JSON, such as {to_text(sample[0][:_SHOWN])!r}, which is stored as text; "
        "boxes and labels in it have to be columns of their own"
        for name, sample in samples.items()
        if sample and all(map(_JSON.fullmatch, sample))
    ]
    if has_images:
        # what does not look like a path costs no look at the disk
        samples = {name: each for name, each in samples.items() if each and _is_likely(each[0])}
    tree = tree_of(root, follow_links=True)
    found = {name: tree.map(partial(_is_image, tree), sample) for name, sample in samples.items() if sample}
    if has_images:
        if others := [name for name, are_images in found.items() if any(are_images)]:
            raise InputError("columns-of-more-images", names=listed_columns(others), name=others[0])
        return assigned, lines
    whole = [name for name, are_images in found.items() if all(are_images)]
    if len(whole) > 1:
        raise InputError("columns-of-images", whole=listed_columns(whole))
    if whole:
        name = whole[0]
        stored = {other: role for other, role in assigned.stored.items() if other != name}
        line = f"column {name!r} holds images, as with images={name!r}; no_images=True stores it as it is"
        return replace(assigned, images={**assigned.images, name: name}, stored=stored), [line, *lines]
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
    if not assigned.images and not is_url(root):
        _check_no_files_fit(root, {name: table[name] for name in values})
    return assigned, lines + [
        line for name in values for line in _unused(name, table[name], samples.get(name, []))
    ]


def check_header(names: Sequence[str], root: bytes) -> None:
    """Raise InputError if the name of a column is the path of an image file, which belongs to a row."""
    tree = tree_of(root, follow_links=True)
    for name in names:
        if _suffix(to_bytes(name)) in SUFFIXES and _is_image(tree, to_bytes(name)):
            raise InputError("table-no-header", name=name)


def check_like_masks(table: pa.Table, assigned: AssignedColumns, roles: ColumnRoles, root: bytes) -> None:
    """Raise InputError if a column next to photos in color seems to have masks, and no role is declared.

    All of its images in a sample have a palette or one channel, in a format that keeps numbers.
    """
    columns = [name for name, feature in assigned.images.items() if feature not in assigned.masks]
    if len(columns) < 2:
        return
    tree = tree_of(root, follow_links=True)
    found = {name: tree.map(partial(_may_be_mask, tree), _image_sample(table[name])) for name in columns}
    like = [name for name, each in found.items() if each and all(each)]
    for name in like:
        if name not in roles.images and len(like) < len(columns):
            photo = next(each for each in columns if each not in like)
            raise InputError("column-may-be-mask", name=name, photo=photo)


def _image_sample(column: pa.ChunkedArray) -> list[bytes]:
    """Return some encoded images, or paths of images, of a column."""
    if not is_image_struct(column.type):
        return _sample(column)[:_FEW]
    fields = fields_of(column)
    encoded = _sample(fields["bytes"])[:_FEW]
    return encoded or (_sample(fields["path"])[:_FEW] if "path" in fields else [])


def _may_be_mask(tree: Tree, value: bytes) -> bool:
    try:
        with io.BytesIO(value) if is_encoded(value) else tree.opened(value) as file:
            return may_be_mask(file)
    except (OSError, ValueError):
        return False


def check_found(rows: pa.Table, images: Mapping[str, str], root: bytes) -> None:
    """Raise InputError if no file of a column of paths exists, which is a wrong root rather than damage."""
    for column, feature in images.items():
        if IMAGE + feature in rows.column_names:
            continue
        first = next(filter(None, rows[PATH + feature].to_pylist()), None)
        if first and pc.max(rows[SIZE + feature]).as_py() < 0:
            raise InputError(
                "column-no-image-exists",
                column=column,
                first=to_text(first)[:_SHOWN],
                root=os.fsdecode(root),
            )


def _check_no_files_fit(root: bytes, columns: Mapping[str, pa.ChunkedArray]) -> None:
    """Raise InputError if a third of a column's values are names, without suffix, of images in a folder.

    Only some folders, and some files of each, are looked at.
    """
    texts = {name: _names(column) for name, column in columns.items()}
    # one value alone may be the name of a file by chance
    texts = {name: each for name, each in texts.items() if len(each) > 1}
    for folder, names in islice(_folders(root), _FOLDERS) if texts else ():
        pairs = [os.path.splitext(name) for name in names]
        widths = {len(stem) for stem, suffix in pairs if suffix.lower() in SUFFIXES and stem.isdigit()}
        for suffix in sorted({suffix for _, suffix in pairs if suffix.lower() in SUFFIXES}):
            for name, width in product(texts, [0, *sorted(widths)]):
                if width and not pa.types.is_integer(columns[name].type):
                    continue
                files = [
                    os.path.join(root, folder, each.zfill(width).encode() + suffix) for each in texts[name]
                ]
                found = [file for file in files if os.path.isfile(file)]
                if found and 3 * len(found) >= len(files):
                    digits = f":0{width}d" if width > min(map(len, texts[name])) else ""
                    path = to_text(
                        os.path.join(folder, b"{" + name.encode() + digits.encode() + b"}" + suffix)
                    )
                    raise InputError("column-fits-files", name=name, first=to_text(found[0]), template=path)


def _names(column: pa.ChunkedArray) -> list[str]:
    """Return different values in a sample of a column of integers, or of text without folders."""
    if pa.types.is_integer(column.type):
        return [*dict.fromkeys(str(column[row]) for row in _sampled(column) if column[row].is_valid)]
    values = _sample(column) if is_bytes_type(column.type) else []
    return [*dict.fromkeys(to_text(value) for value in values if b"/" not in value)]


def _folders(root: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the root, its folders and theirs, relative to it, each with the names of some of its files."""
    found = [b""]
    for folder in found:
        names = []
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                for entry in sorted(islice(entries, _ENTRIES), key=lambda entry: entry.name):
                    if entry.name.startswith(b"."):
                        continue
                    if not entry.is_dir(follow_symlinks=False):
                        names.append(entry.name)
                    elif folder.count(b"/") < 1:
                        found.append(os.path.join(folder, entry.name))
        except OSError:
            # other folders need not be readable
            continue
        yield folder, names


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
    return is_binary and any(map(is_encoded, _sample(column)))


def _sample(column: pa.ChunkedArray) -> list[bytes]:
    """Return some values that are neither missing nor empty."""
    # one by one, because Arrow cannot take rows of every type of text
    buffers = [column[row].as_buffer() for row in _sampled(column)]
    return [buffer.to_pybytes() for buffer in buffers if buffer]


def _sampled(column: pa.ChunkedArray) -> list[int]:
    rows: list[int] = np.unique(np.linspace(0, len(column) - 1, _SAMPLE).astype(np.int64)).tolist()
    return rows


def _is_likely(value: bytes) -> bool:
    """Return whether a value may be an image or the path of one."""
    return is_encoded(value) or (_suffix(value) in SUFFIXES and not _URL.match(value))


def _is_image(tree: Tree, value: bytes) -> bool:
    """Return whether a value is an encoded image, or the path of an image file."""
    if is_encoded(value):
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


def _suffix(path: bytes) -> bytes:
    return os.path.splitext(path)[1].lower()
