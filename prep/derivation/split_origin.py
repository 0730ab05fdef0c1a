"""A dataset that becomes one split of another: the name of the split is put before its keys."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from tfshards.prep.derivation.keys import has_keys
from tfshards.prep.derivation.origin import Origin, open_origin
from tfshards.prep.records.example import with_key_prefix
from tfshards.prep.records.frames import frame
from tfshards.prep.records.reader import FrameReader, RecordError
from tfshards.prep.writing.area import Reject
from tfshards.schemas import InputError, Manifest, OptionsError, Shard
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES, RecordIndex
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import Compression
from tfshards.schemas.names import name_fault
from tfshards.schemas.storage import AnyPath


@dataclass(frozen=True)
class SplitOrigin(Origin):
    """A committed dataset as one split of a new one.

    Attributes:
        manifest: manifest of the dataset, in which its split has the new name.
        split: the new name; each key of the new dataset is this name, ``/`` and the key of the example.
    """

    split: str

    def frames(self, shard: Shard) -> FrameReader:
        """Return a reader of single frames of a shard, with the new keys."""
        if not has_keys(self):
            return super().frames(shard)
        path, compression = self.root / shard.path, self.manifest.compression
        return _PrefixedReader(path, compression, self.index(shard), f"{self.split}/".encode())

    def rejects(self) -> list[Reject]:
        """Return the rejected inputs, with the new keys."""
        return [reject._replace(key=f"{self.split}/{reject.key}") for reject in super().rejects()]

    def to_json(self) -> dict[str, Json]:
        """Return what the manifest of the new dataset records about this one."""
        return {**super().to_json(), "split": self.split}


def open_split_origin(root: str | os.PathLike[str], split: str) -> SplitOrigin:
    """Return the dataset in ``root``, which has one split, as the split of this name.

    Raises:
        OptionsError: the name is not allowed for a split.
        InputError: the dataset has several splits, or see ``open_origin``.
    """
    fault = name_fault(split)
    if fault:
        raise OptionsError("split-name", fault=fault)
    origin = open_origin(root)
    splits = origin.manifest.splits
    if len(splits) > 1:
        raise InputError("as-splits-several", root=root, splits=splits, split=split)
    manifest: Manifest = replace(origin.manifest, splits={split: next(iter(splits.values()))})
    return SplitOrigin(origin.root, manifest, split)


class _PrefixedReader(FrameReader):
    """Read frames with a prefix before the key of each record."""

    def __init__(self, path: AnyPath, compression: Compression, index: RecordIndex, prefix: bytes) -> None:
        super().__init__(path, compression, index)
        self._shard, self._prefix, self._starts = path, prefix, index.offsets

    def read(self, record: int) -> tuple[bytes, bytes]:
        """Return the new frame of a record, and its last 4 bytes."""
        found, _ = super().read(record)
        try:
            parts = frame(with_key_prefix(found[HEADER_BYTES:-FOOTER_BYTES], self._prefix))
        except ValueError as error:
            raise RecordError(self._shard, record, int(self._starts[record]), str(error)) from None
        return b"".join(parts), parts[-1]
