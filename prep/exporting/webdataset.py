"""Export to WebDataset: tar files in which the files of an example follow each other and share a name.

Format: https://github.com/webdataset/webdataset#the-webdataset-format. The name of an example is its number
in the split; what follows the first dot is the name of a value, by which WebDataset decodes it:

| feature | file |
|---|---|
| the first image | ``jpg``, ``png``, ``webp``, … by its content: the encoded bytes |
| another image, a mask | ``NAME.png``, … by its content |
| the first scalar label | ``cls``: the class number in decimal; -1 means no class |
| ``key`` | ``key``: the bytes |
| another byte string | ``NAME.txt``, or ``NAME.bin`` if some are not UTF-8 |
| a list of byte strings | ``NAME.json``: a list of strings |
| numbers, of any shape | ``NAME.npy``, in their dtype |

In NAME, letters are lowercase and characters other than letters, digits, ``_`` and ``-`` are ``_``. Tar files
have no place for class names: ``labels.txt`` has them, in label order.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from tfshards.prep.exporting.format import Format, dtype_problems, suffix_of
from tfshards.prep.exporting.request import (
    ExportedExample,
    ExportPart,
    ExportRequest,
    array_of,
    text_of,
)
from tfshards.prep.records.example import Values
from tfshards.prep.views.files import labels_text
from tfshards.schemas import Feature, Problem


def _problems(request: ExportRequest) -> list[Problem]:
    problems = dtype_problems(request, ["bfloat16"], ": it has a dtype that NumPy files do not have")
    problems += [
        Problem(feature.name, "is a list of byte strings, of which some are not UTF-8")
        for feature in request.schema.features
        if feature.name in request.binary and feature.shape != ()
    ]
    names = {feature.name: _member(request, feature, b"") for feature in request.schema.features}
    counts = Counter(names.values())
    for name, member in names.items():
        if counts[member] > 1:
            problems.append(Problem(name, f"has the same file name as another feature, {member!r}"))
    return problems


def _write(
    request: ExportRequest, part: ExportPart, folder: Path, examples: Iterable[ExportedExample]
) -> None:
    # GNU's format allows long names, and writes short ones as all formats do
    with tarfile.open(folder / _file_name(request, part), "w", format=tarfile.GNU_FORMAT) as tar:
        for example in examples:
            for feature in request.schema.features:
                content = _content(request, feature, example.values[feature.name])
                member = tarfile.TarInfo(f"{example.number:09d}.{_member(request, feature, content)}")
                # no time and no owner, so that equal examples are equal bytes
                member.size, member.mode = len(content), 0o644
                tar.addfile(member, io.BytesIO(content))


def _finish(request: ExportRequest) -> Mapping[str, bytes]:
    names = request.schema.class_names
    return {"labels.txt": labels_text(names).encode("utf-8")} if names else {}


def _file_name(request: ExportRequest, part: ExportPart) -> str:
    return f"{request.manifest.name}-{part.split}-{part.index:06d}.tar"


def _form(request: ExportRequest, feature: Feature) -> str:
    """Return how a feature is stored, which is also the last suffix of its files, except for images."""
    if feature.is_encoded:
        return "image"
    if feature is request.schema.label:
        return "cls"
    if feature.kind != "bytes":
        return "npy"
    if feature.shape != ():
        return "json"
    if feature.name == "key":
        return "key"
    return "bin" if feature.name in request.binary else "txt"


def _member(request: ExportRequest, feature: Feature, content: bytes) -> str:
    """Return the name of the file of a feature, after the name of the example and a dot."""
    name, form = re.sub(r"[^a-z0-9_-]", "_", feature.name.lower()), _form(request, feature)
    if form == "image":
        first_image = next((each for each in request.schema.features if each.kind == "image"), None)
        form = suffix_of(content) if content else "png"
        return form if feature is first_image else f"{name}.{form}"
    return form if form in ("cls", "key") else f"{name}.{form}"


def _content(request: ExportRequest, feature: Feature, value: Values) -> bytes:
    form = _form(request, feature)
    if form == "cls":
        return str(value).encode("ascii")
    if form == "npy":
        file = io.BytesIO()
        np.lib.format.write_array(file, array_of(feature, value), allow_pickle=False)
        return file.getvalue()
    if form == "json":
        texts = [text_of(request, feature, each) for each in cast("Sequence[bytes]", value)]
        return json.dumps(texts, ensure_ascii=False).encode("utf-8")
    if form == "txt":
        # whether it is UTF-8 decides the name of the file
        text_of(request, feature, cast("bytes", value))
    return cast("bytes", value)


WEBDATASET = Format("webdataset", "tar files for WebDataset", _problems, _write, _finish)
