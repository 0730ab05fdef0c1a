"""Names of classes in label order."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tfshards.prep.sources.text_files import read_text
from tfshards.schemas import InputError, OptionsError, read_manifest
from tfshards.schemas.errors import listed
from tfshards.schemas.storage import any_path
from tfshards.schemas.storage.untrusted import METADATA

# More distinct values than this are quantities or names rather than classes.
MAX_CLASSES = 10_000

_SHOWN = 5
# The escapes of labels.txt (see views.labels), a subset of Python's.
_ESCAPE = re.compile(r"\\(?:[\\tnr]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})")
_ESCAPED = re.compile(rf"(?:[^\\]|{_ESCAPE.pattern})*", re.DOTALL)


def check_class_names(names: Sequence[str] | None) -> None:
    """Raise OptionsError unless the names are None, or one or more different strings."""
    if names is None:
        return
    if isinstance(names, (str, bytes)) or not all(isinstance(name, str) for name in names):
        raise OptionsError("class-names-type", names=names)
    if not names:
        raise OptionsError("class-names-empty")
    for name in repeated(names):
        raise OptionsError("class-name-repeated", twice=name)


# Class names as an option: a file of them, a dataset that has them, or the names in label order.
ClassNames: TypeAlias = str | os.PathLike[str] | Sequence[str] | None


def given_class_names(given: ClassNames) -> Sequence[str] | None:
    """Return the names that an option gives, after their check."""
    if isinstance(given, (str, os.PathLike)):
        if not os.fspath(given):
            raise OptionsError("class_names= is empty; leave it out to use the class names in the data")
        path = any_path(given)
        if not path.exists():
            raise InputError(
                f"class_names={os.fspath(given)!r} does not exist; name a file of class names, one per line, "
                "or a dataset that has them"
            )
        return class_names_of(given) if path.is_dir() else read_class_names(given)
    check_class_names(given)
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
        raise InputError("classes-new", classes=quoted(new))
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
            raise InputError("class-name-backslash", path=path, number=number)
        name = _ESCAPE.sub(lambda match: match[0].encode("ascii").decode("unicode_escape"), line)
        if not name or name in names:
            raise InputError("class-name-line", path=path, number=number, name=name)
        names[name] = None
    return tuple(names)


def class_names_of(dataset: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the class names of a dataset."""
    names = read_manifest(dataset).schema.class_names
    if not names:
        raise InputError("classes-no-names", dataset=dataset)
    return names


def quoted(names: Sequence[object]) -> str:
    """Return the first few names with quotation marks, for a message."""
    return listed([*map(repr, names)], _SHOWN)
