"""Give examples of a dataset other classes, by rewriting the shards that hold them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tfshards.prep.building.output import output_folder
from tfshards.prep.progress.lines import Log, as_warning, to_stderr
from tfshards.prep.records.example import decode_example, with_label
from tfshards.prep.records.frames import masked_crc32c
from tfshards.prep.rewriting.commit import Edit, commit_next, edits_of, plan_lines
from tfshards.prep.rewriting.keys import (
    KnownExamples,
    digest_without,
    numbers_by_split,
    read_known,
    record_lengths,
    touched_shards,
)
from tfshards.prep.rewriting.layout import edited_layout, label_counts
from tfshards.prep.rewriting.origin import Origin
from tfshards.prep.sources.keys import to_bytes, to_text
from tfshards.schemas import BuildError, InputError, Manifest, OptionsError, Schema
from tfshards.schemas.digests import digest_together, examples_digest
from tfshards.schemas.errors import counted, listed
from tfshards.schemas.index import FOOTER_BYTES, HEADER_BYTES, IntArray
from tfshards.schemas.json_reader import load_json, shown
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import KEYS, read_whole

if TYPE_CHECKING:
    from tfshards.prep.sources.tables.files import TableFile


COLUMNS = ("key", "label")
_JSON_LINES = (".jsonl", ".ndjson")


def new_labels(labels: str | os.PathLike[str] | Mapping[str | bytes, str | int]) -> dict[bytes, str]:
    """Return the name of the new class, or its number as text, by key.

    Args:
        labels: file with the columns ``key`` and ``label``; or the labels by key.

    Raises:
        OptionsError: the suffix of the file is not supported, or a mapping holds something else.
        InputError: the file does not exist, lacks a column, has no rows, or gives a key two labels.
        OSError: the file cannot be read.
    """
    if isinstance(labels, Mapping):
        return _checked(labels)
    path = _table_path(labels)
    found: dict[bytes, str] = {}
    rows = _json_rows(path) if path.suffix.lower() in _JSON_LINES else _table_rows(path)
    for number, (key, label) in rows:
        name = to_bytes(_text(key, "key", number, path))
        value = _text(label, "label", number, path)
        if found.setdefault(name, value) != value:
            raise InputError(
                "label-repeated",
                path=path,
                number=number,
                name=to_text(name),
                found=value,
                found2=found[name],
            )
    if not found:
        raise InputError("labels-empty", path=path)
    return found


def _checked(labels: Mapping[str | bytes, str | int]) -> dict[bytes, str]:
    found = {}
    for key, label in labels.items():
        if not isinstance(key, (str, bytes)) or not isinstance(label, (str, int)) or isinstance(label, bool):
            raise OptionsError("labels-mapping", key=key, label=label)
        found[to_bytes(key) if isinstance(key, str) else key] = str(label)
    if not found:
        raise OptionsError("labels-none")
    return found


def _table_path(labels: str | os.PathLike[str]) -> AnyPath:
    # imported late, because Arrow takes a second
    from tfshards.prep.sources.tables.files import table_path

    return table_path(labels)


def _table_rows(path: AnyPath) -> Iterator[tuple[int, tuple[object, object]]]:
    from tfshards.prep.sources.tables.files import read_table

    table: TableFile = read_table(path, COLUMNS)
    _check_columns(table.table.column_names, path)
    columns = (table.table[name].to_pylist() for name in COLUMNS)
    return enumerate(zip(*columns, strict=True), 1)


def _json_rows(path: AnyPath) -> Iterator[tuple[int, tuple[object, object]]]:
    """Yield the rows of JSON Lines, in which a key may be any bytes, unlike for Arrow."""
    try:
        lines = read_whole(path, KEYS).split(b"\n")
    except OSError as error:
        raise InputError("unreadable", path=path, why=error.strerror) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = load_json(line)
        except ValueError:
            raise InputError("labels-not-json", path=path, number=number, line=shown(to_text(line))) from None
        _check_columns(row if isinstance(row, dict) else (), path)
        yield number, (row["key"], row["label"])


def _check_columns(names: Iterable[str], path: AnyPath) -> None:
    held = [*names]
    for name in COLUMNS:
        if name not in held:
            raise InputError("labels-column", path=path, name=name, join=", ".join(map(repr, held)) or "none")


def _text(value: object, column: str, number: int, path: AnyPath) -> str:
    if isinstance(value, bytes):
        value = to_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise InputError("label-type", path=path, number=number, column=column, found=value)
    return value


# Number of class names in a message.
_SHOWN = 5
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def relabel(
    dataset: str | os.PathLike[str],
    labels: str | os.PathLike[str] | Mapping[str | bytes, str | int],
    *,
    new_classes: bool = False,
    skip_unknown: bool = False,
    dry_run: bool = False,
    log: Log = to_stderr,
) -> Manifest:
    """Give examples of a dataset other classes and return its new manifest.

    Only the shards that hold the examples are written. In their records only the label changes, which is
    verified, as is the digest of all others. Each example stays in its split and at its position. The old
    dataset stays readable until the new one is committed, and its files until the next build or ``prune``.
    An interrupted call resumes when it is repeated.

    Args:
        dataset: folder of the dataset.
        labels: CSV, TSV, JSON Lines or Parquet file with the columns ``key`` and ``label``; or the labels by
            key. A label is the name of a class, or its number if the classes have no names.
        new_classes: add classes that the dataset does not have to the end of its class names, sorted.
        skip_unknown: ignore keys that the dataset does not have.
        dry_run: log which shards would be written, and write nothing.
        log: receives status lines.

    Raises:
        OptionsError: an argument is invalid.
        InputError: the dataset does not have a key or a class, or cannot be edited.
        BuildError: writing stopped before the commit; the same call resumes.
    """
    wanted = new_labels(labels)
    folder = output_folder(dataset)

    def find(origin: Origin) -> Edit | None:
        return _find(origin, wanted, log, new_classes=new_classes, skip_unknown=skip_unknown)

    return commit_next(folder, find, dry_run=dry_run, log=log)


def _find(
    origin: Origin, wanted: Mapping[bytes, str], log: Log, *, new_classes: bool, skip_unknown: bool
) -> Edit | None:
    manifest, root = origin.manifest, origin.root
    if manifest.schema.label is None:
        raise InputError("relabel-no-label", root=root)
    old = {split: origin.split_labels(split) for split in manifest.splits}
    joined = np.concatenate([labels for labels in old.values() if labels is not None])
    schema, numbers_of = _classes(manifest.schema, joined, {*wanted.values()}, root, new_classes=new_classes)
    known = read_known(origin)
    found = known.find_keys(wanted)
    is_unknown = found < 0
    if is_unknown.any():
        unknown = [key for key, is_one in zip(wanted, is_unknown.tolist(), strict=True) if is_one]
        are = "is" if len(unknown) == 1 else "are"
        fault = (
            f"{len(unknown):,} of {counted(len(wanted), 'key')} {are} not in {root}, such as "
            f"{to_text(unknown[0])!r}"
        )
        if not skip_unknown:
            raise InputError("keys-unknown", fault=fault)
        log(as_warning(fault))
    targets = np.array([numbers_of[label] for label in wanted.values()], np.int64)[~is_unknown]
    examples = found[~is_unknown]
    has_changed = joined[examples] != targets
    num_same = int((~has_changed).sum())
    if num_same:
        log(f"{counted(num_same, 'example')} already {'has its' if num_same == 1 else 'have their'} label")
    if not has_changed.any():
        return None
    order = np.argsort(examples[has_changed])
    made = _edit(
        origin, known, schema, examples[has_changed][order], targets[has_changed][order], joined.copy()
    )
    for line in _lines(made, known, examples[has_changed], old):
        log(line)
    return made


def _classes(
    schema: Schema, labels: IntArray, wanted: Collection[str], root: object, *, new_classes: bool
) -> tuple[Schema, dict[str, int]]:
    """Return the schema with new classes, and the number of each wanted class.

    Raises:
        InputError: a class is unknown, and ``new_classes`` is False, or it cannot be a new one.
    """
    names: Sequence[str] = schema.class_names or [str(label) for label in np.unique(labels).tolist()]
    unknown = sorted({*wanted} - {*names})
    if unknown and not new_classes:
        close = get_close_matches(unknown[0], names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {listed([*map(repr, names)], _SHOWN)}."
        more = f" (and {len(unknown) - 1:,} more)" if len(unknown) > 1 else ""
        raise InputError("class-unknown", root=root, unknown=unknown[0], more=more, hint=hint)
    if schema.class_names:
        schema = replace(schema, class_names=(*schema.class_names, *unknown))
        return schema, {name: number for number, name in enumerate(schema.class_names)}
    assert schema.label is not None
    limits = np.iinfo(schema.label.dtype)
    for name in unknown:
        if not (_INTEGER.fullmatch(name) and limits.min <= int(name) <= limits.max):
            raise InputError("label-not-integer", root=root, name=name, dtype=schema.label.dtype)
    return schema, {name: int(name) for name in (*names, *unknown)}


def _edit(
    origin: Origin,
    known: KnownExamples,
    schema: Schema,
    examples: IntArray,
    targets: IntArray,
    labels: IntArray,
) -> Edit:
    """Return the edit that gives examples, which are ascending, their new labels."""
    manifest = origin.manifest
    labels[examples] = targets
    shards, indices = manifest.shards, known.shard_of(examples)
    new: dict[str, dict[int, int]] = {}
    for example, index, target in zip(examples.tolist(), indices.tolist(), targets.tolist(), strict=True):
        record = example - int(known.ends[index]) + shards[index].num_examples
        new.setdefault(shards[index].path, {})[record] = target
    lengths, checksums = _new_records(origin, new)
    relabeled_origin = replace(origin, new_labels=new)
    layouts, digests = {}, {}
    for name, numbers in numbers_by_split(manifest).items():
        split = manifest.splits[name]
        is_in = np.isin(examples, numbers)
        changed = examples[is_in]
        before = examples_digest(record_lengths(known, changed), known.checksums[changed])
        after = examples_digest(lengths[is_in], checksums[is_in])
        digests[name] = digest_together([digest_without(split.examples_digest, before), after])
        none = np.zeros(len(numbers), np.bool_)
        layouts[name] = edited_layout(relabeled_origin, name, none, labels[numbers], is_balanced=False)
    return Edit(
        verb="relabel",
        origin=relabeled_origin,
        layouts=layouts,
        digests=digests,
        schema=schema,
        options={**edits_of(manifest), "relabeled": manifest.made.num_relabeled + len(examples)},
        rejects=origin.rejects(),
        content=[examples.tolist(), targets.tolist()],
        num_changed=len(examples),
    )


def _new_records(
    origin: Origin, new: Mapping[str, Mapping[int, int]]
) -> tuple[IntArray, npt.NDArray[np.uint32]]:
    """Return the lengths and checksums of the records with their new labels, in order.

    Raises:
        BuildError: a record is damaged, or something else than its label would change.
    """
    label = origin.manifest.schema.label
    assert label is not None
    lengths, checksums = [], []
    for shard in origin.manifest.shards:
        if shard.path not in new:
            continue
        reader = origin.frames(shard)
        for record, target in new[shard.path].items():
            found, _ = reader.read(record)
            old = found[HEADER_BYTES:-FOOTER_BYTES]
            try:
                data = with_label(old, label.name, target)
            except ValueError as error:
                raise BuildError(
                    "record-fault", path=origin.root / shard.path, record=record, error=error
                ) from None
            if decode_example(data) != {**decode_example(old), label.name: [target]}:
                raise BuildError("relabel-changes-more", path=origin.root / shard.path, record=record)
            lengths.append(len(data))
            checksums.append(masked_crc32c(data))
        reader.close()
    return np.array(lengths, np.int64), np.array(checksums, np.uint32)


def _lines(
    made: Edit, known: KnownExamples, examples: IntArray, old: Mapping[str, IntArray | None]
) -> Iterator[str]:
    """Yield what is relabeled, and which shards are written for it."""
    manifest = made.origin.manifest
    yield f"relabeling {counted(len(examples), 'example')} of {made.origin.root}"
    added = made.schema.class_names[len(manifest.schema.class_names) :]
    if added:
        yield f"new class{'es' if len(added) > 1 else ''}: {listed([repr(name) for name in added], _SHOWN)}"
    yield from plan_lines(made.layouts, touched_shards(known, examples), "relabeled examples")
    for split, layout in made.layouts.items():
        before, after = (label_counts(of, made.schema) for of in (old[split], layout.labels))
        lost = [repr(name) for name, count in before.items() if count and after and not after.get(name)]
        if lost:
            classes = f"class{'es' if len(lost) > 1 else ''} {listed(lost, _SHOWN)}"
            yield as_warning(f"the split {split!r} will have no examples of the {classes}")
