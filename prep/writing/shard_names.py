"""The names of the files of a build, which contain its id."""

from __future__ import annotations

import re

# Shards, indexes, labels, rejects files and files of inputs.
_OF_BUILD = re.compile(
    r"(.+-|rejected-|inputs-)([0-9a-f]{8})(\.tfrecord-\d{5,}-of-\d{5,}(?:\.idx|\.labels)?|\.jsonl|\.npz)"
)


def shard_name(dataset: str, split: str, shard_index: int, num_shards: int, *, build_id: str) -> str:
    """Return the name of a shard, which is its path relative to the dataset."""
    return f"{dataset}-{split}-{build_id}.tfrecord-{shard_index:05d}-of-{num_shards:05d}"


def build_of(path: str) -> str:
    """Return the build id in the path of a file of a build; else an empty string."""
    match = _OF_BUILD.fullmatch(path)
    return match[2] if match else ""


def with_build_id(path: str, build_id: str) -> str:
    """Return the path of a file of a build with another build id."""
    return _OF_BUILD.sub(rf"\g<1>{build_id}\g<3>", path)
