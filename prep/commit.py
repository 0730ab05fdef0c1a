"""Making a build the dataset, and taking away what belongs to no dataset any more."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tfshards.prep.area import BuildArea, Reject
from tfshards.prep.plan import IntArray
from tfshards.prep.sources.listing import Listing
from tfshards.prep.views.labels import write_labels
from tfshards.prep.views.tfds import write_tfds_view
from tfshards.schemas import InputError, Manifest, Problem, Totals, write_manifest
from tfshards.schemas.atomic import sync_directory, write_atomically

# Shards, files beside them and rejects carry their build's id: this is how generations are told apart.
_OF_BUILD = re.compile(
    r"(?:.+-([0-9a-f]{8})\.tfrecord-\d{5,}-of-\d{5,}(?:\.idx|\.labels)?|rejected-([0-9a-f]{8})\.jsonl)"
)
# Of a line of the rejects file, see docs/format.md.
_FIELDS = ("key", "reason", "detail", "size", "modified")
# What a killed process leaves of a file that it was writing (schemas.atomic).
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


def totals(listing: Listing, rejects: Sequence[Reject], conversions: Mapping[str, int]) -> Totals:
    """Return what became of the listing's entries."""
    reasons = {
        "rejected": dict(sorted(Counter(reject.reason for reject in rejects).items())),
        "skipped": dict(listing.skipped),
    }
    accepted = listing.num_examples - len(rejects)
    skipped = sum(listing.skipped.values())
    return Totals(
        listing.num_entries, accepted, len(rejects), skipped, reasons, dict(sorted(conversions.items()))
    )


def label_counts(listing: Listing, layout: Sequence[IntArray]) -> Mapping[str, int]:
    """Return how often each class occurs in the shards of one split; empty without labels."""
    if listing.labels is None:
        return {}
    values, counts = np.unique(listing.labels[np.concatenate(layout)], return_counts=True)
    found = dict(zip(values.tolist(), counts.tolist(), strict=True))
    names = listing.schema.class_names
    if names:
        return {name: found.get(label, 0) for label, name in enumerate(names)}
    return {str(label): count for label, count in found.items()}


def commit(manifest: Manifest, rejects: Sequence[Reject], area: BuildArea) -> None:
    """Make the build the dataset: after this returns it is, before the manifest's renaming it is not."""
    # the names of shards and of what is beside them must outlast a power failure if the manifest's does
    sync_directory(area.out / "index")
    if rejects:
        write_atomically(area.out / f"rejected-{manifest.build_id}.jsonl", rejects_text(rejects))
    write_manifest(manifest, area.out)


def finish(manifest: Manifest, area: BuildArea) -> list[Problem]:
    """Bring the views in line with the committed manifest and take away the build area.

    Returns why there is no view for a tool that cannot read the dataset; empty if all can.
    """
    write_labels(manifest, area.out)
    problems = write_tfds_view(manifest, area.out)
    for path in temporary_files(area.out):
        path.unlink()
    area.remove()
    return problems


def read_rejects(path: Path) -> list[Reject]:
    """Return what is in a rejects file.

    Raises:
        InputError: it cannot be read, or is none.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        return [Reject(*(json.loads(line)[name] for name in _FIELDS)) for line in lines]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is no list of rejected inputs: {error!r}") from None


def rejects_text(rejects: Sequence[Reject]) -> bytes:
    """Return the rejects file: a JSON object a line, sorted by key."""
    lines = (json.dumps(dict(zip(_FIELDS, reject, strict=True))) for reject in sorted(rejects))
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def forget_generations(out: Path, keep: set[str], current: Manifest | None) -> None:
    """Remove what ``generations`` yields, but for the builds of the ids in ``keep``."""
    for path in generations(out, current):
        if build_of(path) not in keep:
            path.unlink()


def generations(out: Path, current: Manifest | None) -> Iterator[Path]:
    """Yield what builds wrote into ``out`` and the manifest does not name: shards, indexes, labels, rejects.

    Each shard stands before what is beside it: only with an index is a shard known to be a build's.
    """
    named = {f"rejected-{current.build_id}.jsonl"} if current else set()
    for shard in current.shards if current else ():
        named |= {shard.path, *shard.beside}
    indexes = {path.name for path in _listed(out / "index")}
    for path in (*_listed(out), *_listed(out / "index")):
        is_ours = path.parent != out or path.suffix == ".jsonl" or f"{path.name}.idx" in indexes
        if build_of(path) and is_ours and path.relative_to(out).as_posix() not in named:
            yield path


def build_of(path: Path) -> str:
    """Return the build id in the name of a shard, a file beside it or a rejects file; else nothing."""
    match = _OF_BUILD.fullmatch(path.name)
    return match[1] or match[2] if match else ""


def temporary_files(out: Path) -> list[Path]:
    """Return what killed processes have left of files that they were writing (``schemas.atomic``)."""
    return [path for path in _listed(out) if _TEMPORARY.fullmatch(path.name)]


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
