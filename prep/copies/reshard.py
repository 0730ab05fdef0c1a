"""The same dataset in another number of shards, balanced otherwise, or compressed otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from tfshards.prep.area import BuildArea
from tfshards.prep.copies.copying import Copying, copy_shards
from tfshards.prep.copies.dealing import Dealing
from tfshards.prep.copies.derived import derive, derived_id, new_dataset
from tfshards.prep.copies.origin import open_origin
from tfshards.prep.progress import Talk, to_stderr
from tfshards.schemas import Manifest, Shard, Split
from tfshards.schemas.reading import Json


def reshard(
    root: str | os.PathLike[str],
    out: str | os.PathLike[str],
    dealing: Dealing | None = None,
    *,
    name: str | None = None,
    overwrite: bool = False,
    talk: Talk = to_stderr,
) -> Manifest:
    """Write the dataset in ``root`` into the directory ``out`` with other shards and return its manifest.

    Records are copied as they stand: none is parsed, decoded or encoded. Each split keeps its examples,
    which is proved by their digest. What was stopped goes on when it is called again.

    Args:
        root: the dataset.
        out: the new one's directory; made if it is missing.
        dealing: number, balance and compression of the new shards.
        name: of the new dataset; by default the last part of ``out``.
        overwrite: replace another dataset in ``out``.
        talk: is given each line about its course.

    Raises:
        OptionsError: an argument is wrong by itself.
        InputError: a dataset does not allow what was asked.
        BuildError: it ended before its commit; the same call goes on where it ended.
    """
    dealing = dealing or Dealing()
    origin = open_origin(root)
    folder, name = new_dataset(out, name, [origin])
    of = origin.manifest
    counts = dealing.num_shards(of.splits)
    compression = dealing.compression or of.compression
    options: dict[str, Json] = {
        "source": "reshard",
        **dealing.to_json(counts, compression),
        "origin": origin.to_json(),
    }
    build_id = derived_id(name, options, [origin])
    splits = {split: Split((), held.label_counts) for split, held in of.splits.items()}
    outline = replace(
        of, name=name, build_id=build_id, splits=splits, options=options, compression=compression
    )

    def write(area: BuildArea) -> Mapping[str, tuple[Shard, ...]]:
        return copy_shards(Copying(area, name, [origin], counts, dealing.balance, compression), talk)

    return derive(outline, [origin], folder, write, overwrite=overwrite, talk=talk)
