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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import numpy as np

from tfshards.prep.exporting.format import Content, Example, Format, Part
from tfshards.prep.imaging.formats import HEAD_BYTES, format_of, is_tiff
from tfshards.prep.views.files import LABELS_NAME, labels_text
from tfshards.schemas import Feature, Problem, pixel_files


class WebDataset(Format):
    """Tar files, which each hold the examples of one shard."""

    name = "webdataset"
    text = "tar files for WebDataset"

    def path(self, part: Part) -> str:
        """Return the path of a part in the directory."""
        return f"{self.manifest.name}-{part.split}-{part.index:06d}.tar"

    def problems(self) -> list[Problem]:
        """Return what the format cannot hold of the dataset."""
        problems = self.dtype_problems(["bfloat16"], ": it has a dtype that NumPy files do not have")
        problems += [
            Problem(feature.name, "is a list of byte strings, of which some are not UTF-8")
            for feature in self.schema.features
            if feature.name in self.binary and feature.shape != ()
        ]
        names = {feature.name: self._member(feature, b"") for feature in self.schema.features}
        counts = Counter(names.values())
        for name, member in names.items():
            if counts[member] > 1:
                problems.append(Problem(name, f"has the same file name as another feature, {member!r}"))
        return problems

    @property
    def texts(self) -> frozenset[str]:
        """The features that the format stores as text, unless they are in ``binary``."""
        return frozenset(
            each.name for each in self.schema.features if self._form(each) in ("txt", "json", "bin")
        )

    def write(self, path: Path, examples: Iterator[Example]) -> None:
        """Write examples to a new file."""
        # GNU's format allows long names, and writes short ones as all formats do
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            for example in examples:
                for feature in self.schema.features:
                    content = self._content(feature, example.values[feature.name])
                    member = tarfile.TarInfo(f"{example.number:09d}.{self._member(feature, content)}")
                    # no time and no owner, so that equal examples are equal bytes
                    member.size, member.mode = len(content), 0o644
                    tar.addfile(member, io.BytesIO(content))

    def others(self) -> Mapping[str, bytes]:
        """Return the class names, which tar files have no place for."""
        names = self.schema.class_names
        return {LABELS_NAME: labels_text(names).encode("utf-8")} if names else {}

    def _form(self, feature: Feature) -> str:
        """Return how a feature is stored, which is also the last suffix of its files, except for images."""
        if feature.is_encoded:
            return "image"
        if feature is self.schema.label:
            return "cls"
        if feature.kind != "bytes":
            return "npy"
        if feature.shape != ():
            return "json"
        if feature.name == "key":
            return "key"
        return "bin" if feature.name in self.binary else "txt"

    def _member(self, feature: Feature, content: bytes) -> str:
        """Return the name of the file of a feature, after the name of the example and a dot."""
        name, form = re.sub(r"[^a-z0-9_-]", "_", feature.name.lower()), self._form(feature)
        if form == "image":
            first_image = next((each for each in self.schema.features if each.kind == "image"), None)
            form = _suffix_of(content) if content else "png"
            return form if feature is first_image else f"{name}.{form}"
        return form if form in ("cls", "key") else f"{name}.{form}"

    def _content(self, feature: Feature, value: Content) -> bytes:
        match self._form(feature):
            case "cls":
                return str(value).encode("ascii")
            case "npy":
                file = io.BytesIO()
                np.lib.format.write_array(file, self.array(feature, value), allow_pickle=False)
                return file.getvalue()
            case "json":
                return json.dumps(value, ensure_ascii=False).encode("utf-8")
            case "txt":
                return cast("str", value).encode("utf-8")
        return cast("bytes", value)


def _suffix_of(data: bytes) -> str:
    """Return the suffix of the format of an encoded image, without a dot, such as ``jpg``; else ``bin``."""
    head = data[:HEAD_BYTES]
    if found := format_of(head):
        return found.suffixes[0].decode("ascii").lstrip(".")
    if is_tiff(head):
        return "tif"
    if stored := pixel_files.sides_of(data):
        return "pgm" if stored.channels == 1 else "ppm"
    return "bmp" if head.startswith(b"BM") else "bin"
