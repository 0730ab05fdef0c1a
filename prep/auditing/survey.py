"""Read from the records what an audit needs to know: a few dozen bytes for each example."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.similar import HASHED_SIDE, Hashes, Integers, perceptual_hash
from tfshards.prep.imaging.pixels import stored_picture
from tfshards.prep.imaging.stored import glance, glance_at
from tfshards.prep.progress.lines import Meter
from tfshards.prep.progress.threads import Tick, in_threads
from tfshards.prep.records.frames import RecordError, read_records
from tfshards.prep.records.values import compared_features, parse_record
from tfshards.prep.sources.keys import to_text
from tfshards.schemas import Feature, InputError, Manifest, Shard
from tfshards.schemas.example import Decoded
from tfshards.schemas.index import FRAME_OVERHEAD
from tfshards.schemas.pixels import pixel_images
from tfshards.schemas.storage import AnyPath

NO_LABEL = -(1 << 63)
# A picture whose brightest and darkest gray differ by less has no shape: all blank pages have the same hash.
_FLAT_RANGE = 16


@dataclass(frozen=True)
class Survey:
    """All examples of a dataset in arrays, the largest split first."""

    # largest first
    splits: tuple[str, ...]
    # as text; the shard and the record number of a record without a key
    keys: list[str]
    # index into ``splits``, ascending
    split: Integers
    # or ``NO_LABEL``
    label: Integers
    # 16-byte hashes of what is compared byte for byte
    digest: npt.NDArray[np.void]
    # shape ``(examples, 2)``: width and height in pixels; 0 where unknown
    size: Integers
    # of the image file; 0 where there is none
    num_bytes: Integers
    # shape ``(examples, 4)``: the perceptual hashes, and where there is one
    hashes: Hashes
    is_hashed: npt.NDArray[np.bool_]
    # images without a hash because they have nearly one color
    num_flat: int
    # by index, why an image cannot be decoded
    faults: dict[int, str]


class _Row(NamedTuple):
    """What is collected of one example."""

    key: str
    label: int
    digest: bytes
    size: tuple[int, int] = (0, 0)
    num_bytes: int = 0
    hashed: bytes = b""
    is_flat: bool = False
    fault: str = ""


def compared_names(manifest: Manifest) -> list[str]:
    """Return the names of the compared features: the first image, else all but key and label."""
    return image_names(manifest)[:1] or [feature.name for feature in compared_features(manifest.schema)]


def image_names(manifest: Manifest) -> list[str]:
    """Return the names of the features that hold images."""
    features = manifest.schema.features
    encoded = [feature.name for feature in features if feature.is_image]
    return [*encoded, *pixel_images(features)]


def survey(root: AnyPath, manifest: Manifest, *, is_hashed: bool) -> Survey:
    """Read all records, one shard per thread; decode the images and hash them if ``is_hashed``.

    Raises:
        RecordError: a record is damaged, or does not match the schema.
        InputError: a shard holds more or fewer records than the manifest lists.
    """
    names = sorted(manifest.splits, key=lambda name: -manifest.splits[name].num_examples)
    shards = [(index, shard) for index, name in enumerate(names) for shard in manifest.splits[name].shards]

    def read(item: tuple[int, Shard], tick: Tick) -> list[_Row]:
        return list(_read(root, item[1], manifest, is_hashed=is_hashed, tick=tick))

    with Meter("audit", sum(shard.record_bytes for _, shard in shards)) as meter:
        found = in_threads(read, shards, meter.add)
    rows = [row for some in found for row in some]
    split = np.repeat(np.array([index for index, _ in shards], np.int64), [len(some) for some in found])
    return Survey(
        splits=tuple(names),
        keys=[row.key for row in rows],
        split=split,
        label=np.array([row.label for row in rows], np.int64),
        digest=np.frombuffer(b"".join(row.digest for row in rows), dtype="V16"),
        size=np.array([row.size for row in rows], np.int64).reshape(-1, 2),
        num_bytes=np.array([row.num_bytes for row in rows], np.int64),
        hashes=np.frombuffer(b"".join(row.hashed or bytes(32) for row in rows), np.uint64).reshape(-1, 4),
        is_hashed=np.array([row.hashed != b"" for row in rows], dtype=bool),
        num_flat=sum(row.is_flat for row in rows),
        faults={index: row.fault for index, row in enumerate(rows) if row.fault},
    )


def _read(root: AnyPath, shard: Shard, manifest: Manifest, *, is_hashed: bool, tick: Tick) -> Iterator[_Row]:
    path, count = root / shard.path, 0
    compared = compared_names(manifest)
    image = manifest.schema[compared[0]] if image_names(manifest) else None
    label = manifest.schema.label
    for record, (offset, data) in enumerate(read_records(path, manifest.compression)):
        values, fault = parse_record(data, manifest)
        if fault:
            raise RecordError(path, record, offset, fault)
        number = int(values[label.name][0]) if label else NO_LABEL
        # among named classes -1 means no class
        number = NO_LABEL if number < 0 and manifest.schema.class_names else number
        key = _key(values.get("key"), f"record {record} of {shard.path}")
        row = _Row(key, number, _digest([values[name] for name in compared]))
        yield _with_image(row, cast("bytes", values[compared[0]][0]), image, is_hashed) if image else row
        count = record + 1
        tick(len(data) + FRAME_OVERHEAD)
    if count != shard.num_examples:
        raise InputError("records-miscounted", path=path, num_keys=count, num_examples=shard.num_examples)


def _with_image(row: _Row, data: bytes, feature: Feature, is_hashed: bool) -> _Row:
    """Return the row with the size and the hash of an image."""
    row = row._replace(num_bytes=len(data))
    side = HASHED_SIDE if is_hashed else 0
    try:
        size, gray = (
            glance(data, side) if feature.is_encoded else glance_at(stored_picture(data, feature), side)
        )
    except ValueError as error:
        return row._replace(fault=str(error))
    if gray is None:
        return row._replace(size=size)
    pixels = np.asarray(gray)
    if int(pixels.max()) - int(pixels.min()) < _FLAT_RANGE:
        return row._replace(size=size, is_flat=True)
    return row._replace(size=size, hashed=perceptual_hash(gray).tobytes())


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
