"""The parts of a dataset: the shards of its build, and those of each append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tfshards.prep.building.commit import read_rejects
from tfshards.prep.building.restore import restored_options
from tfshards.prep.planning.options import Options
from tfshards.prep.writing.shard_names import build_of
from tfshards.schemas import Manifest, Shard, Split
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import rejects_name
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True)
class Part:
    """The shards of one build of a dataset.

    Attributes:
        manifest: manifest of the dataset with the id, the options and the shards of this build.
        rejected: keys of the inputs that this build rejected; None if they are those in the rejects file.
        options: options of the build that determine which inputs are in which shard.
        seed: random seed of the build.
    """

    manifest: Manifest
    rejected: frozenset[str] | None
    options: Options
    seed: int


def parts_of(folder: AnyPath, manifest: Manifest) -> list[Part]:
    """Return the parts of a dataset: that of the build, then that of each append.

    Raises:
        InputError: examples were appended, and the rejects file cannot be read.
    """
    seed = cast("int", manifest.options["seed"])
    entries = cast("list[Mapping[str, Json]]", manifest.options.get("appended", []))
    if not entries:
        return [Part(manifest, None, restored_options(manifest), seed)]
    listed = read_rejects(folder / rejects_name(manifest.build_id)) if manifest.totals.rejected else []
    first: set[str] = set()
    seen: set[str] = set()
    for entry in entries:
        # an input that an append took again was rejected by the build, unless by an earlier append
        first |= _names(entry, "retried") - seen
        seen |= _names(entry, "retried") | _names(entry, "rejected")
    first |= {reject.key for reject in listed} - seen
    ids = [str(entry["build_id"]) for entry in entries]
    of_first = [shard for shard in manifest.shards if build_of(shard.path) not in ids]
    options = {name: value for name, value in manifest.options.items() if name != "appended"}
    whole = _only(manifest, build_of(of_first[0].path), options, of_first)
    parts = [Part(whole, frozenset(first), restored_options(whole), seed)]
    for entry, each in zip(entries, ids, strict=True):
        shards = [shard for shard in manifest.shards if build_of(shard.path) == each]
        part = _only(manifest, each, cast("Mapping[str, Json]", entry["options"]), shards)
        balance = restored_options(part).balance
        parts.append(Part(part, frozenset(_names(entry, "rejected")), Options(balance=balance), 0))
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
