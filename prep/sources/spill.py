"""Store the values of elements in files until they are read, and describe each element in a few bytes."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import groupby
from typing import NamedTuple

from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.sources.elements import Elements, Encoded, Form, encode_key
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import BuildError, Feature, InputError, Schema
from tfshards.schemas.build_area import create, is_owned
from tfshards.schemas.files import write_atomically
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.storage import AnyPath, RemotePath, in_flight, open_sink, read_range

DIGEST_BYTES = 16
_NAME_BYTES = _FORM_BYTES = 8
# offset, length and masked CRC-32C; origins in a file sort by offset
_NUMBERS = struct.Struct(">QQI")


class Description(NamedTuple):
    """What the plan needs to know of one element.

    Attributes:
        size: number of bytes of its values.
        label: number or name of its class; None for no class.
        split: name of its split; empty if there are none.
        digest: digest of its values.
        origin: file name, offset, length and checksum of its values.
        form: name of the file of its form; empty if it is known that all elements have the same form.
    """

    key: bytes
    size: int
    label: int | str | None
    split: str
    digest: bytes
    origin: bytes
    form: bytes = b""


class Spill:
    """Stores the values of elements in one file, or object, of a folder."""

    def __init__(self, folder: AnyPath | None) -> None:
        """Create nothing before the first element; without a folder, elements are only described."""
        self._name = secrets.token_bytes(_NAME_BYTES)
        self._path = None if folder is None else folder / _spill_name(self._name)
        self._is_open, self.num_bytes = False, 0

    def add(self, key: bytes, split: str, encoded: Encoded) -> Description:
        """Store the values of an element, and return its description."""
        features = encoded.form.features
        encode = _encoder(tuple(feature for feature in features if feature.kind != "label"))
        data = b"".join(encode(encoded.values))
        if self._path is not None:
            if not self._is_open:
                self._sink, self._is_open = open_sink(self._path), True
            self._sink.write(data)
        origin = self._name + _NUMBERS.pack(self.num_bytes, len(data), masked_crc32c(data))
        self.num_bytes += len(data)
        digest = hashlib.sha256(data).digest()[:DIGEST_BYTES]
        return Description(key, len(data), encoded.label, split, digest, origin)

    def close(self) -> AnyPath | None:
        """Finish the file, which other machines may not see before, and return its path, if there is one."""
        if not self._is_open:
            return None
        self._sink.finish()
        return self._path


class Bundle:
    """Describes the elements of one bundle of a pipeline, and stores their values in a folder."""

    def __init__(self, elements: Elements, folder: AnyPath) -> None:
        self._elements, self._folder, self._spill = elements, folder, Spill(folder)
        self._forms: dict[Form, bytes] = {}

    def describe(self, element: object) -> tuple[object, ...]:
        """Store the values of an element ``(key, features)``, and return its ``Description``.

        It is a plain tuple, which Beam encodes in fewer bytes than one of a class.
        """
        if not isinstance(element, tuple) or len(element) != 2:
            raise InputError(f"an element is of type {type(element).__name__}; each must be (key, features)")
        key = encode_key(element[0])
        try:
            encoded = self._elements.encode(element[1])
        except InputError as error:
            raise InputError(f"{to_text(key)}: {error}") from None
        form = encoded.form
        if form.has_role("key"):
            raise InputError(
                f"{to_text(key)}: a value has the role key, but the key of an element is the first of the "
                "pair || rename the value, or give it the role drop"
            )
        if form not in self._forms:
            self._forms[form] = _write_form(self._folder, form)
        return tuple(self._spill.add(key, encoded.split, encoded)._replace(form=self._forms[form]))

    def close(self) -> None:
        """Finish the file of the values."""
        path = self._spill.close()
        if isinstance(path, RemotePath) and not is_owned(self._folder):
            # nothing would remove it: a later run has removed the folder while this was uploaded
            path.unlink()
            raise BuildError("staging-gone", root=self._folder)


# the elements of a pipeline have one set of features
@lru_cache(maxsize=16)
def _encoder(features: tuple[Feature, ...]) -> Callable[[Sequence[Values]], Sequence[bytes]]:
    return example_encoder(Schema(features)) if features else lambda _: ()


def read_spilled(folder: AnyPath, origins: Sequence[bytes]) -> list[bytes]:
    """Return the values at these origins, or raise InputError if they cannot be read or are damaged."""
    if isinstance(folder, RemotePath):
        return [*in_flight(partial(_read_object, folder), origins)]
    found = [b""] * len(origins)
    # one open file at a time: there are as many files as bundles
    in_order = sorted(range(len(origins)), key=origins.__getitem__)
    for name, numbers in groupby(in_order, key=lambda number: origins[number][:_NAME_BYTES]):
        path = folder / _spill_name(name)
        with _reading(path), path.open("rb", buffering=0) as file:
            for number in numbers:
                offset, length, checksum = _NUMBERS.unpack(origins[number][_NAME_BYTES:])
                found[number] = _checked(path, os.pread(file.fileno(), length, offset), checksum)
    return found


def _read_object(folder: AnyPath, origin: bytes) -> bytes:
    offset, length, checksum = _NUMBERS.unpack(origin[_NAME_BYTES:])
    path = folder / _spill_name(origin[:_NAME_BYTES])
    with _reading(path):
        return _checked(path, read_range(path, offset, offset + length), checksum)


@contextmanager
def _reading(path: AnyPath) -> Iterator[None]:
    """Raise InputError for an error of the operating system."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror} || let no other build write to the dataset, and mount "
            "a folder on every worker under the same path"
        ) from None


def _checked(path: AnyPath, data: bytes, checksum: int) -> bytes:
    if masked_crc32c(data) != checksum:
        raise InputError(f"{path}: values were damaged after they were listed || run the same build again")
    return data


def _write_form(folder: AnyPath, form: Form) -> bytes:
    """Write the form of elements into a file of a folder, and return the name of the file."""
    create(folder)
    text = json.dumps(form.to_json(), sort_keys=True).encode("ascii")
    name = hashlib.sha256(text).digest()[:_FORM_BYTES]
    write_atomically(folder / _form_name(name), text)
    return name


def read_form(folder: AnyPath, name: bytes) -> Form:
    """Return the form of elements in a file of a folder."""
    path = folder / _form_name(name)
    with _reading(path):
        return Form.from_json(json.loads(path.read_bytes()))


def _spill_name(name: bytes) -> str:
    return f"{name.hex()}.spill"


def _form_name(name: bytes) -> str:
    return f"{name.hex()}.form"
