"""Derive a dataset from the records of others: what is in it, its shards, and its commit as a build's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfshards.prep.building.commit import Draft, produce, up_to_date
from tfshards.prep.building.made import made_of
from tfshards.prep.building.output import claimed
from tfshards.prep.building.rejects import rejects_text
from tfshards.prep.building.state import Wanted
from tfshards.prep.building.write import Writer
from tfshards.prep.deriving.layout import NewSplit, OldShard, in_new_shards, whole
from tfshards.prep.deriving.options import ShardOptions
from tfshards.prep.deriving.removed import Removed, removed_text
from tfshards.prep.deriving.stored import Origin, StoredRuns, copy_plan, open_origin, runs_plan
from tfshards.prep.engines.table import Work
from tfshards.prep.planning.options import ShardCounts
from tfshards.prep.progress.lines import Written, report_line
from tfshards.prep.writing.build_folder import BuildFolder, Reject, ShardId, ShardPlan
from tfshards.prep.writing.shard import ShardTask
from tfshards.schemas import BuildError, Manifest, Shard, Split
from tfshards.schemas.compression import recorded_release
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.names import REJECTS_NAME, REMOVED_NAME
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.verbs import require_space


def shards_of(origins: Sequence[Origin], split: str) -> list[OldShard]:
    """Return the shards of a split of all origins."""
    held = [(index, origin.manifest.splits.get(split)) for index, origin in enumerate(origins)]
    return [OldShard(index, shard) for index, of in held if of for shard in of.shards]


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A dataset whose records are those of others; see ``building.commit.Job``.

    Attributes:
        outline: its manifest with the label counts of each split, but without what is only known when it is
            written: its shards, its folder, its ids and the numbers of its totals.
        origins: the datasets.
        splits: where the records of each split come from.
        run: does the work of an engine.
        rejects: rejected inputs.
        removed: removed keys.
        is_next: whether it is the next generation of its only origin, and names its shards if they stay.
    """

    outline: Manifest
    origins: Sequence[Origin]
    splits: Mapping[str, NewSplit]
    run: Callable[[Work], None]
    rejects: Sequence[Reject]
    removed: Removed
    is_next: bool = False
    # what changes in an origin is part of the hash of the inputs
    stamps: str = field(default="", init=False)
    trusts_times: bool = field(default=True, init=False)

    @property
    def wanted(self) -> Wanted:
        """The dataset, as an output shows whether it holds it."""
        outline = self.outline
        return Wanted(outline.name, outline.schema, outline.options, outline.inputs_digest)

    def write(self, folder: BuildFolder) -> Draft:
        """Write the shards that are not those of the origin."""
        ids = self._shards
        found = {shard: old.shard for shard in ids if self.is_next and (old := self._kept(shard))}
        missing = [shard for shard in ids if shard not in found]
        self._require_space(folder, missing)
        writer = self._writer(folder)
        writer.write(writer.begin(self._plans(missing)))
        finished = writer.finished(missing)
        found |= {shard: done.shard for shard, done in finished.items()}
        splits = {
            name: replace(split, shards=tuple(found[shard] for shard in ids if shard.split == name))
            for name, split in self.outline.splits.items()
        }
        self._check(splits)
        manifest = replace(self.outline, folder=folder.name, splits=splits)
        return Draft(*with_lists(manifest, self.rejects, self.removed), finished)

    def take_over(self, folder: BuildFolder, manifest: Manifest, sound: Mapping[str, Shard]) -> None:
        """Record the sound shards of a damaged build, given by their names, as finished."""
        folder.open()
        self._writer(folder).take_over(self._plans(self._shards), sound)

    @property
    def _shards(self) -> list[ShardId]:
        return [ShardId(name, index) for name, of in self.splits.items() for index in range(len(of.sizes))]

    def _check(self, splits: Mapping[str, Split]) -> None:
        """Raise BuildError unless each split holds exactly the examples that it has to have."""
        # with new keys, the records have other digests
        has_new_keys = any(origin.prefix for origin in self.origins)
        for name, split in splits.items():
            number, digest = sum(self.splits[name].sizes), self.splits[name].digest
            is_equal = has_new_keys or split.examples_digest == digest
            if split.num_examples != number or not is_equal:
                raise BuildError(
                    "copies-differ",
                    name=name,
                    num_examples=split.num_examples,
                    examples_digest=split.examples_digest,
                    expected=number,
                    expected2=digest,
                )

    def _kept(self, shard: ShardId) -> OldShard | None:
        """Return the shard whose bytes a new one has, if tfshards wrote it: such a shard never changes."""
        old = self.splits[shard.split].old(shard.shard_index)
        if old is None or old.labels:
            return None
        origin = self.origins[old.origin]
        is_same = not origin.prefix and origin.manifest.compression == self.outline.compression
        return old if is_same and not origin.is_adopted else None

    def _writer(self, folder: BuildFolder) -> Writer:
        outline = self.outline
        task = ShardTask(
            folder=folder,
            source=StoredRuns([origin.slim for origin in self.origins], outline.compression),
            schema=outline.schema,
            name=outline.name,
            num_shards={name: len(split.sizes) for name, split in self.splits.items()},
        )
        return Writer(
            task=task,
            run=self.run,
            what=str(made_of(outline).source),
            locations=tuple(origin.root for origin in self.origins),
        )

    def _plans(self, shards: Sequence[ShardId]) -> Iterator[ShardPlan]:
        sizes = self._sizes(shards)
        for shard in shards:
            split, kept = self.splits[shard.split], self._kept(shard)
            text = copy_plan(kept) if kept else runs_plan(split.olds, split.runs(shard.shard_index))
            yield ShardPlan(shard, text, sizes[shard])

    def _sizes(
        self,
        shards: Iterable[ShardId],
        num_bytes: Callable[[Shard], int] = lambda shard: shard.record_bytes,
    ) -> dict[ShardId, Written]:
        """Return the examples of shards, and about as many bytes as these have in the old ones."""
        share = {
            name: sum(num_bytes(old.shard) for old in split.olds)
            / max(1, sum(old.shard.num_examples for old in split.olds))
            for name, split in self.splits.items()
        }
        numbers = {shard: self.splits[shard.split].sizes[shard.shard_index] for shard in shards}
        return {shard: Written(number, int(number * share[shard.split])) for shard, number in numbers.items()}

    def _require_space(self, folder: BuildFolder, shards: Iterable[ShardId]) -> None:
        """Raise InputError if the file system cannot hold the shards that are not finished."""
        compression = self.outline.compression
        is_plain = compression == "none"
        if is_plain or all(origin.manifest.compression == compression for origin in self.origins):
            # otherwise the ratio of compression is not known
            sizes = self._sizes(
                (shard for shard in shards if not self._kept(shard)),
                lambda shard: shard.record_bytes if is_plain else shard.num_bytes,
            )
            missing = {*sizes} - {*folder.finished(sizes)}
            require_space(folder.dataset, sum(sizes[shard].num_bytes for shard in missing), "the dataset")


def with_lists(
    manifest: Manifest, rejects: Sequence[Reject], removed: Removed
) -> tuple[Manifest, dict[str, bytes]]:
    """Return a manifest with these rejected inputs and removed keys, and the files that list them."""
    files = {REJECTS_NAME: rejects_text(rejects), REMOVED_NAME: removed_text(removed)}
    digests = {name: bytes_digest(content) if content else "" for name, content in files.items()}
    totals, reasons = manifest.totals, Counter(reject.reason for reject in rejects)
    totals = replace(
        totals,
        entries=manifest.num_examples + len(rejects) + totals.skipped,
        accepted=manifest.num_examples,
        rejected=len(rejects),
        reasons={**totals.reasons, "rejected": dict(sorted(reasons.items()))},
    )
    manifest = replace(
        manifest,
        totals=totals,
        rejects_digest=digests[REJECTS_NAME],
        removed_digest=digests[REMOVED_NAME],
    )
    return manifest, {name: content for name, content in files.items() if content}


def derived_from_all(
    outline: Manifest,
    origins: Sequence[Origin],
    run: Callable[[Work], None],
    options: ShardOptions,
    counts: ShardCounts | None,
    *,
    is_next: bool = False,
) -> Derived:
    """Return the dataset that holds all examples of the origins.

    Its shards are new ones with these options and counts, or without counts those of the origins.
    """
    splits = {name: whole(shards_of(origins, name)) for name in outline.splits}
    if counts is not None:
        compression = options.compression or outline.compression
        num_shards = _num_shards(splits, options.shard_bytes, counts)
        splits = {name: in_new_shards(split, num_shards[name]) for name, split in splits.items()}
        recorded: dict[str, Json] = {"shards": dict(num_shards)}
        if compression != "none":
            recorded["compression"] = {**recorded_release(compression)}
        outline = replace(outline, options={**outline.options, **recorded}, compression=compression)
    texts = "".join(origin.manifest.to_text() for origin in origins)
    return Derived(
        outline=replace(outline, inputs_digest=bytes_digest(texts.encode("ascii"))),
        origins=origins,
        splits=splits,
        run=run,
        rejects=[reject for origin in origins for reject in origin.rejects()],
        removed=frozenset[bytes]().union(*(origin.removed() for origin in origins)),
        is_next=is_next,
    )


def _num_shards(splits: Mapping[str, NewSplit], least: int | None, counts: ShardCounts) -> dict[str, int]:
    """Return the number of shards of each split, by default as many as there are, or by bytes per shard."""
    num_bytes = {name: sum(old.shard.record_bytes for old in split.olds) for name, split in splits.items()}
    by_size = {
        name: math.ceil(num_bytes[name] / least) if least else len(split.olds)
        for name, split in splits.items()
    }
    sizes = {name: sum(split.sizes) for name, split in splits.items()}
    return dict(counts.of_splits(sizes, by_size, least))


def commit_new(new: Derived, folder: AnyPath, *, overwrite: bool) -> Manifest:
    """Write and commit a dataset in a folder of its own, and return its manifest."""
    with claimed(folder) as state:
        return produce(new, state, overwrite=overwrite)


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
        report_line(up_to_date(folder, is_compared=False))
        return origin.manifest
