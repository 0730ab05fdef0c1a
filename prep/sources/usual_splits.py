"""Common names of splits, and their usual order."""

from __future__ import annotations

# If all folders in a folder of images have one of these names, they are splits.
SPLIT_FOLDERS = frozenset(
    (b"train", b"training", b"validation", b"valid", b"val", b"dev", b"test", b"testing")
)


def usual_order(split: str) -> tuple[int, str]:
    """Return a sort key for splits: train..., val..., dev, test..., and then others by name."""
    starts = ("tr", "va", "de", "te")
    rank = next((rank for rank, start in enumerate(starts) if split.startswith(start)), len(starts))
    return rank, split
