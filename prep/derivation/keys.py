"""Read the keys of whole datasets, which identify examples."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from tfshards.prep.derivation.origin import SEE_VERIFY, Origin
from tfshards.prep.engines import in_process
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import Progress, Reporter
from tfshards.prep.records.example import decode_key
from tfshards.prep.records.reader import RecordError, read_records
from tfshards.prep.sources.keys import KEY_FEATURE, KeyHashes, hash_array, hash_key, to_bytes, to_text
from tfshards.schemas import BuildError, InputError, Shard

# Records between two reports of progress.
_RECORDS = 1 << 10


def has_keys(origin: Origin) -> bool:
    """Return whether the examples of a dataset have keys."""
    return KEY_FEATURE in origin.manifest.schema.features


def read_keys(origin: Origin, label: str) -> list[KeyHashes]:
    """Read all records of a dataset and return the hashes of their keys: one array per shard, in order.

    Raises:
        BuildError: a record is damaged, or has no key.
    """
    return [hash_array([found]) for found in read_shards(origin, label, _hashed_key)]


def read_shards(origin: Origin, label: str, pack: Callable[[bytes], bytes]) -> list[bytes]:
    """Read all records of a dataset and return what ``pack`` makes of those of each shard, joined in order.

    Args:
        origin: the dataset.
        label: label of the progress bar.
        pack: maps a record to bytes of fixed length; it raises ValueError if the record is damaged.

    Raises:
        BuildError: a record is damaged.
    """
    found: dict[str, bytes] = {}
    progress = Progress(label, origin.manifest.num_examples)

    stop = threading.Event()

    def read(shard: Shard) -> None:
        found[shard.path] = _read_shard(origin, shard, pack, progress.reporter, stop)

    in_process.run(Work(read, origin.manifest.shards, progress, lambda _: stop.set()))
    return [found[shard.path] for shard in origin.manifest.shards]


def check_keys_differ(origins: Sequence[Origin]) -> None:
    """Check that no key is in two of the datasets, among examples and rejected inputs.

    Raises:
        InputError: a key is in two datasets.
        BuildError: a record is damaged, or has no key.
    """
    parts: list[_Part] = []
    hashes: list[KeyHashes] = []
    for origin in origins:
        shards = origin.manifest.shards
        hashes += read_keys(origin, f"keys of {origin.manifest.name}")
        parts += [_Part(origin, shard, shard.num_examples) for shard in shards]
        rejected = [to_bytes(reject.key) for reject in origin.rejects()]
        hashes.append(hash_array(map(hash_key, rejected)))
        parts.append(_Part(origin, None, len(rejected)))
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


class _Part(NamedTuple):
    """The keys of one shard, or of the rejected inputs of a dataset."""

    origin: Origin
    shard: Shard | None
    num_keys: int


def _find(parts: Sequence[_Part], key_number: int) -> tuple[Origin, bytes]:
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
