"""The map from class names to label numbers: frozen by the user, or read off the data."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfshards.schemas import InputError, OptionsError, read_manifest

_SHOWN = 5
# The escapes of labels.txt (views.labels), and no others that Python has.
_ESCAPE = re.compile(r"\\(?:[\\tnr]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})")
_ESCAPED = re.compile(rf"(?:[^\\]|{_ESCAPE.pattern})*", re.DOTALL)


def check_class_names(names: Sequence[str] | None) -> None:
    """Raise OptionsError if a frozen map is none, is empty, or a name stands in it twice."""
    if names is None:
        return
    if isinstance(names, (str, bytes)) or not all(isinstance(name, str) for name in names):
        raise OptionsError(f"class_names={names!r} must be a list of strings, in label order")
    if not names:
        raise OptionsError("class_names is empty; leave it out to have the classes read off the data")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise OptionsError(f"class_names holds {twice[0]!r} twice; each class has one number")


def class_map(found: Iterable[str], frozen: Sequence[str] | None, where: str) -> tuple[str, ...]:
    """Return the class names in label order: those of the frozen map, else those found, sorted.

    Args:
        found: the names in the data.
        frozen: the map that the data must keep to, or None.
        where: what the names are in the data, for the message.

    Raises:
        InputError: a class of the data is not in the map, or one of the map not in the data.
    """
    names = set(found)
    if frozen is None:
        return tuple(sorted(names))
    new, missing = sorted(names - set(frozen)), [name for name in frozen if name not in names]
    faults = []
    if new:
        faults.append(f"{_listed(new)} not in the label map; add to its end what is meant to be new")
    if missing:
        faults.append(f"{_listed(missing)} in the label map, but {where} of that name")
    if faults:
        raise InputError("the classes are not those of the label map: " + "; ".join(faults))
    return tuple(frozen)


def twins(names: Iterable[str]) -> list[str]:
    """Return a line for each pair of names that people take for one: other case, or other Unicode form."""
    first: dict[str, str] = {}
    lines = []
    for name in sorted(names):
        alike = unicodedata.normalize("NFC", name).casefold()
        if alike in first:
            lines.append(f"{first[alike]!r} and {name!r} are two classes, and look like one")
        else:
            first[alike] = name
    return lines


def read_labels(path: str | os.PathLike[str]) -> tuple[str, ...]:
    r"""Return the class names in a file: one a line, in label order, escaped as in a ``labels.txt``.

    Raises:
        InputError: the file cannot be read, or a line is empty, stands twice, or holds a lone backslash.
    """
    try:
        # bytes: as text, a lone \r would end a line; the mark at the beginning is that of some editors
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8: {error}") from None
    # not splitlines, which ends a line at other characters as well
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    names: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        name = _unescaped(line, f"{path}, line {number}")
        if not name or name in names:
            fault = f"{name!r} stands twice" if name else "is empty"
            raise InputError(f"{path}, line {number}: {fault}; give one class a line")
        names[name] = None
    return tuple(names)


def labels_of(dataset: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the class names of a dataset.

    Raises:
        InputError: ``dataset`` is none, or its classes have no names.
    """
    names = read_manifest(dataset).schema.class_names
    if not names:
        raise InputError(f"{dataset}: its classes have no names; there is no label map to take over")
    return names


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown}{more} {'are' if len(names) > 1 else 'is'}"


def _unescaped(line: str, place: str) -> str:
    if _ESCAPED.fullmatch(line) is None:
        raise InputError(rf"{place}: a backslash is written \\, as in the labels.txt of a dataset")
    return _ESCAPE.sub(lambda match: match[0].encode("ascii").decode("unicode_escape"), line)
