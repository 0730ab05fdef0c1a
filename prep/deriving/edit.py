"""Edit a dataset: remove examples, or give them other classes, by rewriting the shards that hold them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tfshards.prep.building.output import output_folder
from tfshards.prep.building.rejects import original_of
from tfshards.prep.deriving.derive import Derived, commit_next
from tfshards.prep.deriving.layout import NewSplit, OldShard, whole, without
from tfshards.prep.deriving.stored import Origin, Removed, damage_named, labels_of, removed_line
from tfshards.prep.engines.work import Work, find_run
from tfshards.prep.planning.balance import BoolArray
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import read_keys, to_bytes, to_text
from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import InputError, Manifest, OptionsError, Shard, Split
from tfshards.schemas.digests import bytes_digest, examples_digest
from tfshards.schemas.errors import check_flags, counted, listed
from tfshards.schemas.index import FRAME_OVERHEAD, IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import find, occurrences
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.stored import LISTS

_COLUMNS = ("key", "label")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
# Unknown keys that the error about them lists.
_SHOWN = 100


def remove(
    dataset: str | os.PathLike[str],
    keys: str | os.PathLike[str] | Collection[str | bytes | int],
    *,
    beam_args: Sequence[str] = (),
) -> Manifest:
    """Remove examples, and rejected inputs, from a dataset.

    Only the shards that hold the examples are written, and those that give examples to them so that the
    shards of a split differ by at most one example, if they did before. Records are copied without being
    decoded; a digest verifies that all others are unchanged. Of shards that stay, only sizes are compared.
    The old dataset stays readable until the new one is committed, and its files until ``prune``. An
    interrupted call resumes when it is repeated.

    The dataset keeps a hash of each removed key, so that ``append`` does not take the input again. Inputs
    that were rejected as duplicates of a removed example are removed with it.

    Args:
        dataset: folder of the dataset.
        keys: file of keys, one per line, such as "audit" writes with "keys"; a line that starts with a
            quotation mark is a JSON string. In Python also the keys.
        beam_args: Apache Beam's pipeline options, as for ``build``.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the dataset does not have a key, a split would have no examples, or the dataset cannot be
            edited.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    wanted = _keys_in(keys)
    return _commit(dataset, lambda origin: _without(origin, wanted), beam_args)


def relabel(
    dataset: str | os.PathLike[str],
    labels: str | os.PathLike[str] | Mapping[str | bytes, str | int] | Mapping[int, str | int],
    *,
    new_classes: bool = False,
    beam_args: Sequence[str] = (),
) -> Manifest:
    """Give examples of a dataset other classes.

    Only the shards that hold the examples are written. In their records only the label changes, which is
    verified, as is the digest of all others. Of shards that stay, only sizes are compared. Each example stays
    in its split and at its position. The old dataset stays readable until the new one is committed, and its
    files until ``prune``. An interrupted call resumes when it is repeated.

    Args:
        dataset: folder of the dataset.
        labels: CSV or TSV file with the columns "key" and "label". A label is the name of a class, or its
            number if the classes have no names. In Python also a dict by key.
        new_classes: add classes that the dataset does not have to the end of its class names, sorted.
        beam_args: Apache Beam's pipeline options, as for ``build``.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the dataset does not have a key or a class, or cannot be edited.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    check_flags(new_classes=new_classes)
    if isinstance(labels, Mapping):
        wanted = {_key(key): str(label) for key, label in labels.items()}
    else:
        wanted = _labels_in(labels)

    def find_edit(origin: Origin) -> _Edit | None:
        return _relabeled(origin, wanted, new_classes=new_classes)

    return _commit(dataset, find_edit, beam_args)


# What is asked for


def _keys_in(keys: str | os.PathLike[str] | Collection[str | bytes | int]) -> list[bytes]:
    if isinstance(keys, (str, os.PathLike)):
        if not any_path(keys).exists():
            raise InputError(f"keys={os.fspath(keys)!r} does not exist; name a file with a key per line")
        found = read_keys(keys)
        if not found:
            raise InputError(f"{keys} has no keys; write one per line")
        return sorted({*found})
    if isinstance(keys, bytes) or not isinstance(keys, Iterable) or not keys:
        raise OptionsError(f"keys={keys!r} must be a file of keys, or a list of at least one key")
    return sorted({*map(_key, keys)})


def _key(given: str | bytes | int) -> bytes:
    """Return a key, which of arrays may be given as the number of a row."""
    return given if isinstance(given, bytes) else to_bytes(str(given))


def _labels_in(labels: str | os.PathLike[str]) -> dict[bytes, str]:
    """Return the name of the new class, or its number as text, by key."""
    path = any_path(labels, "labels")
    found: dict[bytes, str] = {}
    try:
        # keys need not be UTF-8
        text = path.read_whole(LISTS).decode("utf-8-sig", "surrogateescape")
        delimiter = _DELIMITERS.get(path.suffix.lower())
        if delimiter is None:
            raise OptionsError(
                f"labels={os.fspath(labels)!r} must be a .csv or .tsv file with the columns 'key' and "
                "'label'; in Python also a dict, such as dict(zip(table['key'], table['label']))"
            )
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        if missing := sorted({*_COLUMNS} - {*(rows.fieldnames or ())}):
            raise InputError(f"{path} has no column {missing[0]!r}; it needs 'key' and 'label'")
        for row in rows:
            key, label = (row[name] for name in _COLUMNS)
            if not key or not label:
                raise InputError(f"{path}, line {rows.line_num}: the key or the label is empty")
            if found.setdefault(to_bytes(key), label) != label:
                raise InputError(
                    f"{path}, line {rows.line_num}: the key {key!r} has the label {label!r}, but "
                    f"{found[to_bytes(key)]!r} in an earlier line; keep one of them"
                )
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", code="unreadable") from None
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}: {error}") from None
    return found


# What changes


@dataclass(frozen=True, eq=False)
class _Edit:
    """An edit of a dataset, whose examples are numbered in the order of its shards.

    Attributes:
        verb: the verb, ``remove`` or ``relabel``.
        is_removed: shape ``(num_examples,)``, whether each example is removed.
        labels: shape ``(num_examples,)``, the label of each example afterwards; None if they stay.
        rejects: the rejected inputs that are left.
        removed: all removed keys.
        new_classes: names that follow those of the classes.
    """

    verb: str
    is_removed: BoolArray
    labels: IntArray | None
    rejects: Sequence[Reject]
    removed: Removed
    new_classes: Sequence[str] = ()


def _without(origin: Origin, wanted: Sequence[bytes]) -> _Edit | None:
    shards, rejects, before = origin.manifest.shards, origin.rejects(), origin.removed()
    is_removed = np.zeros(origin.manifest.num_examples, np.bool_)
    removed: set[bytes] = set()
    # all examples with a key, even if there are several
    for number, key in occurrences(origin.root, shards, wanted):
        is_removed[number] = True
        removed.add(key)
    # also those of which the example was a duplicate
    named = {to_text(key) for key in wanted}
    gone = [reject for reject in rejects if {reject.key, original_of(reject)} & named]
    removed |= {to_bytes(reject.key) for reject in gone}
    missing = [key for key in wanted if key not in removed]
    _check_known([key for key in missing if removed_line(key) not in before], len(wanted), origin)
    if missing:
        report_line(f"{counted(len(missing), 'key')} removed before")
    if not removed:
        return None
    inputs = f" and {counted(len(gone), 'rejected input')}" if gone else ""
    report_line(f"removing {counted(int(is_removed.sum()), 'example')}{inputs} from {origin.root}")
    left = [reject for reject in rejects if reject not in gone]
    return _Edit("remove", is_removed, None, left, before | {removed_line(key) for key in removed})


def _relabeled(origin: Origin, wanted: Mapping[bytes, str], *, new_classes: bool) -> _Edit | None:
    manifest, old = origin.manifest, labels_of(origin, origin.manifest.shards)
    if old is None:
        raise InputError(f"{origin.root} has no scalar feature of kind 'label', which could be changed")
    numbers_of, added = _classes(manifest, old, {*wanted.values()}, origin.root, new_classes=new_classes)
    examples = find(origin.root, manifest.shards, [*wanted])
    unknown = [key for key, number in zip(wanted, examples.tolist(), strict=True) if number < 0]
    _check_known(unknown, len(wanted), origin)
    labels = old.copy()
    labels[examples] = np.array([numbers_of[label] for label in wanted.values()], np.int64)
    num_changed = int((labels != old).sum())
    if num_same := len(examples) - num_changed:
        report_line(f"{counted(num_same, 'example')} with the wanted label already")
    if not num_changed:
        return None
    report_line(f"relabeling {counted(num_changed, 'example')} of {origin.root}")
    if added:
        report_line(f"new classes: {quoted(added)}")
    none = np.zeros(len(labels), np.bool_)
    return _Edit("relabel", none, labels, origin.rejects(), origin.removed(), added)


def _check_known(unknown: Sequence[bytes], num_wanted: int, origin: Origin) -> None:
    """Raise InputError if there are keys that the dataset does not have."""
    if unknown:
        some = f"{len(unknown):,} of {counted(num_wanted, 'key')}"
        keys = listed([repr(to_text(key)) for key in unknown], _SHOWN)
        raise InputError(f"{some} not in {origin.root}: {keys}; correct or omit them", code="key-unknown")


def _classes(
    manifest: Manifest, labels: IntArray, wanted: Collection[str], root: AnyPath, *, new_classes: bool
) -> tuple[dict[str, int], list[str]]:
    """Return the number of each class, and the names of the new ones."""
    schema, names = manifest.schema, manifest.schema.class_names
    known = names or [str(label) for label in np.unique(labels).tolist()]
    unknown = sorted({*wanted} - {*known})
    if unknown and not new_classes:
        more = f" (and {len(unknown) - 1:,} more)" if len(unknown) > 1 else ""
        raise InputError(
            f"{root} does not have the class {unknown[0]!r}{more}; its classes are {quoted(known)}. To add "
            "new ones, give new_classes=True"
        )
    if names:
        return {name: number for number, name in enumerate((*names, *unknown))}, unknown
    assert schema.label is not None
    limits = np.iinfo(schema.label.dtype)
    for name in unknown:
        if not (name.removeprefix("-").isdecimal() and limits.min <= int(name) <= limits.max):
            raise InputError(
                f"{root}: the label {name!r} is not an integer of type {schema.label.dtype}, but the "
                "classes have no names; give their numbers"
            )
    return {name: int(name) for name in (*known, *unknown)}, []


# The next generation


def _commit(
    dataset: str | os.PathLike[str],
    find_edit: Callable[[Origin], _Edit | None],
    beam_args: Sequence[str],
) -> Manifest:
    """Write and commit a dataset with an edit, and return its manifest.

    ``find_edit`` returns the edit of a dataset; None if nothing changes.
    """
    run = find_run(beam_args)

    def derive(origin: Origin) -> Derived | None:
        origin.require_keys()
        edit = find_edit(origin)
        return _derived(origin, edit, run) if edit else None

    return commit_next(output_folder(dataset), derive)


def _derived(origin: Origin, edit: _Edit, run: Callable[[Work], None]) -> Derived:
    """Return the next generation of a dataset."""
    manifest, old = origin.manifest, labels_of(origin, origin.manifest.shards)
    before = np.zeros(manifest.num_examples, np.int64) if old is None else old
    labels = before if edit.labels is None else edit.labels
    is_changed: BoolArray = labels != before
    changed = np.flatnonzero(is_changed)
    schema = replace(manifest.schema, class_names=(*manifest.schema.class_names, *edit.new_classes))
    splits: dict[str, NewSplit] = {}
    outlines: dict[str, Split] = {}
    end = 0
    for name, split in manifest.splits.items():
        start, end = end, end + split.num_examples
        is_kept = ~edit.is_removed[start:end]
        if len(is_kept) and not is_kept.any():
            raise InputError(
                f"{origin.root}: all {counted(split.num_examples, 'example')} of the split {name!r} would "
                "be removed, but a split has to keep at least one; build a dataset without this split "
                "instead"
            )
        splits[name] = _edited(origin, split, ~is_kept, is_changed[start:end], labels[start:end])
        outlines[name] = Split((), label_counts(labels[start:end][is_kept] if schema.label else None, schema))
    removed = sorted(line.decode("ascii") for line in edit.removed)
    inputs = json.dumps([manifest.to_text(), changed.tolist(), labels[changed].tolist(), removed])
    return Derived(
        outline=replace(
            manifest,
            schema=schema,
            splits=outlines,
            options=_options(origin, edit.verb),
            inputs_digest=bytes_digest(inputs.encode("ascii")),
        ),
        origins=[origin],
        splits=splits,
        run=run,
        locations=(origin.root,),
        rejects=edit.rejects,
        removed=edit.removed,
        is_next=True,
    )


def _edited(
    origin: Origin, split: Split, is_gone: BoolArray, is_changed: BoolArray, labels: IntArray
) -> NewSplit:
    """Return a split after an edit; only the records that are removed or changed are read."""
    olds: list[OldShard] = []
    digest, end = int(split.examples_digest, 16), 0
    for shard in split.shards:
        first, end = end, end + shard.num_examples
        changed = np.flatnonzero(is_changed[first:end])
        new = dict(zip(changed.tolist(), labels[first + changed].tolist(), strict=True))
        before = np.flatnonzero(is_gone[first:end] | is_changed[first:end])
        digest += _digest(origin, shard, changed, new) - _digest(origin, shard, before, {})
        olds.append(OldShard(0, shard, new))
    edited = without(whole(olds), is_gone) if is_gone.any() else whole(olds)
    return replace(edited, digest=f"{digest % (1 << 64):016x}")


def _digest(origin: Origin, shard: Shard, records: IntArray, labels: Mapping[int, int]) -> int:
    """Return the digest, as a number, of some records of a shard with new labels."""
    if not len(records):
        return 0
    with damage_named():
        found = [(len(frame), footer) for frame, footer in origin.frames(shard, records, labels)]
    lengths = np.array([length for length, _ in found], np.int64) - FRAME_OVERHEAD
    checksums = np.frombuffer(b"".join(footer for _, footer in found), "<u4")
    return int(examples_digest(lengths, checksums), 16)


def _options(origin: Origin, verb: str) -> dict[str, Json]:
    """Return the options for the manifest, with the dataset before its first edit as its origin."""
    before = origin.manifest.options
    is_edited = before.get("source") in ("remove", "relabel") and "appended" not in before
    return {"source": verb, "origin": before["origin"] if is_edited else origin.to_json()}
