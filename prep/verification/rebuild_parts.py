"""Rebuild shards of a dataset that was appended to: of the build, or of a later append.

The manifest does not list the inputs of each part. They are the inputs of the source that are in no intact
shard of another part, and as many as the part has examples. Their digests prove the rebuilt shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from tfshards.prep.building.added_splits import added_membership
from tfshards.prep.building.commit import read_rejects
from tfshards.prep.building.rejects import final_layouts
from tfshards.prep.building.restore import (
    kind_of_source,
    restored_options,
    restored_shards,
    restored_source,
)
from tfshards.prep.planning.options import Options
from tfshards.prep.planning.plan import Plan, make_plan
from tfshards.prep.progress.threads import NUM_WRITERS
from tfshards.prep.records.example import decode_key
from tfshards.prep.records.reader import read_records
from tfshards.prep.sources.base import Listing, Outcome, Reader, Row, Source
from tfshards.prep.sources.keys import RowKeys, to_text
from tfshards.prep.verification.rebuild import Rebuild, staging_folder
from tfshards.prep.writing.area import Reject, ShardId
from tfshards.schemas import InputError, Manifest, Schema, Shard, Split
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import rejects_name


@dataclass(frozen=True)
class _Part:
    """The shards of one build of a dataset.

    Attributes:
        manifest: manifest of the dataset with the id, the options and the shards of this build.
        rejected: keys of the inputs that this build rejected.
        is_first: whether it is the build that the others were appended to.
    """

    manifest: Manifest
    rejected: frozenset[str]
    is_first: bool


def rebuild_parts(
    folder: Path, manifest: Manifest, damaged: set[str], inputs: Source | Sequence[str]
) -> Iterator[str]:
    """Rebuild damaged shards and their companions; yield the path of each.

    The arguments are those of ``rebuild``.

    Raises:
        OptionsError: there are more inputs than the dataset was built from.
        InputError: the inputs are not those of any damaged part.
    """
    kind_of_source(manifest)
    parts = _parts(folder, manifest)
    with staging_folder(folder) as staging:
        source = (
            restored_source(manifest, inputs, is_grown=True)
            if isinstance(inputs, Sequence)
            else inputs.with_class_names(manifest.schema.class_names)
            if manifest.schema.class_names
            else inputs
        )
        reader = source.stage(staging / "source")
        listing = reader.listing()
        keys = _keys(folder, manifest, damaged)
        faults = []
        for number, part in enumerate(parts):
            shards = [shard for shard in part.manifest.shards if shard.path in damaged]
            if not shards:
                continue
            others = {shard.path for shard in manifest.shards} - {
                shard.path for shard in part.manifest.shards
            }
            elsewhere = {key for path in others for key in keys.get(path, ())}
            numbers = _inputs(listing, part, elsewhere, parts)
            wanted = part.manifest.num_examples + len(part.rejected)
            if len(numbers) != wanted:
                faults.append(
                    f"the source holds {len(numbers):,} inputs that can belong to build "
                    f"{part.manifest.build_id}, which has {wanted:,}"
                )
                continue
            plan = _plan(reader, listing, numbers, part, manifest, folder)
            build = Rebuild(folder, part.manifest, reader, plan, staging / str(number))
            yield from _rebuild(build, part, damaged)
        if faults and len(faults) == sum(
            any(shard.path in damaged for shard in part.manifest.shards) for part in parts
        ):
            raise InputError(
                f"{'; '.join(faults)}; give the inputs of the dataset, or those of one of its builds at a "
                "time"
            )


def _parts(folder: Path, manifest: Manifest) -> list[_Part]:
    """Return the parts of a dataset: that of the build, then that of each append."""
    entries = cast("list[Mapping[str, Json]]", manifest.options["appended"])
    listed = read_rejects(folder / rejects_name(manifest.build_id)) if manifest.totals.rejected else []
    first: set[str] = set()
    seen: set[str] = set()
    for entry in entries:
        # an input that an append took again was rejected by the build, unless by an earlier append
        first |= _names(entry, "retried") - seen
        seen |= _names(entry, "retried") | _names(entry, "rejected")
    first |= {reject.key for reject in listed} - seen
    ids = {str(entry["build_id"]) for entry in entries}
    of_first = [
        shard for shard in manifest.shards if not any(f"-{each}.tfrecord-" in shard.path for each in ids)
    ]
    options = {name: value for name, value in manifest.options.items() if name != "appended"}
    # the id is in the name of every shard
    build_id = of_first[0].path.rpartition(".tfrecord-")[0][-8:]
    parts = [_Part(_only(manifest, build_id, options, of_first), frozenset(first), True)]
    for entry in entries:
        each = str(entry["build_id"])
        shards = [shard for shard in manifest.shards if f"-{each}.tfrecord-" in shard.path]
        own = cast("Mapping[str, Json]", entry["options"])
        part = _only(manifest, each, own, shards)
        parts.append(_Part(part, frozenset(_names(entry, "rejected")), False))
    return parts


def _names(entry: Mapping[str, Json], field: str) -> set[str]:
    return set(cast("list[str]", entry.get(field, [])))


def _only(
    manifest: Manifest, build_id: str, options: Mapping[str, Json], shards: Sequence[Shard]
) -> Manifest:
    """Return the manifest with only these shards."""
    kept = {shard.path for shard in shards}
    splits = {
        name: Split(tuple(shard for shard in split.shards if shard.path in kept))
        for name, split in manifest.splits.items()
    }
    splits = {name: split for name, split in splits.items() if split.shards}
    return replace(manifest, build_id=build_id, options=options, splits=splits)


def _keys(folder: Path, manifest: Manifest, damaged: set[str]) -> dict[str, set[bytes]]:
    """Return the keys in each intact shard, by path."""
    intact = [shard.path for shard in manifest.shards if shard.path not in damaged]

    def read(path: str) -> set[bytes]:
        return {decode_key(data) or b"" for _, data in read_records(folder / path, manifest.compression)}

    with ThreadPoolExecutor(NUM_WRITERS) as pool:
        return dict(zip(intact, pool.map(read, intact), strict=True))


def _inputs(listing: Listing, part: _Part, elsewhere: set[bytes], parts: Sequence[_Part]) -> IntArray:
    """Return the numbers of the inputs that can belong to a part."""
    rejected = {key for each in parts for key in each.rejected}
    if not part.is_first:
        # an input that was rejected before may be an example of this append
        rejected = {key for each in parts if not each.is_first for key in each.rejected}
    rejected -= part.rejected
    numbers = [
        number
        for number, key in enumerate(listing.keys)
        if (key not in elsewhere or to_text(key) in part.rejected) and to_text(key) not in rejected
    ]
    return np.array(numbers, dtype=np.int64)


def _plan(
    reader: Reader, listing: Listing, numbers: IntArray, part: _Part, manifest: Manifest, folder: Path
) -> Plan:
    """Return the plan of the build that wrote a part, whose inputs are ``numbers``."""
    is_rows = isinstance(listing.keys, RowKeys)
    if not part.is_first:
        # as append sorts them
        numbers = np.array(sorted(numbers.tolist(), key=listing.keys.__getitem__), np.int64)
    found = replace(
        listing,
        keys=RowKeys(len(numbers))
        if is_rows and part.is_first
        else [listing.keys[number] for number in numbers.tolist()],
        sizes=listing.sizes[numbers],
        stamps=listing.stamps[numbers],
        labels=None if listing.labels is None else listing.labels[numbers],
        splits=None,
    )
    if part.is_first:
        splits = {
            name: np.flatnonzero(np.isin(numbers, held)) for name, held in (listing.splits or {}).items()
        }
        splits = {name: held for name, held in splits.items() if len(held)}
        options, seed = restored_options(part.manifest), cast("int", part.manifest.options["seed"])
    else:
        splits = dict(added_membership(found, numbers, listing, reader, manifest, folder).examples)
        options, seed = Options(balance=restored_options(part.manifest).balance), 0
    found = replace(found, splits=splits or None)
    subset = _Subset(reader, listing, found, numbers)
    return make_plan(subset, manifest.name, restored_shards(part.manifest), seed, options, found)


@dataclass(frozen=True)
class _Subset:
    """A reader of some inputs of a source.

    Attributes:
        reader: reader of the source.
        whole: listing of the source.
        part: listing of the chosen inputs.
        numbers: shape ``(num_examples,)``, their numbers in ``whole``.
    """

    reader: Reader
    whole: Listing
    part: Listing
    numbers: IntArray

    def listing(self) -> Listing:
        """Return the listing of the chosen inputs."""
        return self.part

    def read(self, rows: Sequence[Row], schema: Schema) -> list[Outcome]:
        """Return the values of each row, or why it is rejected, in order."""
        return self.reader.read(rows, schema)

    def groups(self, listing: Listing, by: str) -> Sequence[bytes]:
        """Return the group of each of the chosen inputs."""
        groups = self.reader.groups(self.whole, by)
        return [groups[number] for number in self.numbers.tolist()]

    def options(self) -> dict[str, Json]:
        """Return the options that change the output."""
        return self.reader.options()


def _rebuild(build: Rebuild, part: _Part, damaged: set[str]) -> Iterator[str]:
    rejects = [Reject(key, "", "", 0, 0) for key in sorted(part.rejected)]
    options = restored_options(part.manifest)
    layouts = final_layouts(build.plan, rejects, options, may_be_empty=True)
    for split, layout in layouts.items():
        for index, numbers in enumerate(layout):
            shard = part.manifest.splits[split].shards[index]
            if shard.path in damaged:
                yield from build.replace(ShardId(split, index), numbers, shard, damaged)
