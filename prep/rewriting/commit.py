"""Commit: verify what was written, and make it a new dataset or the next generation of its origin."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from tfshards.prep.building.commit import (
    commit,
    complete,
    confirmed,
    identified,
    rejects_text,
    unless_committed,
)
from tfshards.prep.building.inputs_file import RecordedInputs
from tfshards.prep.building.output import claimed, dataset_name, discard_others, output_folder, read_damage
from tfshards.prep.building.output_state import OutputState, Wanted, is_up_to_date, up_to_date
from tfshards.prep.planning.options import (
    Options,
)
from tfshards.prep.progress.lines import Log
from tfshards.prep.rewriting.changed_inputs import inputs_without
from tfshards.prep.rewriting.keys import OPTION
from tfshards.prep.rewriting.layout import Rewrite, SplitLayout, label_counts
from tfshards.prep.rewriting.origin import Origin, open_origin
from tfshards.prep.rewriting.write import write_shards
from tfshards.prep.writing.area import BuildArea, Reject
from tfshards.schemas import BuildError, InputError, Manifest, Schema, Split, Totals
from tfshards.schemas.digests import digest_together
from tfshards.schemas.errors import counted
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath

# Returns what is written, given the area; an index of an origin may be read for it.
Plan = Callable[[BuildArea], Rewrite]
_EDITS = ("remove", "relabel")
# Options in which the manifest holds what all edits since the last other rewrite have done.
_EDITED = (OPTION, "relabeled")


def new_dataset(
    dataset: str | os.PathLike[str], name: str | None, origins: Sequence[Origin]
) -> tuple[AnyPath, str]:
    """Return the folder and the name of a dataset that is made from others.

    Raises:
        OptionsError: the folder is an origin or is inside one, or its name is invalid for a dataset.
    """
    folder = output_folder(dataset, *(origin.root for origin in origins))
    return folder, dataset_name(folder, Options(name=name))


def digest_of_origins(origins: Sequence[Origin]) -> str:
    """Return the digest of the datasets that a dataset is made from."""
    texts = "".join(origin.manifest.to_text() for origin in origins)
    return f"sha256:{hashlib.sha256(texts.encode('ascii')).hexdigest()}"


def commit_new(
    outline: Manifest,
    origins: Sequence[Origin],
    folder: AnyPath,
    plan: Plan,
    *,
    overwrite: bool,
    log: Log,
) -> Manifest:
    """Write and commit a dataset and return its manifest.

    Args:
        outline: manifest of the dataset without a build id, with splits that have no shards yet.
        origins: datasets whose examples it holds.
        folder: folder of the dataset.
        plan: returns what is written, given the area, which is not open yet.
        overwrite: replace another dataset, which stays readable until this one is committed.
        log: receives status lines.

    Raises:
        InputError: another process writes to the folder, or it holds another dataset and ``overwrite`` is
            False.
        BuildError: the shards do not hold the examples of the origins; nothing is committed.
    """
    wanted = Wanted(outline.name, outline.schema, outline.options, outline.inputs_digest)
    with claimed(folder) as state:
        if overwrite:
            state = read_damage(state, wanted, log)
        if is_up_to_date(state, wanted, overwrite=overwrite):
            return confirmed(state, wanted, log, is_compared=overwrite)
        rejects = [reject for origin in origins for reject in origin.rejects()]
        expected = expected_examples(outline, [origin.manifest for origin in origins])
        # with new keys, the records have other digests
        if any(origin.split and origin.has_keys for origin in origins):
            expected = {name: each._replace(digest=None) for name, each in expected.items()}
        return _write_and_commit(outline, folder, plan, expected, rejects, None, state, log)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """The next generation of a dataset.

    Attributes:
        verb: ``remove`` or ``relabel``.
        origin: the dataset, with what the edit changes in its records.
        layouts: layout of each split.
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
    layouts: Mapping[str, SplitLayout]
    digests: Mapping[str, str]
    schema: Schema
    options: Mapping[str, Json]
    rejects: Sequence[Reject]
    removed: frozenset[bytes] = frozenset()
    content: Json = None
    num_changed: int = 0


def commit_next(
    folder: AnyPath, find: Callable[[Origin], Edit | None], *, dry_run: bool, log: Log
) -> Manifest:
    """Write and commit the next generation of a dataset and return its manifest.

    Records are copied without being decoded. Shards that do not change become hard links under their new
    names, which contain the new build id, so that all shards have one id; a store copies them itself.

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
    if origin.manifest.made.source == "adopt":
        raise InputError("edit-of-foreign-records", root=origin.root)
    if not origin.has_keys:
        raise InputError("edit-no-keys", root=origin.root)
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
        return _commit_edit(found, folder, state, log)


def _commit_edit(edit: Edit, folder: AnyPath, state: OutputState, log: Log) -> Manifest:
    old = edit.origin.manifest
    options = {"source": edit.verb, "balance": old.options.get("balance", "count"), **edit.options}
    options["origin"] = _recorded_origin(edit.origin)
    content = [old.to_text(), edit.content]
    # Only label_counts of these splits is used; shards that stay are in their layouts.
    splits = {
        name: Split((), label_counts(layout.new_labels, edit.schema)) for name, layout in edit.layouts.items()
    }
    outline = replace(
        old,
        build_id="",
        schema=edit.schema,
        splits=splits,
        options=options,
        inputs_digest=f"sha256:{hashlib.sha256(json.dumps(content).encode('ascii')).hexdigest()}",
        totals=_totals_of_edit(old.totals, edit),
        rejects_digest=bytes_digest(rejects_text(edit.rejects)) if edit.rejects else "",
    )

    def plan(area: BuildArea) -> Rewrite:
        return Rewrite(
            verb=edit.verb,
            area=area,
            name=old.name,
            origins=[edit.origin],
            splits=edit.layouts,
            # each shard is written in a pass of its own
            in_order=True,
            compression=old.compression,
        )

    expected = {
        name: Examples(sum(map(len, layout.layout)), edit.digests[name])
        for name, layout in edit.layouts.items()
    }
    inputs = partial(inputs_without, edit.origin, edit.removed)
    manifest = _write_and_commit(outline, folder, plan, expected, edit.rejects, inputs, state, log)
    others = counted(manifest.num_examples - edit.num_changed, "other example")
    log(f"verified by digest: nothing has changed in the {others}")
    return manifest


def _write_and_commit(
    outline: Manifest,
    folder: AnyPath,
    plan: Plan,
    expected: Mapping[str, Examples],
    rejects: Sequence[Reject],
    inputs: Callable[[], RecordedInputs | None] | None,
    state: OutputState,
    log: Log,
) -> Manifest:
    wanted = Wanted(outline.name, outline.schema, outline.options, outline.inputs_digest)
    area = BuildArea(folder, wanted.plan_id, outline.options)
    discard_others(state, wanted.plan_id, outline.options, log)

    def write() -> Manifest:
        planned = plan(area)
        area.open()
        shards = write_shards(planned, log)
        splits = {name: Split(shards[name], split.label_counts) for name, split in outline.splits.items()}
        manifest = identified(replace(outline, splits=splits))
        verify_examples(manifest, expected)
        return commit(manifest, rejects, inputs() if inputs else None, area, state, log)

    return unless_committed(write, state, area, wanted, log)


class Examples(NamedTuple):
    """The examples that a split has to have; ``digest`` is None if only their number is known."""

    number: int
    digest: str | None


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


def join_splits(parts: Sequence[Split], schema: Schema) -> Split:
    """Return one split with the shards of all parts, in order. It counts labels if every part does."""
    counts = sum((Counter(part.label_counts) for part in parts), Counter[str]())
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts[name] for name in names} if is_counted and counts else {})


def plan_lines(layouts: Mapping[str, SplitLayout], touched: Mapping[str, int], what: str) -> Iterator[str]:
    """Yield a line for each split of which shards are written by an edit.

    Args:
        layouts: layout of each split.
        touched: number of old shards by split that hold something of the edit.
        what: what these hold, such as ``removed examples``.
    """
    for split, layout in layouts.items():
        num_written = sum(kept < 0 for kept in layout.kept)
        if not (num_written or touched[split]):
            continue
        sizes = sorted({len(records) for records in layout.layout})
        each = " to ".join(f"{size:,}" for size in {sizes[0]: None, sizes[-1]: None})
        moved = ""
        if layout.num_moved:
            verb = "moves" if layout.num_moved == 1 else "move"
            moved = f"; {counted(layout.num_moved, 'example')} {verb} to another shard, to keep them balanced"
        yield (
            f"{split}: writing {num_written:,} of {counted(len(layout.kept), 'shard')}, "
            f"{touched[split]:,} of the old ones {'holds' if touched[split] == 1 else 'hold'} {what}{moved}; "
            f"{each} examples per shard"
        )


def edits_of(manifest: Manifest) -> dict[str, Json]:
    """Return what the manifest of an edited dataset records of its edits."""
    return {name: manifest.options[name] for name in _EDITED if name in manifest.options}


def _totals_of_edit(old: Totals, edit: Edit) -> Totals:
    """Return the totals without what was removed; numbers of conversions by image are not known."""
    accepted = sum(len(layout.order) for layout in edit.layouts.values())
    rejected = Counter(reject.reason for reject in edit.rejects)
    return replace(
        old,
        entries=accepted + len(edit.rejects) + old.skipped,
        accepted=accepted,
        rejected=len(edit.rejects),
        reasons={**old.reasons, "rejected": dict(sorted(rejected.items()))},
    )


def _recorded_origin(origin: Origin) -> Json:
    """Return what the manifest records about the dataset before the edit, in which no key is listed.

    For a dataset that was edited before, it is what its own manifest recorded as the origin.
    """
    options = origin.manifest.options
    if options.get("source") in _EDITS and "appended" not in options:
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
