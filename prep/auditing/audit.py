"""Audit a sound dataset, and choose the examples that ``remove`` should remove."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tfshards.prep.auditing.findings import (
    NO_LABEL,
    Examples,
    Finding,
    FoundExample,
    by_size,
    class_counts,
    class_findings,
    compared_of,
    image_features,
    repeat_findings,
    size_findings,
    survey,
)
from tfshards.prep.auditing.similar import DEFAULT_DISTANCE, check_distance
from tfshards.prep.planning.plan import label_counts
from tfshards.prep.progress.lines import report_line
from tfshards.prep.records.dataset_files import check_new_file
from tfshards.prep.sources.keys import holds_written_keys, write_keys
from tfshards.schemas import InputError, Manifest, Schema, read_manifest
from tfshards.schemas.errors import counted
from tfshards.schemas.json_reader import Json, as_json
from tfshards.schemas.storage import any_path
from tfshards.schemas.summary import escaped

_SHOWN = 5


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of an audit.

    Attributes:
        manifest: the manifest of the dataset.
        findings: leaks first.
        notes: parts of the dataset that were not examined, and why.
    """

    manifest: Manifest
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    def keys(self) -> list[str]:
        """Return the keys of leaks and duplicates, sorted: removing these examples leaves one of each.

        Among equal or similar examples, the best one is left out: in the largest split, the one with
        the most pixels, then that with the most bytes, then the first one. Nothing shows which label of a
        conflict is right: none of its examples is listed, nor any that resembles them.

        Raises:
            InputError: the examples have no keys.
        """
        if self.manifest.schema.key is None:
            raise InputError("the examples have no keys, so none can be listed; build a dataset with keys")
        repeats = [finding for finding in self.findings if finding.kind in ("leak", "duplicate")]
        found = {case.example for finding in repeats for case in finding.cases if case.example}
        return sorted({one.key for one in found - self._contested()})

    def _contested(self) -> set[FoundExample]:
        """Return the examples of all conflicts, with those that equal or resemble one of them."""
        pairs = [{*case.examples} for finding in self.findings for case in finding.cases if case.like]
        conflicts = (finding.cases for finding in self.findings if finding.kind == "conflict")
        found = {one for cases in conflicts for case in cases for one in case.examples}
        while more := {one for pair in pairs if pair & found for one in pair} - found:
            found |= more
        return found

    def __repr__(self) -> str:
        """Return the findings with their first cases, and the notes."""
        lines = [] if self.findings else ["no findings"]
        for finding in self.findings:
            lines.append(f"{finding.kind}: {escaped(finding.message)}")
            for case in finding.cases[:_SHOWN]:
                named = " = ".join(f"{one.key} ({one.place})" for one in case.examples)
                lines.append(escaped(f"    {named}{': ' if named else ''}{case.detail}"))
            if len(finding.cases) > _SHOWN:
                lines.append(f"    and {len(finding.cases) - _SHOWN:,} more")
        return "\n".join([*lines, *(f"note: {escaped(note)}" for note in self.notes)])

    def to_json(self) -> dict[str, Json]:
        """Return all findings, with every case."""
        return {"findings": as_json(self.findings), "notes": as_json(self.notes)}


def audit(
    dataset: str | os.PathLike[str],
    *,
    distance: int | None = DEFAULT_DISTANCE,
    keys: str | os.PathLike[str] | None = None,
) -> Audit:
    """Find examples in two splits, duplicates, label conflicts, rare classes and unusual image sizes.

    Every record is read once.

    Args:
        dataset: folder of the dataset, or its URL.
        distance: treat images as near duplicates if at most this many of the 256 bits of their perceptual
            hashes differ, at most 48; none compares bytes only and decodes nothing.
        keys: new file for the keys of leaks and duplicates, as "remove" takes them: of equal or similar
            examples all but one, without those that have different labels.

    Raises:
        OptionsError: an argument is not allowed.
        InputError: ``dataset`` is not a dataset, a shard is incomplete, or there are no keys to write.
        FormatError: the manifest cannot be read.
        RecordError: a record is damaged, or does not match the schema.
    """
    check_distance(distance)
    path = None if keys is None else any_path(keys)
    if path is not None:
        check_new_file(path, "a list of keys", holds_written_keys)
    manifest = read_manifest(dataset)
    schema = manifest.schema
    is_hashed = bool(image_features(schema)) and distance is not None
    examples = survey(any_path(dataset), manifest, is_hashed=is_hashed)
    findings, notes = list[Finding](), [*_notes(examples, schema, distance)]
    if compared_of(schema):
        what = "images" if image_features(schema) else "examples"
        found, is_complete = repeat_findings(examples, manifest, distance, what)
        findings += found
        if not is_complete:
            notes.append("too many images are similar: the search ended early, some pairs may be missing")
    # a manifest has no counts of a split in which an example has no class
    labeled = examples[examples["label"] != NO_LABEL]
    labels = {
        name: labeled["label"][labeled["split"] == split] for split, name in enumerate(by_size(manifest))
    }
    counts = class_counts(
        {name: label_counts(own if schema.label else None, schema) for name, own in labels.items()}, schema
    )
    findings += [*class_findings(counts), *size_findings(examples, manifest)]
    made = Audit(manifest, tuple(findings), tuple(notes))
    if path is not None:
        listed = made.keys()
        write_keys(path, listed)
        report_line(f"wrote {counted(len(listed), 'key')} to {path}, without those of label conflicts")
    return made


def _notes(examples: Examples, schema: Schema, distance: int | None) -> Iterator[str]:
    """Yield what was not examined, and why."""
    compared, images = compared_of(schema), image_features(schema)
    if not compared:
        yield "no feature besides key and label: duplicates were not searched"
    elif not images or distance is None:
        names = ", ".join(one.name for one in compared)
        yield f"only examples with equal {names} were searched, not near-duplicates"
    if len(images) > 1:
        yield f"of the image features only {images[0].name!r} was examined"
    is_flat = (examples["size"].min(axis=1) > 0) & ~examples["is_hashed"]
    if distance is not None and is_flat.any():
        yield f"images of nearly one color, compared by bytes only: {is_flat.sum():,}"
    faulty = examples[examples["fault"] != ""]
    for key, fault in faulty[["key", "fault"]][:1]:
        yield f"images that cannot be decoded: {len(faulty):,}; the first, {key}: {fault}"
    if schema.label is None:
        yield "no labels: classes and conflicts were not examined"
