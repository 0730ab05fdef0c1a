"""What columns are for: one mapping from column to role, for every source that has columns."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Literal, TypeAlias, get_args

from tfshards.prep.imaging.formats import SUFFIXES, is_encoded
from tfshards.prep.sources.classes import repeated
from tfshards.schemas import Feature, InputError, OptionsError
from tfshards.schemas.errors import listed, one_line
from tfshards.schemas.schema import BOX_ORDERS, NORMALIZED

# What a column is for: the last ones are formats of boxes and keypoints, in pixels or as fractions.
Role: TypeAlias = Literal[
    "image",
    "mask",
    "label",
    "split",
    "key",
    "list",
    "value",
    "drop",
    "xywh",
    "xywh-normalized",
    "xyxy",
    "xyxy-normalized",
    "cxcywh",
    "cxcywh-normalized",
    "yxyx",
    "yxyx-normalized",
    "xy",
    "xy-normalized",
    "xyv",
    "xyv-normalized",
]
ROLES = get_args(Role)
# Those of columns of images, which are named like the kinds of their features.
IMAGE_ROLES = ("image", "mask")
# The roles that columns have by their exact names.
USUAL = {"file_name": "image", "image": "image", "label": "label", "split": "split", "key": "key"}
# The roles that only one column may have.
_SINGLE = ("label", "split", "key")
# Names of the sides of a box, in lower case and without underscores.
_SIDES = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x1", "y1", "x2", "y2"),
    ("x0", "y0", "x1", "y1"),
    ("left", "top", "right", "bottom"),
)
_SHOWN_COLUMNS = 20
_SHOWN = 100


def check_roles(roles: object) -> None:
    """Raise OptionsError unless the argument ``roles`` maps names of columns to roles."""
    pairs = roles.items() if isinstance(roles, Mapping) else [(None, roles)]
    for name, role in pairs:
        if not isinstance(name, str) or role not in ROLES:
            what = f"roles={role!r}" if name is None else f"the column {name!r} has the role {role!r}"
            raise OptionsError(f"{what}; roles maps each column to one of {', '.join(ROLES)}")
    for role in _SINGLE:
        names = [name for name, each in pairs if each == role]
        if len(names) > 1:
            raise OptionsError(f"the columns {names[0]!r} and {names[1]!r} have the role {role}; one may")


def flag(name: str, role: str) -> str:
    """Return the parameter that gives a role to a column, as messages name it."""
    return f"roles={{{name!r}: {role!r}}}"


def resolve_roles(
    names: Sequence[str],
    declared: Mapping[str, str],
    where: str,
    known: Mapping[str, str] | None = None,
    usual: Mapping[str, str] = USUAL,
) -> dict[str, str]:
    """Return the roles of the columns that have one; the others are stored as they are.

    Args:
        names: all columns; a field of a struct is ``STRUCT/FIELD``.
        declared: roles that the user gives; the name of a struct stands for all of its fields.
        where: the source, for messages.
        known: roles that a file format gives, which those of the user replace.
        usual: roles that columns have by their exact names.

    Returns:
        The declared roles, and those by name, in the order of the columns.

    Raises:
        InputError: a declared column does not exist, or a column is named nearly like one with a role.
    """
    single = {role for role in declared.values() if role in _SINGLE}
    given = {name: role for name, role in (known or {}).items() if role not in single}
    for name, role in declared.items():
        fields = [] if name in names else [each for each in names if each.startswith(f"{name}/")]
        if fields and role in ("drop", "value"):
            given |= dict.fromkeys(fields, role)
        elif name in names:
            given[name] = role
        else:
            raise unknown_column(name, names, where)
    taken = {role for name, role in given.items() if role in _SINGLE}
    for name in [name for name in names if name not in given]:
        by_name, like = usual.get(name), name.strip().casefold()
        if by_name is not None and by_name not in taken:
            given[name] = by_name
        elif by_name is None and like in usual and usual[like] not in taken:
            raise InputError(
                f"{where}: the column {name!r} is named nearly like {like!r}, which is the column of "
                f"{usual[like]}s; {flag(name, usual[like])} takes it as that, {flag(name, 'value')} stores "
                "it as it is"
            )
    order = {name: number for number, name in enumerate(names)}
    return dict(sorted(given.items(), key=lambda item: order[item[0]]))


def check_effect(
    where: str, roles: Collection[str | None], of_images: Iterable[str], of_labels: Iterable[str]
) -> None:
    """Raise an error if options of images or of labels are given, but no column has this role.

    Args:
        where: the source, for messages.
        roles: the roles of its columns.
        of_images, of_labels: names of the given options.
    """
    has_images = "image" in roles or "mask" in roles
    for role, names, error in (
        ("image", () if has_images else of_images, OptionsError),
        ("label", () if "label" in roles else of_labels, InputError),
    ):
        for name in names:
            raise error(
                f"{name}= has no effect, since {where} has no column of {role}s; leave it out, or name the "
                f"column: {flag('COLUMN', role)}"
            )


def check_no_repeats(names: Iterable[str], where: object) -> None:
    """Raise InputError if two columns have the same name."""
    for name in repeated(names):
        raise InputError(f"{where}: the column {name!r} is repeated; rename one of them")


def unknown_column(name: str, names: Sequence[str], where: str) -> InputError:
    """Return the error for a column that does not exist."""
    return InputError(f"{where} has no column {name!r}; its columns are {listed_columns(names)}")


def listed_columns(names: Iterable[str]) -> str:
    """Return names on one line, for a message."""
    return listed([name if name.isprintable() else repr(name) for name in names], _SHOWN_COLUMNS)


def is_template(name: str) -> bool:
    """Return whether the name of an image column is a template of paths, such as ``train/{id}.jpg``."""
    return "{" in name


def feature_name(column: str, role: str) -> str:
    """Return the name of the feature of a column; ``left_file_name`` has the paths of the images ``left``."""
    if role not in IMAGE_ROLES:
        return column
    if is_template(column):
        return role
    return "image" if column == "file_name" else column.removesuffix("_file_name") or column


def features_of(names: Sequence[str], roles: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the name of the feature of each column that is stored, by column: images before other values.

    Raises:
        InputError: two columns have one feature, or the name of a column cannot be that of a feature.
    """
    stored = [name for name in names if roles.get(name) not in ("drop", "split", "key")]
    ranks = {"image": 0, "mask": 0, "label": 1}
    # the paths of file_name are the keys, whatever the order of the columns
    stored.sort(key=lambda name: (ranks.get(roles.get(name, ""), 2), name != "file_name"))
    features: dict[str, str] = {}
    for name in stored:
        feature = feature_name(name, roles.get(name, "value"))
        other = next((column for column, each in features.items() if each == feature), None)
        if other is not None:
            raise InputError(
                f"{where}: the columns {other!r} and {name!r} would both become the feature {feature!r}; "
                f"{flag(name, 'drop')} leaves one out"
            )
        if feature in ("", "key") or not feature.isprintable():
            why = "is reserved for keys" if feature == "key" else "must be printable characters"
            raise InputError(
                f"{where}: the column {name!r} cannot be a feature: its name {why}; rename it, or "
                f"{flag(name, 'drop')} leaves it out"
            )
        features[name] = feature
    if not features:
        raise InputError(f"{where}: no column is left to store")
    return features


def check_undeclared(name: str, values: Iterable[object], where: str) -> None:
    """Raise InputError if a column without a role evidently holds images.

    Images are encoded bytes, pictures of Pillow, structs of bytes and path, paths, and text that ends in the
    suffix of an image.

    Args:
        name: the column.
        values: values of it, or a sample.
        where: the source, for messages.
    """
    for value in values:
        if _is_image(value):
            raise InputError(
                f"{where}: the column {name!r} seems to hold images, such as {one_line(repr(value))[:_SHOWN]}"
                f"; {flag(name, 'image')} or {flag(name, 'mask')} takes them as images, one in each row, "
                f"{flag(name, 'value')} stores them as they are"
            )


def _is_image(value: object) -> bool:
    if isinstance(value, Mapping):
        return {*value} == {"bytes", "path"}
    if is_encoded(value) or isinstance(value, PurePath) or type(value).__module__.startswith("PIL."):
        return True
    # text need not be a path
    path = value.encode("utf-8", "backslashreplace") if isinstance(value, str) else value
    return isinstance(path, bytes) and os.path.splitext(path)[1].lower() in SUFFIXES


def check_undeclared_boxes(features: Iterable[Feature], where: str) -> None:
    """Raise InputError if columns without a role, next to images, evidently hold boxes.

    Boxes are four numbers, or rows of four, under a name such as ``bbox``, or one number in each of four
    columns such as ``xmin``, ``ymin``, ``xmax`` and ``ymax``.

    Args:
        features: features of the columns without a role.
        where: the source, for messages.
    """
    numbers = [
        each for each in features if each.is_numeric and each.dtype.startswith(("int", "uint", "float"))
    ]
    boxes = [
        [each.name] for each in numbers if each.shape in ((4,), (None, 4)) and "box" in each.name.lower()
    ]
    by_name = {each.name.lower().replace("_", ""): each.name for each in numbers if not each.shape}
    boxes += [[by_name[side] for side in sides] for sides in _SIDES if by_name.keys() >= {*sides}]
    for names in boxes:
        how = f"{flag(names[0], 'xywh')} or another of {', '.join(BOX_ORDERS)} takes them as boxes"
        if len(names) > 1:
            lists = f"frame['bbox'] = frame[{names}].values.tolist()"
            how = f"make them lists, in pandas {lists}, with {flag('bbox', 'xyxy')}"
        raise InputError(
            f"{where}: {', '.join(map(repr, names))} may be boxes; {how}, {NORMALIZED} after it for "
            f"fractions; {flag(names[0], 'value')} stores the numbers as they are"
        )
