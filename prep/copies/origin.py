"""A dataset from which others are made: its manifest, the records in its shards, its rejects."""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.area import Reject
from tfshards.prep.commit import read_rejects, rejects_text
from tfshards.prep.files import bytes_digest
from tfshards.prep.plan import IntArray
from tfshards.prep.tfrecord import RecordError, frame, open_shard
from tfshards.schemas import (
    InputError,
    Manifest,
    RecordIndex,
    Shard,
    file_problems,
    index_path,
    labels_path,
    parse_index,
    parse_labels,
    read_manifest,
)
from tfshards.schemas.reading import Json

_HEADER_BYTES = 12
_FOOTER_BYTES = 4


@dataclass(frozen=True)
class Origin:
    """A committed dataset.

    Attributes:
        root: its directory.
        manifest: what is in it.
    """

    root: Path
    manifest: Manifest

    def index(self, shard: Shard) -> RecordIndex:
        """Return where the records of a shard stand.

        Raises:
            InputError: the index is missing, or not what was written.
        """
        path = index_path(shard.path)
        return parse_index(self._beside(shard, path).decode("ascii"), path)

    def labels(self, shard: Shard) -> IntArray | None:
        """Return the label of each record of a shard, shape ``(num_examples,)``; None if there are no labels.

        Raises:
            InputError: the file of labels is missing, or not what was written.
        """
        path = labels_path(shard.path)
        if path not in shard.beside:
            return None
        return parse_labels(self._beside(shard, path), shard.num_examples, path)

    def rejects(self) -> list[Reject]:
        """Return the rejected inputs.

        Raises:
            InputError: the list of them is missing, or not what was written.
        """
        if not self.manifest.totals.rejected:
            return []
        name = f"rejected-{self.manifest.build_id}.jsonl"
        rejects = read_rejects(self.root / name)
        if bytes_digest(rejects_text(rejects)) != self.manifest.rejects_digest:
            raise self._damaged(f"{name}: is not what was written: the digest differs")
        return rejects

    def to_json(self) -> dict[str, Json]:
        """Return what the options of a dataset made of this one say of it."""
        manifest = self.manifest
        return {"name": manifest.name, "build_id": manifest.build_id, "options": dict(manifest.options)}

    def _beside(self, shard: Shard, path: str) -> bytes:
        """Return the content of a file beside a shard, proved by its digest."""
        try:
            data = (self.root / path).read_bytes()
        except OSError as error:
            raise self._damaged(f"{path}: cannot be read: {error.strerror}") from None
        if bytes_digest(data) != shard.beside[path]:
            raise self._damaged(f"{path}: is not what was written: the digest differs")
        return data

    def _damaged(self, problem: str) -> InputError:
        return InputError(f"{self.root} is damaged: {problem}; tfshards verify names all that is wrong")


def open_origin(root: str | os.PathLike[str]) -> Origin:
    """Return the dataset in ``root``, with the sizes of its shards compared.

    Raises:
        InputError: there is none, or a shard is missing or of another size.
        FormatError: the manifest cannot be read.
    """
    origin = Origin(Path(root), read_manifest(root))
    problems = file_problems(origin.manifest, root)
    if problems:
        raise origin._damaged(str(problems[0]))
    return origin


class ShardReader:
    """Reads frames out of one shard, best in ascending order."""

    def __init__(self, origin: Origin, shard: Shard) -> None:
        index = origin.index(shard)
        # views give Python's integers one by one, which lists of them would all hold at once
        self._offsets, self._lengths = index.offsets.data, index.lengths.data
        self._path = origin.root / shard.path
        self._opened = open_shard(self._path, origin.manifest.compression)
        self._file = self._opened.__enter__()
        self._at = 0

    def read(self, record: int) -> tuple[bytes, bytes]:
        """Return the frame of a record, and its last 4 bytes, with both checksums compared.

        Raises:
            RecordError: a checksum does not hold, or the compressed data are damaged.
        """
        offset, length = self._offsets[record], self._lengths[record]
        try:
            if offset != self._at:
                self._file.seek(offset)
            found = self._file.read(length)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            fault = f"the compressed data are damaged: {error}"
            raise RecordError(self._path, record, offset, fault) from None
        self._at = offset + len(found)
        header, _, footer = frame(found[_HEADER_BYTES:-_FOOTER_BYTES])
        if not (found.startswith(header) and found.endswith(footer) and len(found) == length):
            raise RecordError(self._path, record, offset, "a checksum of its frame does not hold")
        return found, footer

    def close(self) -> None:
        """Close the file."""
        self._opened.__exit__(None, None, None)
