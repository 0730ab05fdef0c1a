"""Check the files of a dataset against its manifest: sizes, digests, last bytes, indexes, labels, rejects."""

from __future__ import annotations

from dataclasses import dataclass

from tfshards.prep.progress.threads import Tick
from tfshards.schemas import Manifest, Problem, Shard
from tfshards.schemas.companions import OTHER_BYTES, read_index, read_labels
from tfshards.schemas.files import file_digest, read_once
from tfshards.schemas.index import IntArray, RecordIndex
from tfshards.schemas.names import rejects_name
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import open_regular, size_of


def _no_tick(_: int) -> None:
    return


def shard_problems(folder: AnyPath, shard: Shard) -> list[Problem]:
    """Return the problems of one shard of the dataset in ``folder``, its index or its labels."""
    return digest_problems(folder, shard) + companions(folder, shard).problems


def digest_problems(folder: AnyPath, shard: Shard, tick: Tick = _no_tick) -> list[Problem]:
    """Return the problems of the size, the digest or the last bytes of one shard."""
    path = folder / shard.path
    try:
        with open_regular(path, buffering=0) as file:
            num_bytes = size_of(file)
        if num_bytes != shard.num_bytes:
            tick(shard.num_bytes)
            return [Problem(shard.path, f"has {num_bytes} bytes, but the manifest lists {shard.num_bytes}")]
        _, digest, last_bytes = read_once(path, tick)
    except OSError as error:
        return [Problem(shard.path, f"cannot be read: {error.strerror}")]
    if digest != shard.digest:
        return [Problem(shard.path, OTHER_BYTES)]
    if last_bytes != shard.last_bytes:
        message = f"ends with the bytes {last_bytes}, but the manifest lists {shard.last_bytes}"
        return [Problem(shard.path, message)]
    return []


# eq=False: arrays compare element by element, so that instances would have no truth value
@dataclass(frozen=True, eq=False)
class Companions:
    """The index and the labels of a shard, whose digests match.

    Attributes:
        index: the shard's index; None if there are problems with it.
        labels: shape ``(num_examples,)``; None if there are problems with them, or no labels.
        problems: the problems of both.
    """

    index: RecordIndex | None
    labels: IntArray | None
    problems: list[Problem]


def companions(folder: AnyPath, shard: Shard) -> Companions:
    """Return the index and the labels of one shard, and their problems."""
    index, of_index = read_index(folder, shard)
    labels, of_labels = read_labels(folder, shard) if shard.labels_digest else (None, [])
    return Companions(index, labels, of_index + of_labels)


def rejects_problems(folder: AnyPath, manifest: Manifest) -> list[Problem]:
    """Return the problems of the rejects file; empty if nothing was rejected."""
    if not manifest.rejects_digest:
        return []
    path = rejects_name(manifest.build_id)
    try:
        sound = file_digest(folder / path) == manifest.rejects_digest
    except OSError as error:
        return [Problem(path, f"cannot be read: {error.strerror}")]
    return [] if sound else [Problem(path, OTHER_BYTES)]
