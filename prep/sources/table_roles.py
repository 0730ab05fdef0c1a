"""What each column of a table is for: read off the names, or said by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfshards.schemas import InputError

_FILE_NAME = "file_name"
_SUFFIX = "_file_name"
_SHOWN = 20


@dataclass(frozen=True)
class Columns:
    """The columns that a user names; all others are read off their names.

    Attributes:
        images: columns of paths, which keep their names as features.
        masks: the same, of maps of classes.
        label: the column of classes; ``label`` if there is one and None is given.
        split: the column of splits; ``split`` if there is one and None is given.
        drop: columns that are not stored.
    """

    images: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    label: str | None = None
    split: str | None = None
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Roles:
    """What each column of a table is for.

    Attributes:
        images: by column of paths the feature's name, the first of which gives the keys.
        label: the column of classes, or None.
        split: the column of splits, or None.
        others: the columns that are stored as they are.
        masks: the features among ``images`` that are maps of classes.
        is_label_named: whether the user has said that ``label`` holds classes.
    """

    images: Mapping[str, str]
    label: str | None
    split: str | None
    others: tuple[str, ...]
    masks: frozenset[str] = frozenset()
    is_label_named: bool = False

    def without_label(self) -> Roles:
        """Return the roles with the column of classes stored as it is."""
        return replace(self, label=None, others=(*filter(None, [self.label]), *self.others))


def roles_of(names: Sequence[str], columns: Columns, path: str) -> Roles:
    """Return the roles of the columns ``names`` of the table in ``path``.

    By the convention of Hugging Face's datasets ``file_name`` holds paths, and ``NAME_file_name`` those of a
    further image ``NAME``.

    Raises:
        InputError: a column that was named does not exist or has two roles, or two features have one name.
    """
    if len(names) == 1 and any(mark in names[0] for mark in ";|\t"):
        raise InputError(
            f"{path} has one column, {names[0]!r}, which looks like several: values are separated by commas "
            "in .csv and by tabs in .tsv"
        )
    named = [*columns.images, *columns.masks, *filter(None, (columns.label, columns.split)), *columns.drop]
    for name in named:
        if name not in names:
            raise InputError(f"{path} has no column {name!r}; it has {listed(names)}")
        if named.count(name) > 1:
            raise InputError(f"the column {name!r} cannot have two roles; name it once")
    free = [name for name in names if name not in named]
    images: dict[str, str] = {}
    for name in names:
        if (
            name in columns.images
            or name in columns.masks
            or (name in free and (name == _FILE_NAME or (name.endswith(_SUFFIX) and name != _SUFFIX)))
        ):
            images[name] = name.removesuffix(_SUFFIX)
    images = {name: "image" if name == _FILE_NAME else feature for name, feature in images.items()}
    if _FILE_NAME in images:
        # the key is its path, whatever stands before it
        images = {_FILE_NAME: images.pop(_FILE_NAME), **images}
    label = columns.label or ("label" if "label" in free else None)
    split = columns.split or ("split" if "split" in free else None)
    others = tuple(name for name in free if name not in (*images, label, split))
    _check_features([*images.values(), *filter(None, [label]), *others], path)
    masks = frozenset(feature for column, feature in images.items() if column in columns.masks)
    return Roles(images, label, split, others, masks, columns.label is not None)


def listed(names: Sequence[str]) -> str:
    """Return names for a message, in a line whatever they hold."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(name if name.isprintable() else repr(name) for name in names[:_SHOWN]) + more


def _check_features(features: Sequence[str], path: str) -> None:
    if not features:
        raise InputError(f"{path} has no column to store; there is nothing to build")
    for name in features:
        if features.count(name) > 1:
            raise InputError(f"{path}: two columns make a feature {name!r}; leave one out with --drop")
        if name == "key" or not name or not name.isprintable():
            why = "is the name of each example's key" if name == "key" else "is no printable name"
            raise InputError(f"{path}: the column {name!r} {why}; rename it, or leave it out with --drop")
