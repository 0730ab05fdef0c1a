"""All damage of a file of which no manifest tells what it should hold."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from tfshards.prep.adoption.seen import Findings
from tfshards.prep.proofs.walk import walk_frames
from tfshards.schemas import Shard
from tfshards.schemas.manifest import Compression

_BLOCK_BYTES = 1 << 20


def find_damage(root: Path, path: str, compression: Compression, found: Findings) -> Findings:
    """Return ``found`` with all faults of the records in the file at ``path``, sound records looked at.

    Behind damaged data the next record is found; behind a damaged length, or a damaged part of a compressed
    file, nothing is.
    """
    num_bytes = (root / path).stat().st_size
    record_bytes = _unpacked_bytes(root / path) if compression == "gzip" else num_bytes
    shard = Shard(path, 0, num_bytes, record_bytes, "", "", "", "")
    for frame in walk_frames(root / path, shard, compression, None):
        if frame.data is not None and frame.fault is None:
            found.look(path, frame.number, frame.offset, frame.data)
            continue
        # the walk speaks of an index, which there is not yet
        fault, mark, _ = (frame.fault or "").partition("; what follows")
        rest = "; what follows cannot be told" if mark else ""
        found.note(path, f"record {frame.number} at byte {frame.offset}: {fault}{rest}")
    return found


def _unpacked_bytes(path: Path) -> int:
    """Return how many bytes a gzip file holds; more where it is damaged, so that a walk gets there."""
    num_bytes = 0
    with gzip.open(path) as file:
        try:
            while block := file.read1(_BLOCK_BYTES):
                num_bytes += len(block)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return num_bytes + _BLOCK_BYTES
    return num_bytes
