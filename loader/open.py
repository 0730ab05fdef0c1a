"""Opening a split: what was looked at before the first step, and what is read after it."""

from __future__ import annotations

from pathlib import Path

from tfshards.loader.damaged import find_damage, warn_of_damage
from tfshards.loader.headers import header_problems
from tfshards.loader.options import Check, OnDamage
from tfshards.loader.read import Shards, shards_of
from tfshards.loader.trust import REMEDY, inspect_shards
from tfshards.schemas import FormatError, Manifest


def open_shards(root: Path, name: str, manifest: Manifest, check: Check, on_damage: OnDamage) -> Shards:
    """Return the shards of the split ``name`` in the dataset directory ``root``.

    Raises:
        FormatError: a shard is not that of the manifest; every such shard has its problem.
        InputError: damaged records are to be skipped, and all are damaged.
    """
    split = manifest.splits[name]
    inspected = inspect_shards(root, split)
    indexes = [seen.index for seen in inspected]
    if on_damage == "skip":
        damage = find_damage(root, split, inspected, manifest.compression)
        warn_of_damage(root, name, split, damage)
        return shards_of(root, split, indexes, manifest.compression, damage)
    problems = [problem for seen in inspected for problem in (*seen.file_problems, *seen.index_problems)]
    if check == "headers" and not problems:
        problems = header_problems(root, split.shards, indexes, manifest.compression)
    if problems:
        raise FormatError(f"{root}: the shards of split {name!r} ({REMEDY})", problems)
    return shards_of(root, split, indexes, manifest.compression)
