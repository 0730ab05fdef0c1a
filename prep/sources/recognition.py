"""Recognize in a listing what the table of known layouts and formats names, and report what builds it."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import IO, Protocol, TypeAlias

from tfshards.prep.sources.keys import to_text
from tfshards.prep.sources.known import KNOWN, PAGE, Known
from tfshards.prep.sources.patterns import key_pattern
from tfshards.schemas import InputError

# Words that the commands have in addition; None if the marks do not belong to the layout.
_More: TypeAlias = "Sequence[str] | None"
# The first few paths that each pattern matches, by the folder to which the pattern is relative.
Seen: TypeAlias = "dict[str, dict[bytes, list[bytes]]]"
_MOST_PATHS = 8
# Marks are relative to the source, or to a folder of it this deep.
_DEEPEST = 2
_HEAD_BYTES = 64 << 10


class Folder(Protocol):
    """The part of a tree of files that recognition needs."""

    seen: Seen

    def folders(self, name: bytes = b"") -> list[bytes]:
        """Return the names of the folders in a folder."""

    def opened(self, path: bytes) -> IO[bytes]:
        """Return a file, open for reading."""


# The beginning of a suffix by which patterns are found: shards are named x.tfrecord-00000-of-00001.
_SUFFIX = len(".tfrecord")


def note(seen: Seen, path: bytes) -> None:
    """Keep the path if it is a mark: a file that is not an image, or a folder, with a slash."""
    name, index = path[path.rfind(b"/", 0, -1) + 1 :], _index()
    suffix = name[name.rfind(b".") :][:_SUFFIX]
    for pattern, expression in (*index.get(name, ()), *index.get(suffix, ())):
        start = 0
        for _ in range(_DEEPEST + 1):
            if expression.fullmatch(path, start):
                first = seen.setdefault(pattern, {})
                first[path[:start]] = sorted({path, *first.get(path[:start], ())})[:_MOST_PATHS]
            start = path.find(b"/", start) + 1 or len(path)


@cache
def _index() -> Mapping[bytes, Sequence[tuple[str, re.Pattern[bytes]]]]:
    """Return the patterns of the table, with expressions, by the name or the suffix of what they match."""
    index: dict[bytes, list[tuple[str, re.Pattern[bytes]]]] = {}
    for pattern in dict.fromkeys(each for known in KNOWN for mark in known.marks for each in mark.split("|")):
        text, slash = pattern.rstrip("/"), "/" * pattern.endswith("/")
        name = text.rpartition("/")[2]
        end = re.findall(r"\.\w+", name)[-1] if "*" in name else name + slash
        expression = re.compile(f"{key_pattern(text).pattern}{slash}".encode("ascii"), re.DOTALL)
        index.setdefault(end.encode("ascii"), []).append((pattern, expression))
    return index


def check_layout(folder: Folder, keys: Sequence[bytes], root: str, *, is_declared: bool) -> list[str]:
    """Raise InputError if a folder of images looks like a known dataset, unless the user declared its layout.

    Args:
        folder: the folder, which was listed.
        keys: keys of its images.
        root: the folder as the user gave it.
        is_declared: whether the user has stated what the folders are.

    Returns:
        Warnings about files that another source reads; without images, all that the marks show.
    """
    warnings: list[str] = []
    for known in KNOWN:
        if known.is_refused and is_declared:
            continue
        found = [
            (base, paths, words)
            for base, paths in _matches(folder.seen, known)
            for words in [CHECKS[known.check](folder, keys, base, paths) if known.check else ()]
            if words is not None
        ]
        if found:
            lines = _remedy(known, found, root)
            if known.is_refused and keys:
                raise InputError("layout-known", *lines, root=root, name=known.name)
            warnings += lines
    return warnings


def _matches(seen: Seen, known: Known) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """Yield each folder that has all marks, with a path of each; of several tables, each may be the one."""
    if not known.marks:
        yield b"", ()
        return
    first, *others = (_by_base(seen, mark) for mark in known.marks)
    for base in sorted(set(first).intersection(*others)):
        for path in first[base]:
            yield base, [path, *(mark[base][0] for mark in others)]


def _remedy(
    known: Known, found: Sequence[tuple[bytes, Sequence[bytes], Sequence[str]]], root: str
) -> list[str]:
    """Return lines on what builds a layout of which the marks were found.

    ``found`` has folders of the marks, with their paths, and the words that the commands have in addition.
    """
    if not known.is_refused:
        first, *others = sorted({paths[0] for _, paths, _ in found})
        return [f"{to_text(first)}{' and others are' if others else ' is'} not read; {known.commands}"]
    commands = []
    # folders of splits become a dataset each, and these the splits of one
    splits = {base: to_text(base).rstrip("/").replace("/", "-") for base, _, _ in found}
    splits = splits if len(splits) > 1 else {}
    for base, paths, more in found:
        for line in known.commands.splitlines():
            words = [_filled(word, root, base, paths) for word in (*shlex.split(line), *more)]
            commands.append(
                [f"DATASET-{splits[base]}" if splits and word == "DATASET" else word for word in words]
            )
    if commands and splits:
        parts = [f"{name}=DATASET-{name}" for name in splits.values()]
        commands.append(["tfshards", "merge", "--as-splits", *parts, "DATASET"])
    return [
        *dict.fromkeys(f"  {shlex.join(words)}" for words in commands),
        f"  see {PAGE}, {known.section or known.name}",
    ]


def _filled(word: str, root: str, base: bytes, paths: Sequence[bytes]) -> str:
    for number, path in enumerate(paths):
        word = word.replace(f"%{number}", to_text(path.removeprefix(base)).rstrip("/"))
    if word.split("/")[0] == "SOURCE":
        word = os.path.join(root, *filter(None, (os.fsdecode(base).rstrip("/"), word[len("SOURCE/") :])))
    return word


def other_formats(name: str) -> list[str]:
    """Return a line on how a file of this name can be built from, if its format is known but not read."""
    seen: Seen = {}
    note(seen, os.fsencode(name.replace(os.sep, "/").rpartition("/")[2]))
    found = [known for known in KNOWN if not known.is_refused and _by_base(seen, known.marks[0])]
    return [f"{name} is not read; {known.commands}" for known in found]


def _by_base(seen: Seen, mark: str) -> dict[bytes, list[bytes]]:
    """Return the first paths that one of the patterns of a mark matches, by the folder of the marks."""
    found: dict[bytes, list[bytes]] = {}
    for pattern in mark.split("|"):
        found = {**seen.get(pattern, {}), **found}
    return found


def _flat(folder: Folder, _: Sequence[bytes], __: bytes, paths: Sequence[bytes]) -> _More:
    """Accept a last folder without folders: otherwise these are classes."""
    return None if folder.folders(paths[-1].rstrip(b"/")) else ()


def _has_no_classes(folder: Folder, keys: Sequence[bytes], base: bytes, paths: Sequence[bytes]) -> _More:
    """Accept a table of the form of Hugging Face, unless folders may be the classes of its images."""
    is_parquet = paths[0].endswith(b".parquet")
    inside = [key[len(base) :].split(b"/") for key in keys if key.startswith(base)]
    folders = {names[0] for names in inside if len(names) > 1}
    return () if len(folders) < 2 and (is_parquet or b"file_name" in _head(folder, paths[0])) else None


def _names_images(folder: Folder, keys: Sequence[bytes], base: bytes, paths: Sequence[bytes]) -> _More:
    """Accept a table of which a column names images, unless it has their folders as classes."""
    header, values = _first_row(folder, paths[0])
    names = {to_text(key.removeprefix(base)) for key in keys if key.startswith(base)}
    inside = to_text(paths[1].removeprefix(base))
    suffixes: dict[str, list[str]] = {}
    for name in names:
        suffixes.setdefault(os.path.splitext(name)[0], []).append(os.path.splitext(name)[1])
    for column, value in zip(header, values, strict=False):
        found = suffixes.get(inside + value, [])
        if value in names:
            image = column
        elif inside + value in names:
            image = f"{inside}{{{column}}}"
        elif len(found) == 1:
            image = f"{inside}{{{column}}}{found[0]}"
        else:
            continue
        others = [name for name in header if name != column]
        if {*values} & {*value.split("/")[:-1]}:
            return None
        is_label = len(others) == 1 and others[0] != "label"
        return ["--image", image, *(["--label", others[0]] if is_label else [])]
    return None


def _names_images_in_parts(
    folder: Folder, keys: Sequence[bytes], base: bytes, paths: Sequence[bytes]
) -> _More:
    """Accept a table next to folders that differ by numbers, if a column names an image in one of them."""
    tops = folder.folders(base.rstrip(b"/"))
    patterns = {re.sub(rb"\d+(?=\D*$)", b"*", name) for name in tops}
    if len(tops) < 2 or len(patterns) > 1 or patterns == {b"*"}:
        return None
    _, values = _first_row(folder, paths[0])
    inside = [key.removeprefix(base) for key in keys if key.startswith(base)]
    if {*values} & {to_text(part) for key in inside for part in key.split(b"/")[:-1]}:
        return None
    for value in values:
        for key in inside:
            stem, suffix = os.path.splitext(to_text(key.rpartition(b"/")[2]))
            if value in (stem, stem + suffix):
                return ()
    return None


def _first_row(folder: Folder, path: bytes) -> tuple[list[str], list[str]]:
    rows = csv.reader(io.StringIO(_head(folder, path).decode("utf-8-sig", "replace")))
    return next(rows, []), next(rows, [])


def _head(folder: Folder, path: bytes) -> bytes:
    with folder.opened(path) as file:
        return file.read(_HEAD_BYTES)


def _are_texts_of_images(_: Folder, keys: Sequence[bytes], __: bytes, paths: Sequence[bytes]) -> _More:
    """Accept text files of boxes: one has the path of an image in its folder."""
    text = paths[-1].replace(b"labels/", b"images/", 1)
    return () if os.path.splitext(text)[0] in {os.path.splitext(key)[0] for key in keys} else None


def _equal_names(_: Folder, keys: Sequence[bytes], __: bytes, paths: Sequence[bytes]) -> _More:
    """Accept two folders if each file in the second one has the name of one in the first."""
    first, second = (_stems(keys, path) for path in paths)
    return () if second and second <= first else None


def _are_masks_among(_: Folder, keys: Sequence[bytes], __: bytes, ___: Sequence[bytes]) -> _More:
    """Accept images of which one has a mask in its folder: its name with an ending."""
    masked = {key.rpartition(b"_mask.")[0] for key in keys if b"_mask." in key}
    return () if masked and any(os.path.splitext(key)[0] in masked for key in keys) else None


def _two_folders(folder: Folder, keys: Sequence[bytes], _: bytes, __: Sequence[bytes]) -> _More:
    """Accept two folders with equal names that are not numbers without gaps, as classes may have."""
    folders = folder.folders()
    if len(folders) != 2 or any(name.lower().startswith(_SPLITS) for name in folders):
        return None
    first, second = (_stems(keys, name + b"/") for name in folders)
    if any(b"/" in stem for stem in first):
        return None
    numbers = sorted(int(b"0" + b"".join(re.findall(rb"\d", stem))) for stem in first)
    is_counted = not numbers or numbers[-1] - numbers[0] < len(numbers)
    return () if first == second and len(first) >= _FEWEST_PAIRS and not is_counted else None


# Fewer files may have equal names by chance.
_FEWEST_PAIRS = 4
_SPLITS = (b"train", b"val", b"dev", b"test")


def _stems(keys: Sequence[bytes], folder: bytes) -> set[bytes]:
    return {os.path.splitext(key[len(folder) :])[0] for key in keys if key.startswith(folder)}


_Check: TypeAlias = "Callable[[Folder, Sequence[bytes], bytes, Sequence[bytes]], _More]"
CHECKS: Mapping[str, _Check] = {
    "flat": _flat,
    "images without classes": _has_no_classes,
    "names images": _names_images,
    "names images in parts": _names_images_in_parts,
    "texts of images": _are_texts_of_images,
    "equal names": _equal_names,
    "masks among images": _are_masks_among,
    "two folders of equal names": _two_folders,
}
