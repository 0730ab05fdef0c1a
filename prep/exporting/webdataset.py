"""Export to WebDataset: tar files in which the files of an example follow each other and share a name.

Format: https://github.com/webdataset/webdataset#the-webdataset-format. The name of an example is its number
in the split; what follows the first dot is the name of a value, by which WebDataset decodes it. In it,
letters are lowercase, and characters other than letters, digits, ``_`` and ``-`` are ``_``.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfshards.prep.imaging.formats import HEAD_BYTES, format_of
from tfshards.schemas import Feature, Problem, Schema, pixel_files
from tfshards.schemas.columns import Values


def path(name: str, split: str, number: int, total: int) -> str:
    """Return the path in the directory of one of ``total`` parts of a dataset."""
    return f"{name}-{split}-{number:06d}.tar"


def problems(schema: Schema, splits: Collection[str]) -> list[Problem]:
    """Return what WebDataset cannot hold of a dataset."""
    found = []
    members = {feature.name: member or "png" for feature, member, _ in _files(schema)}
    counts = Counter(members.values())
    for name, member in members.items():
        if schema[name].dtype == "bfloat16" and not schema[name].is_encoded:
            found.append(Problem(name, "is bfloat16: it has a dtype that NumPy files do not have"))
        if counts[member] > 1:
            found.append(Problem(name, f"has the same file name as another feature, {member!r}"))
    return found


def write(file: Path, schema: Schema, groups: Iterator[Values], first: int) -> None:
    """Write examples to a new file; ``first`` is the number of the first one in its split."""
    files = [*_files(schema)]
    numbers = count(first)
    # GNU's format allows long names, and writes short ones as all formats do
    with tarfile.open(file, "x", format=tarfile.GNU_FORMAT) as tar:
        for columns in groups:
            for values in zip(*(columns[feature.name] for feature, *_ in files), strict=True):
                number = next(numbers)
                for (feature, member, encode), value in zip(files, values, strict=True):
                    content = encode(value)
                    suffix = _suffix_of(content) if feature.is_encoded else ""
                    # no time and no owner, so that equal examples are equal bytes
                    header = tarfile.TarInfo(f"{number:09d}.{member}{suffix}")
                    header.size = len(content)
                    tar.addfile(header, io.BytesIO(content))


def _files(schema: Schema) -> Iterator[tuple[Feature, str, Callable[[Any], bytes]]]:
    """Yield each feature, what follows the number in the names of its files, and what encodes a value.

    The names of images end with the suffix of their content.
    """
    first_image = next((each for each in schema.features if each.is_image), None)
    for feature in schema.features:
        name = re.sub(r"[^a-z0-9_-]", "_", feature.name.lower())
        if feature.is_encoded:
            yield feature, "" if feature is first_image else f"{name}.", bytes
        elif feature is schema.label:
            # -1 means no class
            yield feature, "cls", lambda label: str(label).encode("ascii")
        elif not feature.is_text:
            yield feature, f"{name}.npy", _npy
        elif feature.shape != ():
            yield feature, f"{name}.json", lambda texts: json.dumps(texts, ensure_ascii=False).encode()
        else:
            yield feature, "key" if feature.name == "key" else f"{name}.txt", str.encode


def _npy(value: npt.ArrayLike) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(value), allow_pickle=False)
    return file.getvalue()


def _suffix_of(data: bytes) -> str:
    """Return the suffix of the format of an encoded image, without a dot, such as ``jpg``; else ``bin``."""
    if found := format_of(data[:HEAD_BYTES]):
        return found.suffixes[0].decode("ascii").lstrip(".")
    stored = pixel_files.sides_of(data)
    return "bin" if stored is None else "pgm" if stored.channels == 1 else "ppm"
