"""Find the examples of a source that a dataset does not hold, with their splits, and what has changed."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tfshards.prep.building.contents import changed_line, comparison_line, differing
from tfshards.prep.building.inputs_file import RecordedInputs, read_inputs
from tfshards.prep.building.restore import added_membership
from tfshards.prep.imaging.options import VERSIONS
from tfshards.prep.planning.splits import Membership
from tfshards.prep.progress.lines import lines_to, nowhere, report_line, report_warning
from tfshards.prep.rewriting.keys import KnownExamples, are_removed, numbers_of_splits, read_known
from tfshards.prep.rewriting.origin import Origin, class_difference, feature_difference
from tfshards.prep.rewriting.scan import Workers
from tfshards.prep.sources.base import Listing, Reader, Source
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import RowKeys, hash_key, to_text
from tfshards.prep.writing.area import Reject
from tfshards.prep.writing.shard_names import build_of
from tfshards.schemas import InputError, Schema
from tfshards.schemas.errors import counted
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json

# Options in which the source may differ from the build.
_MAY_DIFFER = {"source", "follow_links", "columns"}


@dataclass(frozen=True)
class NewExamples:
    """The inputs of a source that a dataset does not hold, with its class numbers, and reports on others.

    Attributes:
        cuts: hash values that separate the splits, see ``Manifest.split_cuts``.
        num_known: number of inputs of the source that the dataset holds, or has rejected with this content.
        rejects: inputs that the dataset has rejected, except those with new content, which are ``retried``.
    """

    listing: Listing
    cuts: Mapping[str, Json]
    num_known: int
    rejects: list[Reject]
    retried: list[str]
    num_changed: int


def find_new_examples(
    reader: Reader, origin: Origin, workers: Workers, *, new_classes: bool, checksum: bool
) -> NewExamples:
    """Return the inputs whose keys the dataset does not have, and rejected inputs with new content."""
    listing = reader.listing()
    _check_options(reader, origin)
    names = origin.manifest.schema.class_names
    compared = listing.schema.class_names[: len(names)] if new_classes else listing.schema.class_names
    _check_schema(replace(listing.schema, class_names=compared), origin)
    is_of_rows = isinstance(listing.keys, RowKeys) or listing.is_numbered
    if is_of_rows and origin.manifest.made.has("as_splits"):
        raise InputError("rows-renumbered", root=origin.root)
    known = read_known(origin, workers)
    examples = known.find(listing.keys)
    is_known = examples >= 0
    # arrays that hold only new rows also start at number 0, which only a comparison of the rows can detect
    has_images = any(feature.is_encoded for feature in listing.schema.features)
    by_number = listing.is_numbered or (is_of_rows and not has_images)
    with lines_to(nowhere) if by_number else nullcontext():
        changed = _changed(listing, reader, known, examples, checksum=checksum or by_number)
    if by_number and len(changed):
        raise InputError("append-row-differs", row=to_text(listing.keys[int(changed[0])]), root=origin.root)
    is_removed = are_removed(listing.keys, origin.manifest.made) & ~is_known
    is_absent = np.ones(len(known.keys), dtype=np.bool_)
    is_absent[examples[is_known]] = False
    kept, retried = [], []
    for reject in origin.rejects():
        number = listing.find(reject.key)
        if number is None:
            kept.append(reject)
        elif listing.sizes[number] == reject.size and not len(
            differing(listing, reader, np.array([number], np.int64), [reject])
        ):
            # the content for which it was rejected
            kept.append(reject)
            is_known[number] = True
        else:
            retried.append(reject.key)
    # keys are sorted as bytes, which is not the order of row numbers
    is_new = ~(is_known | is_removed)
    numbers = np.array(sorted(np.flatnonzero(is_new).tolist(), key=listing.keys.__getitem__), np.int64)
    new = replace(
        listing,
        keys=[listing.keys[number] for number in numbers.tolist()],
        sizes=listing.sizes[numbers],
        stamps=listing.stamps[numbers],
        labels=None if listing.labels is None else listing.labels[numbers],
        splits=None,
    )
    membership = added_membership(new, numbers, listing, origin.manifest, origin.root)
    _check_classes(new, membership, origin)
    num_known = int(is_known.sum())
    others = np.flatnonzero(is_removed), changed, np.flatnonzero(is_absent)
    _report_others(listing, known, *others, num_known)
    _report_classes(new, origin)
    return NewExamples(
        listing=replace(new, splits=membership.examples),
        cuts=membership.cuts,
        num_known=num_known,
        rejects=kept,
        retried=retried,
        num_changed=len(changed),
    )


def _changed(
    listing: Listing, reader: Reader, known: KnownExamples, examples: IntArray, *, checksum: bool
) -> IntArray:
    """Return the known inputs whose label, split or content differs from their example.

    The content is compared of inputs whose size or time is not the recorded one, or not recorded. In a
    relabeled dataset, another label is not a change of the input.
    """
    numbers = np.flatnonzero(examples >= 0)
    held = examples[numbers]
    is_changed = np.zeros(len(numbers), np.bool_)
    old_labels, labels = known.labels, listing.labels
    if old_labels is not None and labels is not None:
        if known.origin.manifest.made.has("relabeled"):
            # contents are compared with the labels that the examples have
            labels = labels.copy()
            labels[numbers] = old_labels[held]
            listing = replace(listing, labels=labels)
        else:
            is_changed |= old_labels[held] != labels[numbers]
    splits = numbers_of_splits(known.origin.manifest)
    for split, members in (listing.splits or {}).items():
        of_split = splits.get(split, slice(0, 0))
        is_in = (of_split.start <= held) & (held < of_split.stop)
        is_changed |= np.isin(numbers, members) & ~is_in
    may_differ = np.ones(len(numbers), np.bool_)
    if not checksum:
        recorded = recorded_inputs(known.origin)
        now = zip(listing.sizes[numbers].tolist(), listing.stamps[numbers].tolist(), strict=True)
        keys = (listing.keys[number] for number in numbers.tolist())
        differ = (recorded.get(key) != each for key, each in zip(keys, now, strict=True))
        may_differ = np.fromiter(differ, np.bool_, len(numbers))
    suspects = np.flatnonzero(~is_changed & may_differ)
    if len(suspects):
        report_line(comparison_line(len(suspects), "which may have changed", checksum=checksum))
        checksums = known.checksums[held[suspects]].tolist()
        is_changed |= np.isin(numbers, differing(listing, reader, numbers[suspects], checksums))
    return numbers[is_changed]


def recorded_inputs(origin: Origin) -> dict[bytes, tuple[int, int]]:
    """Return the size and the time of each input of the builds of a dataset, as far as they are recorded."""
    recorded: dict[bytes, tuple[int, int]] = {}
    for build_id in sorted({build_of(shard.path) for shard in origin.manifest.shards}):
        inputs = read_inputs(origin.root, build_id)
        if inputs is not None:
            recorded |= zip(
                inputs.keys, zip(inputs.sizes.tolist(), inputs.stamps.tolist(), strict=True), strict=True
            )
    return recorded


def inputs_without(origin: Origin, removed: Collection[bytes]) -> RecordedInputs | None:
    """Return what the builds of a dataset have recorded of their inputs, without some of them.

    Returns:
        The inputs by key, with neither labels nor splits, which only a repair needs; None if nothing is
        recorded of any.
    """
    found = sorted(
        (key, each) for key, each in recorded_inputs(origin).items() if hash_key(key) not in removed
    )
    if not found:
        return None
    numbers = np.array([each for _, each in found], np.int64).reshape(-1, 2)
    return RecordedInputs([key for key, _ in found], numbers[:, 0], numbers[:, 1], None, {})


def _check_options(reader: Reader, origin: Origin) -> None:
    """Raise InputError if the options of the source differ from those of every build of the dataset."""
    options = reader.options()
    names = sorted({*options} - _MAY_DIFFER - {*VERSIONS})
    made = [build for build in origin.manifest.made.builds() if build.source == options["source"]]
    builds = [build.options for build in made]
    differing = [[name for name in names if build.get(name) != options[name]] for build in builds]
    if builds and all(differing):
        name = differing[0][0]
        before = builds[0].get(name)
        raise InputError(
            "append-options-differ", root=origin.root, name=name, get=before, options=options[name]
        )


def _check_schema(schema: Schema, origin: Origin) -> None:
    """Raise InputError unless the source has the features and the class names of the dataset."""
    both = origin.manifest.schema, str(origin.root), schema, "the source"
    if difference := feature_difference(*both):
        raise InputError("append-features-differ", difference=difference)
    if difference := class_difference(*both):
        raise InputError("append-classes-differ", difference=difference)


def new_class_names(source: Source, known: Sequence[str]) -> list[str]:
    """Return the class names of a source that are not among those of a dataset, if these have names."""
    if not known:
        return []
    with tempfile.TemporaryDirectory() as staging:
        found = source.stage(Path(staging), preview=True).listing().schema.class_names
    return [name for name in found if name not in known]


def _check_classes(new: Listing, membership: Membership, origin: Origin) -> None:
    """Raise InputError if examples without a class would come into a split whose examples have classes."""
    if new.labels is None or not new.schema.class_names:
        return
    for split, numbers in membership.examples.items():
        without = numbers[new.labels[numbers] < 0]
        if len(without) and origin.manifest.splits[split].label_counts:
            raise InputError(
                "append-without-class", split=split, root=origin.root, keys=to_text(new.keys[without[0]])
            )


def _report_others(
    listing: Listing,
    known: KnownExamples,
    removed: IntArray,
    changed: IntArray,
    missing: IntArray,
    num_known: int,
) -> None:
    """Report inputs that were removed from the dataset, have changed, or are not in the source."""
    root = known.origin.root
    if len(removed):
        one = to_text(listing.keys[int(removed[0])])
        report_line(f"leaving out {counted(len(removed), 'input')} removed from {root}, such as {one!r}")
    if len(changed):
        report_warning(
            f"{changed_line(listing, changed)}; the dataset keeps the old content: a new input needs another "
            "name, and to replace an old one, build again with --overwrite"
        )
    inputs = counted(len(missing), "known input")
    if len(missing) and not num_known:
        report_line(f"the source holds only new inputs; {inputs} of {root} kept")
    elif len(missing):
        report_line(
            f"{inputs} not in the source, such as {known.key(int(missing[0]))!r}: kept in the dataset, and "
            "left out by a build with --overwrite; a renamed input is a new one"
        )


def _report_classes(new: Listing, origin: Origin) -> None:
    """Report classes without examples in the dataset, for which a model may have no output."""
    if new.labels is None:
        return
    names, splits = new.schema.class_names, origin.manifest.splits.values()
    held = {name for split in splits for name, count in split.label_counts.items() if count}
    labels = [label for label in np.unique(new.labels).tolist() if label >= 0]
    added = [name for name in (names[label] if names else str(label) for label in labels) if name not in held]
    if held and added:
        report_line(f"new classes: {quoted(added)}")
