"""Derive a dataset from the records of others: what is in it, its shards, and its commit as a build's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tfshards.prep.building.commit import Draft, produce, up_to_date
from tfshards.prep.building.output import claimed
from tfshards.prep.building.rejects import rejects_text
from tfshards.prep.building.state import Wanted
from tfshards.prep.building.write import Writer
from tfshards.prep.deriving.layout import SplitLayout
from tfshards.prep.deriving.removed import Removed, RemovedKey, removed_text
from tfshards.prep.deriving.stored import OldShard, Origin, StoredRuns, copy_plan, open_origin, runs_plan
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import Written, report_line
from tfshards.prep.writing.build_folder import BuildFolder, Reject, ShardId, ShardPlan
from tfshards.prep.writing.shard import ShardTask
from tfshards.schemas import BuildError, InputError, Manifest, Shard
from tfshards.schemas.digests import bytes_digest, digest_together
from tfshards.schemas.names import REJECTS_NAME, REMOVED_NAME
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.verbs import require_space


class Examples(NamedTuple):
    """The examples that a split has to have; ``digest`` is None if only their number is known."""

    number: int
    digest: str | None


def examples_of(split: str, manifests: Iterable[Manifest]) -> Examples:
    """Return the examples that a split has in several datasets together."""
    parts = [manifest.splits[split] for manifest in manifests if split in manifest.splits]
    number = sum(part.num_examples for part in parts)
    return Examples(number, digest_together(part.examples_digest for part in parts))


def check_examples(made: Manifest, expected: Mapping[str, Examples]) -> None:
    """Raise BuildError unless each split holds exactly the examples that it has to have."""
    for name, split in made.splits.items():
        number, digest = expected[name]
        if split.num_examples != number or (digest is not None and split.examples_digest != digest):
            raise BuildError(
                "copies-differ",
                name=name,
                num_examples=split.num_examples,
                examples_digest=split.examples_digest,
                expected=number,
                expected2=digest,
            )


def shards_of(origins: Sequence[Origin], split: str) -> list[OldShard]:
    """Return the shards of a split of all origins."""
    held = [(index, origin.manifest.splits.get(split)) for index, origin in enumerate(origins)]
    return [OldShard(index, shard) for index, of in held if of for shard in of.shards]


class NewSplit(NamedTuple):
    """A split of a derived dataset: shards of the origins, how these are laid out, and what has to result."""

    olds: Sequence[OldShard]
    layout: SplitLayout
    expected: Examples

    @property
    def num_shards(self) -> int:
        """Number of new shards."""
        return len(self.layout.sizes)

    def old(self, index: int) -> OldShard | None:
        """Return the shard whose records a new one holds in their order, or None."""
        kept = self.layout.kept[index]
        return None if kept < 0 else self.olds[kept]


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A dataset whose records are those of others; see ``building.commit.Job``.

    Attributes:
        outline: its manifest with the label counts of each split, but without what is only known when it is
            written: shards, folder and ids.
        origins: the datasets.
        splits: where the records of each split come from.
        run: does the work of an engine.
        rejects: rejected inputs.
        removed: removed keys.
        is_next: whether it is the next generation of its only origin, and names its shards if they stay.
        report: is called after the commit.
    """

    outline: Manifest
    origins: Sequence[Origin]
    splits: Mapping[str, NewSplit]
    run: Callable[[Work], None]
    rejects: Sequence[Reject]
    removed: Removed
    is_next: bool = False
    report: Callable[[Manifest], None] = lambda _: None
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
        rejects, removed = rejects_text(self.rejects), removed_text(self.removed)
        manifest = replace(
            self.outline,
            folder=folder.name,
            splits={
                name: replace(split, shards=tuple(found[shard] for shard in ids if shard.split == name))
                for name, split in self.outline.splits.items()
            },
            rejects_digest=bytes_digest(rejects) if rejects else "",
            removed_digest=bytes_digest(removed) if removed else "",
        )
        check_examples(manifest, {name: split.expected for name, split in self.splits.items()})
        files = {name: text for name, text in ((REJECTS_NAME, rejects), (REMOVED_NAME, removed)) if text}
        return Draft(manifest, files, finished, self.report)

    def take_over(self, folder: BuildFolder, manifest: Manifest, sound: Mapping[str, Shard]) -> None:
        """Record the sound shards of a damaged build, given by their names, as finished."""
        folder.open()
        self._writer(folder).take_over(self._plans(self._shards), sound)

    @property
    def _shards(self) -> list[ShardId]:
        return [ShardId(name, index) for name, of in self.splits.items() for index in range(of.num_shards)]

    def _kept(self, shard: ShardId) -> OldShard | None:
        """Return the shard whose bytes a new one has, if tfshards wrote it: such a shard never changes."""
        old = self.splits[shard.split].old(shard.shard_index)
        if old is None or old.labels:
            return None
        origin = self.origins[old.origin]
        is_same = not origin.prefix and origin.manifest.compression == self.outline.compression
        return old if is_same and origin.manifest.folder else None

    def _writer(self, folder: BuildFolder) -> Writer:
        outline = self.outline
        task = ShardTask(
            folder=folder,
            source=StoredRuns([origin.slim for origin in self.origins], outline.compression),
            schema=outline.schema,
            name=outline.name,
            num_shards={name: split.num_shards for name, split in self.splits.items()},
        )
        return Writer(
            task=task,
            run=self.run,
            what=str(outline.made.source),
            locations=tuple(origin.root for origin in self.origins),
        )

    def _plans(self, shards: Sequence[ShardId]) -> Iterator[ShardPlan]:
        sizes = self._sizes(shards)
        for shard in shards:
            split, kept = self.splits[shard.split], self._kept(shard)
            text = copy_plan(kept) if kept else runs_plan(split.olds, split.layout.runs(shard.shard_index))
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
        numbers = {shard: self.splits[shard.split].layout.sizes[shard.shard_index] for shard in shards}
        return {shard: Written(number, int(number * share[shard.split])) for shard, number in numbers.items()}

    def _require_space(self, folder: BuildFolder, shards: Iterable[ShardId]) -> None:
        """Raise InputError if the file system cannot hold the shards that are not finished."""
        compression = self.outline.compression
        if compression != "none" and any(each.manifest.compression != compression for each in self.origins):
            # the ratio of compression is not known
            return
        written = [shard for shard in shards if not self._kept(shard)]
        is_plain = compression == "none"
        sizes = self._sizes(written, lambda shard: shard.record_bytes if is_plain else shard.num_bytes)
        finished = folder.finished(written).values()
        missing = sum(size.num_bytes for size in sizes.values()) - sum(
            done.shard.num_bytes for done in finished
        )
        require_space(folder.dataset, max(0, missing), "the dataset")


def derived_from_all(
    outline: Manifest,
    origins: Sequence[Origin],
    layouts: Mapping[str, SplitLayout],
    run: Callable[[Work], None],
    *,
    is_next: bool = False,
) -> Derived:
    """Return the dataset that holds all examples of the origins."""
    splits = {}
    for name, layout in layouts.items():
        expected = examples_of(name, [origin.manifest for origin in origins])
        if any(origin.prefix for origin in origins):
            # with new keys, the records have other digests
            expected = expected._replace(digest=None)
        splits[name] = NewSplit(shards_of(origins, name), layout, expected)
    texts = "".join(origin.manifest.to_text() for origin in origins)
    return Derived(
        outline=replace(outline, inputs_digest=bytes_digest(texts.encode("ascii"))),
        origins=origins,
        splits=splits,
        run=run,
        rejects=[reject for origin in origins for reject in origin.rejects()],
        removed=frozenset[RemovedKey]().union(*(origin.removed() for origin in origins)),
        is_next=is_next,
    )


def commit_new(new: Derived, folder: AnyPath, *, overwrite: bool) -> Manifest:
    """Write and commit a dataset in a folder of its own, and return its manifest."""
    with claimed(folder) as state:
        return produce(new, state, overwrite=overwrite)


def commit_next(folder: AnyPath, find: Callable[[Origin], Derived | None]) -> Manifest:
    """Write and commit the next generation of a dataset, and return its manifest.

    ``find`` returns it, given the dataset; None if nothing changes.
    """
    origin = open_origin(folder)
    if origin.manifest.made.source == "adopt":
        raise InputError("edit-of-foreign-records", root=origin.root)
    with claimed(folder) as state:
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        if new := find(origin):
            return produce(new, state, overwrite=True)
        report_line(up_to_date(folder, is_compared=False))
        return origin.manifest
