"""Read the keys of whole datasets, which identify examples."""

from __future__ import annotations

import threading
from collections.abc import Sequence
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
    found: dict[str, KeyHashes] = {}
    progress = Progress(label, origin.manifest.num_examples)

    stop = threading.Event()

    def read(shard: Shard) -> None:
        found[shard.path] = _shard_keys(origin, shard, progress.reporter, stop)

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
        else "remove it from the inputs of one dataset, and build that dataset again"
    )
    raise InputError(f"the key {to_text(key)!r} is in {one.root} and in {other.root}{in_all}; {remedy}")


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


def _shard_keys(origin: Origin, shard: Shard, reporter: Reporter, stop: threading.Event) -> KeyHashes:
    hashes: list[bytes] = []
    path = origin.root / shard.path
    unreported = num_bytes = 0
    try:
        for number, (offset, data) in enumerate(read_records(path, origin.manifest.compression)):
            try:
                hashes.append(hash_key(_key(data)))
            except ValueError as error:
                raise RecordError(path, number, offset, str(error)) from None
            unreported, num_bytes = unreported + 1, num_bytes + len(data)
            if unreported == _RECORDS:
                reporter.report(unreported, num_bytes)
                unreported = num_bytes = 0
                if stop.is_set():
                    break
    except RecordError as error:
        raise BuildError(str(error), SEE_VERIFY) from None
    reporter.report(unreported, num_bytes)
    if len(hashes) != shard.num_examples and not stop.is_set():
        raise BuildError(f"{path} holds {len(hashes)} records, but the manifest lists {shard.num_examples}")
    return hash_array(hashes)


def _key(data: bytes) -> bytes:
    key = decode_key(data)
    if key is None:
        raise ValueError("has no key")
    return key
