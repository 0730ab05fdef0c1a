"""Find the examples of a source that a dataset does not hold, and the split of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.building.contents import differing
from tfshards.prep.building.restore import added_membership, builds_of
from tfshards.prep.imaging.options import VERSIONS
from tfshards.prep.planning.splits import Membership
from tfshards.prep.progress.lines import Log
from tfshards.prep.records.example import decode_example
from tfshards.prep.records.values import content_digest
from tfshards.prep.rewriting.changed_inputs import find_changed, recorded_inputs
from tfshards.prep.rewriting.keys import KnownExamples, are_removed, read_known
from tfshards.prep.rewriting.origin import Origin, class_difference, feature_difference
from tfshards.prep.sources.base import Accepted, Listing, Reader
from tfshards.prep.sources.keys import RowKeys, hash_key, to_text
from tfshards.prep.writing.area import Reject
from tfshards.schemas import InputError, Schema
from tfshards.schemas.errors import listed
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json

# Number of inputs, and of examples, that are compared at most: a moved folder is noticed by a part of it.
_COMPARED = 1000
# Number of inputs that are read at a time.
_AT_ONCE = 64


def find_renamed(
    new: Listing, reader: Reader, known: KnownExamples, missing: IntArray
) -> list[tuple[str, str]]:
    """Return the keys of new inputs with the images of missing ones, each with the key of the missing one.

    Only inputs of equal size are read, of the first ones.

    Args:
        new: listing of the new inputs.
        reader: reader of the source.
        known: examples of the dataset.
        missing: numbers of the examples whose inputs the source does not have.
    """
    if not any(feature.is_encoded for feature in new.schema.features):
        return []
    hashes = known.keys[missing].view("V16").tolist()
    examples = dict(zip(hashes, missing.tolist(), strict=True))
    sizes = set(new.sizes.tolist())
    candidates = [
        (key, size)
        for key, (size, _) in recorded_inputs(known.origin).items()
        if size in sizes and hash_key(key) in examples
    ][:_COMPARED]
    digest = content_digest(new.schema)
    names = new.schema.names
    held: dict[str, str] = {}
    for key, _ in candidates:
        values = decode_example(known.read(examples[hash_key(key)]))
        # a list per feature; images have one value
        held.setdefault(
            digest([values[name][0] if values.get(name) else b"" for name in names]), to_text(key)
        )
    numbers = np.flatnonzero(np.isin(new.sizes, [size for _, size in candidates]))[:_COMPARED]
    found = []
    for start in range(0, len(numbers), _AT_ONCE):
        rows = new.rows(numbers[start : start + _AT_ONCE])
        for row, outcome in zip(rows, reader.read(rows, new.schema), strict=True):
            key_held = held.get(digest(outcome.values)) if isinstance(outcome, Accepted) else None
            if key_held is not None:
                found.append((row.key, key_held))
    return found


# Options in which the source may differ from the build.
_MAY_DIFFER = {"source", "follow_links", "split_column"}
_SHOWN = 5


@dataclass(frozen=True)
class NewExamples:
    """The inputs of a source that a dataset does not hold.

    Attributes:
        listing: listing of only these inputs, with the splits, class names and class numbers of the dataset.
        cuts: hash values that separate the splits, see ``Manifest.split_cuts``.
        num_known: number of inputs of the source that the dataset holds, or has rejected with this content.
        removed: keys of the inputs that are left out because their examples were removed from the dataset.
        rejects: inputs that the dataset has rejected, except those with new content.
        retried: keys of inputs that the dataset has rejected and that have new content.
        changed: keys of the inputs that the dataset holds with another label, split or content.
        relabeled: keys of the inputs that a relabeled dataset holds with another label, and with nothing
            else that differs.
        num_missing: number of examples of the dataset whose inputs the source does not have.
        missing: key of one of them; empty if there are none.
        renamed: keys of new inputs with the images of missing ones, each with the key of the missing one.
    """

    listing: Listing
    cuts: Mapping[str, Json]
    num_known: int
    removed: list[str]
    rejects: list[Reject]
    retried: list[str]
    changed: list[str]
    relabeled: list[str]
    num_missing: int
    missing: str
    renamed: list[tuple[str, str]]


def find_new_examples(
    reader: Reader, origin: Origin, log: Log, *, new_classes: bool = False, checksum: bool = False
) -> NewExamples:
    """Return the inputs whose keys the dataset does not have, and rejected inputs with new content.

    With ``new_classes``, the source may have more class names than the dataset, after those of the dataset.
    With ``checksum``, the contents of all known inputs are compared.

    Raises:
        InputError: the source's examples do not fit the dataset, or nothing determines their splits.
        BuildError: a record of the dataset is damaged.
    """
    listing = reader.listing()
    _check_options(reader, origin)
    names = origin.manifest.schema.class_names
    compared = listing.schema.class_names[: len(names)] if new_classes else listing.schema.class_names
    _check_schema(replace(listing.schema, class_names=compared), origin)
    if isinstance(listing.keys, RowKeys) and origin.manifest.made.has("as_splits"):
        raise InputError("rows-renumbered", root=origin.root)
    known = read_known(origin)
    examples = known.find(listing)
    is_known = examples >= 0
    if isinstance(listing.keys, RowKeys) and not any(each.is_encoded for each in listing.schema.features):
        _check_rows(listing, reader, known, examples)
        changed = relabeled = np.empty(0, np.int64)
    else:
        changed, relabeled = find_changed(listing, reader, known, examples, log, checksum=checksum)
    is_removed = are_removed(listing.keys, origin.manifest.made) & ~is_known
    absent = np.ones(len(known.keys), dtype=np.bool_)
    absent[examples[is_known]] = False
    missing = np.flatnonzero(absent)
    kept, retried = [], []
    for reject in origin.rejects():
        number = listing.find(reject.key)
        if number is None:
            kept.append(reject)
        elif _is_unchanged(reject, number, listing, reader):
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
        warnings=(*listing.warnings, *_new_classes(listing, origin)),
    )
    membership = added_membership(new, numbers, listing, reader, origin.manifest, origin.root)
    _check_classes(new, membership, origin)
    warnings = (*new.warnings, *_lacking_splits(new, membership, origin))
    new = replace(new, splits=membership.examples, warnings=warnings)
    return NewExamples(
        listing=new,
        cuts=membership.cuts,
        num_known=int(is_known.sum()),
        removed=[to_text(listing.keys[number]) for number in np.flatnonzero(is_removed).tolist()],
        rejects=kept,
        retried=retried,
        changed=[to_text(listing.keys[number]) for number in changed.tolist()],
        relabeled=[to_text(listing.keys[number]) for number in relabeled.tolist()],
        num_missing=len(missing),
        missing=known.key(int(missing[0])) if len(missing) else "",
        renamed=find_renamed(new, reader, known, missing),
    )


def _is_unchanged(reject: Reject, number: int, listing: Listing, reader: Reader) -> bool:
    """Return whether an input that the dataset rejected still has the content for which it was rejected."""
    if listing.sizes[number] != reject.size:
        return False
    return not len(differing(listing, reader, np.array([number], dtype=np.int64), [reject]))


def _check_schema(schema: Schema, origin: Origin) -> None:
    """Raise InputError unless the source has the features and the class names of the dataset."""
    whole = origin.manifest.schema
    difference = feature_difference(whole, str(origin.root), schema, "the source")
    if difference:
        raise InputError("append-features-differ", difference=difference)
    difference = class_difference(whole, str(origin.root), schema, "the source")
    if difference:
        raise InputError("append-classes-differ", difference=difference)


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


def _new_classes(listing: Listing, origin: Origin) -> tuple[str, ...]:
    """Return a warning if classes without names have no examples in the dataset."""
    if listing.labels is None or listing.schema.class_names:
        return ()
    known = {int(label) for split in origin.manifest.splits.values() for label in split.label_counts}
    new = sorted(set(np.unique(listing.labels).tolist()) - known) if known else []
    if not new:
        return ()
    what = f"the class {new[0]} has no examples in {origin.root}"
    return (f"{what}; a model trained on it may have no output for this class",)


def _lacking_splits(new: Listing, membership: Membership, origin: Origin) -> Iterator[str]:
    """Yield a warning for each split without examples of a class that had no examples before."""
    splits, names = origin.manifest.splits, new.schema.class_names
    if new.labels is None:
        return
    held = {name for split in splits.values() for name, count in split.label_counts.items() if count}
    found = [label for label in np.unique(new.labels).tolist() if label >= 0]
    added = {label: repr(names[label]) if names else str(label) for label in found}
    added = {label: name for label, name in added.items() if (names[label] if names else name) not in held}
    for split, old in splits.items():
        labels = new.labels[membership.examples.get(split, np.empty(0, np.int64))]
        lacking = [name for label, name in added.items() if label not in labels]
        # a split whose examples have no classes lacks none
        if lacking and (old.label_counts or not old.num_examples):
            yield f"the split {split!r} has no examples of the new class{_listed(lacking)}"


def _listed(names: Sequence[str]) -> str:
    return f"{'es' if len(names) > 1 else ''} {listed(names, _SHOWN)}"


def _check_options(reader: Reader, origin: Origin) -> None:
    """Raise InputError if the options of the source differ from those of every build of the dataset."""
    options = reader.options()
    names = sorted(set(options) - _MAY_DIFFER - {*VERSIONS})
    builds = [build for build in builds_of(origin.manifest.made) if build.get("source") == options["source"]]
    differing = [[name for name in names if build.get(name) != options[name]] for build in builds]
    if builds and all(differing):
        name = differing[0][0]
        raise InputError(
            "append-options-differ",
            root=origin.root,
            name=name,
            get=builds[0].get(name),
            options=options[name],
        )


def _check_rows(listing: Listing, reader: Reader, known: KnownExamples, examples: IntArray) -> None:
    """Raise InputError if known rows, which are identified by numbers, differ from those of the dataset.

    Arrays that hold only new rows also start at number 0, which only a comparison of the rows can detect.
    """
    numbers = np.flatnonzero(examples >= 0)
    found = differing(listing, reader, numbers, known.checksums[examples[numbers]].tolist())
    if len(found):
        row = to_text(listing.keys[int(found[0])])
        raise InputError("append-row-differs", row=row, root=known.origin.root)
