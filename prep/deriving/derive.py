"""Derive a dataset from the records of others: what is in it, its shards, and its commit as a build's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tfshards.prep.building.commit import produce
from tfshards.prep.building.made import made_of
from tfshards.prep.building.output import claimed
from tfshards.prep.building.state import Wanted
from tfshards.prep.building.write import Draft, Job, finished_shards
from tfshards.prep.deriving.layout import NewSplit
from tfshards.prep.deriving.stored import Origin, Removed, StoredRuns, open_origin, runs_plan
from tfshards.prep.planning.plan import plan_id_of
from tfshards.prep.progress.lines import Amount, report_line
from tfshards.prep.writing.build_folder import BuildFolder, Reject, ShardId, ShardPlan
from tfshards.prep.writing.shard import ShardTask
from tfshards.schemas import BuildError, Manifest, Shard, Split
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True, kw_only=True)
class Derived(Job):
    """A dataset whose records are those of others; see ``Job``.

    What changes in an origin is part of the hash of the inputs, so it has no stamps.

    Attributes:
        outline: its manifest with the label counts of each split, but without what is only known when it is
            written: its shards, its folder, its ids and the numbers of its totals.
        origins: the datasets.
        splits: where the records of each split come from.
        rejects: rejected inputs.
        removed: removed keys.
        is_next: whether it is the next generation of its only origin, and names its shards if they stay.
    """

    outline: Manifest
    origins: Sequence[Origin]
    splits: Mapping[str, NewSplit]
    rejects: Sequence[Reject]
    removed: Removed
    is_next: bool = False

    @property
    def wanted(self) -> Wanted:
        """The dataset, as an output shows whether it holds it."""
        outline = self.outline
        plan_id = plan_id_of(outline.name, outline.schema, outline.options, outline.inputs_digest)
        return Wanted(outline.name, plan_id, outline.options)

    def write(self, folder: BuildFolder) -> Draft:
        """Write the shards that are not those of the origin."""
        shards, task = self.kept(), self.task(folder)
        new = [shard for shard in self._ids if shard not in shards]
        self.write_missing(task, self.missing(task, self._plans(new), space=self._space()))
        finished = finished_shards(folder, new)
        shards |= {shard: done.shard for shard, done in finished.items()}
        splits = {
            name: replace(split, shards=tuple(shards[shard] for shard in self._ids if shard.split == name))
            for name, split in self.outline.splits.items()
        }
        self._check(splits)
        manifest = replace(self.outline, folder=folder.name, splits=splits)
        return Draft(manifest, finished, self.rejects, self.removed)

    def complete_plans(self, folder: BuildFolder, manifest: Manifest) -> Iterator[ShardPlan]:
        """Return the plans of all shards of a complete build."""
        return self._plans(self._ids)

    @property
    def _ids(self) -> list[ShardId]:
        return [ShardId(name, index) for name, of in self.splits.items() for index in range(len(of.layout))]

    def kept(self) -> dict[ShardId, Shard]:
        """Return our shards of the only origin that hold exactly what new ones would hold."""
        origin = self.origins[0]
        if not self.is_next or origin.manifest.compression != self.outline.compression:
            return {}
        kept = {shard: self.splits[shard.split].kept(shard.shard_index) for shard in self._ids}
        return {shard: old for shard, old in kept.items() if old}

    def _check(self, splits: Mapping[str, Split]) -> None:
        """Raise BuildError unless each split holds exactly the examples that it has to have."""
        for name, split in splits.items():
            number, digest = sum(map(len, self.splits[name].layout)), self.splits[name].digest
            if split.num_examples != number or split.examples_digest != digest:
                raise BuildError(
                    f"split {name!r}: {split.num_examples} examples with digest {split.examples_digest} "
                    f"were written, but their sources hold {number} with digest {digest}; run tfshards "
                    "verify --deep on the sources"
                )

    @property
    def what(self) -> str:
        """What is done, for status lines."""
        return str(made_of(self.outline).source)

    def task(self, folder: BuildFolder) -> ShardTask:
        """Return what workers need."""
        outline = self.outline
        return ShardTask(
            folder=folder,
            source=StoredRuns([origin.slim for origin in self.origins], outline.compression),
            schema=outline.schema,
            name=outline.name,
            num_shards={name: len(split.layout) for name, split in self.splits.items()},
        )

    def _space(self) -> Callable[[Amount], int] | None:
        """Return what ``space`` is for ``missing``; None if it is not known by how much records shrink."""
        if self.outline.compression == "none":
            return lambda size: size.num_bytes
        if any(origin.manifest.compression == "none" for origin in self.origins):
            return None
        olds = [old.shard for split in self.splits.values() for old in split.olds]
        ratio = sum(old.num_bytes for old in olds) / max(1, sum(old.record_bytes for old in olds))
        return lambda size: int(ratio * size.num_bytes)

    def _plans(self, shards: Iterable[ShardId]) -> Iterator[ShardPlan]:
        """Yield the plans of shards, with about as many bytes as their examples have in the old ones."""
        olds = {name: [old.shard for old in split.olds] for name, split in self.splits.items()}
        shares = {
            name: sum(shard.record_bytes for shard in held)
            / max(1, sum(shard.num_examples for shard in held))
            for name, held in olds.items()
        }
        for shard in shards:
            split = self.splits[shard.split]
            size = len(split.layout[shard.shard_index])
            text = runs_plan(split.olds, split.runs(shard.shard_index))
            yield ShardPlan(shard, text, Amount(size, int(size * shares[shard.split])))


def commit_next(folder: AnyPath, find: Callable[[Origin], Derived | None]) -> Manifest:
    """Write and commit the next generation of a dataset, and return its manifest.

    ``find`` returns it, given the dataset; None if nothing changes.
    """
    open_origin(folder).require_own()
    with claimed(folder) as state:
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        if new := find(origin):
            return produce(new, state, overwrite=True)
        report_line(f"{folder} is up to date")
        return origin.manifest
