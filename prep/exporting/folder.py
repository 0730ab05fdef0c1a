"""Export to a folder of images, ``SPLIT/CLASS/NAME``, for torchvision, Keras and Hugging Face ``datasets``.

NAME is the key without a leading split and class, with the suffix of the stored bytes; the number of the
example where there is no key, or where it is not a safe path. Other images and masks of an example have the
same path in ``FEATURE/SPLIT/CLASS``. Without labels, images are in ``SPLIT`` itself.

``SPLIT/metadata.jsonl`` has one JSON object per example (https://huggingface.co/docs/datasets/image_dataset):
``file_name``, and by name every other feature; the class by its name, null for none; ``FEATURE_file_name``
for another image; arrays as nested lists of numbers. ``tfshards build images DIR`` makes a dataset of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from tfshards.prep.exporting.format import PIECES, Contents, Format, WrittenPart, dtype_problems, suffix_of
from tfshards.prep.exporting.request import (
    ExportedExample,
    ExportPart,
    ExportRequest,
    array_of,
    key_text,
    value_of,
)
from tfshards.prep.imaging.formats import format_named, format_of
from tfshards.prep.records.example import Values
from tfshards.schemas import Feature, InputError, Problem
from tfshards.schemas.json_reader import Json
from tfshards.schemas.schema import UNCOMMON_DTYPES
from tfshards.schemas.storage.untrusted import open_regular

# The 255 bytes that file systems allow, without a suffix that is added.
_MAX_NAME = 250
# The folder of examples without a class.
_NO_CLASS = "no-class"
_METADATA = "metadata.jsonl"
_BLOCK = 1 << 20


def _problems(request: ExportRequest) -> list[Problem]:
    problems = dtype_problems(request, UNCOMMON_DTYPES, ", which JSON does not have")
    features = request.schema.features
    if not any(feature.kind == "image" for feature in features):
        problems.append(Problem("features", "hold no image; parquet and webdataset store other values"))
    for feature in features:
        if feature.kind == "bytes" and len(feature.shape) > 1:
            problems.append(Problem(feature.name, "is an array of byte strings"))
        if feature.is_encoded and (feature.name in request.manifest.splits or not _is_safe(feature.name)):
            problems.append(Problem(feature.name, "cannot name a folder next to those of the splits"))
        if feature.name in ("file_name", *(f"{each.name}_file_name" for each in features if each.is_encoded)):
            problems.append(
                Problem(feature.name, f"is a name that {_METADATA} uses for the path of an image")
            )
    for name in request.schema.class_names:
        if not _is_safe(name) or name in (_NO_CLASS, _METADATA):
            problems.append(Problem(f"class_names.{name}", "cannot name a folder"))
    return problems


def _is_safe(part: str) -> bool:
    """Return whether a name is that of a visible file or folder, and leads nowhere else."""
    encoded = part.encode("utf-8", "surrogateescape")
    return bool(part) and part[0] != "." and not {"/", "\0"} & set(part) and len(encoded) <= _MAX_NAME


def _write(
    request: ExportRequest, part: ExportPart, folder: Path, examples: Iterable[ExportedExample]
) -> None:
    pieces = folder / PIECES
    pieces.mkdir(parents=True)
    with (pieces / _piece(part)).open("w", encoding="ascii") as metadata:
        for example in examples:
            inside = _place(request, part, example)
            row: dict[str, Json] = {}
            for feature in request.schema.features:
                value = example.values[feature.name]
                if not feature.is_encoded:
                    row[feature.name] = _to_json(request, feature, value, example.number)
                    continue
                path = f"{part.split}/{_with_suffix(inside, cast('bytes', value))}"
                if feature is _image(request):
                    # the first field, as people read it
                    row = {"file_name": path.partition("/")[2], **row}
                else:
                    path = f"{feature.name}/{path}"
                    row[f"{feature.name}_file_name"] = f"../{path}"
                full = folder / path
                full.parent.mkdir(parents=True, exist_ok=True)
                if full.exists():
                    raise InputError("export-same-path", path=path)
                full.write_bytes(cast("bytes", value))
            metadata.write(json.dumps(row) + "\n")


def _read(request: ExportRequest, part: ExportPart, folder: Path) -> Iterator[Mapping[str, Values]]:
    with (folder / PIECES / _piece(part)).open(encoding="ascii") as metadata:
        for line in metadata:
            row = json.loads(line)
            values: dict[str, Values] = {}
            for feature in request.schema.features:
                if feature is _image(request):
                    values[feature.name] = (folder / part.split / row["file_name"]).read_bytes()
                elif feature.is_encoded:
                    path = row[f"{feature.name}_file_name"].removeprefix("../")
                    values[feature.name] = (folder / path).read_bytes()
                else:
                    values[feature.name] = _from_json(request, feature, row[feature.name])
            yield values


def _finish(request: ExportRequest, written: Sequence[WrittenPart], directory: Path) -> Contents:
    return {
        f"{split}/{_METADATA}": _joined(
            [directory / PIECES / _piece(part.part) for part in written if part.part.split == split]
        )
        for split in request.manifest.splits
    }


def _joined(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                yield block


def _piece(part: ExportPart) -> str:
    return f"{part.split}-{part.name}.jsonl"


def _image(request: ExportRequest) -> Feature:
    """Return the image that the folders of splits hold."""
    return next(feature for feature in request.schema.features if feature.kind == "image")


def _place(request: ExportRequest, part: ExportPart, example: ExportedExample) -> str:
    """Return the path of an image in the folder of its split."""
    label = request.schema.label
    names, inside = request.schema.class_names, ""
    if label is not None:
        number = cast("int", example.values[label.name])
        inside = (names[number] if number >= 0 else _NO_CLASS) if names else str(number)
    key = example.values.get("key")
    text = key_text(key) if isinstance(key, bytes) else ""
    for folder in (part.split, inside):
        text = text.removeprefix(f"{folder}/") if folder else text
    if not all(map(_is_safe, text.split("/"))) or text.split("/")[0] == _METADATA:
        text = f"{example.number:09d}"
    return f"{inside}/{text}" if inside else text


def _with_suffix(path: str, data: bytes) -> str:
    """Return the path with the suffix of the format of the content, unless it has one of those."""
    suffix, found = suffix_of(data), format_of(data)
    known = format_named(found.name).suffixes if found else (f".{suffix}".encode(),)
    has_one = any(path.lower().endswith(each.decode("ascii")) for each in known)
    return path if has_one else f"{path}.{suffix}"


def _to_json(request: ExportRequest, feature: Feature, value: Values, number: int) -> Json:
    if feature is request.schema.label and request.schema.class_names:
        return request.schema.class_names[cast("int", value)] if cast("int", value) >= 0 else None
    if feature.kind == "bytes":
        if feature.shape == ():
            return key_text(cast("bytes", value))
        return [key_text(each) for each in cast("Sequence[bytes]", value)]
    found: Json = array_of(feature, value).tolist()
    flat = np.ravel(array_of(feature, value))
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise InputError("export-not-finite", number=number, feature=feature.name)
    return found


def _from_json(request: ExportRequest, feature: Feature, found: Json) -> Values:
    if feature is request.schema.label and request.schema.class_names:
        return -1 if found is None else request.schema.class_names.index(str(found))
    if feature.kind == "bytes":
        texts = [found] if feature.shape == () else cast("list[Json]", found)
        values = [str(text).encode("utf-8", "surrogateescape") for text in texts]
        return values[0] if feature.shape == () else values
    array = np.array(found, feature.dtype)
    if feature.is_ragged or not math.prod(dim or 1 for dim in feature.shape):
        array = array.reshape((-1, *(dim or 0 for dim in feature.shape[1:])))
    return value_of(feature, array)


FOLDER = Format("folder", "a folder of images, SPLIT/CLASS/NAME", _problems, _write, _read, _finish)
