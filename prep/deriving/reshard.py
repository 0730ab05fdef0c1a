"""Write all examples of a dataset, or of several, to new shards: reshard, merge."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from tfshards.prep.building.commit import produce
from tfshards.prep.building.output import claimed, dataset_name, output_folder
from tfshards.prep.deriving.derive import Derived, commit_next
from tfshards.prep.deriving.layout import OldShard, in_new_shards, whole
from tfshards.prep.deriving.stored import Origin, open_origin
from tfshards.prep.engines.work import Work, find_run
from tfshards.prep.option import check_choices
from tfshards.prep.planning.options import Options, ShardCounts, Shards, parse_shard_size
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import InputError, Manifest, OptionsError, Schema, Split, Totals
from tfshards.schemas.compression import Compression, recorded_release
from tfshards.schemas.digests import bytes_digest
from tfshards.schemas.errors import check_flags, check_path, check_strings
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import each_shard, hash_array, hash_key
from tfshards.schemas.names import name_fault
from tfshards.schemas.storage import any_path


@dataclass(frozen=True)
class ShardOptions:
    """Options of new shards, except their number.

    Attributes:
        shard_size: bytes of records per shard, such as "256MiB", for splits whose number of shards is not
            given.
        compression: compression of the new shards; by default as before.
        name: name of the new dataset; by default the last part of its path.

    Raises:
        OptionsError: an option is not allowed.
    """

    shard_size: str | int | None = None
    compression: Compression | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        parse_shard_size(self.shard_size)
        check_choices(self)

    @property
    def shard_bytes(self) -> int | None:
        """Bytes of records per shard; None if their number stays as it is."""
        return parse_shard_size(self.shard_size)


def reshard(
    source: str | os.PathLike[str],
    dataset: str | os.PathLike[str],
    *,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    beam_args: Sequence[str] = (),
) -> Manifest:
    """Write the examples of a dataset to other shards, in a new folder or in place.

    Records are copied without being parsed, decoded or encoded. Each split keeps its examples, which is
    verified by digest. An interrupted call resumes when it is repeated.

    With ``overwrite``, ``dataset`` may be ``source`` itself. As in a build, the dataset is the old one until
    the new one is committed, and the old shards stay until ``prune``. Shards that are already as asked for
    are not written again.

    Args:
        source: folder of a dataset.
        dataset: folder of the new dataset, whose last part is its default name; created if it is missing.
            With "overwrite" it may be the source.
        shards: number of shards of every split, or of single splits by name, such as 64 or val=8; by default
            as many as before.
        overwrite: replace another dataset in ``dataset``.
        options: size and compression of the new shards, and the name of the new dataset.
        beam_args: Apache Beam's pipeline options, as for ``build``.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: ``source`` is not a dataset or is damaged, a split has fewer examples than shards, or
            ``dataset`` already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    check_flags(overwrite=overwrite)
    run = find_run(beam_args)
    options = options or ShardOptions()
    counts = ShardCounts.of(shards, options.shard_size)
    root, folder = open_origin(source).root, any_path(dataset)
    is_next = root.real_name() == folder.real_name()
    if is_next and not overwrite:
        raise OptionsError(f"the output {folder} is the input; give another folder, or overwrite=True")

    def derive(origin: Origin) -> Derived:
        name = options.name or (origin.manifest.name if is_next else None)
        made: dict[str, Json] = {"source": "reshard", "origin": origin.to_json()}
        new = _derived([origin], dataset_name(folder, Options(name=name)), made, run, options, counts)
        return replace(new, is_next=is_next)

    def derive_next(origin: Origin) -> Derived | None:
        new = derive(origin)
        # of a dataset that is already the result of this call in place
        made, asked = ({**each.options, "origin": None} for each in (origin.manifest, new.outline))
        return None if origin.manifest.name == new.outline.name and made == asked else new

    if is_next:
        return commit_next(folder, derive_next)
    folder = output_folder(dataset, root)
    new = derive(open_origin(root))
    with claimed(folder) as state:
        return produce(new, state, overwrite=overwrite)


def merge(
    sources: Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]],
    dataset: str | os.PathLike[str],
    *,
    as_splits: bool = False,
    shards: Shards = None,
    overwrite: bool = False,
    options: ShardOptions | None = None,
    beam_args: Sequence[str] = (),
) -> Manifest:
    """Merge several datasets into one, split by split.

    Each split holds the examples of the splits of the same name, or, if ``sources`` is a dict, those of one
    dataset; this is verified by digest. A key may be in only one of the datasets. All records are written
    into new shards, each of which mixes the datasets.

    Args:
        sources: folders of two or more datasets with the same features and class names; or, where each
            dataset has one split and becomes the split of a name, SPLIT=FOLDER of each with "as_splits", such
            as train=data/a test=data/b, or in Python a dict of them.
        dataset: folder of the new dataset, whose last part is its default name; created if it is missing.
        as_splits: the sources are SPLIT=FOLDER.
        shards: number of new shards of every split, or of single splits by name, such as 64 or val=8; by
            default as many as the datasets have together.
        overwrite: replace another dataset in ``dataset``.
        options: size and compression of the shards, by default the compression of the first dataset, and the
            name of the new dataset.
        beam_args: Apache Beam's pipeline options, as for ``build``.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the datasets are incompatible, a split has fewer examples than shards, or ``dataset``
            already holds other files.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    check_flags(as_splits=as_splits, overwrite=overwrite)
    run = find_run(beam_args)
    options = options or ShardOptions()
    counts = ShardCounts.of(shards, options.shard_size)
    sources = _by_split(sources) if as_splits else sources
    names = [*sources] if isinstance(sources, Mapping) else []
    check_strings("sources", names)
    if fault := next(filter(None, map(name_fault, names)), None):
        raise OptionsError(f"the split name {fault}")
    roots = [*sources.values()] if isinstance(sources, Mapping) else sources
    _check_sources(roots)
    origins = [open_origin(root) for root in roots]
    if names:
        origins = [_as_split(origin, name) for origin, name in zip(origins, names, strict=True)]
    folder = output_folder(dataset, *(origin.root for origin in origins))
    first, *others = origins
    for other in others:
        check_same_schema(first.manifest.schema, str(first.root), other.manifest.schema, str(other.root))
    if first.manifest.schema.key is None:
        report_warning("the examples have no keys, so repeated examples cannot be found")
    else:
        check_keys_differ(origins)
    made: dict[str, Json] = {"source": "merge", "of": [origin.to_json() for origin in origins]}
    made |= {"as_splits": [*names]} if names else {}
    new = _derived(origins, dataset_name(folder, Options(name=options.name)), made, run, options, counts)
    with claimed(folder) as state:
        return produce(new, state, overwrite=overwrite)


def _by_split(sources: object) -> dict[str, str]:
    """Return the folder of each split in texts such as ``train=data/a``."""
    folders: dict[str, str] = {}
    for source in sources if isinstance(sources, (list, tuple)) else ():
        split, equals, folder = str(source).partition("=")
        if not equals or not folder or split in folders:
            raise OptionsError(f"as_splits=True: {source!r} must be SPLIT=FOLDER, with each split given once")
        folders[split] = folder
    return folders


def _check_sources(sources: Sequence[str | os.PathLike[str]]) -> None:
    if isinstance(sources, (str, bytes)) or len(sources) < 2:
        raise OptionsError("merge needs two or more datasets in sources=")
    for root in sources:
        check_path("sources", root)
    real = [os.path.realpath(root) for root in sources]
    twice = next((root for root, path in zip(sources, real, strict=True) if real.count(path) > 1), None)
    if twice is not None:
        raise OptionsError(f"sources= contains {twice} twice; give each dataset once")


def _as_split(origin: Origin, name: str) -> Origin:
    """Return a dataset of one split, with another name of that split."""
    splits = origin.manifest.splits
    if len(splits) > 1:
        raise InputError(f"{origin.root} must have one split to become {name!r}, but has {', '.join(splits)}")
    return replace(origin, manifest=replace(origin.manifest, splits={name: next(iter(splits.values()))}))


def check_keys_differ(origins: Sequence[Origin]) -> None:
    """Check that no key is in two of the datasets, among examples and rejected inputs."""
    hashes = [
        np.concatenate([hash_array(map(hash_key, keys)) for keys in _keys(origin)]) for origin in origins
    ]
    # S compares as V, since all hashes have the same length, and can be sorted
    together = np.concatenate(hashes).view("S16")
    _, firsts, counts = np.unique(together, return_index=True, return_counts=True)
    if (counts == 1).all():
        return
    same = np.flatnonzero(together == together[firsts[counts > 1].min()])
    starts = np.cumsum([0, *map(len, hashes)])
    one, other = np.searchsorted(starts, same[:2], side="right") - 1
    key = next(islice(chain.from_iterable(_keys(origins[one])), int(same[0] - starts[one]), None))
    raise InputError(
        f"the key {to_text(key)!r} is in {origins[one].root} and in {origins[other].root}; remove "
        "it from one of them with 'tfshards remove'; rows without keys are identified by their numbers: "
        "build them together, as arrays such as x_train and x_test, or as a table with a column of splits"
    )


def _keys(origin: Origin) -> Iterator[list[bytes]]:
    """Yield the keys of each shard of a dataset, then those of its rejected inputs."""
    for _, keys in each_shard(origin.root, origin.manifest.shards):
        yield keys
    yield [to_bytes(reject.key) for reject in origin.rejects()]


def check_same_schema(one: Schema, one_name: str, other: Schema, other_name: str) -> None:
    """Raise InputError about the first feature or class in which two schemas differ, by their owners' names.

    The order of features does not matter, except where it determines which feature holds the class.
    """

    def parts_of(schema: Schema) -> dict[str, str]:
        features = {f"the feature {each.name!r}": f"({each.text})" for each in schema.features}
        classes = {f"class {label}": repr(name) for label, name in enumerate(schema.class_names)}
        return {**features, "the label": repr(schema.label and schema.label.name), **classes}

    first, second = parts_of(one), parts_of(other)
    for what in {**first, **second}:
        found = first.get(what, "missing"), second.get(what, "missing")
        if found[0] != found[1]:
            difference = f"{what} is {found[0]} in {one_name}, and {found[1]} in {other_name}"
            raise InputError(f"{difference}; build one with the features and class names of the other")


def joined(parts: Sequence[Manifest], schema: Schema) -> tuple[dict[str, Split], Totals]:
    """Return the splits of several datasets, with the shards of each in order, and the sums of their totals.

    A split counts labels if each of its parts does. The totals have what does not follow from the splits and
    the rejected inputs, see ``building.rejects.with_lists``.
    """
    names = dict.fromkeys(name for part in parts for name in part.splits)
    splits = {
        name: _joined_split([part.splits[name] for part in parts if name in part.splits], schema)
        for name in names
    }
    totals = [part.totals for part in parts]
    return splits, Totals(
        entries=0,
        accepted=0,
        skipped=sum(each.skipped for each in totals),
        reasons={"rejected": {}, "skipped": _sum(each.reasons.get("skipped", {}) for each in totals)},
        conversions=_sum(each.conversions for each in totals),
    )


def _joined_split(parts: Sequence[Split], schema: Schema) -> Split:
    counts = _sum(part.label_counts for part in parts)
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts.get(name, 0) for name in names} if is_counted and counts else {})


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))


def _derived(
    origins: Sequence[Origin],
    name: str,
    made: Mapping[str, Json],
    run: Callable[[Work], None],
    options: ShardOptions,
    counts: ShardCounts,
) -> Derived:
    """Return the dataset that holds all examples of the origins, in new shards with these options.

    ``made`` is what the manifest records of how it is made.
    """
    manifests = [origin.manifest for origin in origins]
    first, compression = manifests[0], options.compression or manifests[0].compression
    splits, totals = joined(manifests, first.schema)
    # different cuts do not determine the split of a key, nor do cuts of a single split
    has_cuts = "as_splits" not in made and all(each.split_cuts == first.split_cuts for each in manifests)
    shards_of = {split: _shards_of(origins, split) for split in splits}
    num_shards = _num_shards(shards_of, options.shard_bytes, counts)
    recorded: dict[str, Json] = {**made, "shards": dict(num_shards)}
    if compression != "none":
        recorded["compression"] = {**recorded_release(compression)}
    texts = "".join(each.to_text() for each in manifests)
    return Derived(
        outline=Manifest(
            name=name,
            build_id="",
            folder="",
            schema=first.schema,
            splits=splits,
            totals=totals,
            options=recorded,
            split_cuts=first.split_cuts if has_cuts else {},
            compression=compression,
            inputs_digest=bytes_digest(texts.encode("ascii")),
        ),
        origins=origins,
        splits={split: in_new_shards(whole(olds), num_shards[split]) for split, olds in shards_of.items()},
        run=run,
        locations=tuple(origin.root for origin in origins),
        rejects=[reject for origin in origins for reject in origin.rejects()],
        removed=frozenset[bytes]().union(*(origin.removed() for origin in origins)),
    )


def _shards_of(origins: Sequence[Origin], split: str) -> list[OldShard]:
    """Return the shards of a split of all origins."""
    held = [(index, origin.manifest.splits.get(split)) for index, origin in enumerate(origins)]
    return [OldShard(index, shard) for index, of in held if of for shard in of.shards]


def _num_shards(
    shards_of: Mapping[str, Sequence[OldShard]], least: int | None, counts: ShardCounts
) -> dict[str, int]:
    """Return the number of shards of each split, by default as many as there are, or by bytes per shard."""
    num_bytes = {name: sum(old.shard.record_bytes for old in olds) for name, olds in shards_of.items()}
    by_size = {
        name: math.ceil(num_bytes[name] / least) if least else len(olds) for name, olds in shards_of.items()
    }
    sizes = {name: sum(old.shard.num_examples for old in olds) for name, olds in shards_of.items()}
    return dict(counts.of_splits(sizes, by_size, least))
