"""Determine what each column of a table is used for, by its name or by the user's choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfshards.schemas import InputError
from tfshards.schemas.argument_types import check_strings
from tfshards.schemas.errors import listed
from tfshards.schemas.option import option

_FILE_NAME = "file_name"
_SUFFIX = "_file_name"
_SHOWN = 20


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
        label: column of classes, or None.
        split: column of split names, or None.
        others: columns that are stored as values.
        masks: features among ``images`` that are masks.
        embedded: features among ``images`` whose columns hold encoded images rather than paths.
        is_label_named: whether the user named the column of classes.
    """

    images: Mapping[str, str]
    label: str | None
    split: str | None
    others: tuple[str, ...]
    masks: frozenset[str] = frozenset()
    embedded: frozenset[str] = frozenset()
    is_label_named: bool = False

    def without_label(self) -> AssignedColumns:
        """Return the columns with the label column stored as values instead."""
        return replace(self, label=None, others=(*filter(None, [self.label]), *self.others))


def assign_columns(names: Sequence[str], columns: ColumnRoles, path: str) -> AssignedColumns:
    """Return what the columns ``names`` of the table in ``path`` are used for.

    By the convention of Hugging Face's datasets, ``file_name`` holds the paths of images, and
    ``NAME_file_name`` the paths of another image ``NAME``.

    Raises:
        InputError: a named column does not exist or has two roles, or two features have the same name.
    """
    if len(names) == 1 and any(mark in names[0] for mark in ";|\t"):
        raise InputError("table-one-column", path=path, names=names[0])
    drop = [field for name in columns.drop for field in _fields(name, names)]
    # a column of paths may give the splits, too
    is_of_paths = columns.split in columns.images or _is_by_name(columns.split or "")
    split = None if is_of_paths else columns.split
    named = [*columns.images, *columns.masks, *filter(None, (columns.label, split)), *drop]
    for name in named:
        if name not in names:
            raise InputError("column-unknown", path=path, name=name, names=listed_columns(names))
        if named.count(name) > 1:
            raise InputError("column-roles-repeated", name=name)
    free = [name for name in names if name not in named]
    images: dict[str, str] = {}
    for name in names:
        if name in columns.images or name in columns.masks or (name in free and _is_by_name(name)):
            images[name] = name.removesuffix(_SUFFIX)
    images = {name: "image" if name == _FILE_NAME else feature for name, feature in images.items()}
    if _FILE_NAME in images:
        # its path is the key, whatever the order of the columns
        images = {_FILE_NAME: images.pop(_FILE_NAME), **images}
    label = columns.label or ("label" if "label" in free else None)
    if is_of_paths:
        split = columns.split
        if split not in images:
            raise InputError("column-unknown", path=path, name=split, names=listed_columns(names))
    elif columns.split is None and "split" in free:
        split = "split"
    elif not split:
        split = None
    others = tuple(name for name in free if name not in (*images, label, split))
    _check_features([*images.values(), *filter(None, [label]), *others], path)
    masks = frozenset(feature for column, feature in images.items() if column in columns.masks)
    return AssignedColumns(images, label, split, others, masks, is_label_named=columns.label is not None)


def listed_columns(names: Sequence[str]) -> str:
    """Return names on one line, for a message."""
    return listed([name if name.isprintable() else repr(name) for name in names], _SHOWN)


def _is_by_name(name: str) -> bool:
    """Return whether a column has the name of the convention for paths of images."""
    return name == _FILE_NAME or (name.endswith(_SUFFIX) and name != _SUFFIX)


def _fields(name: str, names: Sequence[str]) -> list[str]:
    """Return the column ``name``, or if there is none, the columns of the fields of the struct ``name``."""
    fields = [] if name in names else [each for each in names if each.startswith(f"{name}/")]
    return fields or [name]


def _check_features(features: Sequence[str], path: str) -> None:
    if not features:
        raise InputError("table-no-columns", path=path)
    for name in features:
        if features.count(name) > 1:
            raise InputError("columns-same-feature", path=path, name=name)
        if not name:
            raise InputError("column-empty-name", path=path)
        if name == "key" or not name.isprintable():
            why = "has the name of the keys" if name == "key" else "has a name that cannot be printed"
            raise InputError("column-name", path=path, name=name, why=why)
