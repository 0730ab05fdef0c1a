"""Find the inputs of a source that a dataset does not hold, and the splits of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from tfshards.prep.building.made import Made, made_of
from tfshards.prep.building.rejects import original_of
from tfshards.prep.deriving.joining import check_same_schema
from tfshards.prep.deriving.stored import Origin, labels_of, removed_line
from tfshards.prep.imaging.options import VERSIONS
from tfshards.prep.planning.splits import Membership, split_by_cuts
from tfshards.prep.progress.lines import Meter, report_line, report_warning
from tfshards.prep.records.frames import read_footers
from tfshards.prep.sources.base import Listing, Reader
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import RowKeys, to_text
from tfshards.prep.writing.build_folder import Reject
from tfshards.prep.writing.shard import EncodedInputs, Piece, inputs_plan
from tfshards.schemas import InputError, Manifest, Shard
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.errors import counted
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import find, keys_at

# Options in which the source may differ from the build.
_MAY_DIFFER = {"source", "follow_links", "columns", *VERSIONS}


@dataclass(frozen=True)
class NewInputs:
    """The inputs of a source that a dataset does not hold, and what is known of the others.

    Attributes:
        listing: the new inputs with their splits, and the class numbers of the dataset.
        cuts: hash values that separate the splits, see ``Manifest.split_cuts``.
        num_known: number of inputs that the dataset holds, or has rejected and would reject again.
        rejects: what the dataset has rejected, except inputs that are new now.
    """

    listing: Listing
    cuts: Mapping[str, Json]
    num_known: int
    rejects: list[Reject]


def find_new_inputs(reader: Reader, origin: Origin, *, new_classes: bool) -> NewInputs:
    """Return the inputs of a source that a dataset does not hold, and report on the others.

    Files of keys and labels are read, but no records. The content of an input whose key is known is not read,
    except where keys are row numbers; see ``_Match.check_rows``.

    Raises:
        InputError: the source does not fit the dataset, or nothing determines the splits of new inputs.
        FormatError: a file of keys is missing or damaged.
    """
    listing = reader.listing()
    _check_fit(listing, reader.options(), origin, new_classes=new_classes)
    examples = find(origin.root, origin.manifest.shards, listing.keys)
    is_new = examples < 0
    numbers = np.full(origin.manifest.num_examples, -1)
    numbers[examples[~is_new]] = np.flatnonzero(~is_new)
    match = _Match(listing, origin, numbers)
    if _are_numbered(listing):
        match.check_rows(reader)
    rejects, rejected_again = _rejected_again(listing, reader, origin)
    is_new[rejected_again] = False
    candidates = np.flatnonzero(is_new)
    removed = origin.removed()
    is_removed = np.array(
        [removed_line(listing.keys[number]) in removed for number in candidates.tolist()], np.bool_
    )
    # keys are sorted as bytes, which is not the order of row numbers
    added = np.array(sorted(candidates[~is_removed].tolist(), key=listing.keys.__getitem__), np.int64)
    new = replace(
        listing,
        keys=[listing.keys[number] for number in added.tolist()],
        sizes=listing.sizes[added],
        stamps=listing.stamps[added],
        labels=None if listing.labels is None else listing.labels[added],
        groups=[listing.groups[number] for number in added.tolist()] if listing.groups else None,
    )
    membership = _membership(new, added, origin)
    new = replace(new, splits=membership.examples)
    match.report(candidates[is_removed])
    _report_classes(new, origin)
    return NewInputs(new, membership.cuts, listing.num_examples - len(candidates), rejects)


def _are_numbered(listing: Listing) -> bool:
    """Return whether inputs are known by their numbers, so that other inputs have the same keys."""
    return listing.is_numbered or isinstance(listing.keys, RowKeys)


def _check_fit(listing: Listing, options: Mapping[str, Json], origin: Origin, *, new_classes: bool) -> None:
    """Raise InputError if the source has other options, features or class names than the dataset."""
    root, manifest = origin.root, origin.manifest
    builds = [build.options for build in made_of(manifest).builds() if build.source == options["source"]]
    names = sorted({*options} - _MAY_DIFFER)
    differing = [[name for name in names if build.get(name) != options[name]] for build in builds]
    if builds and all(differing):
        name = differing[0][0]
        before, now = builds[0].get(name), options[name]
        raise InputError("append-options-differ", root=root, name=name, get=before, options=now)
    schema = listing.schema
    if new_classes:
        schema = replace(schema, class_names=schema.class_names[: len(manifest.schema.class_names)])
    check_same_schema(manifest.schema, str(root), schema, "the source")


@dataclass(frozen=True, eq=False)
class _Match:
    """Which inputs of a source are the examples of a dataset.

    Attributes:
        listing: all inputs of the source.
        origin: the dataset.
        numbers: number in the source of each example of the dataset, or -1.
    """

    listing: Listing
    origin: Origin
    numbers: IntArray

    @cached_property
    def labels(self) -> IntArray | None:
        """The label of each example of the dataset; None if one of both has no labels."""
        has_labels = self.listing.labels is not None
        return labels_of(self.origin, self.origin.manifest.shards) if has_labels else None

    @cached_property
    def changed(self) -> IntArray:
        """The inputs that have another class or split than their examples.

        In a relabeled dataset, another class is not a change of the input.
        """
        listing, manifest = self.listing, self.origin.manifest
        held = np.flatnonzero(self.numbers >= 0)
        now = self.numbers[held]
        differ = np.zeros(len(held), np.bool_)
        if self.labels is not None and listing.labels is not None and not made_of(manifest).has("relabeled"):
            differ |= self.labels[held] != listing.labels[now]
        if listing.splits:
            sizes = [split.num_examples for split in manifest.splits.values()]
            splits = np.empty(listing.num_examples, object)
            for name, members in listing.splits.items():
                splits[members] = name
            differ |= np.repeat(np.array([*manifest.splits], object), sizes)[held] != splits[now]
        return np.sort(now[differ])

    @cached_property
    def missing(self) -> IntArray:
        """The examples that the source lacks."""
        return np.flatnonzero(self.numbers < 0)

    def input_key(self, number: int) -> str:
        """Return the key of an input of the source."""
        return to_text(self.listing.keys[number])

    def example_key(self, number: int) -> str:
        """Return the key of an example of the dataset."""
        (key,) = keys_at(self.origin.root, self.origin.manifest.shards, np.array([number]))
        return to_text(key)

    def check_rows(self, reader: Reader) -> None:
        """Check that a source whose keys are row numbers begins with the rows of the dataset.

        A source of only new rows starts at number 0 as well, which only the content shows: from the rows, the
        digest of the examples of each shard is computed, and compared with the one in the manifest.
        """
        listing, root = self.listing, self.origin.root
        if len(self.missing):
            raise InputError(
                f"the source has no row {self.example_key(self.missing[0])}, unlike {root}: rows are "
                "identified by their numbers || give the rows of the dataset, followed by the new ones"
            )
        if len(self.changed):
            raise InputError("append-row-differs", row=self.input_key(self.changed[0]), root=root)
        if self.labels is not None and listing.labels is not None:
            # of a relabeled dataset, contents are compared with the labels that the examples have
            now = listing.labels.copy()
            now[self.numbers] = self.labels
            listing = replace(listing, labels=now)
        source, start = EncodedInputs(reader, listing.schema, "none"), 0
        with Meter("comparing rows", int(listing.sizes[self.numbers].sum())) as meter:
            for shard in self.origin.manifest.shards:
                rows = self.numbers[start : start + shard.num_examples]
                start += shard.num_examples
                pieces = source.pieces(inputs_plan(listing.columns(rows)))
                if (different := _different_row(shard, pieces, self.origin)) is not None:
                    raise InputError("append-row-differs", row=different, root=root)
                meter.add(int(listing.sizes[rows].sum()))

    def report(self, removed: IntArray) -> None:
        """Report inputs that were removed from the dataset, have changed, or are not in the source."""
        root = self.origin.root
        if len(removed):
            inputs, one = counted(len(removed), "input"), self.input_key(removed[0])
            report_line(f"leaving out {inputs} removed from {root}, such as {one!r}")
        if len(self.changed):
            inputs, one = counted(len(self.changed), "input"), self.input_key(self.changed[0])
            report_warning(
                f"{inputs} with another class or split than in {root}, such as {one!r}; "
                "the dataset keeps its own: tfshards relabel changes classes, a build with --overwrite all"
            )
        if len(self.missing):
            inputs, one = counted(len(self.missing), "known input"), self.example_key(self.missing[0])
            report_line(
                f"{inputs} not in the source, such as {one!r}: kept in the dataset, and left out by "
                "a build with --overwrite; a renamed input is a new one"
            )


def _different_row(shard: Shard, pieces: Iterable[Piece], origin: Origin) -> str | None:
    """Return the key of the first row of a shard, given as pieces, that differs from its record, or None."""
    keys: list[bytes] = []
    lengths: list[int] = []
    footers: list[bytes] = []
    for piece in pieces:
        if piece.rejected:
            return piece.rejected[0].key
        keys += piece.keys
        lengths += piece.frames.lengths
        footers.append(piece.frames.footers)
    found, checksums = np.array(lengths, np.int64), np.frombuffer(b"".join(footers), "<u4")
    if examples_digest(found - FRAME_OVERHEAD, checksums) == shard.examples_digest:
        return None
    path, index = origin.root / shard.path, origin.index(shard)
    held = read_footers(path, origin.manifest.compression, index, np.arange(shard.num_examples))
    differs = (found != index.lengths) | (checksums != held)
    return to_text(keys[int(differs.argmax())])


def _rejected_again(listing: Listing, reader: Reader, origin: Origin) -> tuple[list[Reject], list[int]]:
    """Return the rejects of a dataset that stay, since the source lacks them or they would be rejected again.

    Returns also the numbers of those in the source.
    """
    rejects = {reject: listing.find(reject.key) for reject in origin.rejects()}
    originals = (listing.find(of) for reject in rejects if (of := original_of(reject)) is not None)
    read = sorted({number for number in (*rejects.values(), *originals) if number is not None})
    source = EncodedInputs(reader, listing.schema, "none", finds_duplicates=True)
    # what is rejected, and the digests of the contents of the others
    found: dict[str, Reject | str] = {}
    for piece in source.pieces(inputs_plan(listing.columns(np.array(read, np.int64)))):
        found |= {reject.key: reject for reject in piece.rejected}
        found |= zip(map(to_text, piece.keys), piece.contents, strict=True)

    def stays(reject: Reject) -> bool:
        if reject.key not in found:
            return True
        of = original_of(reject)
        return found[reject.key] == (reject if of is None else found.get(of))

    kept = [reject for reject in rejects if stays(reject)]
    return kept, [number for reject in kept if (number := rejects[reject]) is not None]


def build_by_ratio(manifest: Manifest) -> Made | None:
    """Return how the first build of a dataset that divided its examples by ratio was made, or None."""
    return next((build for build in made_of(manifest).builds() if build.ratios), None)


def _membership(new: Listing, numbers: IntArray, origin: Origin) -> Membership:
    """Return the splits of new inputs; ``numbers`` are those that they have in the source."""
    splits, cuts, build = origin.manifest.splits, origin.manifest.split_cuts, build_by_ratio(origin.manifest)
    if new.splits:
        unknown = [name for name in new.splits if name not in splits]
        if unknown and len(numbers):
            raise InputError("split-not-in-dataset", unknown=unknown[0], root=origin.root, splits=splits)
        members = {name: np.flatnonzero(np.isin(numbers, held)) for name, held in new.splits.items()}
    elif cuts and build:
        ratios = {name: Fraction(ratio) for name, ratio in build.ratios.items()}
        return split_by_cuts(new.keys, cuts, ratios, strata=new.labels, groups=new.groups)
    elif len(splits) > 1 and len(numbers):
        raise InputError("splits-undetermined", root=origin.root, splits=splits)
    else:
        members = {next(iter(splits)): np.arange(len(numbers))}
    return Membership({name: found for name, found in members.items() if len(found)}, cuts)


def _report_classes(new: Listing, origin: Origin) -> None:
    """Report new classes, for which a model may have no output, and refuse inputs without a class."""
    if new.labels is None:
        return
    names, splits = new.schema.class_names, origin.manifest.splits
    for split, numbers in (new.splits or {}).items():
        without = numbers[new.labels[numbers] < 0]
        if names and len(without) and splits[split].label_counts:
            key = to_text(new.keys[without[0]])
            raise InputError("append-without-class", split=split, root=origin.root, keys=key)
    held = {name for split in splits.values() for name, count in split.label_counts.items() if count}
    labels = [label for label in np.unique(new.labels).tolist() if label >= 0]
    added = [name for name in (names[label] if names else str(label) for label in labels) if name not in held]
    if held and added:
        report_line(f"new classes: {quoted(added)}")
