"""The usual names of splits: one table for folders, files, columns of paths, arrays and annotations."""

from __future__ import annotations

from collections.abc import Collection

# In the usual order of splits.
USUAL_SPLITS = ("train", "training", "validation", "valid", "val", "dev", "test", "testing")


def usual_split(name: str) -> str | None:
    """Return a usual name of a split in lower case, such as ``train`` for ``Train``; None for other names."""
    lower = name.lower()
    return lower if lower in USUAL_SPLITS else None


def usual_order(split: str) -> tuple[int, str]:
    """Return a sort key for splits: train..., val..., dev, test..., and then others by name."""
    starts = ("tr", "va", "de", "te")
    rank = next((rank for rank, start in enumerate(starts) if split.startswith(start)), len(starts))
    return rank, split


def usual_splits(names: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return the split of each name that is a usual one, and the other names, both in their order."""
    splits = {name: split for name in names if (split := usual_split(name))}
    return splits, [name for name in names if name not in splits]
