"""The plan file of a shard: its rows as JSON, and in a second line their stamps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from tfshards.prep.sources.base import Columns, Row
from tfshards.schemas.index import IntArray


def plan_text(planned: Columns) -> bytes:
    """Return the content of a plan file of these rows, in order."""
    return _rows_text(planned) + b"\n" + json.dumps(planned.stamps).encode("ascii")


def rows_of(plan: bytes) -> list[Row]:
    """Return the rows of a plan file."""
    text, stamps = plan.split(b"\n")
    keys, labels, sizes = json.loads(text)
    return Columns(keys, labels, sizes, json.loads(stamps)).rows()


def digest_of(plan: bytes) -> str:
    """Return the digest of the rows of a plan file, which does not cover the stamps, without parsing them."""
    return hashlib.sha256(plan.split(b"\n")[0]).hexdigest()


def stamps_of(plan: bytes) -> IntArray | None:
    """Return the stamps of the rows of a plan file; None if it is damaged."""
    try:
        return np.array(json.loads(plan.split(b"\n")[1]), np.int64)
    except (ValueError, IndexError):
        return None


def rows_digest(rows: Sequence[Row]) -> str:
    """Return the SHA-256, in hex, of the rows without their stamps."""
    return hashlib.sha256(_rows_text(Columns.of(rows))).hexdigest()


def _rows_text(rows: Columns) -> bytes:
    return json.dumps([rows.keys, rows.labels, rows.sizes], separators=(",", ":")).encode("ascii")
