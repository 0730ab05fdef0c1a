"""Edit: the next generation of a dataset, in which examples are removed or have other labels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.building.output import output_folder
from tfshards.prep.deriving.derive import Derived, Examples, commit_next
from tfshards.prep.deriving.joining import with_rejects
from tfshards.prep.deriving.layout import SplitLayout, kept_layout, whole_layout
from tfshards.prep.deriving.removed import Removed
from tfshards.prep.deriving.stored import OldShard, Origin, damage_named
from tfshards.prep.engines.table import Work
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import to_text
from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import InputError, Manifest, Schema, Shard, Split
from tfshards.schemas.digests import bytes_digest, examples_digest
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray
from tfshards.schemas.json_reader import Json

# Options in which the manifest holds what all edits since the last other verb have done.
_EDITED = ("removed", "relabeled")
# Unknown keys that the error about them lists.
_SHOWN = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class Edit:
    """What an edit changes in a dataset, whose examples are numbered in the order of its shards.

    Attributes:
        what: what is done to how many examples, for the status line.
        is_removed: shape ``(num_examples,)``, whether each example is removed.
        labels: shape ``(num_examples,)``, the label of each example afterwards; None if there are no labels.
        is_changed: shape ``(num_examples,)``, whether the label differs from that before.
        removed: all keys that are removed now.
        options: what the manifest records of all edits of this kind.
        content: JSON value that identifies the edit.
    """

    verb: str
    what: str
    is_removed: BoolArray
    labels: IntArray | None
    is_changed: BoolArray
    schema: Schema
    rejects: Sequence[Reject]
    removed: Removed
    options: Mapping[str, Json]
    content: Json


def commit_edit(
    dataset: str | os.PathLike[str],
    find: Callable[[Origin], Edit | None],
    run: Callable[[Work], None],
) -> Manifest:
    """Write and commit a dataset with an edit, and return its manifest; ``run`` is that of an engine."""

    def derive(origin: Origin) -> Derived | None:
        if not origin.has_keys:
            raise InputError("edit-no-keys", root=origin.root)
        edit = find(origin)
        return _derived(origin, edit, run) if edit else None

    return commit_next(output_folder(dataset), derive)


def labels_of(origin: Origin) -> IntArray | None:
    """Return the label of each example of a dataset; None if there are no labels."""
    labels = [of for shard in origin.manifest.shards if (of := origin.labels(shard)) is not None]
    return np.concatenate(labels) if labels else None


def check_known_keys(unknown: Sequence[bytes], num_wanted: int, origin: Origin) -> None:
    """Raise InputError if there are keys that the dataset does not have."""
    if unknown:
        some = f"{len(unknown):,} of {counted(num_wanted, 'key')}"
        keys = listed([repr(to_text(key)) for key in unknown], _SHOWN)
        raise InputError("keys-unknown", some=some, root=origin.root, keys=keys)


def _derived(origin: Origin, edit: Edit, run: Callable[[Work], None]) -> Derived:
    """Return the next generation of a dataset, and report what is written for it."""
    manifest = origin.manifest
    report_line(f"{edit.what} {origin.root}")
    if added := edit.schema.class_names[len(manifest.schema.class_names) :]:
        report_line(f"new classes: {quoted(added)}")
    olds: dict[str, list[OldShard]] = {}
    layouts: dict[str, SplitLayout] = {}
    expected: dict[str, Examples] = {}
    splits: dict[str, Split] = {}
    start = 0
    for name, split in manifest.splits.items():
        first, start = start, start + split.num_examples
        is_gone, counts = edit.is_removed[first:start], [shard.num_examples for shard in split.shards]
        if len(is_gone) and is_gone.all():
            raise InputError(
                "remove-whole-split", root=origin.root, num_examples=split.num_examples, name=name
            )
        olds[name], layouts[name], digest = [], whole_layout(counts), int(split.examples_digest, 16)
        if is_gone.any():
            layouts[name] = kept_layout(counts, is_gone, is_balanced=max(counts) - min(counts) <= 1)
        for shard in split.shards:
            old, gained = _edited(origin, edit, shard, first)
            olds[name].append(old)
            digest, first = digest + gained, first + shard.num_examples
        expected[name] = Examples(sum(layouts[name].sizes), f"{digest % (1 << 64):016x}")
        left = None if edit.labels is None else edit.labels[start - len(is_gone) : start][~is_gone]
        splits[name] = Split((), label_counts(left, edit.schema))
        _report_shards(name, split, layouts[name], olds[name], splits[name].label_counts)
    num_unchanged = len(edit.is_removed) - int((edit.is_removed | edit.is_changed).sum())
    content = json.dumps([manifest.to_text(), edit.content])
    return Derived(
        outline=replace(
            manifest,
            schema=edit.schema,
            splits=splits,
            options=_options(origin, edit),
            inputs_digest=bytes_digest(content.encode("ascii")),
            totals=with_rejects(manifest.totals, int((~edit.is_removed).sum()), edit.rejects),
        ),
        origins=[origin],
        olds=olds,
        layouts=layouts,
        expected=expected,
        run=run,
        rejects=edit.rejects,
        removed=edit.removed,
        is_next=True,
        report=lambda _: report_line(
            f"verified by digest: nothing has changed in the {counted(num_unchanged, 'other example')}"
        ),
    )


def _edited(origin: Origin, edit: Edit, shard: Shard, first: int) -> tuple[OldShard, int]:
    """Return a shard with its new labels, and by how much the digest of its examples grows.

    ``first`` is the number of its first example. Only the records that are removed or changed are read.
    """
    own = slice(first, first + shard.num_examples)
    changed = np.flatnonzero(edit.is_changed[own])
    gone = np.flatnonzero(edit.is_changed[own] | edit.is_removed[own])
    labels: dict[int, int] = {}
    if edit.labels is not None:
        labels = dict(zip(changed.tolist(), edit.labels[own][changed].tolist(), strict=True))
    gained = _digest(origin, shard, changed, labels) - _digest(origin, shard, gone, {})
    return OldShard(0, shard, labels), gained


def _digest(origin: Origin, shard: Shard, records: IntArray, labels: Mapping[int, int]) -> int:
    """Return the digest, as a number, of some records of a shard with new labels."""
    if not len(records):
        return 0
    with damage_named(), closing(origin.frames(shard, labels)) as frames:
        found = [(len(frame), footer) for frame, footer in map(frames.read, records.tolist())]
    lengths = np.array([length for length, _ in found], np.int64) - FRAME_OVERHEAD
    checksums = np.frombuffer(b"".join(footer for _, footer in found), "<u4")
    return int(examples_digest(lengths, checksums), 16)


def _report_shards(
    name: str, old: Split, layout: SplitLayout, olds: Sequence[OldShard], after: Mapping[str, int]
) -> None:
    """Report which shards of a split are written, and warn of what it loses."""
    num_written = sum(kept < 0 or bool(olds[kept].labels) for kept in layout.kept)
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


def _options(origin: Origin, edit: Edit) -> dict[str, Json]:
    """Return the options for the manifest, with those of the dataset before its first edit as its origin."""
    before = dict(origin.manifest.options)
    recorded: Json = {
        **origin.to_json(),
        "options": {name: value for name, value in before.items() if name not in _EDITED},
    }
    if before.get("source") in ("remove", "relabel") and "appended" not in before:
        recorded = before["origin"]
    return {
        "source": edit.verb,
        **{name: before[name] for name in _EDITED if name in before},
        **({"removed": len(edit.removed)} if edit.removed else {}),
        **edit.options,
        "origin": recorded,
    }
