"""Find the inputs that have changed since their examples were written, reading as few of them as possible."""

from __future__ import annotations

import numpy as np

from tfshards.prep.derivation.known import KnownExamples, image_features
from tfshards.prep.engines import in_process
from tfshards.prep.engines.table import Work
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.progress.lines import Progress
from tfshards.prep.records.example import example_encoder
from tfshards.prep.records.frames import masked_crc32c
from tfshards.prep.sources.base import Accepted, Listing, Reader
from tfshards.schemas.index import IntArray

# Number of inputs that are read at a time.
_INPUTS = 64


def find_changed(listing: Listing, reader: Reader, known: KnownExamples, examples: IntArray) -> IntArray:
    """Return the numbers of the known inputs whose label, split or content is not that of their example.

    The content is read only of inputs that may differ: of images that are newer than their shard, and of all
    images whose size differs from that of the stored image, if there are more than were converted.

    Args:
        listing: listing of the source.
        reader: reader of the source.
        known: examples of the dataset.
        examples: shape ``(num_examples,)``, number of the example of each input, or -1.
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
    if len(image_features(listing.schema)) == 1:
        suspects = np.flatnonzero(~is_changed & _may_differ(listing, reader, known, numbers, held))
        is_changed[suspects] = _differ(listing, reader, known, numbers[suspects], held[suspects])
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


def _differ(
    listing: Listing, reader: Reader, known: KnownExamples, numbers: IntArray, held: IntArray
) -> BoolArray:
    """Return for each of these inputs whether its record would be another one now."""
    differs = np.zeros(len(numbers), dtype=np.bool_)
    if not len(numbers):
        return differs
    encode = example_encoder(listing.schema)
    progress = Progress("comparing changed files", len(numbers))

    def compare(start: int) -> None:
        rows = listing.rows(numbers[start : start + _INPUTS])
        for index, outcome in enumerate(reader.read(rows, listing.schema), start):
            differs[index] = (
                not isinstance(outcome, Accepted)
                or masked_crc32c(b"".join(encode(outcome.values))) != known.checksums[held[index]]
            )
        progress.reporter.report(len(rows), sum(row.size for row in rows))

    in_process.run(Work(compare, range(0, len(numbers), _INPUTS), progress, lambda _: None))
    return differs
