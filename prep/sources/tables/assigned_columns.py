"""What each column of a table is used for: by its name, or by the user's choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfshards.prep.sources.tables.column_roles import ColumnRoles
from tfshards.prep.sources.tables.coordinates import NONE
from tfshards.schemas import InputError
from tfshards.schemas.errors import listed

USUAL_IMAGE = "image"
_FILE_NAME = "file_name"
_SUFFIX = "_file_name"
_SHOWN_COLUMNS = 20


@dataclass(frozen=True)
class AssignedColumns:
    """What each column of a table is used for.

    Attributes:
        images: feature name by column of paths; the paths of the first column are the keys.
        stored: role by column of the columns that are stored as values, in the order of their features.
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

    By the convention of Hugging Face's datasets, ``file_name`` holds the paths of images, ``image`` holds
    images or their paths, and ``NAME_file_name`` holds the paths of another image ``NAME``.
    """
    formats = {**columns.boxes, **columns.keypoints}
    given = [
        *((name, "image") for name in columns.images),
        *((name, "mask") for name in columns.masks),
        *((field, "drop") for name in columns.drop for field in _fields(name, names) or [name]),
        *((name, "label") for name in filter(None, [columns.label])),
        *((name, "value" if found == NONE else "coordinates") for name, found in formats.items()),
    ]
    # a column of paths may give the splits, too
    is_of_paths = columns.split in columns.images or _usual_role(columns.split or "", columns) == "image"
    if columns.split and not is_of_paths:
        given.append((columns.split, "split"))
    named = [name for name, _ in given]
    for name in named:
        check_column(name, names, path)
        if named.count(name) > 1:
            raise InputError("column-roles-repeated", name=name)
    role_of = {name: _usual_role(name, columns) for name in names} | dict(given)
    of_images = {name: role for name in names if (role := role_of[name]) in ("image", "mask")}
    images = {
        name: role if is_template(name) else name.removesuffix(_SUFFIX) for name, role in of_images.items()
    }
    if _FILE_NAME in images:
        # its path is the key, whatever the order of the columns
        images = {_FILE_NAME: "image"} | {name: images[name] for name in images if name != _FILE_NAME}
    stored = {name: "label" for name in names if role_of[name] == "label"}
    stored |= {name: role_of[name] for name in names if role_of[name] in ("value", "coordinates")}
    _check_features([*images.values(), *stored], path)
    split = next((name for name in names if role_of[name] == "split"), None)
    if is_of_paths:
        split = columns.split
        if split not in images:
            raise InputError("column-unknown", path=path, name=split, names=listed_columns(names))
    masks = frozenset(feature for column, feature in images.items() if column in columns.masks)
    return AssignedColumns(images, stored, split, masks)


def is_template(name: str) -> bool:
    """Return whether the name of an image column is a template of paths."""
    return "{" in name


def check_column(name: str, names: Sequence[str], path: str) -> None:
    """Raise InputError unless the table in ``path``, with columns ``names``, has a column of this name."""
    if name not in names:
        raise InputError("column-unknown", path=path, name=name, names=listed_columns(names))


def listed_columns(names: Sequence[str]) -> str:
    """Return names on one line, for a message."""
    return listed([name if name.isprintable() else repr(name) for name in names], _SHOWN_COLUMNS)


def _usual_role(name: str, columns: ColumnRoles) -> str:
    """Return the role that a column has by its name, unless the user gave the role to another one."""
    is_of_paths = name == _FILE_NAME or (name.endswith(_SUFFIX) and name != _SUFFIX)
    if is_of_paths or (name == USUAL_IMAGE and not columns.no_images):
        return "image"
    is_usual = (name == "label" and columns.label is None) or (name == "split" and columns.split is None)
    return name if is_usual else "value"


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
