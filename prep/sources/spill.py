"""Describe elements of a Beam pipeline in a few bytes each, and store their values until they are read."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import NamedTuple

from tfshards.prep.records.example import Values, example_encoder
from tfshards.prep.sources.elements import Elements, Form, encode_key
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import BuildError, Feature, InputError, Schema
from tfshards.schemas.build_area import create, is_owned
from tfshards.schemas.files import write_atomically
from tfshards.schemas.storage import AnyPath, RemotePath, in_flight, open_sink, read_range

_NAME_BYTES = 8
_FORM_BYTES = 8
DIGEST_BYTES = 16
# offset and length; origins in a file sort by offset
_NUMBERS = struct.Struct(">QQ")


class Description(NamedTuple):
    """What the plan needs to know of one element.

    Attributes:
        size: number of bytes of its values.
        label: number or name of its class; None for no class.
        split: name of its split; empty if there are none.
        form: digest of its roles and features, which names their file.
        digest: digest of its values.
        origin: file name, offset and length of its values.
    """

    key: bytes
    size: int
    label: int | str | None
    split: str
    form: bytes
    digest: bytes
    origin: bytes


class Spill:
    """Describes the elements of one bundle, and stores their values in one file, or object, of the folder."""

    def __init__(self, elements: Elements, folder: AnyPath) -> None:
        """Create nothing yet, since a bundle may be empty."""
        self._elements = elements
        self._folder = folder
        self._name = secrets.token_bytes(_NAME_BYTES)
        self._path = _spill_path(folder, self._name)
        self._is_open, self._offset = False, 0
        self._known: dict[object, bytes] = {}

    def describe(self, element: object) -> tuple[object, ...]:
        """Return the ``Description`` of an element ``(key, features)``.

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
        known = form.features, tuple(form.roles.items())
        if known not in self._known:
            self._known[known] = self._write_form(form)
        encode = _encoder(tuple(feature for feature in form.features if feature.kind != "label"))
        data = b"".join(encode([value for value in encoded.values if value is not None]))
        origin, digest = self._append(data), data_digest(data)
        return tuple(
            Description(key, len(data), encoded.label, encoded.split, self._known[known], digest, origin)
        )

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

    def _write_form(self, form: Form) -> bytes:
        """Write roles and features into a file, and return the digest that names it."""
        if not self._known:
            create(self._folder)
        found = {"features": [feature.to_json() for feature in form.features], "roles": dict(form.roles)}
        text = json.dumps(found, sort_keys=True).encode("ascii")
        digest = hashlib.blake2b(text, digest_size=_FORM_BYTES).digest()
        write_atomically(_form_path(self._folder, digest), text)
        return digest


# the elements of a pipeline have one set of features
@lru_cache(maxsize=16)
def _encoder(features: tuple[Feature, ...]) -> Callable[[Sequence[Values]], Sequence[bytes]]:
    return example_encoder(Schema(features)) if features else lambda _: ()


def data_digest(data: bytes) -> bytes:
    """Return the digest of an element's values."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


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
            raise _unreadable(path, error) from None
    return found


def _read_object(folder: AnyPath, origin: bytes) -> bytes:
    path = _spill_path(folder, origin[:_NAME_BYTES])
    offset, length = _NUMBERS.unpack(origin[_NAME_BYTES:])
    try:
        return read_range(path, offset, offset + length)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: AnyPath, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be read: {error.strerror} || let no other build write to the dataset")


def read_form(folder: AnyPath, digest: bytes) -> Form:
    """Return the roles and features of the elements with this digest of them."""
    path = _form_path(folder, digest)
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"{path} is missing || let no other build write to the dataset, and, if it is on a disk, mount "
            "its folder on every worker under the same path"
        ) from None
    features = (Feature(**{**each, "shape": tuple(each["shape"])}) for each in found["features"])
    return Form(found["roles"], tuple(features))


def _spill_path(folder: AnyPath, name: bytes) -> AnyPath:
    return folder / f"{name.hex()}.spill"


def _form_path(folder: AnyPath, digest: bytes) -> AnyPath:
    return folder / f"{digest.hex()}.form"
