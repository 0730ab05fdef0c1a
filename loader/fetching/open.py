"""Decide how a dataset is read: from its own files, from copies of them, or block by block as needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfshards.loader.fetching.blocks import BlockTable
from tfshards.loader.fetching.fetcher import BlockFetcher
from tfshards.loader.fetching.files import NUM_THREADS
from tfshards.loader.fetching.folder import BlockFolder
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.assignment import RUN_BYTES
from tfshards.loader.order.plan import ReadPlan
from tfshards.loader.order.source import OpenSplit
from tfshards.loader.records.located import read_ranges
from tfshards.loader.records.shards import Shards
from tfshards.loader.records.streams import STREAMS_OPEN
from tfshards.loader.resources.cache import cache_base, split_folder
from tfshards.schemas import InputError, OptionsError, Shard
from tfshards.schemas.errors import size
from tfshards.schemas.storage import RemotePath

_BLOCKS = "blocks"
# Blocks are made smaller for a cache of which those that lanes read are more than this part, and for a memory
# budget, down to a size at which round trips take most of the time.
_READING_PART = 8
_LEAST_BLOCK = 64 << 10
# While each thread fetches a block, half as many are ready.
_AHEAD = NUM_THREADS + NUM_THREADS // 2
# What a record in memory takes in addition to its bytes.
_RECORD_BYTES = 64


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


def fetched_shards(
    shards: Shards, plan: ReadPlan, source: OpenSplit, options: LoadOptions, most_bytes: int | None
) -> Shards:
    """Return the shards with a fetcher for the blocks of a plan.

    Args:
        most_bytes: the memory for blocks, which are made smaller for it; None for no limit.
    """
    bound, listed = options.cache_bytes, source.split.shards
    unit, block = _unit(shards, plan, listed, options, most_bytes)
    shards = replace(shards, unit=unit)
    folder = None
    if bound is not None and options.cache_folder is not None:
        if block > bound:
            raise OptionsError("cache-too-small", bound=bound, block=block)
        try:
            base = cache_base(options.cache_folder) / _BLOCKS
            folder = BlockFolder(base, split_folder(source), bound, sum(each.num_bytes for each in listed))
        except OSError as error:
            where = error.filename or options.cache_folder
            raise InputError("cache-unusable", where=where, why=error.strerror or error) from error
    fetcher = BlockFetcher(
        plan,
        BlockTable(shards, listed),
        [source.root / shard.path for shard in listed],
        folder,
        ahead=_AHEAD * block,
        memory_bytes=_memory_bytes(plan, listed, unit, block),
    )
    return replace(shards, fetcher=fetcher)


def _unit(
    shards: Shards, plan: ReadPlan, listed: Sequence[Shard], options: LoadOptions, most_bytes: int | None
) -> tuple[int, int]:
    """Return the number of records of a block, and the most bytes that are fetched by one request."""
    run = plan.order.run or max(1, int(RUN_BYTES / plan.record_bytes))
    if options.cache_bytes is None and plan.assignment.lanes:
        # Nothing is kept, so that blocks need not be the same in each epoch: a run is one request.
        whole = int(shards.sizes.max(initial=1))
        block = BlockTable(replace(shards, unit=whole), listed).most_bytes(run)
        if most_bytes is None or _memory_bytes(plan, listed, run, block) <= most_bytes:
            return whole, block
    unit = max(shards.stride, run // shards.stride * shards.stride)
    while True:
        # records differ in size
        block = int(BlockTable(replace(shards, unit=unit), listed).sizes.max(initial=1))
        smaller = unit // 2 // shards.stride * shards.stride
        is_least = not smaller or smaller * plan.record_bytes < _LEAST_BLOCK
        bound = options.cache_bytes
        fits_cache = bound is None or _reading_bytes(plan, listed, block) * _READING_PART <= bound
        fits_memory = most_bytes is None or _memory_bytes(plan, listed, unit, block) <= most_bytes
        if is_least or (fits_cache and fits_memory):
            return unit, block
        unit = smaller


def _memory_bytes(plan: ReadPlan, listed: Sequence[Shard], count: int, block: int) -> int:
    """Return the most memory for blocks of ``count`` records: read now, fetched ahead, and being checked."""
    # without cuts at blocks, a run is read together
    block += _RECORD_BYTES * min(count, plan.order.run or count)
    return _reading_bytes(plan, listed, block) + (_AHEAD + NUM_THREADS) * block


def _reading_bytes(plan: ReadPlan, listed: Sequence[Shard], block: int) -> int:
    assignment = plan.assignment
    if assignment.lanes:
        return (assignment.worker_lanes + assignment.num_readers) * block
    stream = assignment.chunk * assignment.group * assignment.global_batch_size * plan.record_bytes
    whole = sum(shard.num_bytes for shard in listed) + block
    return min(whole, int(2 * STREAMS_OPEN * (stream + 2 * block)))
