"""Find the inputs that have changed since their examples were written, reading as few of them as possible."""

from __future__ import annotations

import numpy as np

from tfshards.prep.building.contents import differing
from tfshards.prep.derivation.known import KnownExamples, image_features
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.sources.base import Listing, Reader
from tfshards.schemas.index import IntArray

# Number of inputs that are read at a time.
_INPUTS = 64


def find_changed(
    listing: Listing, reader: Reader, known: KnownExamples, examples: IntArray, *, checksum: bool
) -> IntArray:
    """Return the numbers of the known inputs whose label, split or content is not that of their example.

    The content is read only of inputs that may differ: of images that are newer than their shard, and of all
    images whose size differs from that of the stored image, if there are more than were converted.

    Args:
        listing: listing of the source.
        reader: reader of the source.
        known: examples of the dataset.
        examples: shape ``(num_examples,)``, number of the example of each input, or -1.
        checksum: read the content of all known inputs.
    """
    numbers = np.flatnonzero(examples >= 0)
    held = examples[numbers]
    is_changed = np.zeros(len(numbers), dtype=np.bool_)
    labels = known.labels()
    if labels is not None and listing.labels is not None:
        is_changed |= labels[held] != listing.labels[numbers]
    splits = known.splits()
    for split, members in (listing.splits or {}).items():
        is_changed |= np.isin(numbers, members) & (splits[held] != split)
    # the time of several images is a hash, which cannot be compared with that of a shard
    num_images = len(image_features(listing.schema))
    if num_images == 1 or (num_images and checksum):
        may_differ = checksum or _may_differ(listing, reader, known, numbers, held)
        suspects = np.flatnonzero(~is_changed & may_differ)
        checksums = known.checksums[held[suspects]].tolist()
        is_changed |= np.isin(numbers, differing(listing, reader, numbers[suspects], checksums))
    return numbers[is_changed]


def _may_differ(
    listing: Listing, reader: Reader, known: KnownExamples, numbers: IntArray, held: IntArray
) -> BoolArray:
    is_newer = listing.stamps[numbers] > known.times()[held]
    if reader.options()["source"] != "images":
        # the sizes of rows of a table also count other columns
        return is_newer
    has_other_size = listing.sizes[numbers] != known.image_bytes[held].astype(np.int64)
    num_converted = known.origin.manifest.totals.conversions.get("re-encoded", 0)
    return is_newer | has_other_size if int(has_other_size.sum()) > num_converted else is_newer
