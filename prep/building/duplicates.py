"""Find examples with the same content by the digests that are computed while the first layout is written.

The content of an example is its stored images or, without images, all values except the key and the label.
Equal files are therefore duplicates even if their names, folders or labels differ.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import numpy as np

from tfshards.prep.records.content import DIGEST_BYTES, content_digest
from tfshards.prep.sources.base import Accepted, Listing, Reader
from tfshards.prep.sources.keys import to_text
from tfshards.prep.writing.area import FinishedShard, Reject, ShardId
from tfshards.schemas.index import IntArray

REASON = "duplicate"
_DETAIL = "has the content of "


def find_duplicates(
    listing: Listing, layouts: Mapping[str, Sequence[IntArray]], first: Mapping[ShardId, FinishedShard]
) -> dict[int, int]:
    """Map the number of each duplicate to the number of the example with the same content and smallest key.

    Args:
        listing: the listing of the source.
        layouts: the first layouts.
        first: the shards of the first layouts.
    """
    numbers: list[IntArray] = []
    digests: list[str] = []
    for (split, index), shard in first.items():
        planned = layouts[split][index]
        rejected = {reject.key for reject in shard.rejected}
        kept = [
            number
            for number in planned.tolist()
            if not rejected or to_text(listing.keys[number]) not in rejected
        ]
        numbers.append(np.array(kept, dtype=np.int64))
        digests += shard.contents
    number = np.concatenate(numbers)
    by_number = np.argsort(number)
    hashed = np.frombuffer(bytes.fromhex("".join(digests)), dtype=f"V{DIGEST_BYTES}")[by_number]
    number = number[by_number]
    # the first of equal examples has the smallest number, and therefore the smallest key
    _, first_index, inverse = np.unique(hashed, return_index=True, return_inverse=True)
    original = number[first_index[inverse]]
    repeated = number != original
    return dict(zip(number[repeated].tolist(), original[repeated].tolist(), strict=True))


def duplicate_rejects(listing: Listing, found: Mapping[int, int]) -> list[Reject]:
    """Return the duplicates as rejected inputs."""
    return [
        Reject(
            to_text(listing.keys[number]),
            REASON,
            f"{_DETAIL}{to_text(listing.keys[original])!r}",
            int(listing.sizes[number]),
        )
        for number, original in found.items()
    ]


def original_of(reject: Reject) -> str | None:
    """Return the key of the example that a reject is a duplicate of; None if it has another reason."""
    if reject.reason != REASON:
        return None
    return str(ast.literal_eval(reject.detail.removeprefix(_DETAIL)))


def is_still_duplicate(reject: Reject, now: Accepted, listing: Listing, reader: Reader) -> bool:
    """Return whether an input that was rejected as a duplicate still has the same content as the other input.

    Args:
        reject: the rejected input; the reason may be any.
        now: its values now.
        listing: the listing of the source.
        reader: the reader of the source.
    """
    key = original_of(reject)
    original = None if key is None else listing.find(key)
    if original is None:
        return False
    (outcome,) = reader.read(listing.rows(np.array([original], dtype=np.int64)), listing.schema)
    digest = content_digest(listing.schema)
    return isinstance(outcome, Accepted) and digest(outcome.values) == digest(now.values)
