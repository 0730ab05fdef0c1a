"""Edit: the next generation of a dataset, in which examples are removed or have other labels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.building.made import made_of
from tfshards.prep.building.output import output_folder
from tfshards.prep.deriving.derive import Derived, commit_next
from tfshards.prep.deriving.layout import NewSplit, OldShard, whole, without
from tfshards.prep.deriving.stored import Origin, Removed, damage_named
from tfshards.prep.engines.table import Work
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import to_text
from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import InputError, Manifest, Shard, Split
from tfshards.schemas.digests import bytes_digest, examples_digest
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray
from tfshards.schemas.json_reader import Json

# Options in which the manifest holds what all edits since the last other verb have done.
_EDITED = ("removed", "relabeled")
# Unknown keys that the error about them lists.
_SHOWN = 100


@dataclass(frozen=True, eq=False)
class Edit:
    """An edit of a dataset, whose examples are numbered in the order of its shards.

    Attributes:
        verb: the verb, ``remove`` or ``relabel``.
        is_removed: shape ``(num_examples,)``, whether each example is removed.
        is_changed: shape ``(num_examples,)``, whether each example has another label.
        labels: shape ``(num_examples,)``, the label of each example afterwards; None if there are no labels.
        rejects: the rejected inputs that are left.
        removed: all removed keys.
        new_classes: names that follow those of the classes.
    """

    verb: str
    is_removed: BoolArray
    is_changed: BoolArray
    labels: IntArray | None
    rejects: Sequence[Reject]
    removed: Removed
    new_classes: Sequence[str] = ()


def commit_edit(
    dataset: str | os.PathLike[str], find: Callable[[Origin], Edit | None], run: Callable[[Work], None]
) -> Manifest:
    """Write and commit a dataset with an edit, and return its manifest; ``run`` is that of an engine.

    ``find`` returns the edit of a dataset; None if nothing changes.
    """

    def derive(origin: Origin) -> Derived | None:
        origin.require_keys()
        edit = find(origin)
        return _derived(origin, edit, run) if edit else None

    return commit_next(output_folder(dataset), derive)


def check_known_keys(unknown: Sequence[bytes], num_wanted: int, origin: Origin) -> None:
    """Raise InputError if there are keys that the dataset does not have."""
    if unknown:
        some = f"{len(unknown):,} of {counted(num_wanted, 'key')}"
        keys = listed([repr(to_text(key)) for key in unknown], _SHOWN)
        raise InputError(f"{some} not in {origin.root}: {keys}; correct or omit them", code="key-unknown")


def _derived(origin: Origin, edit: Edit, run: Callable[[Work], None]) -> Derived:
    """Return the next generation of a dataset."""
    manifest = origin.manifest
    schema = replace(manifest.schema, class_names=(*manifest.schema.class_names, *edit.new_classes))
    splits: dict[str, NewSplit] = {}
    outlines: dict[str, Split] = {}
    end = 0
    for name, split in manifest.splits.items():
        start, end = end, end + split.num_examples
        splits[name] = _edited(origin, edit, split, start)
        if end > start and not sum(splits[name].sizes):
            raise InputError(
                f"{origin.root}: all {counted(split.num_examples, 'example')} of the split {name!r} would "
                "be removed, but a split has to keep at least one; build a dataset without this split "
                "instead"
            )
        left = None if edit.labels is None else edit.labels[start:end][~edit.is_removed[start:end]]
        outlines[name] = Split((), label_counts(left, schema))
        _warn_of_losses(name, split, splits[name], outlines[name].label_counts)
    changed = np.flatnonzero(edit.is_changed)
    labels = [] if edit.labels is None else edit.labels[changed].tolist()
    removed = sorted(line.decode("ascii") for line in edit.removed)
    inputs = json.dumps([manifest.to_text(), changed.tolist(), labels, removed])
    return Derived(
        outline=replace(
            manifest,
            schema=schema,
            splits=outlines,
            options=_options(origin, edit),
            inputs_digest=bytes_digest(inputs.encode("ascii")),
        ),
        origins=[origin],
        splits=splits,
        run=run,
        rejects=edit.rejects,
        removed=edit.removed,
        is_next=True,
    )


def _edited(origin: Origin, edit: Edit, split: Split, start: int) -> NewSplit:
    """Return a split after an edit; only the records that are removed or changed are read.

    ``start`` is the number of its first example.
    """
    olds: list[OldShard] = []
    digest, first = int(split.examples_digest, 16), start
    for shard in split.shards:
        own = slice(first, first + shard.num_examples)
        changed = np.flatnonzero(edit.is_changed[own])
        labels: dict[int, int] = {}
        if edit.labels is not None:
            labels = dict(zip(changed.tolist(), edit.labels[own][changed].tolist(), strict=True))
        before = np.flatnonzero(edit.is_removed[own] | edit.is_changed[own])
        digest += _digest(origin, shard, changed, labels) - _digest(origin, shard, before, {})
        olds.append(OldShard(0, shard, labels))
        first += shard.num_examples
    is_gone, new = edit.is_removed[start:first], whole(olds)
    new = without(new, is_gone) if is_gone.any() else new
    return replace(new, digest=f"{digest % (1 << 64):016x}")


def _digest(origin: Origin, shard: Shard, records: IntArray, labels: Mapping[int, int]) -> int:
    """Return the digest, as a number, of some records of a shard with new labels."""
    if not len(records):
        return 0
    with damage_named():
        found = [(len(frame), footer) for frame, footer in origin.frames(shard, records, labels)]
    lengths = np.array([length for length, _ in found], np.int64) - FRAME_OVERHEAD
    checksums = np.frombuffer(b"".join(footer for _, footer in found), "<u4")
    return int(examples_digest(lengths, checksums), 16)


def _warn_of_losses(name: str, old: Split, new: NewSplit, after: Mapping[str, int]) -> None:
    """Warn of shards and classes that a split loses."""
    if len(new.sizes) < len(old.shards):
        report_warning(
            f"the split {name!r} will have {counted(len(new.sizes), 'shard')} instead of "
            f"{len(old.shards):,}, since a shard without examples is left out"
        )
    lost = [label for label, count in old.label_counts.items() if count and after and not after.get(label)]
    if lost:
        report_warning(f"the split {name!r} will have no examples of the classes {quoted(lost)}")


def _options(origin: Origin, edit: Edit) -> dict[str, Json]:
    """Return the options for the manifest, with those of the dataset before its first edit as its origin."""
    made, before = made_of(origin.manifest), dict(origin.manifest.options)
    recorded = origin.to_json()
    recorded["options"] = {name: value for name, value in before.items() if name not in _EDITED}
    is_edited = made.source in ("remove", "relabel") and "appended" not in before
    counts = {"removed": len(edit.removed), "relabeled": made.num_relabeled + int(edit.is_changed.sum())}
    return {
        "source": edit.verb,
        **{name: count for name, count in counts.items() if count},
        "origin": before["origin"] if is_edited else recorded,
    }
