"""Names of classes in label order, and the usual names of splits."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from tfshards.prep.sources.fetching import read_text
from tfshards.schemas import InputError, OptionsError, read_manifest
from tfshards.schemas.errors import listed
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.stored import METADATA

# More distinct values than this are quantities or names rather than classes.
MAX_CLASSES = 10_000

_SHOWN = 5
# The escapes of labels.txt (see views/files.py), a subset of Python's.
_ESCAPE = re.compile(r"\\(?:[\\tnr]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})")
_ESCAPED = re.compile(rf"(?:[^\\]|{_ESCAPE.pattern})*", re.DOTALL)


# Class names as an option: a file of them, a dataset that has them, or the names in label order.
ClassNames: TypeAlias = str | os.PathLike[str] | Sequence[str] | None


def given_class_names(given: ClassNames) -> Sequence[str] | None:
    """Return the names that an option gives, after their check."""
    if given is not None and not given:
        raise OptionsError("class_names= is empty; leave it out to use the class names in the data")
    if isinstance(given, (str, os.PathLike)):
        path = any_path(given)
        if not path.exists():
            raise InputError(
                f"class_names={os.fspath(given)!r} does not exist; name a file of class names, one per line, "
                "or a dataset that has them"
            )
        return class_names_of(given) if path.is_dir() else read_class_names(given)
    wrong = [] if given is None else [each for each in given if not isinstance(each, str)] or repeated(given)
    if wrong or isinstance(given, bytes):
        raise OptionsError(f"class_names={given!r} must be different strings, in label order")
    return given


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


def class_map(found: Iterable[str], given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the class names in label order: the given names, or the names in the data, sorted.

    Raises:
        InputError: the data have a name that is not among the given ones.
    """
    if given is None:
        return tuple(sorted({*found}))
    if new := sorted({*found} - {*given}):
        raise InputError(
            f"the given class names lack {quoted(new)}; add new classes at their end, and build again; to a "
            "dataset, append adds them with new_classes=True",
            code="classes-new",
        )
    return tuple(given)


def twins(names: Iterable[str], noun: str = "classes") -> list[str]:
    """Return a warning for each pair of names that differ only by case, spaces or Unicode normalization."""
    first: dict[str, str] = {}
    lines = []
    for name in sorted(names):
        alike = unicodedata.normalize("NFC", name).casefold().strip()
        if alike in first:
            lines.append(f"{first[alike]!r} and {name!r} look alike, but are two {noun}")
        else:
            first[alike] = name
    return lines


def read_class_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    r"""Return the class names in a file: one per line, in label order, escaped as in ``labels.txt``."""
    text = read_text(path, METADATA)
    # not splitlines(), which also splits at other characters
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    names: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        if _ESCAPED.fullmatch(line) is None:
            raise InputError(f"{path}, line {number}: has a backslash that is not escaped; write it as \\\\")
        name = _ESCAPE.sub(lambda match: match[0].encode("ascii").decode("unicode_escape"), line)
        if not name or name in names:
            raise InputError(f"{path}, line {number}: {name!r} is empty or repeated; give each class a line")
        names[name] = None
    return tuple(names)


def class_names_of(dataset: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the class names of a dataset."""
    names = read_manifest(dataset).schema.class_names
    if not names:
        raise InputError(f"{dataset}: the classes have no names; choose a dataset with class names")
    return names


def quoted(names: Sequence[object]) -> str:
    """Return the first few names with quotation marks, for a message."""
    return listed([*map(repr, names)], _SHOWN)


# In the usual order of splits.
USUAL_SPLITS = ("train", "training", "validation", "valid", "val", "dev", "test", "testing")


def usual_split(name: str) -> str | None:
    """Return a usual name of a split in lower case, such as ``train`` for ``Train``; None for other names."""
    lower = name.lower()
    return lower if lower in USUAL_SPLITS else None


def usual_order(split: str) -> tuple[int, str]:
    """Return a sort key for splits: train..., val..., dev, test..., and then others by name."""
    starts = ("tr", "va", "de", "te")
    rank = next((rank for rank, start in enumerate(starts) if split.startswith(start)), len(starts))
    return rank, split


def usual_splits(names: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the split of each name that is a usual one, and the other names, both in their order."""
    splits = {name: split for name in names if (split := usual_split(name))}
    return splits, [name for name in names if name not in splits]
