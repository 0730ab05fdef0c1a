"""Commit: verify what was written, and make it a new dataset or the next generation of its origin."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tfshards.prep.building.commit import commit, complete, confirmed, identified, unless_committed
from tfshards.prep.building.inputs_file import RecordedInputs
from tfshards.prep.building.output import claimed, discard_others, read_damage
from tfshards.prep.building.output_state import OutputState, Wanted, is_up_to_date, up_to_date
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import report_line
from tfshards.prep.rewriting.layout import Rewrite, SplitLayout
from tfshards.prep.rewriting.origin import Origin, open_origin
from tfshards.prep.rewriting.scan import Workers
from tfshards.prep.rewriting.write import write_shards
from tfshards.prep.writing.area import BuildArea, Reject
from tfshards.schemas import BuildError, InputError, Manifest, Schema, Split, Totals
from tfshards.schemas.digests import digest_together
from tfshards.schemas.errors import counted
from tfshards.schemas.storage import AnyPath


class Examples(NamedTuple):
    """The examples that a split has to have; ``digest`` is None if only their number is known."""

    number: int
    digest: str | None


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A dataset that is made from others, before its shards are written.

    Attributes:
        outline: its manifest without a build id, with the label counts of each split, but no shards.
        origins: datasets whose records it holds, with what changes in them.
        lay_out: returns the layout of each split, given the build area, which is not open yet.
        num_unchanged: number of examples that an edit leaves as they are; None for other verbs.
    """

    outline: Manifest
    origins: Sequence[Origin]
    lay_out: Callable[[BuildArea], Mapping[str, SplitLayout]]
    expected: Mapping[str, Examples]
    rejects: Sequence[Reject]
    inputs: Callable[[], RecordedInputs | None] = lambda: None
    num_unchanged: int | None = None

    @classmethod
    def of(
        cls,
        outline: Manifest,
        origins: Sequence[Origin],
        lay_out: Callable[[BuildArea], Mapping[str, SplitLayout]],
    ) -> Derived:
        """Return the dataset that holds all examples of the origins."""
        texts = "".join(origin.manifest.to_text() for origin in origins)
        expected = expected_examples(outline, [origin.manifest for origin in origins])
        # with new keys, the records have other digests
        if any(origin.split and origin.has_keys for origin in origins):
            expected = {name: each._replace(digest=None) for name, each in expected.items()}
        return cls(
            outline=replace(
                outline,
                build_id="",
                inputs_digest=f"sha256:{hashlib.sha256(texts.encode('ascii')).hexdigest()}",
            ),
            origins=origins,
            lay_out=lay_out,
            expected=expected,
            rejects=[reject for origin in origins for reject in origin.rejects()],
        )

    @property
    def wanted(self) -> Wanted:
        """The dataset, as an output shows whether it already holds it."""
        outline = self.outline
        return Wanted(outline.name, outline.schema, outline.options, outline.inputs_digest)


def commit_new(new: Derived, folder: AnyPath, run: Callable[[Work], None], *, overwrite: bool) -> Manifest:
    """Write and commit a dataset and return its manifest; ``run`` is that of an engine."""
    with claimed(folder) as state:
        if overwrite:
            state = read_damage(state, new.wanted)
        if is_up_to_date(state, new.wanted, overwrite=overwrite):
            return confirmed(state, new.wanted, is_compared=overwrite)
        return _write(new, folder, state, run)


def commit_next(
    folder: AnyPath,
    find: Callable[[Origin, Workers], Derived | None],
    run: Callable[[Work], None],
) -> Manifest:
    """Write and commit the next generation of a dataset and return its manifest.

    Shards that do not change become hard links under their new names, which contain the new build id, so that
    all shards have one id; a store copies them itself.
    """
    origin = open_origin(folder)
    if origin.manifest.made.source == "adopt":
        raise InputError("edit-of-foreign-records", root=origin.root)
    with claimed(folder) as state:
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        if new := find(origin, Workers(folder, run)):
            return _write(new, folder, state, run)
        complete(origin.manifest, folder, warns=False)
        report_line(up_to_date(folder, is_compared=False))
        return origin.manifest


def _write(new: Derived, folder: AnyPath, state: OutputState, run: Callable[[Work], None]) -> Manifest:
    outline, wanted = new.outline, new.wanted
    area = BuildArea(folder, wanted.plan_id, outline.options)
    rewrite = Rewrite(area, outline, new.origins, new.lay_out(area))
    discard_others(state, wanted.plan_id, outline.options)

    def write() -> Manifest:
        area.open()
        shards = write_shards(rewrite, run)
        splits = {name: Split(shards[name], split.label_counts) for name, split in outline.splits.items()}
        manifest = identified(replace(outline, splits=splits))
        verify_examples(manifest, new.expected)
        return commit(manifest, new.rejects, new.inputs(), area, state)

    manifest = unless_committed(write, state, area, wanted)
    if new.num_unchanged is not None:
        others = counted(new.num_unchanged, "other example")
        report_line(f"verified by digest: nothing has changed in the {others}")
    return manifest


def expected_examples(made: Manifest, of: Sequence[Manifest]) -> dict[str, Examples]:
    """Return for each split of a dataset the examples that its splits have together in others."""
    found = {}
    for name in made.splits:
        parts = [manifest.splits[name] for manifest in of if name in manifest.splits]
        number = sum(part.num_examples for part in parts)
        found[name] = Examples(number, digest_together(part.examples_digest for part in parts))
    return found


def verify_examples(made: Manifest, expected: Mapping[str, Examples]) -> None:
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


def add_totals(parts: Sequence[Totals]) -> Totals:
    """Return the sums of the totals of several datasets."""

    def together(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))

    return Totals(
        entries=sum(part.entries for part in parts),
        accepted=sum(part.accepted for part in parts),
        rejected=sum(part.rejected for part in parts),
        skipped=sum(part.skipped for part in parts),
        reasons={
            outcome: together(part.reasons.get(outcome, {}) for part in parts)
            for outcome in ("rejected", "skipped")
        },
        conversions=together(part.conversions for part in parts),
    )


def with_rejects(totals: Totals, accepted: int, rejects: Sequence[Reject]) -> Totals:
    """Return totals with other numbers of accepted and of rejected inputs."""
    reasons = Counter(reject.reason for reject in rejects)
    return replace(
        totals,
        entries=accepted + len(rejects) + totals.skipped,
        accepted=accepted,
        rejected=len(rejects),
        reasons={**totals.reasons, "rejected": dict(sorted(reasons.items()))},
    )


def join_splits(parts: Sequence[Split], schema: Schema) -> Split:
    """Return one split with the shards of all parts, in order. It counts labels if every part does."""
    counts = sum((Counter(part.label_counts) for part in parts), Counter[str]())
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts[name] for name in names} if is_counted and counts else {})
