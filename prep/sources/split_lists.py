"""Lists of files, such as ``train.txt``, that give the splits of a source, and perhaps the labels."""

from __future__ import annotations

import codecs
import hashlib
import os
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.classes import class_map
from tfshards.prep.sources.keys import KEY_FEATURE, to_text
from tfshards.schemas import Feature, InputError, OptionsError, Schema
from tfshards.schemas.errors import counted
from tfshards.schemas.names import name_fault
from tfshards.schemas.option import option
from tfshards.schemas.storage import AnyPath, is_remote
from tfshards.schemas.storage.untrusted import ANNOTATIONS, read_whole

# The reason of what is in none of the lists, as manifests count it.
UNLISTED = "in no split list"
_INTEGER = re.compile(r"-1|[0-9]{1,18}")


def split_list_option() -> Mapping[str, str]:
    """Return the field of a source that has the lists."""
    found: Mapping[str, str] = {}
    return option(
        found,
        "list of the files of a split, one path per line, perhaps with a label after a space, tab or comma; "
        "its path relative to the source",
        metavar="SPLIT=FILE",
        is_repeatable=True,
        parse=_parse_lists,
        to_json=dict,
    )


def _parse_lists(texts: Sequence[str]) -> dict[str, str]:
    """Return the file of each split in texts such as ``train=train.txt``."""
    lists: dict[str, str] = {}
    for text in texts:
        split, _, path = text.partition("=")
        if not split or split in lists:
            raise OptionsError("split-list-form", text=text)
        lists[split] = path
    return lists


def check_split_list(given: object) -> None:
    """Raise OptionsError unless ``given`` maps names of splits to relative paths."""
    pairs: list[tuple[object, object]] = [*given.items()] if isinstance(given, Mapping) else [(given, "")]
    for split, path in pairs:
        is_text = isinstance(split, str) and isinstance(path, str) and bool(path)
        # manifests record no absolute paths
        if not is_text or name_fault(str(split)) or os.path.isabs(str(path)) or is_remote(str(path)):
            raise OptionsError("split-list-form", text=f"{split}={path}")


@dataclass(frozen=True)
class SplitLists:
    """The split of each key that lists name, and its label if they have labels."""

    split_of: Mapping[bytes, str]
    label_of: Mapping[bytes, str]
    digest: str

    def unlisted(self, keys: Collection[bytes]) -> tuple[set[bytes], list[str]]:
        """Return the keys that no list names, and a warning that counts them."""
        left = {key for key in keys if key not in self.split_of}
        shown = f"{counted(len(left), 'file')} {UNLISTED}, such as {to_text(min(left))!r}" if left else ""
        return left, [f"{shown}: left out"] if left else []

    def applied(self, listing: Listing, class_names: Sequence[str] | None) -> Listing:
        """Return a listing, of which the lists name every key, with their splits and labels."""
        splits = np.array([self.split_of[key] for key in listing.keys], object)
        names = [name for name in dict.fromkeys(self.split_of.values()) if (splits == name).any()]
        listing = replace(
            listing,
            splits={name: np.flatnonzero(splits == name).astype(np.int64) for name in names},
            identity=f"{listing.identity} {self.digest}".strip(),
        )
        if not self.label_of:
            return listing
        labels = [self.label_of[key] for key in listing.keys]
        if all(map(_INTEGER.fullmatch, labels)):
            classes = tuple(class_names or ())
            numbers = np.array(labels).astype(np.int64)
            if classes and numbers.max() >= len(classes):
                raise InputError("split-list-label", found=int(numbers.max()), num_names=len(classes))
        else:
            classes = class_map(labels, class_names, "no line has this label")
            number = {name: index for index, name in enumerate(classes)}
            numbers = np.array([number[label] for label in labels], np.int64)
        images = [each for each in listing.schema.features if each.is_encoded]
        schema = Schema((*images, Feature("label", "label", "int64"), KEY_FEATURE), classes)
        return replace(listing, schema=schema, labels=numbers)


def read_split_lists(lists: Mapping[str, str], folder: AnyPath, keys: Collection[bytes]) -> SplitLists:
    """Return what lists, whose paths are relative to ``folder``, say of the files ``keys`` of a source.

    Paths in a list are relative to the source or to the folder of the list, and need no suffix if only one
    file has this name.
    """
    known: dict[bytes, bytes | None] = {}
    for each in keys:
        stem = os.path.splitext(each)[0]
        known[stem] = None if stem in known else each
    known.update({each: each for each in keys})
    split_of: dict[bytes, str] = {}
    label_of: dict[bytes, str] = {}
    content = hashlib.sha256()
    for split, name in lists.items():
        path = folder / name
        try:
            data = read_whole(path, ANNOTATIONS)
        except OSError as error:
            raise InputError("unreadable", path=path, why=error.strerror) from None
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError(f"{path}: is UTF-16 || save it as UTF-8")
        content.update(data)
        beside, count = os.fsencode(posixpath.dirname(name)), 0
        missing: list[str] = []
        for text in data.removeprefix(codecs.BOM_UTF8).splitlines():
            line = text.strip()
            if not line:
                continue
            key, label = _entry(line, beside, known)
            count += 1
            if key is None:
                missing.append(to_text(line))
                continue
            if key in split_of:
                raise InputError("split-list-repeated", path=path, key=to_text(key), split=split_of[key])
            split_of[key] = split
            if label is not None:
                label_of[key] = to_text(label)
        if missing or not count:
            first = missing[0][:100] if missing else ""
            raise InputError(
                "split-list-missing", path=path, num_missing=len(missing), count=count, first=first
            )
    if label_of and len(label_of) < len(split_of):
        first = next(to_text(key) for key in split_of if key not in label_of)
        raise InputError("split-list-labels-missing", num_missing=len(split_of) - len(label_of), first=first)
    return SplitLists(split_of, label_of, content.hexdigest())


def _entry(
    line: bytes, beside: bytes, known: Mapping[bytes, bytes | None]
) -> tuple[bytes | None, bytes | None]:
    """Return the key that a line names, or None, and its label, or None: a path may have spaces."""
    for parts in ([line], line.rsplit(b"\t", 1), line.rsplit(b",", 1), line.rsplit(None, 1)):
        written = parts[0].strip().lstrip(b"/").replace(b"\\", b"/")
        for path in (written, os.path.join(beside, written)):
            key = known.get(os.path.normpath(path))
            if key is not None:
                return key, parts[1].strip() if len(parts) == 2 else None
    return None, None
