"""Stage the descriptions of all elements as one table, and read it: the listing, and values by key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tfshards.prep.records.example import Values
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Rejected, Row, pieces_of
from tfshards.prep.sources.classes import MAX_CLASSES, twins
from tfshards.prep.sources.elements.source import (
    DIGEST_BYTES,
    Elements,
    data_digest,
    decode_element,
)
from tfshards.prep.sources.elements.spill import Description, read_features, read_spilled
from tfshards.prep.sources.keys import KEY_FEATURE, groups_of_keys, to_bytes, to_text
from tfshards.prep.sources.labels import splits_of
from tfshards.prep.sources.pictures import EncodedImage, ImageRules, content_of, convert_images, decoders_of
from tfshards.prep.sources.staged_reader import KEY, SPLIT, ArrowKeys, mapped_table
from tfshards.schemas import Feature, InputError, Schema
from tfshards.schemas.errors import listed
from tfshards.schemas.files import write_atomically
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath

TABLE_NAME = "elements.arrow"
_SIZE, _LABEL, _DIGEST, _ORIGIN = "size", "label", "digest", "origin"
# keys of the table's metadata: the digest of the features, and the class names as JSON
_FEATURES, _CLASS_NAMES = b"features", b"class_names"

_SHOWN = 5


def stage_elements(elements: Elements, descriptions: Iterable[Description], folder: AnyPath) -> None:
    """Write the table of all elements into their folder, sorted by key, after checking them together."""
    # equal keys stay in the order of their digests, so that messages do not depend on the runner
    rows = sorted(descriptions, key=lambda row: (row.key, row.digest))
    twice = [repr(to_text(one.key)) for one, following in pairwise(rows) if one.key == following.key]
    if twice:
        raise InputError("element-keys-repeated", names=listed(list(dict.fromkeys(twice)), _SHOWN))
    features = check_features(rows, folder)
    labels, class_names = _classes(rows, elements)
    binary = pa.large_binary()
    table = pa.table(
        {
            KEY: pa.array([row.key for row in rows], binary),
            _SIZE: pa.array([row.size for row in rows], pa.int64()),
            _LABEL: pa.array(labels, pa.int64()),
            SPLIT: pa.array([row.split.encode() for row in rows], binary),
            _DIGEST: pa.array([row.digest for row in rows], binary),
            _ORIGIN: pa.array([row.origin for row in rows], binary),
        }
    ).replace_schema_metadata({_FEATURES: features, _CLASS_NAMES: json.dumps(class_names)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    # a runner may repeat this step while others read the table; a power failure must not leave half of it
    write_atomically(folder / TABLE_NAME, sink.getvalue().to_pybytes())


def check_features(rows: Sequence[Description], folder: AnyPath) -> bytes:
    """Return the digest of the features that all elements have."""
    first = rows[0]
    for row in rows:
        if row.features != first.features:
            ours, theirs = (
                {feature.name: feature for feature in read_features(folder, each.features)}
                for each in (first, row)
            )
            name = min(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
            raise InputError(
                "elements-differ",
                name=name,
                found=_feature_text(ours.get(name)),
                key=to_text(first.key),
                other=_feature_text(theirs.get(name)),
                other_key=to_text(row.key),
            )
    return first.features


def _feature_text(feature: Feature | None) -> str:
    if feature is None:
        return "missing"
    if feature.kind == "bytes":
        return "text"
    return f"{feature.dtype} {list(feature.shape)}"


def _classes(rows: Sequence[Description], elements: Elements) -> tuple[list[int], Sequence[str]]:
    """Return the number of each element's class, and the class names."""
    are_names = isinstance(rows[0].label, str)
    names = elements.class_names or ()
    if are_names and not names:
        # sorted by bytes, like folders
        names = sorted({str(row.label) for row in rows}, key=to_bytes)
    if len(names) > MAX_CLASSES:
        raise InputError(
            "element-labels-many", label=elements.label, num_names=len(names), max_classes=MAX_CLASSES
        )
    if not names:
        return [int(row.label) for row in rows], ()
    number_of = {name if are_names else number: number for number, name in enumerate(names)}
    for row in rows:
        if row.label not in number_of:
            code = "element-label-unknown" if are_names else "element-label-range"
            raise InputError(code, key=to_text(row.key), label=row.label, num_names=len(names))
    return [number_of[row.label] for row in rows], tuple(names)


@dataclass(frozen=True)
class ElementsReader:
    """The reader of elements that were described and staged in ``folder``.

    Attributes:
        elements: what the features of the elements are.
        folder: the folder in which they were staged.
        features: features, with label and split as they were given.
        class_names: class names in label order; empty if there are none.
        source: the option ``source`` in manifests.
        is_numbered: whether keys are the numbers of elements.
        warnings: warnings for the user.
        group_by: regular expression that groups elements by key, see ``Source.stage``.
    """

    elements: Elements
    folder: AnyPath
    features: tuple[Feature, ...]
    class_names: tuple[str, ...]
    source: str = "WriteShards"
    is_numbered: bool = False
    warnings: tuple[str, ...] = ()
    group_by: str | None = None

    @classmethod
    def open(cls, elements: Elements, folder: AnyPath) -> ElementsReader:
        """Return the reader of a staged table."""
        metadata = mapped_table(folder / TABLE_NAME).schema.metadata
        features = read_features(folder, metadata[_FEATURES])
        return cls(elements, folder, features, tuple(json.loads(metadata[_CLASS_NAMES])))

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        if not self.elements.encoded:
            return {"source": self.source}
        return {"source": self.source, **self.elements.image_options.to_json(), **decoders_of()}

    def listing(self) -> Listing:
        """Return the listing."""
        table = mapped_table(self.folder / TABLE_NAME)
        elements = self.elements
        stored = [
            Feature(feature.name, "label", "int64") if feature.name == elements.label else feature
            for feature in self.features
            if feature.name != elements.split
        ]
        if not stored:
            raise InputError("elements-no-features")
        digests = b"".join(table[_DIGEST].to_pylist())
        stamps = np.frombuffer(digests, "<u8").reshape(-1, DIGEST_BYTES // 8)[:, 0] >> 1
        if self.source == "WriteShards":
            # the identity covers the values of a pipeline
            stamps = np.zeros_like(stamps)
        splits = None if elements.split is None else splits_of(table[SPLIT])
        keys, by = ArrowKeys(table[KEY]), self.group_by
        return Listing(
            schema=Schema((*stored, KEY_FEATURE), self.class_names),
            keys=keys,
            sizes=table[_SIZE].to_numpy(),
            stamps=stamps.astype(np.int64),
            labels=None if elements.label is None else table[_LABEL].to_numpy(),
            splits=splits,
            # of the values as they were given
            identity=hashlib.sha256(digests).hexdigest(),
            warnings=(*self.warnings, *twins(self.class_names), *twins(splits or (), "splits")),
            groups=None if by is None else groups_of_keys(by, keys, "a regular expression with one (group)"),
            is_numbered=self.is_numbered,
        )

    def read(self, rows: Sequence[Row], schema: Schema) -> Iterator[Outcome]:
        """Yield the values of each element as they were described, or why one of its images is rejected."""
        for piece in pieces_of(rows):
            yield from self._read(piece, schema)

    def _read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        table = mapped_table(self.folder / TABLE_NAME)
        keys = ArrowKeys(table[KEY])
        taken = table.select([_DIGEST, _ORIGIN]).take([keys.find(to_bytes(row.key)) for row in rows])
        digests, origins = (taken[name].to_pylist() for name in (_DIGEST, _ORIGIN))
        data = read_spilled(self.folder, origins)
        for row, values, digest in zip(rows, data, digests, strict=True):
            if data_digest(values) != digest:
                raise InputError("element-changed", key=row.key)
        return [self._outcome(row, values, schema) for row, values in zip(rows, data, strict=True)]

    def _outcome(self, row: Row, data: bytes, schema: Schema) -> Outcome:
        values: dict[str, Values] = decode_element(self.features, data)
        values[KEY_FEATURE.name] = to_bytes(row.key)
        if schema.label is not None:
            values[schema.label.name] = row.label
        rules = ImageRules(self.elements.image_options, frozenset(self.elements.masks))
        images = []
        for name in self.elements.encoded:
            encoded = values[name]
            assert isinstance(encoded, bytes)
            images.append(EncodedImage(name, content_of(encoded), to_bytes(row.key)))
        conversions = convert_images(rules, images, values)
        if isinstance(conversions, Rejected):
            return conversions
        return Accepted([values[name] for name in schema.names], conversions)
