"""Stage the descriptions of all elements as one table, and read it: the listing, and values by key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfshards.prep.records.example import Values, as_encoded
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row, pieces_of
from tfshards.prep.sources.classes import twins
from tfshards.prep.sources.elements import Elements, Form
from tfshards.prep.sources.features import TEXT
from tfshards.prep.sources.keys import KEY_FEATURE, groups_of_keys, to_bytes, to_text
from tfshards.prep.sources.labels import splits_of
from tfshards.prep.sources.pictures import EncodedImage, ImageRules, content_of, convert_images, decoders_of
from tfshards.prep.sources.spill import Description, read_form, read_spilled
from tfshards.prep.sources.staged_reader import ArrowKeys, mapped_table
from tfshards.schemas import InputError, Schema
from tfshards.schemas.errors import listed
from tfshards.schemas.example import decode_example
from tfshards.schemas.files import write_atomically
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath

TABLE_NAME = "elements.arrow"
# labels have the type of their values
_TYPES = dict.fromkeys(Description._fields, TEXT) | {"size": pa.int64(), "label": pa.null()}
_ROWS_AT_ONCE = 1 << 14
# of the table's metadata
_STAGED = b"staged"

_SHOWN = 5


def described(rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Return descriptions as a table, sorted by key; the rows need not fit into memory."""
    rows, kinds = iter(rows), set[type]()
    tables = [pa.schema(_TYPES.items()).empty_table()]
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        columns = dict(zip(_TYPES, zip(*some, strict=True), strict=True))
        kinds |= {*map(type, columns["label"])} - {type(None)}
        if len(kinds) > 1:
            raise InputError("the labels are both integers and text || make them one of the two")
        arrays = {
            name: pa.array(column, None if name == "label" else _TYPES[name])
            for name, column in columns.items()
        }
        tables.append(pa.table(arrays))
    table = pa.concat_tables(tables, promote_options="default")
    return table.take(pc.sort_indices(table["key"]))


def common_form(elements: Elements, table: pa.Table, folder: AnyPath) -> Form:
    """Return the form of the elements of a pipeline, after comparing all of them."""
    keys, forms = table["key"], table["form"]
    form = read_form(folder, forms[0].as_py())
    other = pc.index(pc.equal(forms, forms[0]), False).as_py()
    if other >= 0:
        found = read_form(folder, forms[other].as_py())
        form.check_same(to_text(keys[0].as_py()), found, to_text(keys[other].as_py()))
    elements.check(form)
    return form


def stage_elements(
    elements: Elements, form: Form, table: pa.Table, folder: AnyPath, *, preview: bool = False
) -> ElementsReader:
    """Return a reader of elements of one form, after writing their table into a folder, unless for a preview.

    Raises:
        InputError: a key is repeated, or the labels are not classes.
    """
    twice = [repr(to_text(one)) for one, after in pairwise(ArrowKeys(table["key"])) if one == after]
    if twice:
        names = listed(list(dict.fromkeys(twice)), _SHOWN)
        raise InputError(f"several examples have the same key: {names} || give each example its own key")
    labels = elements.labels(form, table["label"])
    staged: dict[str, Json] = {
        "form": form.to_json(),
        "class_names": [*labels.class_names] if labels else [],
        "warnings": [*form.warnings(), *([labels.warning] if labels and labels.warning else [])],
    }
    columns = {name: table[name] for name in ("key", "size", "split", "digest", "origin")}
    columns |= {"label": labels.values} if labels else {}
    table = pa.table(columns).combine_chunks().replace_schema_metadata({_STAGED: json.dumps(staged)})
    if preview:
        return ElementsReader(elements, folder, preview=table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    # a runner may repeat this step while others read the table; a power failure must not leave half of it
    write_atomically(folder / TABLE_NAME, sink.getvalue().to_pybytes())
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
        options, images = self.elements.recorded(self._form), self.elements.images
        if any(feature.is_encoded for feature in self._form.features):
            options |= images.to_json() | decoders_of(images, has_masks=self._form.has_role("mask"))
        return options

    def listing(self) -> Listing:
        """Return the listing."""
        table, names = self._table, tuple(self._staged["class_names"])
        keys, by = ArrowKeys(table["key"]), self.group_by
        splits = splits_of(table["split"]) if table["split"][0].as_py() else None
        digests = b"".join(table["digest"].to_pylist())
        return Listing(
            schema=Schema((*self._form.features, KEY_FEATURE), names),
            keys=keys,
            sizes=table["size"].to_numpy(),
            stamps=(np.frombuffer(digests, "<u8")[::2] >> 1).astype(np.int64),
            labels=table["label"].to_numpy() if "label" in table.column_names else None,
            splits=splits,
            identity=hashlib.sha256(digests).hexdigest(),
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
        table, rules = self._table, self.elements.rules(self._form)
        keys, origins = ArrowKeys(table["key"]), ArrowKeys(table["origin"])
        for piece in pieces_of(rows):
            spilled = read_spilled(self.folder, [origins.at(keys.find(to_bytes(row.key))) for row in piece])
            for row, data in zip(piece, spilled, strict=True):
                yield self._outcome(row, data, schema, rules)

    def _outcome(self, row: Row, data: bytes, schema: Schema, rules: ImageRules) -> Outcome:
        key, decoded = to_bytes(row.key), decode_example(data)
        values: dict[str, Values] = {KEY_FEATURE.name: key}
        images = []
        for feature in self._form.features:
            if feature.kind == "label":
                values[feature.name] = row.label
                continue
            value = values[feature.name] = as_encoded(feature, decoded[feature.name])
            if feature.is_encoded:
                assert isinstance(value, bytes)
                images.append(EncodedImage(feature.name, content_of(value), key))
        conversions = convert_images(rules, images, values)
        if isinstance(conversions, Rejected):
            return conversions
        return Accepted([values[name] for name in schema.names], conversions)
