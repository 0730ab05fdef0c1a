"""Describe elements in a few bytes each, and store their values until they are read."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from tfshards.prep.sources.elements.source import Elements, data_digest, encode_element, encode_key
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import BuildError, Feature, InputError
from tfshards.schemas.build_area import create, is_owned
from tfshards.schemas.files import write_atomically
from tfshards.schemas.storage import AnyPath, RemotePath, in_flight, open_sink, read_range

_NAME_BYTES = 8
_FEATURES_BYTES = 8
# offset and length; origins in a file sort by offset
_NUMBERS = struct.Struct(">QQ")


class Description(NamedTuple):
    """What the plan needs to know of one element.

    Attributes:
        size: number of bytes of its values.
        label: number or name of its class; -1 if there are no labels.
        features: digest of its features, which names their file.
        digest: digest of its values.
        origin: file name, offset and length of its values.
    """

    key: bytes
    size: int
    label: int | str
    split: str
    features: bytes
    digest: bytes
    origin: bytes


class Spill:
    """Describes the elements of one bundle, and stores their values in one file, or object, of the folder."""

    def __init__(self, elements: Elements, folder: AnyPath, *, makes_folder: bool = True) -> None:
        """Create nothing yet, since a bundle may be empty; the folder exists unless it ``makes_folder``."""
        self._elements = elements
        self._folder = folder
        self._makes_folder = makes_folder
        self._name = secrets.token_bytes(_NAME_BYTES)
        self._path = _spill_path(folder, self._name)
        self._is_open, self._offset = False, 0
        self._known: dict[tuple[Feature, ...], bytes] = {}

    def describe(self, element: object) -> tuple[object, ...]:
        """Return the ``Description`` of an element ``(key, features)``.

        It is a plain tuple, which Beam encodes in fewer bytes than one of a class.
        """
        if not isinstance(element, tuple) or len(element) != 2:
            raise InputError("element-type", kind=type(element).__name__)
        key = encode_key(element[0])
        shown = to_text(key)
        if self._makes_folder and not self._known:
            create(self._folder)
        found = encode_element(self._elements, shown, element[1])
        origin = self._append(found.data)
        features = self._known.get(found.features) or self._write_features(found.features)
        digest = data_digest(found.data)
        description = Description(key, len(found.data), found.label, found.split, features, digest, origin)
        return tuple(description)

    def close(self) -> None:
        """Finish the file, which other machines may not see before."""
        if self._is_open:
            self._sink.finish()
            if isinstance(self._path, RemotePath) and not is_owned(self._folder):
                # nothing would remove it: a later run has removed the folder while this was uploaded
                self._path.unlink()
                raise BuildError("staging-gone", root=self._folder)

    def _append(self, data: bytes) -> bytes:
        if not self._is_open:
            self._sink, self._is_open = open_sink(self._path), True
        self._sink.write(data)
        origin = self._name + _NUMBERS.pack(self._offset, len(data))
        self._offset += len(data)
        return origin

    def _write_features(self, features: tuple[Feature, ...]) -> bytes:
        text = json.dumps([feature.to_json() for feature in features]).encode("ascii")
        digest = hashlib.blake2b(text, digest_size=_FEATURES_BYTES).digest()
        write_atomically(_features_path(self._folder, digest), text)
        self._known[features] = digest
        return digest


def read_spilled(folder: AnyPath, origins: Sequence[bytes]) -> list[bytes]:
    """Return the values at these origins; fewer bytes of one whose file on a disk has been cut."""
    if isinstance(folder, RemotePath):
        return [*in_flight(partial(_read_object, folder), origins)]
    found = [b""] * len(origins)
    # one open file at a time: there are as many files as bundles
    in_order = sorted(range(len(origins)), key=origins.__getitem__)
    for name, numbers in groupby(in_order, key=lambda number: origins[number][:_NAME_BYTES]):
        path = _spill_path(folder, name)
        try:
            with path.open("rb", buffering=0) as file:
                for number in numbers:
                    offset, length = _NUMBERS.unpack(origins[number][_NAME_BYTES:])
                    found[number] = os.pread(file.fileno(), length, offset)
        except OSError as error:
            raise InputError("spill-unreadable", path=path, why=error.strerror) from None
    return found


def _read_object(folder: AnyPath, origin: bytes) -> bytes:
    path = _spill_path(folder, origin[:_NAME_BYTES])
    offset, length = _NUMBERS.unpack(origin[_NAME_BYTES:])
    try:
        return read_range(path, offset, offset + length)
    except OSError as error:
        raise InputError("spill-unreadable", path=path, why=error.strerror) from None


def read_features(folder: AnyPath, digest: bytes) -> tuple[Feature, ...]:
    """Return the features that elements with this digest have."""
    path = _features_path(folder, digest)
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError("spill-missing", path=path) from None
    return tuple(Feature(**{**each, "shape": tuple(each["shape"])}) for each in found)


def _spill_path(folder: AnyPath, name: bytes) -> AnyPath:
    return folder / f"{name.hex()}.spill"


def _features_path(folder: AnyPath, digest: bytes) -> AnyPath:
    return folder / f"{digest.hex()}.features"
