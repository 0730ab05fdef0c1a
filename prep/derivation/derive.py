"""Derive a dataset from the records of others: the common part of ``reshard`` and ``merge``."""

from __future__ import annotations

import hashlib
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias, get_args

from tfshards.prep.building.commit import commit, complete, identified, unless_committed
from tfshards.prep.building.decisions import Wanted, is_up_to_date, up_to_date
from tfshards.prep.building.output import claimed, dataset_name, discard_others, output_folder, read_damage
from tfshards.prep.derivation.origin import SEE_VERIFY, Origin
from tfshards.prep.engines.table import Work, run_on_threads
from tfshards.prep.planning.options import Balance, Options, ShardCounts, check_shard_size
from tfshards.prep.progress.lines import Log, Progress, Reporter
from tfshards.prep.verification.checks import shard_problems
from tfshards.prep.writing.area import BuildArea
from tfshards.prep.writing.shard_names import shard_name
from tfshards.schemas import BuildError, Manifest, Schema, Shard, Split
from tfshards.schemas.digests import digest_together
from tfshards.schemas.errors import counted
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import Compression
from tfshards.schemas.option import check_choices, option
from tfshards.schemas.sizes import parse_size
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True)
class ShardOptions:
    """Options of new shards, except their number; None keeps those of the origins.

    Attributes:
        shard_size: bytes of records per shard, for splits whose number of shards is not given.
        balance: ``count`` (the default of new shards) for shards that differ by at most one example,
            ``bytes`` for shards of similar bytes of records, packed longest first.
        compression: compression of the new shards.
        name: name of the new dataset; by default the last part of its path.

    Raises:
        OptionsError: an option is not allowed.
    """

    shard_size: int | None = option(
        None,
        "choose the number of shards by bytes per shard, such as 128MiB",
        metavar="SIZE",
        parse=partial(parse_size, name="shard_size"),
    )
    balance: Balance | None = option(
        None,
        "balance shards by number of examples (default) or by bytes",
        choices=get_args(Balance),
    )
    compression: Compression | None = option(
        None, "compression of the new shards", choices=get_args(Compression), default_text="as before"
    )
    name: str | None = option(None, "name of the new dataset", default_text="the last part of DATASET")

    def __post_init__(self) -> None:
        check_shard_size(self.shard_size)
        check_choices(self)

    @property
    def keeps_shards(self) -> bool:
        """Whether any existing shards satisfy these options."""
        return self.shard_size is None and self.balance is None and self.compression is None

    def num_shards(self, splits: Mapping[str, Split], counts: ShardCounts) -> dict[str, int]:
        """Return the number of new shards of each split.

        Args:
            splits: splits by name, each with the shards of all origins.
            counts: the requested numbers of shards.

        Raises:
            InputError: a split does not exist, or has fewer examples than shards.
        """
        by_size = {
            name: math.ceil(split.record_bytes / self.shard_size) if self.shard_size else len(split.shards)
            for name, split in splits.items()
        }
        num_examples = {name: split.num_examples for name, split in splits.items()}
        return counts.of_splits(num_examples, by_size, self.shard_size)

    def to_json(self, num_shards: Mapping[str, int], compression: Compression) -> dict[str, Json]:
        """Return the options of new shards for the manifest, given their number in each split."""
        # another release of zlib may write different bytes
        zlib_release: dict[str, Json] = {"gzip": zlib.ZLIB_RUNTIME_VERSION}
        options: dict[str, Json] = {"shards": dict(num_shards), "balance": self.balance or "count"}
        return options if compression == "none" else {**options, "compression": zlib_release}


class _Link(NamedTuple):
    """A shard of an origin, and the same shard under its path in the new dataset."""

    split: str
    origin: Origin
    old: Shard
    new: Shard


def link_shards(
    area: BuildArea, name: str, origins: Sequence[Origin], log: Log
) -> dict[str, tuple[Shard, ...]]:
    """Link all shards, with their indexes and labels, or copy them if the file system has no hard links.

    The linked files are verified against their digests.

    Args:
        area: build area of the new dataset.
        name: name of the new dataset.
        origins: datasets whose shards are linked, in order.
        log: receives a status line.

    Returns:
        The shards of each split of the new dataset.

    Raises:
        BuildError: a shard differs from its manifest, or the output cannot be written.
    """
    links = _links(area, name, origins)
    area.open()
    num_examples = sum(link.new.num_examples for link in links)
    what = f"{counted(num_examples, 'example')}, {counted(len(links), 'shard')}, linked unchanged"
    log(f"starting merge: {what}")
    progress = Progress(name, num_examples)
    make = partial(_make, area, progress.reporter)
    run_on_threads(Work(make, links, progress, area.stop, area=area))
    splits = dict.fromkeys(link.split for link in links)
    return {split: tuple(link.new for link in links if link.split == split) for split in splits}


def _links(area: BuildArea, name: str, origins: Sequence[Origin]) -> list[_Link]:
    """Return the links, split by split."""
    splits = dict.fromkeys(split for origin in origins for split in origin.manifest.splits)
    links = []
    for split in splits:
        held = [
            (origin, shard)
            for origin in origins
            if split in origin.manifest.splits
            for shard in origin.manifest.splits[split].shards
        ]
        for index, (origin, shard) in enumerate(held):
            path = shard_name(name, split, index, len(held), build_id=area.plan_id)
            links.append(_Link(split, origin, shard, replace(shard, path=path)))
    return links


def _make(area: BuildArea, reporter: Reporter, link: _Link) -> None:
    try:
        area.link_shard(link.origin.root, link.old, link.new)
    except OSError as error:
        raise BuildError("file-fault", filename=error.filename or area.out, why=error.strerror) from None
    problems = shard_problems(area.shards, link.new)
    if problems:
        # the fault is in the origin, so the message has the path there
        fault = str(problems[0]).replace(link.new.path, link.old.path)
        raise BuildError("origin-damaged", root=link.origin.root, fault=fault, see_verify=SEE_VERIFY)
    reporter.report(link.new.num_examples, link.new.num_bytes)


# Writes the shards to the output of the area and returns the shards of each split.
Write: TypeAlias = Callable[[BuildArea], Mapping[str, tuple[Shard, ...]]]


def new_dataset(
    dataset: str | os.PathLike[str], name: str | None, origins: Sequence[Origin]
) -> tuple[AnyPath, str]:
    """Return the folder and the name of a derived dataset.

    Raises:
        OptionsError: the folder is an origin or is inside one, or its name is invalid for a dataset.
    """
    folder = output_folder(dataset, *(origin.root for origin in origins))
    return folder, dataset_name(folder, Options(name=name))


def digest_of_origins(origins: Sequence[Origin]) -> str:
    """Return the digest of the datasets that a dataset is derived from."""
    texts = "".join(origin.manifest.to_text() for origin in origins)
    return f"sha256:{hashlib.sha256(texts.encode('ascii')).hexdigest()}"


def derive(
    outline: Manifest,
    origins: Sequence[Origin],
    folder: AnyPath,
    write: Write,
    *,
    overwrite: bool,
    log: Log,
    has_new_keys: bool = False,
) -> Manifest:
    """Write and commit a dataset and return its manifest.

    Args:
        outline: manifest of the dataset without a build id, with splits that have no shards yet.
        origins: datasets whose examples it holds.
        folder: folder of the dataset.
        write: function that writes the shards.
        overwrite: replace another dataset, which stays readable until this one is committed.
        log: receives status lines.
        has_new_keys: whether the records have other keys than those of the origins, so that only their number
            is verified.

    Raises:
        InputError: another process writes to the folder, or it holds another dataset and ``overwrite`` is
            False.
        BuildError: the shards do not hold the examples of the origins; nothing is committed.
    """
    wanted = Wanted(outline.name, outline.schema, outline.options, outline.inputs_digest)
    area = BuildArea(folder, wanted.plan_id, outline.options)
    with claimed(folder) as state:
        if overwrite:
            state = read_damage(state, wanted, log)
        found = is_up_to_date(state, wanted, overwrite=overwrite)
        discard_others(state, wanted.plan_id, outline.options, log)
        if found:
            assert state.manifest is not None
            complete(state.manifest, folder, log)
            log(up_to_date(folder, is_compared=overwrite))
            return state.manifest

        def write_and_commit() -> Manifest:
            rejects = [reject for origin in origins for reject in origin.rejects()]
            shards = write(area)
            splits = {name: Split(shards[name], split.label_counts) for name, split in outline.splits.items()}
            manifest = identified(replace(outline, splits=splits))
            verify_examples(manifest, [origin.manifest for origin in origins], has_new_keys=has_new_keys)
            return commit(manifest, rejects, None, area, state, log)

        return unless_committed(write_and_commit, state, area, wanted, log)


def join_splits(parts: Sequence[Split], schema: Schema) -> Split:
    """Return one split with the shards of all parts, in order. It counts labels if every part does."""
    counts = sum((Counter(part.label_counts) for part in parts), Counter[str]())
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts[name] for name in names} if is_counted and counts else {})


def verify_examples(made: Manifest, of: Sequence[Manifest], *, has_new_keys: bool = False) -> None:
    """Raise BuildError unless each split holds exactly the examples that it has in the datasets ``of``.

    With new keys, the digests of the records differ, so that only the number of examples is compared.
    """
    for name, split in made.splits.items():
        parts = [manifest.splits[name] for manifest in of if name in manifest.splits]
        expected = sum(part.num_examples for part in parts), digest_together(p.examples_digest for p in parts)
        is_same = has_new_keys or split.examples_digest == expected[1]
        if split.num_examples != expected[0] or not is_same:
            raise BuildError(
                "copies-differ",
                name=name,
                num_examples=split.num_examples,
                examples_digest=split.examples_digest,
                expected=expected[0],
                expected2=expected[1],
            )
