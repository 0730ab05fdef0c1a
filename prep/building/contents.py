"""Find the inputs whose content differs from their records by now, reading as few as possible."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TypeAlias

import numpy as np

from tfshards.prep.building.commit import read_rejects
from tfshards.prep.building.inputs_file import has_masks, inputs_content, inputs_of, read_inputs
from tfshards.prep.building.rejects import final_layouts, original_of
from tfshards.prep.engines.table import Work, run_on_threads
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.planning.options import Options
from tfshards.prep.planning.plan import Plan
from tfshards.prep.progress.lines import WorkProgress, report_line
from tfshards.prep.records.example import example_encoder
from tfshards.prep.records.frames import FrameReader, RecordError
from tfshards.prep.records.values import content_digest
from tfshards.prep.sources.base import Accepted, Listing, Outcome, Reader
from tfshards.prep.sources.keys import to_text
from tfshards.prep.writing.area import BuildArea, FinishedShard, Reject, ShardId
from tfshards.schemas import InputError, Manifest, Shard
from tfshards.schemas.build_area import write_files
from tfshards.schemas.companions import read_index
from tfshards.schemas.compression import Compression
from tfshards.schemas.errors import counted
from tfshards.schemas.frames import masked_crc32c
from tfshards.schemas.index import IntArray
from tfshards.schemas.names import inputs_name, rejects_name
from tfshards.schemas.storage import AnyPath

# What was written for an input: the masked CRC-32C of its record, or the reason for which it was rejected;
# None if that is not known.
Held: TypeAlias = "int | Reject | None"

# Number of inputs that are read at a time.
_INPUTS = 64
_WHY = "whose modification times differ"


def differing(listing: Listing, reader: Reader, numbers: IntArray, held: Sequence[Held]) -> IntArray:
    """Return the numbers of the inputs that would now give something else than what they ``held``."""
    differs = np.zeros(len(numbers), dtype=np.bool_)
    encode = example_encoder(listing.schema)
    progress = WorkProgress("comparing inputs", len(numbers))

    def compare(start: int) -> None:
        rows = listing.rows(numbers[start : start + _INPUTS])
        for index, outcome in enumerate(reader.read(rows, listing.schema), start):
            before = held[index]
            differs[index] = (
                not _is_rejected_still(before, outcome, listing, reader)
                if isinstance(before, Reject)
                else not isinstance(outcome, Accepted)
                or masked_crc32c(b"".join(encode(outcome.values))) != before
            )
        progress.reporter.report(len(rows), sum(row.size for row in rows))

    if len(numbers):
        run_on_threads(Work(compare, range(0, len(numbers), _INPUTS), progress, lambda _: None))
    return numbers[differs]


def _is_rejected_still(reject: Reject, outcome: Outcome, listing: Listing, reader: Reader) -> bool:
    """Return whether an input still has the same fault, or the content of the input that it repeats."""
    if not isinstance(outcome, Accepted):
        return (outcome.reason.value, outcome.detail) == (reject.reason, reject.detail)
    key = original_of(reject)
    original = None if key is None else listing.find(key)
    if original is None:
        return False
    (other,) = reader.read(listing.rows(np.array([original], dtype=np.int64)), listing.schema)
    digest = content_digest(listing.schema)
    return isinstance(other, Accepted) and digest(other.values) == digest(outcome.values)


def changed_inputs(
    plan: Plan,
    reader: Reader,
    manifest: Manifest,
    folder: AnyPath,
    options: Options,
    *,
    checksum: bool,
) -> IntArray:
    """Return the numbers of the inputs whose content has changed since the dataset was built from this plan.

    Contents are compared only where modification times differ, or with ``checksum`` everywhere.
    """
    listing = plan.listing
    recorded = read_inputs(folder, manifest.build_id)
    suspects = _suspects(recorded.stamps if recorded else None, listing.stamps, checksum=checksum)
    numbers = np.flatnonzero(suspects)
    if not len(numbers):
        return numbers
    report_line(comparison_line(len(numbers), _WHY, checksum=checksum))
    rejects = read_rejects(folder / rejects_name(manifest.build_id)) if manifest.totals.rejected else []
    held = _rejected(plan, rejects)
    for split, layout in final_layouts(plan, rejects, options).items():
        for shard, of_shard in zip(manifest.splits[split].shards, layout, strict=True):
            found = _checksums(folder, shard, manifest.compression, of_shard, suspects)
            if None in found.values():
                raise InputError("shard-or-index-damaged", path=folder / shard.path, folder=folder)
            held |= found
    changed = differing(listing, reader, numbers, [held[number] for number in numbers.tolist()])
    if not len(changed):
        write_files(folder, {inputs_name(manifest.build_id): inputs_content(inputs_of(plan))})
    return changed


def _suspects(before: IntArray | None, now: IntArray, *, checksum: bool) -> BoolArray:
    """Return for each input whether its content may have changed, by its times, if they are known."""
    if before is None or len(before) != len(now) or checksum:
        return np.ones(len(now), np.bool_)
    return np.not_equal(before, now)


def changed_line(listing: Listing, changed: IntArray) -> str:
    """Return a line about inputs whose content has changed."""
    have = "has" if len(changed) == 1 else "have"
    example = to_text(listing.keys[int(changed[0])])
    mask = " or its mask" if has_masks(listing.schema) else ""
    return f"{counted(len(changed), 'input')} {have} changed, such as {example!r}{mask}"


def comparison_line(count: int, why: str, *, checksum: bool) -> str:
    """Return a line about the inputs whose contents are compared, unless ``checksum`` is why."""
    return f"comparing the contents of {counted(count, 'input')}" + ("" if checksum else f", {why}")


def _checksums(
    root: AnyPath, shard: Shard, compression: Compression, numbers: IntArray, suspects: BoolArray
) -> dict[int, Held]:
    """Return the masked CRC-32C of the records of suspects in a shard, by number; None if it is unreadable.

    ``numbers`` are those of all records of the shard, in order.
    """
    records = np.flatnonzero(suspects[numbers])
    found: dict[int, Held] = dict.fromkeys(numbers[records].tolist())
    index = read_index(root, shard)[0] if len(records) else None
    if index is not None:
        with (
            suppress(OSError, RecordError),
            closing(FrameReader(root / shard.path, compression, index)) as frames,
        ):
            read = [int.from_bytes(frames.read(record)[1], "little") for record in records.tolist()]
            return dict(zip(found, read, strict=True))
    return found


def forget_changed(
    plan: Plan, reader: Reader, area: BuildArea, compression: Compression, *, checksum: bool
) -> None:
    """Make an interrupted build write those finished shards again that hold inputs with new content.

    Contents are compared only where modification times differ from those in the plan files, or with
    ``checksum`` everywhere.
    """
    layouts = [
        (ShardId(split, index), numbers)
        for split, layout in plan.layouts.items()
        for index, numbers in enumerate(layout)
    ]
    suspects = np.zeros(plan.listing.num_examples, np.bool_)
    first = area.finished("first", [shard for shard, _ in layouts])
    stamps = area.stamps("first", first)
    for shard, numbers in layouts:
        if shard in first:
            suspects[numbers] = _suspects(stamps[shard], plan.listing.stamps[numbers], checksum=checksum)
    if not suspects.any():
        return
    report_line(comparison_line(int(suspects.sum()), _WHY, checksum=checksum))
    held = _held_in_area(plan, area, first, compression, suspects)
    numbers = np.flatnonzero(suspects)
    changed = np.zeros(plan.listing.num_examples, np.bool_)
    changed[differing(plan.listing, reader, numbers, [held.get(each) for each in numbers.tolist()])] = True
    area.forget("first", [shard for shard, of_shard in layouts if changed[of_shard].any()])
    if changed.any():
        # the final layouts may have examples of any first one
        area.forget("final", [shard for shard, _ in layouts])


def _held_in_area(
    plan: Plan,
    area: BuildArea,
    first: dict[ShardId, FinishedShard],
    compression: Compression,
    suspects: BoolArray,
) -> dict[int, Held]:
    """Return what finished shards hold of these inputs, by number; shards that were replaced hold nothing."""
    held: dict[int, Held] = {}
    for shard, done in first.items():
        numbers = plan.layouts[shard.split][shard.shard_index]
        rejected = _rejected(plan, done.rejected)
        held |= rejected
        final = area.read_finished("final", shard)
        written = numbers[~np.isin(numbers, [*rejected])]
        if final is not None:
            # the file of the final layout has replaced it, whose plan a power failure may have torn
            try:
                rows, digest = area.read_plan("final", shard)
            except (FileNotFoundError, ValueError):
                continue
            if digest != final.rows_digest:
                continue
            written = np.array([plan.listing.find(row.key) for row in rows], np.int64)
        held |= _checksums(area.shards, (final or done).shard, compression, written, suspects)
    return held


def _rejected(plan: Plan, rejects: Sequence[Reject]) -> dict[int, Held]:
    """Return rejected inputs by their numbers."""
    found = ((plan.listing.find(reject.key), reject) for reject in rejects)
    return {number: reject for number, reject in found if number is not None}
