"""The description of a format to which datasets are exported, and names of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tfshards.prep.exporting.request import ExportedExample, ExportPart, ExportRequest
from tfshards.prep.imaging.formats import HEAD_BYTES, format_of, is_tiff
from tfshards.prep.records.example import Values
from tfshards.schemas import Problem, pixel_files


class WrittenFile(NamedTuple):
    """A file of an export: its path relative to the directory, its size in bytes and its digest."""

    path: str
    num_bytes: int
    digest: str


class WrittenPart(NamedTuple):
    """A part and its files."""

    part: ExportPart
    files: tuple[WrittenFile, ...]


# Blocks of the content of a file, by its path relative to the directory.
Contents: TypeAlias = Mapping[str, Iterable[bytes]]


class Format(NamedTuple):
    """One format.

    Attributes:
        name: its name, as ``to=`` takes it.
        text: what is written and what reads it, for the help.
        problems: returns what the format cannot hold of a dataset.
        write: writes the files of one part into an empty folder, at the paths that they have in the export. A
            path that starts with ``PIECES`` is only there for ``finish``.
        read: returns the values of the examples of a part from its files in that folder.
        finish: returns the files that follow from all parts; the folder is the export's directory.
        package: the package that writes the files, on whose release the bytes depend; or empty.
    """

    name: str
    text: str
    problems: Callable[[ExportRequest], list[Problem]]
    write: Callable[[ExportRequest, ExportPart, Path, Iterable[ExportedExample]], None]
    read: Callable[[ExportRequest, ExportPart, Path], Iterator[Mapping[str, Values]]]
    finish: Callable[[ExportRequest, Sequence[WrittenPart], Path], Contents]
    package: str = ""


# The folder with the journal of an export, and the one in it for pieces of files.
STATE = ".export"
PIECES = f"{STATE}/pieces"


def dtype_problems(request: ExportRequest, dtypes: Sequence[str], fault: str) -> list[Problem]:
    """Return a problem for each numeric feature of a dtype that the format does not have."""
    features = request.schema.features
    numbers = [each for each in features if each.dtype in dtypes and not each.is_encoded]
    return [Problem(each.name, f"is {each.dtype}{fault}") for each in numbers]


def suffix_of(data: bytes) -> str:
    """Return the suffix of the format of an encoded image, without a dot, such as ``jpg``; else ``bin``."""
    head = data[:HEAD_BYTES]
    found = format_of(head)
    if found is not None:
        return found.suffixes[0].decode("ascii").lstrip(".")
    if is_tiff(head):
        return "tif"
    if stored := pixel_files.sides_of(data):
        return "pgm" if stored.channels == 1 else "ppm"
    return "bmp" if head.startswith(b"BM") else "bin"
