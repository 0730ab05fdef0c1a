"""The description of a format to which datasets are exported, and names of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tfshards.prep.exporting.request import ExportedExample, ExportPart, ExportRequest
from tfshards.prep.imaging.formats import HEAD_BYTES, format_of, is_tiff
from tfshards.schemas import Problem, pixel_files


class WrittenFile(NamedTuple):
    """A file of an export: its path relative to the directory, its size in bytes and its digest."""

    path: str
    num_bytes: int
    digest: str


class Format(NamedTuple):
    """One format.

    Attributes:
        name: its name, as ``to=`` takes it.
        text: what is written and what reads it, for the help.
        problems: returns what the format cannot hold of a dataset.
        write: writes the files of one part into an empty folder, at the paths that they have in the export.
        finish: returns the content of files about the whole export, by their paths in it.
        package: the package that writes the files, on whose release the bytes depend; or empty.
    """

    name: str
    text: str
    problems: Callable[[ExportRequest], list[Problem]]
    write: Callable[[ExportRequest, ExportPart, Path, Iterable[ExportedExample]], None]
    finish: Callable[[ExportRequest], Mapping[str, bytes]]
    package: str = ""


# The folder with the journal of an export.
STATE = ".export"


def dtype_problems(request: ExportRequest, dtypes: Sequence[str], fault: str) -> list[Problem]:
    """Return a problem for each numeric feature of a dtype that the format does not have.

    Lists of images have one, too.
    """
    features = request.schema.features
    numbers = [each for each in features if each.dtype in dtypes and not each.holds_images]
    lists = [each for each in features if each.holds_images and not each.is_encoded]
    return [Problem(each.name, f"is {each.dtype}{fault}") for each in numbers] + [
        Problem(each.name, "is a list of images") for each in lists
    ]


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
