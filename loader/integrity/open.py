"""Open the shards of a split after checking them."""

from __future__ import annotations

from pathlib import Path

from tfshards.loader.integrity.damaged import find_damage, warn_of_damage
from tfshards.loader.integrity.files import inspect_shards, remedy
from tfshards.loader.integrity.headers import header_problems
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.order.source import Source
from tfshards.loader.records.shards import Shards, shards_of
from tfshards.schemas import FormatError
from tfshards.schemas.storage import RemotePath


def open_shards(source: Source, options: LoadOptions) -> Shards:
    """Return the shards of the split, checked as ``options`` require.

    Raises:
        FormatError: shards differ from the manifest; the error lists the problems of each.
        InputError: ``on_damage`` is "skip" and all records are damaged.
    """
    root, split, compression = source.root, source.split, source.manifest.compression
    inspected = inspect_shards(root, split)
    indexes = [seen.index for seen in inspected]
    if options.on_damage == "skip":
        # not in an object store, see fetching/open.py
        assert isinstance(root, Path)
        damage = find_damage(root, split, inspected, compression)
        warn_of_damage(root, source.name, split, damage)
        return shards_of(root, split, indexes, compression, damage)
    problems = [problem for seen in inspected for problem in (*seen.file_problems, *seen.index_problems)]
    if options.check == "headers" and not problems:
        assert isinstance(root, Path)
        problems = header_problems(root, split.shards, indexes, compression)
    if problems:
        raise FormatError(f"{root}: the shards of split {source.name!r} ({remedy(root)})", problems)
    versions = [seen.version for seen in inspected] if isinstance(root, RemotePath) else ()
    return shards_of(root, split, indexes, compression, versions=versions)
