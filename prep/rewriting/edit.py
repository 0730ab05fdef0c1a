"""Edit: the next generation of a dataset, in which examples are removed or have other labels."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tfshards.prep.building.commit import rejects_text
from tfshards.prep.building.output import output_folder
from tfshards.prep.engines.table import Work
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.records.frames import RecordError
from tfshards.prep.rewriting.commit import Derived, Examples, commit_next, with_rejects
from tfshards.prep.rewriting.keys import OPTION, KnownExamples, by_shard, numbers_of_splits, read_known
from tfshards.prep.rewriting.layout import SplitLayout, kept_layout
from tfshards.prep.rewriting.new_examples import inputs_without
from tfshards.prep.rewriting.origin import SEE_VERIFY, Origin
from tfshards.prep.rewriting.scan import Workers
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import to_text
from tfshards.prep.writing.area import Reject
from tfshards.schemas import BuildError, InputError, Manifest, Schema, Split
from tfshards.schemas.digests import digest_together, examples_digest
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray
from tfshards.schemas.json_reader import Json

# Options in which the manifest holds what all edits since the last other rewrite have done.
_EDITED = (OPTION, "relabeled")
# Unknown keys that the error about them lists.
_SHOWN = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Edit:
    """What an edit changes in a dataset.

    Attributes:
        what: what is done to how many examples, for the status line.
        is_removed: shape ``(num_examples,)``, whether each example is removed.
        labels: shape ``(num_examples,)``, new label of each example; None if there are no labels.
        hashes: hashes of the keys that are removed, of examples and of rejected inputs.
        options: what the manifest records of all edits of this kind.
        content: JSON value that identifies the edit.
    """

    verb: str
    what: str
    is_removed: BoolArray
    labels: IntArray | None
    schema: Schema
    rejects: Sequence[Reject]
    options: Mapping[str, Json]
    content: Json
    hashes: frozenset[bytes] = frozenset()


def commit_edit(
    dataset: str | os.PathLike[str],
    find: Callable[[KnownExamples], Edit | None],
    run: Callable[[Work], None],
) -> Manifest:
    """Write and commit a dataset with an edit, and return its manifest; ``run`` is that of an engine."""

    def derive(origin: Origin, workers: Workers) -> Derived | None:
        if not origin.has_keys:
            raise InputError("edit-no-keys", root=origin.root)
        known = read_known(origin, workers)
        edit = find(known)
        return _derived(known, edit) if edit else None

    return commit_next(output_folder(dataset), derive, run)


def check_known_keys(unknown: Sequence[bytes], num_wanted: int, origin: Origin) -> None:
    """Raise InputError if there are keys that the dataset does not have."""
    if unknown:
        some = f"{len(unknown):,} of {counted(num_wanted, 'key')}"
        keys = listed([repr(to_text(key)) for key in unknown], _SHOWN)
        raise InputError("keys-unknown", some=some, root=origin.root, keys=keys)


def _derived(known: KnownExamples, edit: Edit) -> Derived:
    """Return the next generation of a dataset, and log what is written for it."""
    manifest, labels = known.origin.manifest, edit.labels
    is_changed = np.zeros(len(known.keys), np.bool_)
    if labels is not None and known.labels is not None:
        is_changed = labels != known.labels
    changed = np.flatnonzero(is_changed)
    origin = replace(
        known.origin,
        new_labels={
            shard.path: dict(zip(records.tolist(), labels[first + records].tolist(), strict=True))
            for shard, first, records in by_shard(known.origin, changed)
            if labels is not None
        },
    )
    lengths, checksums = known.lengths.copy(), known.checksums.copy()
    for number, (length, checksum) in zip(changed, _new_records(known, origin, changed), strict=True):
        lengths[number], checksums[number] = length, checksum
    report_line(f"{edit.what} {origin.root}")
    if added := edit.schema.class_names[len(manifest.schema.class_names) :]:
        report_line(f"new classes: {quoted(added)}")
    layouts, expected, counts = {}, {}, {}
    for name, numbers in numbers_of_splits(manifest).items():
        split, is_gone = manifest.splits[name], edit.is_removed[numbers]
        if len(is_gone) and is_gone.all():
            raise InputError(
                "remove-whole-split", root=origin.root, num_examples=split.num_examples, name=name
            )
        sizes = [shard.num_examples for shard in split.shards]
        is_balanced = max(sizes) - min(sizes) <= 1
        counts[name] = label_counts(None if labels is None else labels[numbers][~is_gone], edit.schema)
        layouts[name] = kept_layout([origin], name, is_gone, is_balanced=is_balanced)
        before, after = numbers.start + np.flatnonzero(is_gone | is_changed[numbers]), is_changed[numbers]
        lost = int(examples_digest(known.lengths[before], known.checksums[before]), 16)
        gained = examples_digest(lengths[numbers][after], checksums[numbers][after])
        digest = digest_together([split.examples_digest, f"{-lost % (1 << 64):016x}", gained])
        expected[name] = Examples(sum(layouts[name].sizes), digest)
        _report_shards(name, split, layouts[name], counts[name])
    num_unchanged = sum(each.number for each in expected.values()) - len(changed)
    return Derived(
        outline=_outline(known.origin, edit, counts),
        origins=[origin],
        lay_out=lambda _: layouts,
        expected=expected,
        rejects=edit.rejects,
        inputs=partial(inputs_without, known.origin, edit.hashes),
        num_unchanged=num_unchanged,
    )


def _new_records(known: KnownExamples, origin: Origin, numbers: IntArray) -> Iterator[tuple[int, int]]:
    """Yield the length and the checksum of each of these records with the changes of ``origin``."""
    for shard, _, records in by_shard(known.origin, numbers):
        with closing(origin.frames(shard)) as frames:
            for record in records.tolist():
                try:
                    found, footer = frames.read(record)
                except RecordError as error:
                    raise BuildError("shard-damaged", SEE_VERIFY, text=str(error)) from None
                yield len(found) - FRAME_OVERHEAD, int.from_bytes(footer, "little")


def _report_shards(name: str, old: Split, layout: SplitLayout, after: Mapping[str, int]) -> None:
    """Report which shards of a split are written, and warn of what it loses."""
    num_written = sum(kept < 0 for kept in layout.kept)
    if num_written or len(layout.kept) < len(old.shards):
        sizes = sorted({*layout.sizes})
        each = " to ".join(f"{size:,}" for size in {sizes[0]: None, sizes[-1]: None})
        moved = f", {counted(layout.num_moved, 'example')} moved to balance them" if layout.num_moved else ""
        of = counted(len(layout.kept), "shard")
        report_line(f"{name}: writing {num_written:,} of {of}, {each} examples per shard{moved}")
    if len(layout.kept) < len(old.shards):
        report_warning(
            f"the split {name!r} will have {counted(len(layout.kept), 'shard')} instead of "
            f"{len(old.shards):,}, since a shard without examples is left out"
        )
    lost = [label for label, count in old.label_counts.items() if count and after and not after.get(label)]
    if lost:
        report_warning(f"the split {name!r} will have no examples of the classes {quoted(lost)}")


def _outline(origin: Origin, edit: Edit, counts: Mapping[str, Mapping[str, int]]) -> Manifest:
    old = origin.manifest
    options: dict[str, Json] = {
        "source": edit.verb,
        **{name: old.options[name] for name in _EDITED if name in old.options},
        **edit.options,
        "origin": _recorded_origin(origin),
    }
    content = json.dumps([old.to_text(), edit.content])
    return replace(
        old,
        build_id="",
        schema=edit.schema,
        splits={name: Split((), of) for name, of in counts.items()},
        options=options,
        inputs_digest=f"sha256:{hashlib.sha256(content.encode('ascii')).hexdigest()}",
        totals=with_rejects(old.totals, int((~edit.is_removed).sum()), edit.rejects),
        rejects_digest=bytes_digest(rejects_text(edit.rejects)) if edit.rejects else "",
    )


def _recorded_origin(origin: Origin) -> Json:
    """Return what the manifest records about the dataset before the edit, in which no key is listed.

    For a dataset that was edited before, it is what its own manifest recorded as the origin.
    """
    options = origin.manifest.options
    if options.get("source") in ("remove", "relabel") and "appended" not in options:
        return options["origin"]
    recorded = origin.to_json()
    recorded["options"] = {name: value for name, value in options.items() if name not in _EDITED}
    return _without_keys(recorded)


def _without_keys(value: Json) -> Json:
    """Return options without the keys that appends have listed, which only a repair of a build needs."""
    if isinstance(value, list):
        return [_without_keys(each) for each in value]
    if isinstance(value, dict):
        listed = ("rejected", "retried")
        return {name: _without_keys(each) for name, each in value.items() if name not in listed}
    return value
