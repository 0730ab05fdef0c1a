"""Merge several datasets into one, split by split, or each as one split."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfshards.prep.building.commit import rejects_text
from tfshards.prep.derivation.derive import (
    ShardOptions,
    derive,
    digest_of_origins,
    join_splits,
    link_shards,
    new_dataset,
)
from tfshards.prep.derivation.keys import check_keys_differ, has_keys
from tfshards.prep.derivation.layout import RewritePlan
from tfshards.prep.derivation.origin import Origin, class_difference, feature_difference, open_origin
from tfshards.prep.derivation.rewrite import rewrite_shards
from tfshards.prep.planning.options import ShardCounts, Shards, size_warnings
from tfshards.prep.progress.lines import Log, as_warning, to_stderr
from tfshards.prep.records.example import with_key_prefix
from tfshards.prep.records.frames import FrameReader, RecordError, frame
from tfshards.prep.writing.area import BuildArea, Reject
from tfshards.schemas import InputError, Manifest, OptionsError, Shard, Split, Totals
from tfshards.schemas.files import bytes_digest
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES, RecordIndex
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import Compression
from tfshards.schemas.names import name_fault
from tfshards.schemas.option import check_path, check_strings
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True)
class SplitOrigin(Origin):
    """A committed dataset as one split of a new one.

    Attributes:
        manifest: manifest of the dataset, in which its split has the new name.
        split: the new name; each key of the new dataset is this name, ``/`` and the key of the example.
    """

    split: str

    def frames(self, shard: Shard) -> FrameReader:
        """Return a reader of single frames of a shard, with the new keys."""
        if not has_keys(self):
            return super().frames(shard)
        path, compression = self.root / shard.path, self.manifest.compression
        return _PrefixedReader(path, compression, self.index(shard), f"{self.split}/".encode())

    def rejects(self) -> list[Reject]:
        """Return the rejected inputs, with the new keys."""
        return [reject._replace(key=f"{self.split}/{reject.key}") for reject in super().rejects()]

    def to_json(self) -> dict[str, Json]:
        """Return what the manifest of the new dataset records about this one."""
        return {**super().to_json(), "split": self.split}


def open_split_origin(root: str | os.PathLike[str], split: str) -> SplitOrigin:
    """Return the dataset in ``root``, which has one split, as the split of this name.

    Raises:
        OptionsError: the name is not allowed for a split.
        InputError: the dataset has several splits, or see ``open_origin``.
    """
    fault = name_fault(split)
    if fault:
        raise OptionsError("split-name", fault=fault)
    origin = open_origin(root)
    splits = origin.manifest.splits
    if len(splits) > 1:
        raise InputError("as-splits-several", root=root, splits=splits, split=split)
    manifest: Manifest = replace(origin.manifest, splits={split: next(iter(splits.values()))})
    return SplitOrigin(origin.root, manifest, split)


class _PrefixedReader(FrameReader):
    """Read frames with a prefix before the key of each record."""

    def __init__(self, path: AnyPath, compression: Compression, index: RecordIndex, prefix: bytes) -> None:
        super().__init__(path, compression, index)
        self._shard, self._prefix, self._starts = path, prefix, index.offsets

    def read(self, record: int) -> tuple[bytes, bytes]:
        """Return the new frame of a record, and its last 4 bytes."""
        found, _ = super().read(record)
        try:
            parts = frame(with_key_prefix(found[HEADER_BYTES:-FOOTER_BYTES], self._prefix))
        except ValueError as error:
            raise RecordError(self._shard, record, int(self._starts[record]), str(error)) from None
        return b"".join(parts), parts[-1]


def merge(
    sources: Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    log: Log = to_stderr,
) -> Manifest:
    """Merge the datasets ``sources`` into a new one in the folder ``dataset`` and return its manifest.

    Each split holds the examples of the splits of the same name, which is verified by digest. A key may be in
    only one of the datasets. Without ``shards`` and options of shards, the existing shards are linked under
    new names, or copied if the file system has no hard links; their sizes may differ. Otherwise new shards
    are written, each of which mixes the datasets.

    If ``sources`` is a dict, each dataset becomes the split of that name. All records are written into new
    shards, since the key of each example becomes ``SPLIT/KEY``, so that keys stay unique.

    Args:
        sources: folders of two or more datasets with the same features and class names; or a dict of them by
            the name of the split that each becomes, such as ``{"train": "data/a", "test": "data/b"}``, where
            each dataset has one split.
        dataset: folder of the new dataset; created if it is missing.
        shards: number of new shards of each split, or a dict by split.
        overwrite: replace another dataset in ``dataset``.
        options: size, balance and compression of new shards, and the name of the new dataset.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the datasets are incompatible, a split has fewer examples than shards, or ``dataset``
            already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    options = options or ShardOptions()
    asked = ShardCounts.of(shards)
    asked.check_shard_size(options.shard_size)
    as_splits = [*sources] if isinstance(sources, Mapping) else []
    check_strings("sources", as_splits)
    _check_sources([*sources.values()] if isinstance(sources, Mapping) else sources)
    origins: list[Origin]
    if isinstance(sources, Mapping):
        origins = [open_split_origin(root, split) for split, root in sources.items()]
    else:
        origins = [open_origin(root) for root in sources]
    folder, name = new_dataset(dataset, options.name, origins)
    for other in origins[1:]:
        _check_same(origins[0], other)
    splits = _splits(origins)
    has_new_keys = bool(as_splits) and has_keys(origins[0])
    is_linked = options.keeps_shards and asked == ShardCounts() and not has_new_keys
    if is_linked:
        _check_compression(origins)
    num_shards = {} if is_linked else options.num_shards(splits, asked)
    num_examples = {split: held.num_examples for split, held in splits.items()}
    for warning in size_warnings(asked, num_shards, num_examples, options.shard_size):
        log(as_warning(warning))
    compression = options.compression or origins[0].manifest.compression
    recorded: dict[str, Json] = {"source": "merge", "of": [origin.to_json() for origin in origins]}
    if as_splits:
        recorded["as_splits"] = [*as_splits]
    if not is_linked:
        recorded |= options.to_json(num_shards, compression)
    outline = replace(_outline(origins, name, splits, recorded), compression=compression)

    def write(area: BuildArea) -> Mapping[str, tuple[Shard, ...]]:
        if has_keys(origins[0]):
            # with the splits before them, keys of different datasets differ
            if not has_new_keys:
                check_keys_differ(origins)
        else:
            log(as_warning("the examples have no keys, so repeated examples cannot be found"))
        if is_linked:
            return link_shards(area, name, origins, log)
        balance = options.balance or "count"
        return rewrite_shards(RewritePlan(area, name, origins, num_shards, balance, compression), log)

    return derive(outline, origins, folder, write, overwrite=overwrite, log=log, has_new_keys=has_new_keys)


def _check_sources(sources: Sequence[str | os.PathLike[str]]) -> None:
    if isinstance(sources, (str, bytes)) or len(sources) < 2:
        given = "one was" if isinstance(sources, (str, bytes)) or len(sources) == 1 else "none were"
        raise OptionsError("merge-too-few", given=given)
    for root in sources:
        check_path("sources", root)
    real = [os.path.realpath(root) for root in sources]
    twice = next((root for root, path in zip(sources, real, strict=True) if real.count(path) > 1), None)
    if twice is not None:
        raise OptionsError("merge-repeated", twice=os.fspath(twice))


def _check_same(first: Origin, other: Origin) -> None:
    """Raise InputError unless the two datasets have the same features and classes."""
    both = first.manifest.schema, str(first.root), other.manifest.schema, str(other.root)
    difference = feature_difference(*both)
    if difference:
        raise InputError("merge-features-differ", difference=difference)
    difference = class_difference(*both)
    if difference:
        raise InputError("merge-classes-differ", difference=difference, root=other.root, root2=first.root)


def _check_compression(origins: Sequence[Origin]) -> None:
    """Raise InputError unless all datasets have the same compression."""
    first = origins[0]
    for other in origins[1:]:
        if other.manifest.compression != first.manifest.compression:
            raise InputError(
                "merge-compressions-differ",
                root=first.root,
                compression=first.manifest.compression,
                root2=other.root,
                compression2=other.manifest.compression,
            )


def _outline(
    origins: Sequence[Origin], name: str, splits: Mapping[str, Split], options: Mapping[str, Json]
) -> Manifest:
    """Return the manifest of the new dataset, without shards."""
    manifests = [origin.manifest for origin in origins]
    rejects = [reject for origin in origins for reject in origin.rejects()]
    # different cuts do not determine the split of a key, nor do cuts of a single split
    cuts = {} if "as_splits" in options else manifests[0].split_cuts
    return Manifest(
        name=name,
        build_id="",
        schema=manifests[0].schema,
        splits={split: replace(held, shards=()) for split, held in splits.items()},
        totals=_totals([manifest.totals for manifest in manifests]),
        options=options,
        split_cuts=cuts if all(manifest.split_cuts == cuts for manifest in manifests) else {},
        rejects_digest=bytes_digest(rejects_text(rejects)) if rejects else "",
        inputs_digest=digest_of_origins(origins),
    )


def _splits(origins: Sequence[Origin]) -> dict[str, Split]:
    """Return all splits, each with its shards in all datasets."""
    found: dict[str, Split] = {}
    names = dict.fromkeys(name for origin in origins for name in origin.manifest.splits)
    for name in names:
        parts = [origin.manifest.splits[name] for origin in origins if name in origin.manifest.splits]
        found[name] = join_splits(parts, origins[0].manifest.schema)
    return found


def _totals(parts: Sequence[Totals]) -> Totals:
    """Return the sums of the totals of all datasets."""

    def together(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
        return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))

    reasons = {
        outcome: together([part.reasons.get(outcome, {}) for part in parts])
        for outcome in ("rejected", "skipped")
    }
    return Totals(
        entries=sum(part.entries for part in parts),
        accepted=sum(part.accepted for part in parts),
        rejected=sum(part.rejected for part in parts),
        skipped=sum(part.skipped for part in parts),
        reasons=reasons,
        conversions=together([part.conversions for part in parts]),
    )
