"""What the offline optimum and LRU would fetch in the true order of a run."""

from __future__ import annotations

from collections.abc import Sequence


def simulate(fetcher, epochs: int, capacities: Sequence[int]) -> list[list[float]]:
    """Return for each capacity the bytes that Belady's rule and LRU fetch, and the number of blocks."""
    from tfshards.loader.fetching.schedule import schedule

    table, blocks, pieces = fetcher._table, [], []
    for epoch in range(epochs):
        uses = schedule(table.shards, fetcher._plan, epoch)
        blocks += table.block_of(uses.shards, uses.firsts).tolist()
        rows = zip(uses.shards.tolist(), uses.firsts.tolist(), uses.ends.tolist(), strict=True)
        pieces += [table.piece(*row).num_bytes for row in rows]
    sizes = table.sizes.tolist()
    return [
        [belady(blocks, pieces, sizes, size), lru(blocks, sizes, size), len(sizes)] for size in capacities
    ]


def belady(blocks: list[int], pieces: list[int], sizes: list[int], capacity: int) -> int:
    """Return the bytes that are fetched if what is used last is kept least, and all is known."""
    from tfshards.loader.fetching.schedule import NEVER, Kept

    next_uses, seen = [NEVER] * len(blocks), {}
    for use in reversed(range(len(blocks))):
        next_uses[use] = seen.get(blocks[use], NEVER)
        seen[blocks[use]] = use
    kept, fetched = Kept(capacity), 0
    for block, piece, next_use in zip(blocks, pieces, next_uses, strict=True):
        is_hit = block in kept
        is_kept, _ = kept.use(block, sizes[block], next_use)
        # of a block that is not read again from the cache, only what is read now
        fetched += 0 if is_hit else sizes[block] if is_kept and next_use < NEVER else piece
    return fetched


def lru(blocks: list[int], sizes: list[int], capacity: int) -> int:
    """Return the bytes that are fetched if what was used last stays."""
    kept, fetched, used = {}, 0, 0
    for block in blocks:
        if block in kept:
            kept[block] = kept.pop(block)
            continue
        fetched += sizes[block]
        kept[block] = sizes[block]
        used += sizes[block]
        while used > capacity:
            used -= kept.pop(next(iter(kept)))
    return fetched
