"""Find new inputs with the content of known ones that a source no longer has: moved and renamed files."""

from __future__ import annotations

import numpy as np

from tfshards.prep.derivation.changed_inputs import recorded_inputs
from tfshards.prep.derivation.known import KnownExamples
from tfshards.prep.records.content import content_digest
from tfshards.prep.records.example import decode_example
from tfshards.prep.sources.base import Accepted, Listing, Reader
from tfshards.prep.sources.keys import hash_key, to_text
from tfshards.schemas.index import IntArray

# Number of inputs, and of examples, that are compared at most: a moved folder is noticed by a part of it.
_COMPARED = 1000
# Number of inputs that are read at a time.
_AT_ONCE = 64


def find_renamed(
    new: Listing, reader: Reader, known: KnownExamples, missing: IntArray
) -> list[tuple[str, str]]:
    """Return the keys of new inputs with the images of missing ones, each with the key of the missing one.

    Only inputs of equal size are read, of the first ones.

    Args:
        new: listing of the new inputs.
        reader: reader of the source.
        known: examples of the dataset.
        missing: numbers of the examples whose inputs the source does not have.
    """
    if not any(feature.is_encoded for feature in new.schema.features):
        return []
    hashes = known.keys[missing].view("V16").tolist()
    examples = dict(zip(hashes, missing.tolist(), strict=True))
    sizes = set(new.sizes.tolist())
    candidates = [
        (key, size)
        for key, (size, _) in recorded_inputs(known.origin).items()
        if size in sizes and hash_key(key) in examples
    ][:_COMPARED]
    digest = content_digest(new.schema)
    names = new.schema.names
    held: dict[str, str] = {}
    for key, _ in candidates:
        values = decode_example(known.read(examples[hash_key(key)]))
        # a list per feature; images have one value
        held.setdefault(
            digest([values[name][0] if values.get(name) else b"" for name in names]), to_text(key)
        )
    numbers = np.flatnonzero(np.isin(new.sizes, [size for _, size in candidates]))[:_COMPARED]
    found = []
    for start in range(0, len(numbers), _AT_ONCE):
        rows = new.rows(numbers[start : start + _AT_ONCE])
        for row, outcome in zip(rows, reader.read(rows, new.schema), strict=True):
            key_held = held.get(digest(outcome.values)) if isinstance(outcome, Accepted) else None
            if key_held is not None:
                found.append((row.key, key_held))
    return found
