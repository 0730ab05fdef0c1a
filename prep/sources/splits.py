"""The usual names of splits: one table for folders, files, columns of paths, arrays and annotations."""

from __future__ import annotations

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


def all_usual(names: list[str]) -> tuple[list[str], bool]:
    """Return the usual names of splits among ``names``, and whether these are splits.

    Names are splits if at least two are usual, and no other name is among them.
    """
    usual = [name for name in names if usual_split(name)]
    return usual, len(usual) >= 2 and len(usual) == len(names)
