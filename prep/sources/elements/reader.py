"""Read the elements of a staged table: their listing, and their values by key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row
from tfshards.prep.sources.elements.source import Elements, data_digest, decode_element, encode_element
from tfshards.prep.sources.elements.spill import (
    CLASS_NAMES,
    DIGEST,
    FEATURES,
    LABEL,
    ORIGIN,
    SIZE,
    TABLE_NAME,
    read_again,
    read_features,
    read_spilled,
)
from tfshards.prep.sources.image_file import checked_image, decoders_of
from tfshards.prep.sources.keys import KEY_FEATURE, groups_of_keys, to_bytes
from tfshards.prep.sources.tables.labels import splits_of
from tfshards.prep.sources.tables.staging import KEY, SPLIT, ArrowKeys, mapped_table
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.json_reader import Json

# the option ``source`` in manifests
SOURCE_NAME = "WriteShards"


@dataclass(frozen=True)
class ElementsReader:
    """The reader of elements that were described and staged in ``folder``.

    ``features`` have label and split as they were given; ``class_names`` are empty if there are none.
    """

    elements: Elements
    folder: Path
    features: tuple[Feature, ...]
    class_names: tuple[str, ...]

    @classmethod
    def open(cls, elements: Elements, folder: Path) -> ElementsReader:
        """Return the reader of a staged table."""
        metadata = mapped_table(str(folder / TABLE_NAME)).schema.metadata
        features = read_features(folder, metadata[FEATURES])
        return cls(elements, folder, features, tuple(json.loads(metadata[CLASS_NAMES])))

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        if not self.elements.images:
            return {"source": SOURCE_NAME}
        options = self.elements.image_options
        return {"source": SOURCE_NAME, **options.to_json(), **decoders_of(options)}

    def listing(self) -> Listing:
        """Return the listing."""
        table = mapped_table(str(self.folder / TABLE_NAME))
        elements = self.elements
        stored = [
            Feature(feature.name, "label", "int64") if feature.name == elements.label else feature
            for feature in self.features
            if feature.name != elements.split
        ]
        if not stored:
            raise InputError("elements-no-features")
        digests = b"".join(table[DIGEST].to_pylist())
        return Listing(
            schema=Schema((*stored, KEY_FEATURE), self.class_names),
            keys=ArrowKeys(table[KEY]),
            sizes=table[SIZE].to_numpy(),
            stamps=np.zeros(table.num_rows, np.int64),
            labels=None if elements.label is None else table[LABEL].to_numpy(),
            splits=None if elements.split is None else splits_of(table[SPLIT]),
            # of the values as they were given
            identity=hashlib.sha256(digests).hexdigest(),
        )

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return the group of each element: what the one group of a regular expression matches in its key."""
        return groups_of_keys(by, listing.keys, "a regular expression with one (group)")

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the values of each element, or why one of its images is rejected.

        Raises:
            InputError: the values cannot be read, or are not those that were described.
        """
        table = mapped_table(str(self.folder / TABLE_NAME))
        keys = ArrowKeys(table[KEY])
        taken = table.select([DIGEST, ORIGIN]).take([keys.find(to_bytes(row.key)) for row in rows])
        digests, origins = (taken[name].to_pylist() for name in (DIGEST, ORIGIN))
        data = self._read_again(rows, origins) if self.elements.read else read_spilled(self.folder, origins)
        what = "read= returned other features" if self.elements.read else "its values are damaged"
        for row, values, digest in zip(rows, data, digests, strict=True):
            if data_digest(values) != digest:
                raise InputError("element-changed", key=row.key, what=what)
        return [self._outcome(row, values, schema) for row, values in zip(rows, data, strict=True)]

    def _read_again(self, rows: Sequence[Row], origins: Sequence[bytes]) -> list[bytes]:
        elements = self.elements
        return [
            encode_element(elements, row.key, read_again(elements, row.key, origin)).data
            for row, origin in zip(rows, origins, strict=True)
        ]

    def _outcome(self, row: Row, data: bytes, schema: Schema) -> Outcome:
        values: dict[str, Values] = decode_element(self.features, data)
        values[KEY_FEATURE.name] = to_bytes(row.key)
        if schema.label is not None:
            values[schema.label.name] = row.label
        conversions: list[str] = []
        for name in self.elements.images:
            encoded = values[name]
            assert isinstance(encoded, bytes)
            image = checked_image(encoded, to_bytes(row.key), self.elements.image_options)
            if isinstance(image, Rejected):
                detail = image.detail if len(self.elements.images) == 1 else f"{name}: {image.detail}"
                return Rejected(image.reason, detail)
            values[name] = image.data
            conversions += image.conversions
        return Accepted([values[name] for name in schema.names], tuple(conversions))
