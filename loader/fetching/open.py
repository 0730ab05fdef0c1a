"""Decide how a dataset is read: from its own files, from copies of them, or block by block as needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tfshards.loader.fetching.blocks import BlockTable
from tfshards.loader.fetching.fetcher import BlockFetcher, Room
from tfshards.loader.fetching.files import NUM_THREADS
from tfshards.loader.fetching.folder import BlockFolder
from tfshards.loader.fetching.schedule import STREAMS_AHEAD
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.assignment import RUN_BYTES
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.source import OpenSplit
from tfshards.loader.records.located import read_ranges
from tfshards.loader.records.shards import Shards
from tfshards.loader.resources.cache import cache_base, split_folder
from tfshards.schemas import InputError, OptionsError, Shard
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import RemotePath

_BLOCKS = "blocks"
# At most these parts of a small cache hold blocks that are read or were fetched ahead, and are not kept.
# Blocks are made smaller for that, down to a size at which round trips take most of the time.
_READING_PART = 8
_AHEAD_PART = 16
_LEAST_BLOCK = 64 << 10
# For each thread, one block is fetched, and one is ready.
_AHEAD = 2 * NUM_THREADS
_LEAST_AHEAD = 4


def is_fetched(options: LoadOptions, source: OpenSplit, shards: Shards, plan: ReadPlan) -> bool:
    """Return whether blocks are fetched as needed, rather than read as they are, or copied beforehand."""
    bound = options.cache_bytes
    if bound is None and (options.cache is not None or not isinstance(source.root, RemotePath)):
        return False
    if read_ranges(plan) is not None and not shards.compression:
        return True
    num_bytes = sum(shard.num_bytes for shard in source.split.shards)
    if bound is not None and num_bytes <= bound:
        return False
    what = (
        "compressed shards are read from their starts"
        if shards.compression
        else "Shuffle(how='full') and classes= read examples one by one"
    )
    folder = "FOLDER" if options.cache_folder is None else options.cache_folder
    limit = "" if bound is None else f", but {size(bound)} is too little"
    raise OptionsError(
        "needs-local-shards", what=what, label=source.label, folder=folder, num_bytes=num_bytes, limit=limit
    )


def fetched_shards(shards: Shards, plan: ReadPlan, source: OpenSplit, options: LoadOptions) -> Shards:
    """Return the shards with a fetcher for the blocks of a plan."""
    bound = options.cache_bytes
    listed = source.split.shards
    unit, room = _unit(shards, plan, listed, bound)
    shards = replace(shards, unit=unit)
    table = BlockTable(shards, listed)
    wanted = room.staging + sum(shard.num_bytes for shard in listed)
    try:
        base = _base(options.cache_folder)
        # Without a cache no more than what is read now, and then no byte is fetched twice in an epoch.
        folder = BlockFolder(base, split_folder(source), bound, room.staging if bound is None else wanted)
    except OSError as error:
        where = error.filename or options.cache_folder or tempfile.gettempdir()
        raise InputError("cache-unusable", where=where, why=error.strerror or error) from error
    paths = [source.root / shard.path for shard in listed]
    is_kept = bound is not None
    fetcher = BlockFetcher(plan, table, paths, folder, room, is_kept=is_kept)
    return replace(shards, fetcher=fetcher)


def _base(folder: Path | None) -> Path:
    """Return the folder of the blocks of all splits: the user's, or one for files that are soon removed."""
    if folder is None:
        # Windows has no user ids, and a temporary folder for each user.
        user = os.getuid() if hasattr(os, "getuid") else 0
        own = Path(tempfile.gettempdir()) / f"tfshards-{user}"
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        if own.stat().st_uid != user:
            raise InputError("cache-of-other-user", own=own)
        return own / _BLOCKS
    return cache_base(folder) / _BLOCKS


def _unit(shards: Shards, plan: ReadPlan, listed: Sequence[Shard], bound: int | None) -> tuple[int, Room]:
    """Return the number of records of a block, and the room for blocks that are not kept."""
    stride = shards.stride
    unit = plan.order.run or max(1, int(RUN_BYTES / plan.record_bytes))
    if bound is None and plan.assignment.lanes:
        # Nothing is kept, so that blocks need not be the same in each epoch: a run is one request.
        whole = int(shards.sizes.max(initial=1))
        block = BlockTable(replace(shards, unit=whole), listed).most_bytes(unit)
        ahead = _AHEAD * block
        return whole, Room(staging=_by_lanes(plan, block) + ahead, ahead=ahead, piece=block)
    unit = max(stride, unit // stride * stride)
    while True:
        reading, block = _read_together(shards, plan, listed, unit)
        smaller = unit // 2 // stride * stride
        if (
            bound is None
            or reading * _READING_PART <= bound
            or smaller * plan.record_bytes < _LEAST_BLOCK
            or not smaller
        ):
            break
        unit = smaller
    ahead = _AHEAD * block
    if bound is not None:
        ahead = max(_LEAST_AHEAD * block, min(ahead, bound // _AHEAD_PART))
        if reading + ahead > bound:
            lanes = plan.assignment.lanes
            fewer = f", or fewer Shuffle.lanes than {lanes}" if lanes else ""
            raise OptionsError("cache-too-small", bound=bound, reading=reading + ahead, fewer=fewer)
    return unit, Room(staging=reading + ahead, ahead=ahead, piece=block)


def _read_together(shards: Shards, plan: ReadPlan, listed: Sequence[Shard], unit: int) -> tuple[int, int]:
    """Return the bytes of the blocks that are read at the same time, and of the largest block."""
    assignment = plan.assignment
    # records differ in size
    block = int(BlockTable(replace(shards, unit=unit), listed).sizes.max(initial=1))
    if assignment.lanes:
        return _by_lanes(plan, block), block
    stream = assignment.chunk * assignment.group * assignment.global_batch_size * plan.record_bytes
    whole = sum(shard.num_bytes for shard in listed) + block
    return min(whole, int((STREAMS_AHEAD + 1) * (stream + 2 * block))), block


def _by_lanes(plan: ReadPlan, block: int) -> int:
    """Return the bytes of the blocks that are read at the same time, one by each lane."""
    return (plan.assignment.worker_lanes + plan.assignment.num_readers) * block
