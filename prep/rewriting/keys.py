"""Choose: the examples of datasets with their keys, read and searched, and the keys that were removed."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tfshards.prep.engines.table import Work, run_on_threads
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.progress.lines import Reporter, WorkProgress
from tfshards.prep.records.frames import RecordError, read_frames
from tfshards.prep.rewriting.origin import SEE_VERIFY, Origin
from tfshards.prep.sources.keys import hash_array, hash_key, to_bytes, to_text
from tfshards.schemas import BuildError, InputError, Manifest, Shard
from tfshards.schemas.example import decode_key
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES, IntArray
from tfshards.schemas.made import Made

# Records between two reports of progress.
_RECORDS = 1 << 10

# Returns bytes of fixed length, given the data of a record and its masked CRC-32C.
Pack = Callable[[bytes, int], bytes]


def read_shards(origin: Origin, label: str, pack: Pack) -> list[bytes]:
    """Read all records of a dataset and return the results of ``pack`` for each shard, joined in order."""
    found: dict[str, bytes] = {}
    progress = WorkProgress(label, origin.manifest.num_examples)
    stop = threading.Event()

    def read(shard: Shard) -> None:
        found[shard.path] = _read_shard(origin, shard, pack, progress.reporter, stop)

    run_on_threads(Work(read, origin.manifest.shards, progress, lambda _: stop.set()))
    return [found[shard.path] for shard in origin.manifest.shards]


def _read_shard(origin: Origin, shard: Shard, pack: Pack, reporter: Reporter, stop: threading.Event) -> bytes:
    packed: list[bytes] = []
    path = origin.root / shard.path
    unreported = num_bytes = 0
    try:
        for frame in read_frames(path, origin.manifest.compression):
            data = frame.require_data(path)
            try:
                packed.append(pack(data, frame.checksum))
            except ValueError as error:
                raise RecordError(path, frame.number, frame.offset, str(error)) from None
            unreported, num_bytes = unreported + 1, num_bytes + len(data)
            if unreported == _RECORDS:
                reporter.report(unreported, num_bytes)
                unreported = num_bytes = 0
                if stop.is_set():
                    return b""
    except RecordError as error:
        raise BuildError("shard-damaged", SEE_VERIFY, text=str(error)) from None
    reporter.report(unreported, num_bytes)
    if len(packed) != shard.num_examples:
        raise BuildError(
            "keys-miscounted", path=path, num_packed=len(packed), num_examples=shard.num_examples
        )
    return b"".join(packed)


# S compares as V, since all hashes have the same length, and can be searched
_DTYPE = np.dtype([("key", "S16"), ("length", "<u4"), ("checksum", "<u4")])
_PACKED = struct.Struct("<16sII")


@dataclass(frozen=True, eq=False)
class KnownExamples:
    """The examples of a dataset, numbered in the order of its shards.

    All arrays have the shape ``(num_examples,)``: the hash of each key, and the number of bytes and the
    masked CRC-32C of each record.
    """

    origin: Origin
    keys: npt.NDArray[np.bytes_]
    lengths: IntArray
    checksums: npt.NDArray[np.uint32]

    @cached_property
    def labels(self) -> IntArray | None:
        """The label of each example; None if the examples have no labels."""
        found = [self.origin.labels(shard) for shard in self.origin.manifest.shards]
        labels = [of_shard for of_shard in found if of_shard is not None]
        return np.concatenate(labels) if labels else None

    def find(self, keys: Iterable[bytes]) -> IntArray:
        """Return the number of the example that has each key, or -1."""
        wanted = hash_array(map(hash_key, keys)).view("S16")
        order = np.argsort(self.keys)
        at = np.minimum(np.searchsorted(self.keys, wanted, sorter=order), len(order) - 1)
        found = order[at].astype(np.int64)
        return np.where(self.keys[found] == wanted, found, -1)

    def key(self, number: int) -> str:
        """Return the key of an example as text."""
        return keys_at(self.origin, np.array([number]))[number]


def by_shard(origin: Origin, numbers: IntArray) -> Iterator[tuple[Shard, int, IntArray]]:
    """Yield each shard that holds some of these examples, its first example, and their records in it.

    The numbers are counted through all shards, and ascending.
    """
    shards = origin.manifest.shards
    ends = np.cumsum([shard.num_examples for shard in shards], dtype=np.int64)
    found, starts = np.unique(np.searchsorted(ends, numbers, side="right"), return_index=True)
    for index, some in zip(found.tolist(), np.split(numbers, starts[1:]), strict=False):
        first = int(ends[index]) - shards[index].num_examples
        yield shards[index], first, some - first


def keys_at(origin: Origin, numbers: IntArray) -> dict[int, str]:
    """Return the keys of examples by number, see ``by_shard``; only their records are read."""
    found = {}
    for shard, first, records in by_shard(origin, numbers):
        with closing(origin.frames(shard)) as frames:
            for record in records.tolist():
                data = frames.read(record)[0][HEADER_BYTES:-FOOTER_BYTES]
                found[first + record] = to_text(decode_key(data) or b"")
    return found


def read_known(origin: Origin) -> KnownExamples:
    """Read all records of a dataset."""

    def pack(data: bytes, checksum: int) -> bytes:
        key = decode_key(data)
        if key is None:
            raise ValueError("has no key")
        return _PACKED.pack(hash_key(key), len(data), checksum)

    found = np.frombuffer(b"".join(read_shards(origin, f"keys of {origin.manifest.name}", pack)), _DTYPE)
    keys, checksums = (np.ascontiguousarray(found[name]) for name in ("key", "checksum"))
    return KnownExamples(origin, keys, found["length"].astype(np.int64), checksums)


def numbers_of_splits(manifest: Manifest) -> dict[str, slice]:
    """Return the numbers of the examples of each split, counted through all shards."""
    ends = np.cumsum([split.num_examples for split in manifest.splits.values()]).tolist()
    return {
        name: slice(end - split.num_examples, end)
        for (name, split), end in zip(manifest.splits.items(), ends, strict=True)
    }


def check_keys_differ(origins: Sequence[Origin]) -> None:
    """Check that no key is in two of the datasets, among examples and rejected inputs."""
    known = [read_known(origin) for origin in origins]
    rejected = [[to_bytes(reject.key) for reject in origin.rejects()] for origin in origins]
    hashes = [
        np.concatenate([held.keys, hash_array(map(hash_key, others)).view("S16")])
        for held, others in zip(known, rejected, strict=True)
    ]
    together = np.concatenate(hashes)
    order = np.argsort(together, kind="stable")
    repeated = order[1:][together[order[1:]] == together[order[:-1]]]
    if not len(repeated):
        return
    one, other = np.flatnonzero(together == together[repeated.min()])[:2].tolist()
    ends = np.cumsum([*map(len, hashes)])
    first, second = np.searchsorted(ends, [one, other], side="right").tolist()
    number = one - int(ends[first]) + len(hashes[first])
    num_known = len(known[first].keys)
    key = known[first].key(number) if number < num_known else to_text(rejected[first][number - num_known])
    in_all = "" if len(repeated) == 1 else f" ({len(repeated):,} keys in total)"
    raise InputError(
        "keys-overlap", key=key, root=origins[first].root, root2=origins[second].root, in_all=in_all
    )


# The option in which a manifest holds the hashes, in hex and sorted.
OPTION = "removed"


def are_removed(keys: Sequence[bytes], made: Made) -> BoolArray:
    """Return for each key whether its example was removed from a dataset that was made like this.

    Examples that were removed before the dataset was resharded or merged count as well.
    """
    removed = [*_found(made, b"")]
    if not removed:
        return np.zeros(len(keys), np.bool_)
    return np.array(
        [
            any(
                key.startswith(prefix) and hash_key(key[len(prefix) :]) in hashes
                for prefix, hashes in removed
            )
            for key in keys
        ],
        np.bool_,
    )


def _found(made: Made, prefix: bytes) -> Iterator[tuple[bytes, frozenset[bytes]]]:
    """Yield hashes of removed keys, and what ``merge --as-splits`` has put before the keys since."""
    if made.removed:
        yield prefix, frozenset(map(bytes.fromhex, made.removed))
    for origin in made.origins:
        yield from _found(origin, prefix + to_bytes(f"{origin.split}/") if origin.split else prefix)
