"""Give examples of a dataset other classes, by rewriting the shards that hold them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfshards.prep.deriving.edit import Edit, check_known_keys, commit_edit
from tfshards.prep.deriving.stored import Origin, labels_of
from tfshards.prep.engines.table import EngineName, find_run
from tfshards.prep.progress.lines import report_line
from tfshards.prep.sources.classes import quoted
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import InputError, Manifest, OptionsError
from tfshards.schemas.errors import check_flags, counted
from tfshards.schemas.index import IntArray
from tfshards.schemas.keys import find
from tfshards.schemas.storage import AnyPath

COLUMNS = ("key", "label")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def relabel(
    dataset: str | os.PathLike[str],
    labels: str | os.PathLike[str] | Mapping[str | bytes, str | int],
    *,
    new_classes: bool = False,
    engine: EngineName | None = None,
    beam_args: Sequence[str] = (),
) -> Manifest:
    """Give examples of a dataset other classes.

    Only the shards that hold the examples are written. In their records only the label changes, which is
    verified, as is the digest of all others. Each example stays in its split and at its position. The old
    dataset stays readable until the new one is committed, and its files until ``prune``.
    An interrupted call resumes when it is repeated.

    Args:
        dataset: folder of the dataset.
        labels: CSV, TSV, JSON Lines or Parquet file with the columns "key" and "label". A label is the name
            of a class, or its number if the classes have no names. In Python also a dict by key.
        new_classes: add classes that the dataset does not have to the end of its class names, sorted.
        engine: engine that writes the shards: "local", all cores of this machine, or "beam", Apache Beam.
        beam_args: Apache Beam's pipeline options, as for ``build``.

    Returns:
        The new manifest.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the dataset does not have a key or a class, or cannot be edited.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    check_flags(new_classes=new_classes)
    wanted = new_labels(labels)
    return commit_edit(
        dataset,
        lambda origin: _relabeled(origin, wanted, new_classes=new_classes),
        find_run(engine, beam_args),
    )


def new_labels(labels: str | os.PathLike[str] | Mapping[str | bytes, str | int]) -> dict[bytes, str]:
    """Return the name of the new class, or its number as text, by key."""
    if isinstance(labels, Mapping):
        for key, label in labels.items():
            is_label = isinstance(label, (str, int)) and not isinstance(label, bool)
            if not isinstance(key, (str, bytes)) or not is_label:
                raise OptionsError(f"labels= must map keys to classes, not {key!r} to {label!r}")
        if not labels:
            raise OptionsError("labels= is empty; give at least one key")
        return {to_bytes(key) if isinstance(key, str) else key: str(label) for key, label in labels.items()}
    # imported late, because Arrow takes a second
    from tfshards.prep.sources.features import TEXT, is_bytes_type
    from tfshards.prep.sources.table import read_table

    read = read_table(labels, (), follow_links=True)
    path, table = read.where, read.batches.read_all()
    for name in COLUMNS:
        if name not in table.column_names:
            columns = ", ".join(map(repr, table.column_names))
            raise InputError(f"{path} has no column {name!r}, only {columns}; it needs 'key' and 'label'")
    found: dict[bytes, str] = {}
    # keys in Parquet need not be UTF-8
    texts = [table[name].cast(TEXT) if is_bytes_type(table[name].type) else table[name] for name in COLUMNS]
    rows = zip(*(column.to_pylist() for column in texts), strict=True)
    for number, row in enumerate(rows, 1):
        key, label = (_text(value, column, number, path) for value, column in zip(row, COLUMNS, strict=True))
        if found.setdefault(to_bytes(key), label) != label:
            earlier = found[to_bytes(key)]
            raise InputError(
                f"{path}, row {number}: the key {key!r} has the label {label!r}, but {earlier!r} in an "
                "earlier row; keep one of them"
            )
    return found


def _text(value: object, column: str, number: int, path: str) -> str:
    if isinstance(value, bytes):
        value = to_text(value)
    if isinstance(value, (bool, int, float)):
        # as it is in a file of text
        value = json.dumps(value)
    if not isinstance(value, str) or not value:
        raise InputError(f"{path}, row {number}: {column} is {value!r}, but must be text or a number")
    return value


def _relabeled(origin: Origin, wanted: Mapping[bytes, str], *, new_classes: bool) -> Edit | None:
    manifest, old = origin.manifest, labels_of(origin, origin.manifest.shards)
    if old is None:
        raise InputError(f"{origin.root} has no scalar feature of kind 'label', which could be changed")
    numbers_of, added = _classes(manifest, old, {*wanted.values()}, origin.root, new_classes=new_classes)
    examples = find(origin.root, manifest.shards, [*wanted])
    unknown = [key for key, number in zip(wanted, examples.tolist(), strict=True) if number < 0]
    check_known_keys(unknown, len(wanted), origin)
    labels = old.copy()
    labels[examples] = np.array([numbers_of[label] for label in wanted.values()], np.int64)
    is_changed = labels != old
    num_changed = int(is_changed.sum())
    if num_same := len(examples) - num_changed:
        report_line(f"{counted(num_same, 'example')} with the wanted label already")
    if not num_changed:
        return None
    report_line(f"relabeling {counted(num_changed, 'example')} of {origin.root}")
    if added:
        report_line(f"new classes: {quoted(added)}")
    return Edit(
        verb="relabel",
        is_removed=np.zeros_like(is_changed),
        is_changed=is_changed,
        labels=labels,
        rejects=origin.rejects(),
        removed=origin.removed(),
        new_classes=added,
    )


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
        if not (_INTEGER.fullmatch(name) and limits.min <= int(name) <= limits.max):
            raise InputError(
                f"{root}: the label {name!r} is not an integer of type {schema.label.dtype}, but the "
                "classes have no names; give their numbers"
            )
    return {name: int(name) for name in (*known, *unknown)}, []
