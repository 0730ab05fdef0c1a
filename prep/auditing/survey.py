"""Read from the records what an audit needs to know: a few dozen bytes for each example."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.similar import HASHED_SIDE, Hashes, Integers, perceptual_hash
from tfshards.prep.imaging.stored import glance
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.example import Decoded
from tfshards.prep.records.frames import RecordError, read_records
from tfshards.prep.records.values import compared_features, parse_record
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import InputError, Manifest, Shard
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.storage import AnyPath

NO_LABEL = -(1 << 63)
# A picture whose brightest and darkest gray differ by less has no shape: all blank pages have the same hash.
_FLAT_RANGE = 16


@dataclass(frozen=True)
class Survey:
    """All examples of a dataset, the largest split first.

    Attributes:
        splits: the names, largest split first.
        keys: the keys as text; the shard and the record number of a record without a key.
        split: int64 of shape ``(examples,)``, the index into ``splits``; ascending.
        label: int64 of shape ``(examples,)``; ``NO_LABEL`` where there is none.
        digest: 16-byte hashes of what is compared byte for byte, of shape ``(examples,)``.
        size: int64 of shape ``(examples, 2)``, width and height in pixels; 0 where unknown.
        num_bytes: int64 of shape ``(examples,)``, the length of the image file; 0 where there is none.
        hashes: uint64 of shape ``(examples, 4)``, the perceptual hashes.
        is_hashed: bool of shape ``(examples,)``; False where there is no perceptual hash.
        num_flat: the number of images without a hash because they have nearly one color.
        faults: by index, why an image cannot be decoded.
    """

    splits: tuple[str, ...]
    keys: list[str]
    split: Integers
    label: Integers
    digest: npt.NDArray[np.void]
    size: Integers
    num_bytes: Integers
    hashes: Hashes
    is_hashed: npt.NDArray[np.bool_]
    num_flat: int
    faults: dict[int, str]


@dataclass
class _Rows:
    """What is collected from one shard."""

    keys: list[str]
    labels: list[int]
    digests: list[bytes]
    sizes: list[tuple[int, int]]
    num_bytes: list[int]
    hashes: list[bytes]
    faults: dict[int, str]
    num_flat: int = 0


def compared_names(manifest: Manifest) -> list[str]:
    """Return the names of the compared features: the first image, else all but key and label."""
    compared = compared_features(manifest.schema)
    images = [feature.name for feature in compared if feature.kind == "image"]
    return images[:1] or [feature.name for feature in compared]


def survey(root: AnyPath, manifest: Manifest, *, is_hashed: bool) -> Survey:
    """Read all records, one shard per thread.

    Args:
        root: the dataset's directory.
        manifest: its manifest.
        is_hashed: whether to decode the images and compute their perceptual hashes.

    Raises:
        RecordError: a record is damaged, or does not match the schema.
        InputError: a shard holds more or fewer records than the manifest lists.
    """
    names = sorted(manifest.splits, key=lambda name: -manifest.splits[name].num_examples)
    shards = [(index, shard) for index, name in enumerate(names) for shard in manifest.splits[name].shards]

    def read(shard: Shard, tick: Tick) -> _Rows:
        return _read(root, shard, manifest, is_hashed=is_hashed, tick=tick)

    num_bytes = sum(shard.record_bytes for _, shard in shards)
    with Meter("audit", num_bytes) as meter:
        rows = in_threads(read, [shard for _, shard in shards], meter.add)
    return _joined(tuple(names), [index for index, _ in shards], rows)


def _read(root: AnyPath, shard: Shard, manifest: Manifest, *, is_hashed: bool, tick: Tick) -> _Rows:
    rows = _Rows([], [], [], [], [], [], {})
    path = root / shard.path
    compared = compared_names(manifest)
    is_image = any(feature.kind == "image" for feature in manifest.schema.features)
    label = manifest.schema.label
    for number, (offset, data) in enumerate(read_records(path, manifest.compression)):
        values, fault = parse_record(data, manifest)
        if fault:
            raise RecordError(path, number, offset, fault)
        rows.keys.append(_key(values.get("key"), f"record {number} of {shard.path}"))
        number = int(values[label.name][0]) if label else NO_LABEL
        # among named classes -1 means no class
        rows.labels.append(NO_LABEL if number < 0 and manifest.schema.class_names else number)
        rows.digests.append(_digest([values[name] for name in compared]))
        if is_image:
            _add_image(cast("bytes", values[compared[0]][0]), rows, is_hashed=is_hashed)
        tick(len(data) + FRAME_OVERHEAD)
    if len(rows.keys) != shard.num_examples:
        raise InputError(
            "records-miscounted", path=path, num_keys=len(rows.keys), num_examples=shard.num_examples
        )
    return rows


def _add_image(data: bytes, rows: _Rows, *, is_hashed: bool) -> None:
    """Add the size and the hash of an image."""
    size, hashed = (0, 0), b""
    try:
        size, gray = glance(data, HASHED_SIDE if is_hashed else 0)
    except ValueError as error:
        rows.faults[len(rows.sizes)] = str(error)
    else:
        if gray is not None:
            pixels = np.asarray(gray)
            if int(pixels.max()) - int(pixels.min()) < _FLAT_RANGE:
                rows.num_flat += 1
            else:
                hashed = perceptual_hash(gray).tobytes()
    rows.sizes.append(size)
    rows.num_bytes.append(len(data))
    rows.hashes.append(hashed)


def _key(values: Decoded | None, default: str) -> str:
    if not values:
        return default
    return to_text(values[0]) if isinstance(values[0], bytes) else str(values[0])


def _digest(features: Sequence[Decoded]) -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for values in features:
        for value in values:
            # lengths keep ("a", "bc") apart from ("ab", "c")
            data = value if isinstance(value, bytes) else repr(value).encode()
            state.update(len(data).to_bytes(8, "little"))
            state.update(data)
        state.update(len(values).to_bytes(8, "big"))
    return state.digest()


def _joined(names: tuple[str, ...], indices: Sequence[int], shards: Sequence[_Rows]) -> Survey:
    keys = [key for rows in shards for key in rows.keys]
    hashes = [hashed for rows in shards for hashed in rows.hashes] or [b""] * len(keys)
    none = bytes(32)
    sizes = [size for rows in shards for size in rows.sizes] or [(0, 0)] * len(keys)
    num_bytes = [each for rows in shards for each in rows.num_bytes] or [0] * len(keys)
    starts = np.cumsum([0, *(len(rows.keys) for rows in shards)])
    return Survey(
        splits=names,
        keys=keys,
        split=np.repeat(np.array(indices, np.int64), [len(rows.keys) for rows in shards]),
        label=np.array([label for rows in shards for label in rows.labels], np.int64),
        digest=np.frombuffer(b"".join(d for rows in shards for d in rows.digests), dtype="V16"),
        size=np.array(sizes, np.int64).reshape(-1, 2),
        num_bytes=np.array(num_bytes, np.int64),
        hashes=np.frombuffer(b"".join(hashed or none for hashed in hashes), np.uint64).reshape(-1, 4),
        is_hashed=np.array([hashed != b"" for hashed in hashes], dtype=bool),
        num_flat=sum(rows.num_flat for rows in shards),
        faults={
            int(start) + index: fault
            for start, rows in zip(starts, shards, strict=False)
            for index, fault in rows.faults.items()
        },
    )
