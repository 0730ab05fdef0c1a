"""Write and commit the next generation of a dataset: the common part of ``remove`` and ``relabel``.

Records are copied without being decoded. Shards that do not change become hard links under their new names,
which contain the new build id, so that all shards have one id; a store copies them itself.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.building.commit import commit, complete, identified, rejects_text, unless_committed
from tfshards.prep.building.decisions import Wanted, up_to_date
from tfshards.prep.building.output import claimed, discard_others
from tfshards.prep.building.output_state import OutputState
from tfshards.prep.derivation.changed_inputs import inputs_without
from tfshards.prep.derivation.keys import OPTION, KnownExamples, has_keys
from tfshards.prep.derivation.layout import EditedLayout, EditPlan, label_counts
from tfshards.prep.derivation.origin import Origin, open_origin
from tfshards.prep.derivation.rewrite import write_missing
from tfshards.prep.progress.lines import Log
from tfshards.prep.writing.area import BuildArea, FinishedShard, Reject, ShardId
from tfshards.prep.writing.remote_area import compared
from tfshards.schemas import BuildError, InputError, Manifest, Schema, Shard, Split, Totals
from tfshards.schemas.digests import digest_together
from tfshards.schemas.errors import counted
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath, RemotePath

VERBS = ("remove", "relabel")
# Options in which the manifest holds what all edits since the last other derivation have done.
_EDITS = (OPTION, "relabeled")


@dataclass(frozen=True, kw_only=True)
class Edit:
    """The next generation of a dataset.

    Attributes:
        verb: ``remove`` or ``relabel``.
        origin: the dataset, whose records are read with what the edit changes in them.
        layouts: layout of each split.
        labels: label of each old record of each split, with what the edit changes; None without labels.
        digests: digest of the examples that each split has to have.
        schema: schema of the next generation.
        options: options that the manifest records in addition to the origin.
        rejects: rejected inputs of the next generation.
        removed: hashes of the keys that are removed, of examples and of rejected inputs.
        content: JSON values that identify the edit.
        num_changed: number of examples of the next generation whose records the edit changes.
    """

    verb: str
    origin: Origin
    layouts: Mapping[str, EditedLayout]
    labels: Mapping[str, IntArray | None]
    digests: Mapping[str, str]
    schema: Schema
    options: Mapping[str, Json]
    rejects: Sequence[Reject]
    removed: frozenset[bytes] = frozenset()
    content: Json = None
    num_changed: int = 0


def edit(
    folder: AnyPath,
    find: Callable[[Origin], Edit | None],
    *,
    dry_run: bool,
    log: Log,
) -> Manifest:
    """Edit a dataset and return its new manifest.

    Args:
        folder: folder of the dataset.
        find: returns what to change, or None if nothing is left to do.
        dry_run: only log what would be written.
        log: receives status lines.

    Raises:
        InputError: the dataset cannot be edited, or see ``find``.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    origin = open_origin(folder)
    _check_editable(origin)
    if dry_run:
        found = find(origin)
        log("nothing to do" if found is None else "nothing was written")
        return origin.manifest
    with claimed(folder) as state:
        # read again: the dataset is locked now, so no other process can change it
        origin = open_origin(folder)
        found = find(origin)
        if found is None:
            complete(origin.manifest, folder, lambda _: None)
            log(up_to_date(folder, is_compared=False))
            return origin.manifest
        return _apply(found, folder, state, log)


def plan_lines(layouts: Mapping[str, EditedLayout], touched: Mapping[str, int], what: str) -> Iterator[str]:
    """Yield a line for each split of which shards are written.

    Args:
        layouts: layout of each split.
        touched: number of old shards by split that hold something of the edit.
        what: what these hold, such as ``removed examples``.
    """
    for split, layout in layouts.items():
        num_written = sum(kept < 0 for kept in layout.kept)
        if not (num_written or touched[split]):
            continue
        sizes = sorted({len(records) for records in layout.records})
        each = " to ".join(f"{size:,}" for size in {sizes[0]: None, sizes[-1]: None})
        moved = ""
        if layout.num_moved:
            verb = "moves" if layout.num_moved == 1 else "move"
            moved = f"; {counted(layout.num_moved, 'example')} {verb} to another shard, to keep them balanced"
        yield (
            f"{split}: writing {num_written:,} of {counted(len(layout.records), 'shard')}, "
            f"{touched[split]:,} of the old ones {'holds' if touched[split] == 1 else 'hold'} {what}{moved}; "
            f"{each} examples per shard"
        )


def _check_editable(origin: Origin) -> None:
    """Raise InputError if the records of a dataset were written elsewhere, or have no keys."""
    root, manifest = origin.root, origin.manifest
    if manifest.options.get("source") == "adopt":
        raise InputError("edit-of-foreign-records", root=root)
    if not has_keys(origin):
        raise InputError("edit-no-keys", root=root)


def _apply(edit: Edit, folder: AnyPath, state: OutputState, log: Log) -> Manifest:
    old = edit.origin.manifest
    options = {"source": edit.verb, "balance": old.options.get("balance", "count"), **edit.options}
    options["origin"] = _recorded_origin(edit.origin)
    content = [old.to_text(), edit.content]
    inputs_digest = f"sha256:{hashlib.sha256(json.dumps(content).encode('ascii')).hexdigest()}"
    wanted = Wanted(old.name, edit.schema, options, inputs_digest)
    area = BuildArea(folder, wanted.plan_id, options)
    discard_others(state, wanted.plan_id, options, log)
    plan = EditPlan(
        area=area,
        name=old.name,
        origins=[edit.origin],
        num_shards={split: len(layout.records) for split, layout in edit.layouts.items()},
        # each shard is written in a pass of its own
        balance="count",
        compression=old.compression,
        verb_name=edit.verb,
        layouts=edit.layouts,
        labels=edit.labels,
    )
    outline = replace(
        old,
        build_id="",
        schema=edit.schema,
        options=options,
        inputs_digest=inputs_digest,
        totals=_totals(old.totals, edit),
        rejects_digest=bytes_digest(rejects_text(edit.rejects)) if edit.rejects else "",
    )

    def write() -> Manifest:
        area.open()
        shards = _linked(plan, folder) | write_missing(plan, log)
        manifest = identified(replace(outline, splits=_splits(edit, plan, shards)))
        _verify(manifest, edit)
        inputs = inputs_without(edit.origin, edit.removed)
        manifest = commit(manifest, edit.rejects, inputs, area, state, log)
        others = counted(manifest.num_examples - edit.num_changed, "other example")
        log(f"verified by digest: nothing has changed in the {others}")
        return manifest

    return unless_committed(write, state, area, wanted, log)


def _linked(plan: EditPlan, folder: AnyPath) -> dict[ShardId, Shard]:
    """Link or copy the unchanged shards into the area, and return them."""
    area, kept = plan.area, plan.kept_shards
    found: dict[ShardId, FinishedShard] = {}
    if isinstance(area.shards, RemotePath):
        # what an interrupted call has copied; a link costs less than this comparison
        is_same = compared(area.shards)
        recorded = area.finished("first", [shard for shard, _, _ in kept])
        found = {shard: done for shard, done in recorded.items() if is_same(done.shard, done.e_tags)}

    def link(one: tuple[ShardId, Shard, Shard]) -> None:
        shard, old, new = one
        if shard not in found:
            try:
                area.link_shard(folder, old, new)
            except OSError as error:
                raise BuildError(
                    "file-fault", filename=error.filename or folder, why=error.strerror
                ) from None
            done = FinishedShard(new, rows_digest="", e_tags=area.e_tags(new))
            area.write_finished("first", shard, done)

    for _ in area.each(link, kept):
        pass
    return {shard: new for shard, _, new in kept}


def _splits(edit: Edit, plan: EditPlan, shards: Mapping[ShardId, Shard]) -> dict[str, Split]:
    """Return the splits with all shards and with the numbers of examples by class."""
    splits = {}
    for split, split_plan in plan.split_plans().items():
        labels = None if split_plan.labels is None else split_plan.labels[split_plan.order]
        of_split = (shards[ShardId(split, index)] for index in range(plan.num_shards[split]))
        splits[split] = Split(tuple(of_split), label_counts(labels, edit.schema))
    return splits


def _totals(old: Totals, edit: Edit) -> Totals:
    """Return the totals without what was removed; numbers of conversions by image are not known."""
    accepted = sum(len(records) for layout in edit.layouts.values() for records in layout.records)
    rejected = Counter(reject.reason for reject in edit.rejects)
    return replace(
        old,
        entries=accepted + len(edit.rejects) + old.skipped,
        accepted=accepted,
        rejected=len(edit.rejects),
        reasons={**old.reasons, "rejected": dict(sorted(rejected.items()))},
    )


def _verify(manifest: Manifest, edit: Edit) -> None:
    """Raise BuildError unless each split has the digest of the old examples with exactly this edit."""
    for name, split in manifest.splits.items():
        if split.examples_digest != edit.digests[name]:
            raise BuildError(
                "edit-differs",
                name=name,
                examples_digest=split.examples_digest,
                digests=edit.digests[name],
                root=edit.origin.root,
            )


def edits_of(manifest: Manifest) -> dict[str, Json]:
    """Return what the manifest of an edited dataset records of its edits."""
    return {name: manifest.options[name] for name in _EDITS if name in manifest.options}


def numbers_by_split(manifest: Manifest) -> dict[str, IntArray]:
    """Return the numbers of the examples of each split, counted through all shards."""
    ends = np.cumsum([split.num_examples for split in manifest.splits.values()]).tolist()
    return {
        name: np.arange(end - split.num_examples, end, dtype=np.int64)
        for (name, split), end in zip(manifest.splits.items(), ends, strict=True)
    }


def split_labels(origin: Origin, split: str) -> IntArray | None:
    """Return the label of each example of a split, shape ``(num_examples,)``; None if there are no labels.

    Raises:
        InputError: a file of labels is missing or damaged.
    """
    found = [origin.labels(shard) for shard in origin.manifest.splits[split].shards]
    labels = [of_shard for of_shard in found if of_shard is not None]
    return np.concatenate(labels) if labels else None


def touched_shards(known: KnownExamples, numbers: IntArray) -> dict[str, int]:
    """Return for each split the number of shards that hold some of these examples."""
    touched = {*known.shard_of(numbers).tolist()}
    found, first = {}, 0
    for name, split in known.origin.manifest.splits.items():
        indices = range(first, first + len(split.shards))
        found[name] = len(touched.intersection(indices))
        first = indices.stop
    return found


def record_lengths(known: KnownExamples, numbers: IntArray) -> IntArray:
    """Return the number of bytes of the records of some examples, which are ascending.

    Raises:
        InputError: an index is missing or damaged.
    """
    shards, indices = known.origin.manifest.shards, known.shard_of(numbers)
    lengths = np.empty(len(numbers), np.int64)
    for index in np.unique(indices).tolist():
        shard, is_in = shards[index], indices == index
        records = numbers[is_in] - (int(known.ends[index]) - shard.num_examples)
        lengths[is_in] = known.origin.index(shard).lengths[records] - FRAME_OVERHEAD
    return lengths


def digest_without(digest: str, other: str) -> str:
    """Return the digest of a set of examples without those of another digest."""
    return digest_together([digest, f"{-int(other, 16) % (1 << 64):016x}"])


def _recorded_origin(origin: Origin) -> Json:
    """Return what the manifest records about the dataset before the edit, in which no key is listed.

    Of an edited dataset, it is what that one recorded, since its own options are in those of this edit.
    """
    options = origin.manifest.options
    if options.get("source") in VERBS and "appended" not in options:
        return options["origin"]
    recorded = origin.to_json()
    recorded["options"] = {name: value for name, value in options.items() if name not in _EDITS}
    return _without_keys(recorded)


def _without_keys(value: Json) -> Json:
    """Return options without the keys that appends have listed, which only a repair of a build needs."""
    if isinstance(value, list):
        return [_without_keys(each) for each in value]
    if isinstance(value, dict):
        listed = ("rejected", "retried")
        return {name: _without_keys(each) for name, each in value.items() if name not in listed}
    return value
