"""Examples with the same content: found by digest, when the first layout is written.

Content is what the stored images hold; where there are none, all values but the key and the label. So equal
files are duplicates whatever their names, folders and labels are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tfshards.prep.area import Done, Reject, ShardId
from tfshards.prep.example import Values, example_encoder
from tfshards.prep.plan import IntArray
from tfshards.prep.sources.listing import Listing, to_text
from tfshards.schemas import Feature, InputError, Schema

REASON = "duplicate"
_DIGEST_BYTES = 16


def check_comparable(schema: Schema) -> None:
    """Raise InputError if examples hold nothing but keys and labels, so that all would be duplicates."""
    if not _compared(schema):
        raise InputError("--duplicates compares images, or values beside the label; the source has neither")


def content_digest(schema: Schema) -> Callable[[Sequence[Values]], str]:
    """Return a function from the values of an example, in the schema's order, to 32 hex digits."""
    compared = _compared(schema)
    places = [schema.features.index(feature) for feature in compared]
    encode = example_encoder(Schema(tuple(compared)))

    def digest(values: Sequence[Values]) -> str:
        hashed = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for part in encode([values[place] for place in places]):
            hashed.update(part)
        return hashed.hexdigest()

    return digest


def _compared(schema: Schema) -> list[Feature]:
    images = [feature for feature in schema.features if feature.kind == "image"]
    return images or [feature for feature in schema.features if feature.name not in ("key", "label")]


def find_duplicates(
    listing: Listing, layouts: Mapping[str, Sequence[IntArray]], first: Mapping[ShardId, Done]
) -> dict[int, int]:
    """Return the number of each example whose content one of a smaller key has, with that one's number.

    Args:
        listing: of the source.
        layouts: the first ones.
        first: what became of their shards.
    """
    numbers: list[IntArray] = []
    digests: list[str] = []
    for (split, index), done in first.items():
        planned = layouts[split][index]
        gone = {reject.key for reject in done.rejected}
        kept = [
            number for number in planned.tolist() if not gone or to_text(listing.keys[number]) not in gone
        ]
        numbers.append(np.array(kept, dtype=np.int64))
        digests += done.contents
    number = np.concatenate(numbers)
    by_number = np.argsort(number)
    hashed = np.frombuffer(bytes.fromhex("".join(digests)), dtype=f"V{_DIGEST_BYTES}")[by_number]
    number = number[by_number]
    # the first of equal ones has the smallest number, and so the smallest key
    _, first_place, inverse = np.unique(hashed, return_index=True, return_inverse=True)
    original = number[first_place[inverse]]
    repeated = number != original
    return dict(zip(number[repeated].tolist(), original[repeated].tolist(), strict=True))


def duplicate_rejects(listing: Listing, found: Mapping[int, int]) -> list[Reject]:
    """Return the duplicates as they are listed among the rejected inputs."""
    return [
        Reject(
            to_text(listing.keys[number]),
            REASON,
            f"has the content of {to_text(listing.keys[original])!r}",
            int(listing.sizes[number]),
            int(listing.stamps[number]),
        )
        for number, original in found.items()
    ]
