"""Remove examples from a dataset by their keys, by rewriting the shards that hold them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tfshards.prep.building.output import output_folder
from tfshards.prep.building.rejects import original_of
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.progress.lines import Log, as_warning, to_stderr
from tfshards.prep.rewriting.commit import Edit, commit_next, edits_of, plan_lines
from tfshards.prep.rewriting.keys import (
    OPTION,
    KnownExamples,
    are_removed,
    digest_without,
    numbers_by_split,
    read_known,
    record_lengths,
    touched_shards,
    with_removed,
)
from tfshards.prep.rewriting.layout import edited_layout, label_counts
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.sources.keys import hash_key, read_keys, to_bytes, to_text
from tfshards.prep.writing.area import Reject
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.digests import examples_digest
from tfshards.schemas.errors import counted, listed

# Number of class names in a message.
_SHOWN = 5


def remove(
    dataset: str | os.PathLike[str],
    keys: str | os.PathLike[str] | Collection[str | bytes],
    *,
    skip_unknown: bool = False,
    dry_run: bool = False,
    log: Log = to_stderr,
) -> Manifest:
    """Remove examples, and rejected inputs, from a dataset and return its new manifest.

    Only the shards that hold the examples are written, and those that give examples to them so that the
    shards of a split differ by at most one example, if they did before. Records are copied without being
    decoded; a digest verifies that all others are unchanged. The old dataset stays readable until the new
    one is committed, and its files until the next build or ``prune``. An interrupted call resumes when it is
    repeated.

    The manifest keeps a hash of each removed key, so that ``append`` does not take the input again. Inputs
    that were rejected as duplicates of a removed example are removed with it.

    Args:
        dataset: folder of the dataset.
        keys: file of keys, one per line, see ``prep/sources/keys.py``; or the keys.
        skip_unknown: ignore keys that the dataset does not have.
        dry_run: log which shards would be written, and write nothing.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the dataset does not have a key, a split would have no examples, or the dataset cannot be
            edited.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    wanted = _wanted(keys)
    folder = output_folder(dataset)

    def find(origin: Origin) -> Edit | None:
        return _find(origin, wanted, log, skip_unknown=skip_unknown)

    return commit_next(folder, find, dry_run=dry_run, log=log)


def _wanted(keys: str | os.PathLike[str] | Collection[str | bytes]) -> list[bytes]:
    """Return the keys, sorted, each once."""
    if isinstance(keys, (str, os.PathLike)):
        found = read_keys(keys)
        if not found:
            raise InputError("keys-empty", keys=os.fspath(keys))
        return sorted({*found})
    if isinstance(keys, bytes) or not isinstance(keys, Iterable) or not keys:
        raise OptionsError("keys-argument", keys=keys)
    if not all(isinstance(key, (str, bytes)) for key in keys):
        raise OptionsError("keys-type")
    return sorted({to_bytes(key) if isinstance(key, str) else key for key in keys})


@dataclass(frozen=True, eq=False)
class _Found:
    """What a dataset has of the wanted keys.

    Attributes:
        is_removed: shape ``(num_examples,)``, whether each example is removed.
        rejects: the rejected inputs that stay.
        num_rejects: number of rejected inputs that are removed by their own key.
        num_duplicates: number of those that are removed because the example is that they repeat.
        hashes: hashes of the keys that are removed.
        num_gone: number of keys that were removed before.
        unknown: the other keys.
    """

    is_removed: BoolArray
    rejects: list[Reject]
    num_rejects: int
    num_duplicates: int
    hashes: frozenset[bytes]
    num_gone: int
    unknown: list[bytes]


def _find(origin: Origin, wanted: Sequence[bytes], log: Log, *, skip_unknown: bool) -> Edit | None:
    known = read_known(origin)
    found = _lookup(origin, known, wanted)
    if found.unknown:
        have = "is" if len(found.unknown) == 1 else "are"
        fault = (
            f"{len(found.unknown):,} of {counted(len(wanted), 'key')} {have} not in {origin.root}, such as "
            f"{to_text(found.unknown[0])!r}"
        )
        if not skip_unknown:
            raise InputError("keys-unknown", fault=fault)
        log(as_warning(fault))
    if found.num_gone:
        log(f"{counted(found.num_gone, 'key')} {'was' if found.num_gone == 1 else 'were'} removed before")
    if not found.hashes:
        return None
    made = _edit(origin, known, found)
    for line in _lines(made, known, found):
        log(line)
    return made


def _lookup(origin: Origin, known: KnownExamples, wanted: Sequence[bytes]) -> _Found:
    hashes = np.array([hash_key(key) for key in wanted], "S16")
    # all examples with a key, even if there are several
    is_removed = np.isin(known.keys, hashes)
    is_held = np.isin(hashes, known.keys[is_removed])
    named = {*wanted}
    rejects = origin.rejects()
    own = {reject for reject in rejects if to_bytes(reject.key) in named}
    repeated = {reject for reject in rejects if _is_of(reject, named)} - own
    rejected = {to_bytes(reject.key) for reject in own | repeated}
    missing = [key for key, held in zip(wanted, is_held, strict=True) if not held and key not in rejected]
    was_removed = are_removed(missing, origin.manifest.made).tolist()
    held = [key for key, is_one in zip(wanted, is_held, strict=True) if is_one]
    return _Found(
        is_removed=is_removed,
        rejects=[reject for reject in rejects if reject not in own | repeated],
        num_rejects=len(own),
        num_duplicates=len(repeated),
        hashes=frozenset(map(hash_key, {*held, *rejected})),
        num_gone=sum(was_removed),
        unknown=[key for key, gone in zip(missing, was_removed, strict=True) if not gone],
    )


def _is_of(reject: Reject, keys: Collection[bytes]) -> bool:
    """Return whether an input was rejected as a duplicate of one of these examples."""
    original = original_of(reject)
    return original is not None and to_bytes(original) in keys


def _edit(origin: Origin, known: KnownExamples, found: _Found) -> Edit:
    manifest = origin.manifest
    layouts, digests = {}, {}
    for name, numbers in numbers_by_split(manifest).items():
        split, is_removed = manifest.splits[name], found.is_removed[numbers]
        if len(numbers) and is_removed.all():
            raise InputError(
                "remove-whole-split", root=origin.root, num_examples=split.num_examples, name=name
            )
        sizes = np.array([shard.num_examples for shard in split.shards], np.int64)
        is_by_count = manifest.made.is_balanced_by_count
        is_balanced = is_by_count and len(numbers) > 0 and int(sizes.max() - sizes.min()) <= 1
        labels = origin.split_labels(name)
        layouts[name] = edited_layout(origin, name, is_removed, labels, is_balanced=is_balanced)
        removed = numbers[is_removed]
        gone = examples_digest(record_lengths(known, removed), known.checksums[removed])
        digests[name] = digest_without(split.examples_digest, gone)
    return Edit(
        verb="remove",
        origin=origin,
        layouts=layouts,
        digests=digests,
        schema=manifest.schema,
        options={**edits_of(manifest), OPTION: with_removed(manifest.made, found.hashes)},
        rejects=found.rejects,
        removed=found.hashes,
        content=[*sorted(one.hex() for one in found.hashes)],
    )


def _lines(made: Edit, known: KnownExamples, found: _Found) -> Iterator[str]:
    """Yield what is removed, and which shards are written for it."""
    manifest = made.origin.manifest
    what = [counted(int(found.is_removed.sum()), "example")]
    if found.num_rejects:
        what.append(counted(found.num_rejects, "rejected input"))
    if found.num_duplicates:
        what.append(f"{counted(found.num_duplicates, 'rejected duplicate')} of these examples")
    yield f"removing {' and '.join(what)} from {made.origin.root}"
    touched = touched_shards(known, np.flatnonzero(found.is_removed))
    yield from plan_lines(made.layouts, touched, "removed examples")
    for name, layout in made.layouts.items():
        if len(layout.kept) < len(manifest.splits[name].shards):
            yield as_warning(
                f"the split {name!r} will have {counted(len(layout.kept), 'shard')} instead of "
                f"{len(manifest.splits[name].shards):,}, since a shard without examples is left out"
            )
        before = manifest.splits[name].label_counts
        if layout.labels is not None and before:
            after = label_counts(layout.new_labels, made.schema)
            lost = [repr(name) for name, count in before.items() if count and not after.get(name)]
            if lost:
                classes = f"class{'es' if len(lost) > 1 else ''} {listed(lost, _SHOWN)}"
                yield as_warning(f"the split {name!r} will have no examples of the {classes}")
