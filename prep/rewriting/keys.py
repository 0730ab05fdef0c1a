"""Choose: the keys of the examples of datasets, read and searched, and those that were removed."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfshards.prep.engines.table import Work, run_on_threads
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.progress.lines import Reporter, WorkProgress
from tfshards.prep.records.example import decode_key
from tfshards.prep.records.frames import RecordError, masked_crc32c, read_records
from tfshards.prep.rewriting.origin import SEE_VERIFY, Origin
from tfshards.prep.sources.base import Listing
from tfshards.prep.sources.keys import KeyHashes, hash_array, hash_key, to_bytes, to_text
from tfshards.schemas import BuildError, InputError, Manifest, Shard
from tfshards.schemas.digests import digest_together
from tfshards.schemas.index import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.made import Made

# Records between two reports of progress.
_RECORDS = 1 << 10


def read_keys(origin: Origin, label: str) -> list[KeyHashes]:
    """Read all records of a dataset and return the hashes of their keys: one array per shard, in order.

    Raises:
        BuildError: a record is damaged, or has no key.
    """
    return [hash_array([found]) for found in read_shards(origin, label, _hashed_key)]


def read_shards(origin: Origin, label: str, pack: Callable[[bytes], bytes]) -> list[bytes]:
    """Read all records of a dataset and return the results of ``pack`` for each shard, joined in order.

    Args:
        origin: the dataset.
        label: label of the progress bar.
        pack: maps a record to bytes of fixed length; it raises ValueError if the record is damaged.

    Raises:
        BuildError: a record is damaged.
    """
    found: dict[str, bytes] = {}
    progress = WorkProgress(label, origin.manifest.num_examples)

    stop = threading.Event()

    def read(shard: Shard) -> None:
        found[shard.path] = _read_shard(origin, shard, pack, progress.reporter, stop)

    run_on_threads(Work(read, origin.manifest.shards, progress, lambda _: stop.set()))
    return [found[shard.path] for shard in origin.manifest.shards]


def check_keys_differ(origins: Sequence[Origin]) -> None:
    """Check that no key is in two of the datasets, among examples and rejected inputs.

    Raises:
        InputError: a key is in two datasets.
        BuildError: a record is damaged, or has no key.
    """
    parts: list[_KeysOf] = []
    hashes: list[KeyHashes] = []
    for origin in origins:
        shards = origin.manifest.shards
        hashes += read_keys(origin, f"keys of {origin.manifest.name}")
        parts += [_KeysOf(origin, shard, shard.num_examples) for shard in shards]
        rejected = [to_bytes(reject.key) for reject in origin.rejects()]
        hashes.append(hash_array(map(hash_key, rejected)))
        parts.append(_KeysOf(origin, None, len(rejected)))
    together = np.concatenate(hashes)
    is_repeated = np.ones(len(together), dtype=np.bool_)
    is_repeated[np.unique(together, return_index=True)[1]] = False
    repeated = np.flatnonzero(is_repeated)
    if not len(repeated):
        return
    first_two = np.flatnonzero(together == together[repeated[0]])[:2].tolist()
    (one, key), (other, _) = (_find(parts, number) for number in first_two)
    in_all = "" if len(repeated) == 1 else f" ({len(repeated):,} keys in total)"
    remedy = (
        "rows of arrays and tables are identified by their numbers: build them together, as parts"
        if key.isdigit()
        else "remove it from one of them with 'tfshards remove', or make each dataset, if it has one split, "
        "a split of the new one ('tfshards merge --as-splits', or a dict of sources)"
    )
    raise InputError(
        "keys-overlap", key=to_text(key), root=one.root, root2=other.root, in_all=in_all, remedy=remedy
    )


class _KeysOf(NamedTuple):
    """The keys of one shard, or of the rejected inputs of a dataset."""

    origin: Origin
    shard: Shard | None
    num_keys: int


def _find(parts: Sequence[_KeysOf], key_number: int) -> tuple[Origin, bytes]:
    """Return a key by its number among all keys of the parts, and its dataset."""
    ends = np.cumsum([part.num_keys for part in parts])
    number = int(np.searchsorted(ends, key_number, side="right"))
    origin, shard, num_keys = parts[number]
    record = key_number - int(ends[number]) + num_keys
    if shard is None:
        return origin, to_bytes(origin.rejects()[record].key)
    path = origin.root / shard.path
    _, data = next(islice(read_records(path, origin.manifest.compression), record, None))
    return origin, decode_key(data) or b""


def _read_shard(
    origin: Origin,
    shard: Shard,
    pack: Callable[[bytes], bytes],
    reporter: Reporter,
    stop: threading.Event,
) -> bytes:
    packed: list[bytes] = []
    path = origin.root / shard.path
    unreported = num_bytes = 0
    try:
        for number, (offset, data) in enumerate(read_records(path, origin.manifest.compression)):
            try:
                packed.append(pack(data))
            except ValueError as error:
                raise RecordError(path, number, offset, str(error)) from None
            unreported, num_bytes = unreported + 1, num_bytes + len(data)
            if unreported == _RECORDS:
                reporter.report(unreported, num_bytes)
                unreported = num_bytes = 0
                if stop.is_set():
                    break
    except RecordError as error:
        raise BuildError("shard-damaged", SEE_VERIFY, text=str(error)) from None
    reporter.report(unreported, num_bytes)
    if len(packed) != shard.num_examples and not stop.is_set():
        raise BuildError(
            "keys-miscounted", path=path, num_packed=len(packed), num_examples=shard.num_examples
        )
    return b"".join(packed)


def _hashed_key(data: bytes) -> bytes:
    key = decode_key(data)
    if key is None:
        raise ValueError("has no key")
    return hash_key(key)


_PACKED = struct.Struct("<16sI")
# S compares as V, since all hashes have the same length, and can be searched
_DTYPE = np.dtype([("key", "S16"), ("checksum", "<u4")])


@dataclass(frozen=True, eq=False)
class KnownExamples:
    """The examples of a dataset, numbered in the order of its shards.

    Attributes:
        origin: the dataset.
        keys: shape ``(num_examples,)``, hash of each key.
        checksums: shape ``(num_examples,)``, masked CRC-32C of each record.
    """

    origin: Origin
    keys: npt.NDArray[np.bytes_]
    checksums: npt.NDArray[np.uint32]

    @cached_property
    def ends(self) -> IntArray:
        """Shape ``(num_shards,)``, the number of the example after the last one of each shard."""
        return np.cumsum([shard.num_examples for shard in self.origin.manifest.shards], dtype=np.int64)

    def find(self, listing: Listing) -> IntArray:
        """Return the number of the example that has the key of each input, or -1."""
        return self.find_keys(listing.keys)

    def find_keys(self, keys: Iterable[bytes]) -> IntArray:
        """Return the number of the example that has each key, or -1."""
        wanted = hash_array(map(hash_key, keys)).view("S16")
        order = np.argsort(self.keys)
        at = np.minimum(np.searchsorted(self.keys, wanted, sorter=order), len(order) - 1)
        found = order[at].astype(np.int64)
        return np.where(self.keys[found] == wanted, found, -1)

    def shard_of(self, numbers: IntArray) -> IntArray:
        """Return the index of the shard that holds each example."""
        return np.searchsorted(self.ends, numbers, side="right").astype(np.int64)

    def read(self, number: int) -> bytes:
        """Return the record of an example."""
        index = int(self.shard_of(np.array([number]))[0])
        shard = self.origin.manifest.shards[index]
        frames = self.origin.frames(shard)
        found, _ = frames.read(number - int(self.ends[index]) + shard.num_examples)
        frames.close()
        return found[HEADER_BYTES:-FOOTER_BYTES]

    def key(self, number: int) -> str:
        """Return the key of an example as text."""
        return to_text(decode_key(self.read(number)) or b"")

    def labels(self) -> IntArray | None:
        """Return the label of each example; None if the examples have no labels."""
        found = [self.origin.labels(shard) for shard in self.origin.manifest.shards]
        labels = [of_shard for of_shard in found if of_shard is not None]
        return np.concatenate(labels) if labels else None

    def splits(self) -> npt.NDArray[np.str_]:
        """Return the split of each example."""
        splits = self.origin.manifest.splits
        return np.repeat([*splits], [split.num_examples for split in splits.values()])


def read_known(origin: Origin) -> KnownExamples:
    """Read all records of a dataset.

    Raises:
        BuildError: a record is damaged, or has no key.
    """

    def pack(data: bytes) -> bytes:
        key = decode_key(data)
        if key is None:
            raise ValueError("has no key")
        return _PACKED.pack(hash_key(key), masked_crc32c(data))

    packed = b"".join(read_shards(origin, f"keys of {origin.manifest.name}", pack))
    found = np.frombuffer(packed, _DTYPE)
    columns = (np.ascontiguousarray(found[name]) for name in ("key", "checksum"))
    return KnownExamples(origin, *columns)


def numbers_by_split(manifest: Manifest) -> dict[str, IntArray]:
    """Return the numbers of the examples of each split, counted through all shards."""
    ends = np.cumsum([split.num_examples for split in manifest.splits.values()]).tolist()
    return {
        name: np.arange(end - split.num_examples, end, dtype=np.int64)
        for (name, split), end in zip(manifest.splits.items(), ends, strict=True)
    }


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
    """Return the digest of a set of examples without a subset that has another digest."""
    return digest_together([digest, f"{-int(other, 16) % (1 << 64):016x}"])


# The option in which a manifest holds the hashes, in hex and sorted.
OPTION = "removed"


class _Removed(NamedTuple):
    """Hashes of removed keys, and what ``merge --as-splits`` has put before the keys since."""

    prefix: bytes
    hashes: frozenset[bytes]


def are_removed(keys: Iterable[bytes], made: Made) -> BoolArray:
    """Return for each key whether its example was removed from a dataset that was made like this.

    Examples that were removed before the dataset was resharded or merged count as well.
    """
    removed = [*_found(made, b"")]
    if not removed:
        return np.zeros(sum(1 for _ in keys), np.bool_)
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


def with_removed(made: Made, hashes: Iterable[bytes]) -> list[Json]:
    """Return the hashes of removed keys, in hex and sorted, together with new ones."""
    return [*sorted({*made.removed, *(one.hex() for one in hashes)})]


def _found(made: Made, prefix: bytes) -> Iterator[_Removed]:
    if made.removed:
        yield _Removed(prefix, frozenset(map(bytes.fromhex, made.removed)))
    for origin in made.origins:
        before = prefix + to_bytes(f"{origin.split}/") if origin.split else prefix
        yield from _found(origin, before)
