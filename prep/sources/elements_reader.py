"""Stage the descriptions of all elements as one table, and read it: the listing, and values by key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tfshards.prep.records.example import Values, as_encoded
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row, pieces_of
from tfshards.prep.sources.classes import twins
from tfshards.prep.sources.elements import Elements, Form, check_same, warnings_of
from tfshards.prep.sources.features import TEXT
from tfshards.prep.sources.keys import KEY_FEATURE, groups_of_keys, to_bytes, to_text
from tfshards.prep.sources.labels import splits_of
from tfshards.prep.sources.pictures import EncodedImage, content_of, convert_images, decoders_of
from tfshards.prep.sources.spill import Description, data_digest, read_form, read_spilled
from tfshards.prep.sources.staged_reader import KEY, SPLIT, ArrowKeys, mapped_table
from tfshards.schemas import InputError, Schema
from tfshards.schemas.errors import listed
from tfshards.schemas.example import decode_example
from tfshards.schemas.files import write_atomically
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath

TABLE_NAME = "elements.arrow"
_SIZE, _LABEL, _DIGEST, _ORIGIN = "size", "label", "digest", "origin"
# of the table's metadata
_STAGED = b"staged"

_SHOWN = 5


def stage_elements(elements: Elements, descriptions: Iterable[Description], folder: AnyPath) -> None:
    """Write the table of all elements into their folder, sorted by key, after checking them together."""
    # equal keys stay in the order of their digests, so that messages do not depend on the runner
    rows = sorted(descriptions, key=lambda row: (row.key, row.digest))
    twice = [repr(to_text(one.key)) for one, following in pairwise(rows) if one.key == following.key]
    if twice:
        names = listed(list(dict.fromkeys(twice)), _SHOWN)
        raise InputError(f"several elements have the same key: {names} || give each element its own key")
    first = rows[0]
    form = read_form(folder, first.form)
    for row in rows:
        if row.form != first.form:
            check_same(form, read_form(folder, row.form), to_text(first.key), to_text(row.key))
    elements.check(form)
    columns = {
        KEY: pa.array([row.key for row in rows], TEXT),
        _SIZE: pa.array([row.size for row in rows], pa.int64()),
        SPLIT: pa.array([row.split.encode() for row in rows], TEXT),
        _DIGEST: pa.array([row.digest for row in rows], TEXT),
        _ORIGIN: pa.array([row.origin for row in rows], TEXT),
    }
    staged: dict[str, Json] = {"form": first.form.hex(), "class_names": [], "warnings": [*warnings_of(form)]}
    if labels := elements.labels(form, [row.label for row in rows]):
        columns[_LABEL] = labels.values
        staged["class_names"] = [*labels.class_names]
        staged["warnings"] = [*warnings_of(form), *filter(None, [labels.warning])]
    table = pa.table(columns).replace_schema_metadata({_STAGED: json.dumps(staged)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    # a runner may repeat this step while others read the table; a power failure must not leave half of it
    write_atomically(folder / TABLE_NAME, sink.getvalue().to_pybytes())


@dataclass(frozen=True)
class ElementsReader:
    """The reader of elements that were described and staged in ``folder``.

    Attributes:
        elements: how the values of the elements are stored.
        folder: the folder in which they were staged.
        form: roles and features of the elements.
        class_names: class names in label order; empty if there are none.
        warnings: warnings for the user.
        group_by: regular expression that groups elements by key, see ``Source.stage``.
    """

    elements: Elements
    folder: AnyPath
    form: Form
    class_names: tuple[str, ...]
    warnings: tuple[str, ...]
    group_by: str | None

    @classmethod
    def open(cls, elements: Elements, folder: AnyPath, group_by: str | None = None) -> ElementsReader:
        """Return the reader of a staged table."""
        staged = json.loads(mapped_table(folder / TABLE_NAME).schema.metadata[_STAGED])
        form = read_form(folder, bytes.fromhex(staged["form"]))
        return cls(elements, folder, form, tuple(staged["class_names"]), tuple(staged["warnings"]), group_by)

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        options: dict[str, Json] = {"source": "WriteShards", **self.elements.recorded(self.form)}
        if any(feature.is_encoded for feature in self.form.features):
            decoders = decoders_of(self.elements.images, has_masks=self.form.has_role("mask"))
            options |= {**self.elements.images.to_json(), **decoders}
        return options

    def listing(self) -> Listing:
        """Return the listing."""
        table = mapped_table(self.folder / TABLE_NAME)
        splits = splits_of(table[SPLIT]) if self.form.has_role("split") else None
        keys, by = ArrowKeys(table[KEY]), self.group_by
        return Listing(
            schema=Schema((*self.form.features, KEY_FEATURE), self.class_names),
            keys=keys,
            sizes=table[_SIZE].to_numpy(),
            # the identity covers the values
            stamps=np.zeros(len(keys), np.int64),
            labels=table[_LABEL].to_numpy() if _LABEL in table.column_names else None,
            splits=splits,
            identity=hashlib.sha256(b"".join(table[_DIGEST].to_pylist())).hexdigest(),
            warnings=(*self.warnings, *twins(self.class_names), *twins(splits or (), "splits")),
            groups=None if by is None else groups_of_keys(by, keys, "a regular expression with one (group)"),
        )

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the values of each element as they were described, or why one of its images is rejected."""
        table = mapped_table(self.folder / TABLE_NAME)
        keys = ArrowKeys(table[KEY])
        for piece in pieces_of(rows):
            staged = table.select([_DIGEST, _ORIGIN]).take([keys.find(to_bytes(row.key)) for row in piece])
            spilled = read_spilled(self.folder, staged[_ORIGIN].to_pylist())
            for row, data, digest in zip(piece, spilled, staged[_DIGEST].to_pylist(), strict=True):
                if data_digest(data) != digest:
                    raise InputError(
                        f"{row.key}: its values were damaged after they were listed || run the pipeline again"
                    )
                yield self._outcome(row, data, schema)

    def _outcome(self, row: Row, data: bytes, schema: Schema) -> Outcome:
        key, rules = to_bytes(row.key), self.elements.rules(self.form)
        decoded = decode_example(data)
        values: dict[str, Values] = {KEY_FEATURE.name: key}
        images = []
        for feature in self.form.features:
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
