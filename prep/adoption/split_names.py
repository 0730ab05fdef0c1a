"""Derive the split of a TFRecord file from its path, and find gaps in the numbers of files."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tfshards.prep.sources.splits import usual_order
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.errors import listed
from tfshards.schemas.names import name_fault

_SHOWN = 5
_WORD = re.compile(r"(?:train|training|validation|valid|val|dev|eval|test|testing)\d*")
_SEPARATOR = re.compile(r"[^a-z0-9]+")
# NAME-SPLIT.tfrecord-00000-of-00004, as TensorFlow Datasets names shards
_TFDS_NAME = re.compile(r".+-(?P<split>[^-]+)\.[^.-]+-[0-9]+-of-[0-9]+")
_NUMBERED = re.compile(r"(?P<head>.*?)(?P<index>[0-9]+)-of-(?P<count>[0-9]+)(?P<tail>.*)", re.DOTALL)


def parse_globs(texts: Sequence[str]) -> dict[str, str]:
    """Return the patterns in texts such as ``train=part-0*``, by split."""
    globs: dict[str, str] = {}
    for text in texts:
        name, _, glob = text.partition("=")
        if not glob:
            raise OptionsError("glob-form", text=text)
        if name in globs:
            raise OptionsError("glob-repeated", text=text, name=name)
        globs[name] = glob
    return globs


def splits_by_glob(paths: Sequence[str], globs: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the paths of each split in the order of their numbers; those that match no pattern are skipped.

    In a pattern ``*`` also matches ``/``.
    """
    splits: dict[str, list[str]] = {name: [] for name in globs}
    for path in paths:
        matching = [name for name, glob in globs.items() if fnmatch.fnmatchcase(path, glob)]
        if len(matching) > 1:
            raise InputError(
                "globs-overlap",
                path=path,
                matching=matching[0],
                globs=globs[matching[0]],
                matching2=matching[1],
                globs2=globs[matching[1]],
            )
        for name in matching:
            splits[name].append(path)
    for name, found in splits.items():
        if not found:
            known = f"; the files are {listed(paths, _SHOWN)}" if paths else ""
            raise InputError("glob-without-files", given={name: globs[name]}, known=known)
    return {name: sorted(found, key=natural) for name, found in splits.items()}


def splits_by_name(paths: Sequence[str], tfds_folders: Collection[str]) -> dict[str, list[str]]:
    """Return the paths of each split, training first, and in the order of their numbers.

    The split is the name of a folder (``train/``, ``Split-train/``), a word in the file's name
    (``photos-train.tfrecord-00000-of-00004``), or the split of a name that TFDS wrote. If no path names a
    split, all files are ``train``.

    Args:
        paths: paths relative to the dataset.
        tfds_folders: the folders that TFDS wrote; its splits may have any name.
    """
    splits: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        splits[_split_of(path, tfds_folders)].append(path)
    if "" in splits and len(splits) > 1:
        named = next(name for name in splits if name)
        raise InputError("file-without-split", splits=splits[""][0], splits2=splits[named][0], named=named)
    ordered = sorted(splits, key=usual_order)
    return {name or "train": sorted(splits[name], key=natural) for name in ordered}


def natural(path: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that orders numbers in paths by value: 2 before 10."""
    parts = re.split(r"([0-9]+)", path)
    return [(int(part), "") if index % 2 else (-1, part) for index, part in enumerate(parts)], path


def missing_shards(paths: Sequence[str], present: Collection[str]) -> tuple[int, list[str]]:
    """Return how many files of numbered series (``train-00003-of-00008``) are missing, and some of the names.

    Args:
        paths: the paths of the dataset.
        present: all paths in its folder; those that are not in the dataset were skipped on purpose.
    """
    existing: dict[Series, set[int]] = defaultdict(set)
    for path in present:
        if match := _NUMBERED.fullmatch(path):
            existing[Series(*match.group("head", "count", "tail"))].add(int(match["index"]))
    chosen: dict[Series, str] = {}
    for path in paths:
        if series := series_of(path):
            chosen.setdefault(series, path)
    first: dict[tuple[str, str], str] = {}
    number, names = 0, []
    for series, path in chosen.items():
        head, count, tail = series
        other = first.setdefault((head, tail), path)
        if other != path:
            raise InputError("two-series", other=other, path=path)
        # some tools count from 1
        start = 1 if 0 not in existing[series] and int(count) in existing[series] else 0
        absent = (index for index in range(start, start + int(count)) if index not in existing[series])
        number += max(0, int(count) - len(existing[series]))
        names += [f"{head}{index:0{len(count)}}-of-{count}{tail}" for index in islice(absent, _SHOWN)]
    return number, names[:_SHOWN]


class Series(NamedTuple):
    """The common parts of the names of a numbered series, such as ``train-00003-of-00008``."""

    head: str
    total: str
    tail: str


def series_of(path: str) -> Series | None:
    """Return the numbered series that ``path`` belongs to, or None."""
    match = _NUMBERED.fullmatch(path)
    return Series(*match.group("head", "count", "tail")) if match else None


def _split_of(path: str, tfds_folders: Collection[str]) -> str:
    folder, _, name = path.rpartition("/")
    tfds = _TFDS_NAME.fullmatch(name)
    if folder in tfds_folders and tfds:
        if fault := name_fault(tfds["split"]):
            raise InputError("split-name-of-file", path=path, fault=fault)
        return tfds["split"]
    words = _words(name.lower())
    for part in folder.lower().split("/"):
        # only whole names of folders count: training_data/ may hold a test set
        inner = [word for word in _SEPARATOR.split(part) if word != "split"]
        words += inner if len(inner) == 1 and _WORD.fullmatch(inner[0]) else []
    found = list(dict.fromkeys(words))
    if len(found) > 1:
        raise InputError("file-of-two-splits", path=path, found=found[0], found2=found[1])
    return found[0] if found else ""


def _words(name: str) -> list[str]:
    """Return the names of splits in a file name; names between ``-`` or ``.`` take precedence over others.

    For example, ``stress_test-train.tfrecord`` belongs to ``train``.
    """
    alone = [word for word in re.split(r"[-.]", name) if _WORD.fullmatch(word)]
    return alone or [word for word in _SEPARATOR.split(name) if _WORD.fullmatch(word)]
