"""Elements on their way: values wait in files, each element is described in a few bytes, and workers read it.

*.spill         values of elements of one form, as examples; the first line is the form
elements.arrow  descriptions of all elements, sorted by key; its metadata has what they have in common
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.records.example import Values, example_encoder, is_single
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row, pieces_of
from tfshards.prep.sources.classes import twins
from tfshards.prep.sources.elements import Elements, Form, encode_key
from tfshards.prep.sources.features import TEXT
from tfshards.prep.sources.keys import KEY_FEATURE, groups_of_keys, number_key, to_bytes, to_text
from tfshards.prep.sources.labels import label_column, splits_of
from tfshards.prep.sources.pictures import EncodedImage, content_of, convert_images, decoders_of
from tfshards.prep.sources.staged_reader import ArrowKeys, mapped_table
from tfshards.prep.sources.staging_folder import is_staged, make_staged
from tfshards.schemas import BuildError, Feature, InputError, Schema
from tfshards.schemas.errors import listed
from tfshards.schemas.example import decode_example
from tfshards.schemas.files import write_blocks_atomically
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import to_json
from tfshards.schemas.storage import AnyPath, RemotePath, in_flight, open_sink, read_range
from tfshards.schemas.storage.untrusted import open_regular

TABLE_NAME = "elements.arrow"
# of the table's metadata
_STAGED = b"staged"
_NAME_BYTES = _FORM_BYTES = 8
_DIGEST_BYTES = 16
# offset, length and masked CRC-32C; origins in a file sort by offset
_NUMBERS = struct.Struct(">QQI")
_ROWS_AT_ONCE, _BLOCK_BYTES = 1 << 14, 1 << 20
_SHOWN = 5


class Description(NamedTuple):
    """What the plan needs to know of one element.

    Attributes:
        size: number of bytes of its values.
        label: number or name of its class; None for no class.
        split: name of its split; empty if there are none.
        form: digest of its form.
        digest: digest of its values.
        origin: file name, offset, length and checksum of its values.
    """

    key: bytes
    size: int
    label: int | str | None
    split: str
    form: bytes
    digest: bytes
    origin: bytes


class Spill:
    """Stores the values of the elements of one bundle, or of one iterable, in one file of a folder.

    Attributes:
        form: the form of all of its elements; None before the first one.
        num_bytes: size of the file.
        is_numbered: whether keys are numbers of elements.
    """

    def __init__(self, elements: Elements, folder: AnyPath | None, *, is_bundle: bool = False) -> None:
        """Create nothing before the first element; without a folder, elements are only described.

        Args:
            elements: how elements are stored.
            folder: the folder; it is created for a bundle.
            is_bundle: whether there are others, so that the first element here must not decide about lists
                and numbers of Python.
        """
        self._elements, self._folder, self._is_bundle = elements, folder, is_bundle
        self._name = secrets.token_bytes(_NAME_BYTES)
        self.form: Form | None = None
        self.num_bytes: int = 0
        self.is_numbered: bool = False

    def describe(self, key: object, values: object, split: str = "", number: int = 0) -> Description:
        """Store an element, and return its description; errors name its key.

        Args:
            key: its key; None if that is one of the values, or else the number.
            values: values by name.
            split: name of its iterable in a mapping of them; otherwise empty.
            number: its number in its iterable.
        """
        shown = number_key(number) if key is None else to_text(encode_key(key))
        try:
            encoded = self._elements.encode(values, None if self._is_bundle else self.form)
        except InputError as error:
            raise InputError(f"{shown}: {error}") from None
        form = encoded.form
        for role, given in (("split", split or None), ("key", key)):
            if given is not None and form.has_role(role):
                raise InputError(
                    f"{shown}: the {role} is given, and a value has the role {role}, too || give the value "
                    "the role value or drop"
                )
        if self.form is None:
            self._begin(form, shown)
        elif form != self.form:
            self.form.check_same(self._first_key, form, shown)
        has_own_key = form.has_role("key")
        self.is_numbered |= key is None and not has_own_key
        own_key = encode_key(encoded.key) if has_own_key else to_bytes(shown)
        prefix = to_bytes(f"{split}/") if split else b""
        data = b"".join(self._encode(encoded.values))
        return Description(
            key=prefix + own_key,
            size=len(data),
            label=encoded.label,
            split=split or encoded.split,
            form=self._form_digest,
            digest=hashlib.sha256(data).digest()[:_DIGEST_BYTES],
            origin=self._written(data),
        )

    def _begin(self, form: Form, shown: str) -> None:
        """Begin the file with the form of the first element."""
        self._elements.check(form)
        self.form, self._first_key = form, shown
        self._encode = _encoder(tuple(feature for feature in form.features if feature.kind != "label"))
        if self._folder is not None:
            if self._is_bundle:
                make_staged(self._folder)
            self._sink = open_sink(_path(self._folder, self._name))
        header = json.dumps(form.to_json(), sort_keys=True).encode("ascii") + b"\n"
        self._form_digest = hashlib.sha256(header).digest()[:_FORM_BYTES]
        self._written(header)

    def _written(self, data: bytes) -> bytes:
        """Write values, and return their origin."""
        origin = self._name + _NUMBERS.pack(self.num_bytes, len(data), masked_crc32c(data))
        if self._folder is not None:
            self._sink.write(data)
        self.num_bytes += len(data)
        return origin

    def close(self) -> None:
        """Finish the file, which other machines may not see before."""
        if self.form is None or self._folder is None:
            return
        self._sink.finish()
        if isinstance(self._folder, RemotePath) and not is_staged(self._folder):
            # nothing would remove it: a later run has removed the folder while this was uploaded
            _path(self._folder, self._name).unlink()
            raise BuildError("staging-gone", root=self._folder)


def _encoder(features: tuple[Feature, ...]) -> Callable[[Sequence[Values]], Sequence[bytes]]:
    return example_encoder(Schema(features)) if features else lambda _: ()


def _path(folder: AnyPath, origin: bytes) -> AnyPath:
    return folder / f"{origin[:_NAME_BYTES].hex()}.spill"


@contextmanager
def _reading(path: AnyPath) -> Iterator[AnyPath]:
    """Yield a path; an error of the operating system becomes an InputError."""
    try:
        yield path
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror} || let no other build write to the dataset, and mount "
            "a folder on every worker under the same path"
        ) from None


def _form_in(folder: AnyPath, origin: bytes) -> Form:
    """Return the form of the elements in the file with this origin."""
    with _reading(_path(folder, origin)) as path, open_regular(path) as file:
        return Form.from_json(json.loads(file.readline()))


def _values_in(folder: AnyPath, origins: Sequence[bytes]) -> list[bytes]:
    """Return the values at these origins, or raise InputError if they cannot be read or are damaged."""
    if isinstance(folder, RemotePath):
        return [*in_flight(partial(_value_in_store, folder), origins)]
    found: dict[bytes, bytes] = {}
    # one open file at a time: there are as many files as bundles
    for name, of_file in groupby(sorted(origins), key=lambda origin: origin[:_NAME_BYTES]):
        with _reading(_path(folder, name)) as path, path.open("rb", buffering=0) as file:
            for origin in of_file:
                offset, length, checksum = _NUMBERS.unpack(origin[_NAME_BYTES:])
                found[origin] = _checked(path, os.pread(file.fileno(), length, offset), checksum)
    return [found[origin] for origin in origins]


def _value_in_store(folder: AnyPath, origin: bytes) -> bytes:
    offset, length, checksum = _NUMBERS.unpack(origin[_NAME_BYTES:])
    with _reading(_path(folder, origin)) as path:
        return _checked(path, read_range(path, offset, offset + length), checksum)


def _checked(path: AnyPath, data: bytes, checksum: int) -> bytes:
    if masked_crc32c(data) != checksum:
        raise InputError(f"{path}: values were damaged after they were listed || run the same build again")
    return data


def described(rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return descriptions as a table, sorted by key; the rows need not fit into memory."""
    # labels have the type of their values
    types = dict.fromkeys(Description._fields, TEXT) | {"size": pa.int64(), "label": pa.null()}
    types |= {"form": pa.binary(_FORM_BYTES), "digest": pa.binary(_DIGEST_BYTES)}
    rows, kinds = iter(rows), set[type]()
    tables = [pa.schema(types.items()).empty_table()]
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = dict(zip(types, zip(*some, strict=True), strict=True))
        kinds |= {*map(type, columns["label"])} - {type(None)}
        if len(kinds) > 1:
            raise InputError("the labels are both integers and text || make them one of the two")
        arrays = {
            name: pa.array(column, None if name == "label" else types[name])
            for name, column in columns.items()
        }
        tables.append(pa.table(arrays))
    table = pa.concat_tables(tables, promote_options="default")
    return table.take(pc.sort_indices(table["key"])).combine_chunks()


def common_form(table: pa.Table, folder: AnyPath) -> Form:
    """Return the form of the described elements of a pipeline, or raise InputError if they differ."""
    form = _form_in(folder, table["origin"][0].as_py())
    other = pc.index(pc.equal(table["form"], table["form"][0]), False).as_py()
    if other >= 0:
        keys = [to_text(table["key"][row].as_py()) for row in (0, other)]
        form.check_same(keys[0], _form_in(folder, table["origin"][other].as_py()), keys[1])
    return form


def stage_elements(
    elements: Elements, form: Form, table: pa.Table, folder: AnyPath, *, preview: bool = False
) -> ElementsReader:
    """Return a reader of elements of one form, after writing their table into a folder, unless for a preview.

    Raises:
        InputError: a key is repeated, or the labels are not classes.
    """
    keys = table["key"].combine_chunks()
    twice = keys[1:].filter(pc.equal(keys[1:], keys[:-1])).unique().to_pylist()
    if twice:
        names = listed([repr(to_text(key)) for key in twice], _SHOWN)
        raise InputError(f"several examples have the same key: {names} || give each example its own key")
    columns = {name: table[name] for name in ("key", "size", "split", "digest", "origin")}
    staged: dict[str, Json] = {"form": form.to_json(), "class_names": [], "warnings": [*form.warnings()]}
    if label := form.first("label"):
        found = label_column(label, table["label"], elements.class_names)
        columns["label"], staged["class_names"] = found.values, [*found.class_names]
        staged["warnings"] = [*form.warnings(), *([found.warning] if found.warning else [])]
    table = pa.table(columns).replace_schema_metadata({_STAGED: json.dumps(staged)})
    if preview:
        return ElementsReader(elements, folder, preview=table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    # a runner may repeat this step while others read the table; a power failure must not leave half of it
    data = sink.getvalue()
    blocks = (data[at : at + _BLOCK_BYTES].to_pybytes() for at in range(0, len(data), _BLOCK_BYTES))
    write_blocks_atomically(folder / TABLE_NAME, blocks)
    return ElementsReader(elements, folder)


@dataclass(frozen=True)
class ElementsReader:
    """The reader of elements that were staged in ``folder``.

    Attributes:
        elements: how the values of the elements are stored.
        folder: the folder in which they were staged.
        group_by: regular expression that groups elements by key, see ``Source.stage``.
        warnings: further warnings for the user.
        is_numbered: whether keys are numbers of elements, see ``Listing``.
        preview: the table of elements that were not staged; only the listing and the options are known.
    """

    elements: Elements
    folder: AnyPath
    group_by: str | None = None
    warnings: tuple[str, ...] = ()
    is_numbered: bool = False
    preview: pa.Table | None = None

    @property
    def _table(self) -> pa.Table:
        return mapped_table(self.folder / TABLE_NAME) if self.preview is None else self.preview

    @cached_property
    def _staged(self) -> dict[str, Any]:
        staged: dict[str, Any] = json.loads(self._table.schema.metadata[_STAGED])
        return staged

    @cached_property
    def _form(self) -> Form:
        return Form.from_json(self._staged["form"])

    def moved(self, folder: AnyPath) -> ElementsReader:
        """Return the reader of the same files in another folder."""
        return replace(self, folder=folder)

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        elements, form = self.elements, self._form
        options: dict[str, Json] = {"source": elements.source, "columns": dict(form.roles)}
        if form.has_role("image", "mask"):
            options |= elements.images.to_json()
            options |= decoders_of(elements.images, has_masks=form.has_role("mask"))
        return options | to_json(elements)

    def listing(self) -> Listing:
        """Return the listing."""
        table, names = self._table, tuple(self._staged["class_names"])
        keys, by = ArrowKeys(table["key"]), self.group_by
        splits = splits_of(table["split"]) if table["split"][0].as_py() else None
        digests = np.frombuffer(table["digest"].combine_chunks().buffers()[-1], "<u8", 2 * len(keys))
        return Listing(
            schema=Schema((*self._form.features, KEY_FEATURE), names),
            keys=keys,
            sizes=table["size"].to_numpy(),
            stamps=(digests[::2] >> 1).astype(np.int64),
            labels=table["label"].to_numpy() if "label" in table.column_names else None,
            splits=splits,
            identity=hashlib.sha256(digests.tobytes()).hexdigest(),
            warnings=(
                *self._staged["warnings"],
                *self.warnings,
                *twins(names),
                *twins(splits or (), "splits"),
            ),
            groups=None if by is None else groups_of_keys(by, keys, "a regular expression with one (group)"),
            is_numbered=self.is_numbered,
        )

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the values of each element as they were described, or why one of its images is rejected."""
        table, rules, names = self._table, self.elements.rules(self._form), schema.names
        keys, origins = ArrowKeys(table["key"]), ArrowKeys(table["origin"])
        singles = {feature.name for feature in self._form.features if is_single(feature)}
        images = [feature.name for feature in self._form.features if feature.is_encoded]
        label = self._form.first("label")
        for piece in pieces_of(rows):
            spilled = _values_in(self.folder, [origins.at(keys.find(to_bytes(row.key))) for row in piece])
            for row, data in zip(piece, spilled, strict=True):
                key, values = to_bytes(row.key), dict[str, Any]()
                for name, items in decode_example(data).items():
                    values[name] = items[0] if name in singles else items
                values[KEY_FEATURE.name] = key
                if label is not None:
                    values[label] = row.label
                conversions: tuple[str, ...] | Rejected = ()
                if images or rules.coordinates:
                    read = [EncodedImage(name, content_of(values[name]), key) for name in images]
                    conversions = convert_images(rules, read, values)
                if isinstance(conversions, Rejected):
                    yield conversions
                else:
                    yield Accepted([values[name] for name in names], conversions)
