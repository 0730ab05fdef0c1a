"""The keys of whole datasets, by which examples are told from one another."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tfshards.prep.copies.origin import Origin
from tfshards.prep.copies.tasks import Task, run_tasks
from tfshards.prep.example import decode_key
from tfshards.prep.progress import Progress, Reporter
from tfshards.prep.sources.listing import to_bytes, to_text
from tfshards.prep.tfrecord import RecordError, RecordPlace, read_records
from tfshards.schemas import BuildError, Feature, InputError, Shard

# 16 bytes of hash a key: enough to tell any two apart, whatever the keys' lengths.
Hashes: TypeAlias = npt.NDArray[np.void]

_HASH_BYTES = 16
# Records between two reports.
_RECORDS = 1 << 10


def has_keys(origin: Origin) -> bool:
    """Whether each example of a dataset has a key."""
    return Feature("key", "bytes", "bytes") in origin.manifest.schema.features


def read_keys(origin: Origin, label: str) -> list[Hashes]:
    """Return the hash of each key, shard by shard, in the order of the records, which are all read.

    Raises:
        BuildError: a record is damaged, or has no key.
    """
    found: dict[str, Hashes] = {}
    progress = Progress(label, origin.manifest.num_examples)

    def read(shard: Shard, stop: threading.Event) -> None:
        found[shard.path] = _shard_keys(origin, shard, progress.reporter, stop)

    tasks: list[Task] = [partial(read, shard) for shard in origin.manifest.shards]
    run_tasks(tasks, progress)
    return [found[shard.path] for shard in origin.manifest.shards]


def hash_keys(keys: Sequence[bytes]) -> Hashes:
    """Return the hash of each key."""
    return np.frombuffer(b"".join(map(_hash, keys)), dtype=f"V{_HASH_BYTES}")


def check_keys_differ(origins: Sequence[Origin]) -> None:
    """Raise InputError if an input, accepted or rejected, stands in two of the datasets.

    Raises:
        BuildError: as for ``read_keys``.
    """
    parts: list[_Part] = []
    hashes: list[Hashes] = []
    for origin in origins:
        shards = origin.manifest.shards
        hashes += read_keys(origin, f"keys of {origin.manifest.name}")
        parts += [_Part(origin, shard, shard.num_examples) for shard in shards]
        rejected = [to_bytes(reject.key) for reject in origin.rejects()]
        hashes.append(hash_keys(rejected))
        parts.append(_Part(origin, None, len(rejected)))
    together = np.concatenate(hashes)
    is_repeated = np.ones(len(together), dtype=np.bool_)
    is_repeated[np.unique(together, return_index=True)[1]] = False
    repeated = np.flatnonzero(is_repeated)
    if not len(repeated):
        return
    places = np.flatnonzero(together == together[repeated[0]])[:2].tolist()
    (one, key), (other, _) = (_find(parts, place) for place in places)
    in_all = "" if len(repeated) == 1 else f" ({len(repeated):,} keys in all)"
    remedy = (
        "rows of arrays and tables are known by their numbers: build them together, in parts"
        if key.isdigit()
        else "leave it out of one of them and build that again"
    )
    raise InputError(f"the key {to_text(key)!r} stands in {one.root} and in {other.root}{in_all}; {remedy}")


class _Part(NamedTuple):
    """Some keys of a dataset: those of one shard, or of the rejected inputs."""

    origin: Origin
    shard: Shard | None
    num_keys: int


def _find(parts: Sequence[_Part], place: int) -> tuple[Origin, bytes]:
    """Return the key at a place of all keys together, and the dataset that it stands in."""
    ends = np.cumsum([part.num_keys for part in parts])
    number = int(np.searchsorted(ends, place, side="right"))
    origin, shard, num_keys = parts[number]
    record = place - int(ends[number]) + num_keys
    if shard is None:
        return origin, to_bytes(origin.rejects()[record].key)
    path = origin.root / shard.path
    _, data = next(islice(read_records(path, origin.manifest.compression), record, None))
    return origin, decode_key(data) or b""


def _shard_keys(origin: Origin, shard: Shard, reporter: Reporter, stop: threading.Event) -> Hashes:
    hashes: list[bytes] = []
    path = origin.root / shard.path
    unreported = num_bytes = 0
    try:
        for number, (offset, data) in enumerate(read_records(path, origin.manifest.compression)):
            hashes.append(_hash(_key(data, RecordPlace(path, number, offset))))
            unreported, num_bytes = unreported + 1, num_bytes + len(data)
            if unreported == _RECORDS:
                reporter.report(unreported, num_bytes)
                unreported = num_bytes = 0
                if stop.is_set():
                    break
    except RecordError as error:
        raise BuildError(str(error), "tfshards verify names all that is damaged") from None
    reporter.report(unreported, num_bytes)
    if len(hashes) != shard.num_examples and not stop.is_set():
        raise BuildError(f"{path} holds {len(hashes)} records, the manifest says {shard.num_examples}")
    return np.frombuffer(b"".join(hashes), dtype=f"V{_HASH_BYTES}")


def _key(data: bytes, place: RecordPlace) -> bytes:
    try:
        key = decode_key(data)
    except ValueError as error:
        raise RecordError(*place, str(error)) from None
    if key is None:
        raise RecordError(*place, "has no key")
    return key


def _hash(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_HASH_BYTES).digest()
