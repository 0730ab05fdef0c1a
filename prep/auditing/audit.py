"""Find leaks, duplicates, label conflicts, rare classes and odd sizes in a sound dataset."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tfshards.prep.auditing.findings import (
    Finding,
    FoundExample,
    Instance,
    Kind,
    class_findings,
    class_name,
    example_at,
    size_findings,
)
from tfshards.prep.auditing.repeats import Partners, Repeats, find_repeats
from tfshards.prep.auditing.similar import DEFAULT_DISTANCE, HASH_BITS, check_distance, require_imagehash
from tfshards.prep.auditing.survey import Survey, compared_names, image_names, survey
from tfshards.prep.progress.lines import report_line
from tfshards.prep.records.dataset_files import check_new_file
from tfshards.prep.sources.keys import KEY_FEATURE, holds_written_keys, write_keys
from tfshards.schemas import InputError, Manifest, OptionsError, read_manifest
from tfshards.schemas.errors import counted
from tfshards.schemas.json_reader import Json
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.summary import class_lines, escaped

# The kinds of findings whose instances are examples.
KindOfExamples: TypeAlias = Literal["leak", "duplicate", "conflict", "size"]


def chosen_examples(findings: Collection[Finding], kinds: Collection[Kind]) -> set[FoundExample]:
    """Return the examples of some kinds of findings, of equal or similar ones all but one.

    If an image has several labels, nothing shows which of them is right. Therefore all examples of a conflict
    are returned for the kind ``conflict``; for the kinds ``leak`` and ``duplicate`` without it, none of them.
    """
    of_conflicts = _of_conflicts(findings)
    chosen: set[FoundExample] = set()
    for finding in findings:
        if finding.kind in kinds and finding.kind != "conflict":
            found = {instance.example for instance in finding.instances if instance.example}
            chosen |= found if finding.kind == "size" else found - of_conflicts
    return chosen | of_conflicts if "conflict" in kinds else chosen


def _of_conflicts(findings: Collection[Finding]) -> set[FoundExample]:
    """Return the examples of all conflicts, with those that equal or resemble one of them."""
    similar: dict[FoundExample, set[FoundExample]] = {}
    waiting: list[FoundExample] = []
    for finding in findings:
        for instance in finding.instances:
            if instance.example and instance.like:
                similar.setdefault(instance.example, set()).add(instance.like)
                similar.setdefault(instance.like, set()).add(instance.example)
                if finding.kind == "conflict":
                    waiting.append(instance.example)
    found = set(waiting)
    while waiting:
        new = similar[waiting.pop()] - found
        found |= new
        waiting += new
    return found


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of an audit.

    Attributes:
        num_examples: number of examples by split, largest split first.
        label_counts: number of examples by split and class, for all classes; empty without labels.
        findings: leaks first.
        notes: parts of the dataset that were not examined, and why.
        has_keys: whether the examples have keys.
        fail_on: kinds of findings that are failures.
    """

    num_examples: Mapping[str, int]
    label_counts: Mapping[str, Mapping[str, int]]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    has_keys: bool = True
    fail_on: tuple[Kind, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there are no findings of a kind in ``fail_on``."""
        return not any(finding.kind in self.fail_on for finding in self.findings)

    def __repr__(self) -> str:
        """Return the text that ``tfshards audit`` prints."""
        return audit_text(self)

    def to_json(self) -> dict[str, Json]:
        """Return all findings, with every instance."""
        return audit_json(self)

    def keys(self, kinds: Collection[Kind] = ("leak", "duplicate")) -> list[str]:
        """Return the keys of the examples that were found, sorted, each once.

        Among equal or similar examples, the best one is left out: in the largest split, the one with
        the most pixels, then that with the most bytes, then the first one. Removing the others leaves one
        of each. Since nothing shows which label of a conflict is right, none of its examples is listed, or
        with the kind ``conflict`` all of them.

        Args:
            kinds: kinds of findings that name examples: ``leak``, ``duplicate``, ``conflict`` and ``size``.

        Raises:
            InputError: the examples have no keys.
        """
        if not self.has_keys:
            raise InputError("audit-no-keys")
        return sorted({example.key for example in chosen_examples(self.findings, kinds)})


def audit(
    dataset: str | os.PathLike[str],
    *,
    distance: int | None = DEFAULT_DISTANCE,
    fail_on: Collection[Kind] = (),
    keys: str | os.PathLike[str] | None = None,
    keys_of: Collection[KindOfExamples] = (),
) -> Audit:
    """Find problems of content in a dataset; every record is read once.

    Args:
        dataset: folder of the dataset, or its URL.
        distance: two images are near duplicates if at most this many of the 256 bits of their perceptual
            hashes differ; none compares bytes only and decodes nothing.
        fail_on: kind of findings that are a failure, with exit status 1.
        keys: new file for the keys of the examples that were found, as "remove" takes them: of equal or
            similar examples all but one, without those that have different labels.
        keys_of: kind of findings whose keys are written, by default leak and duplicate.

    Raises:
        OptionsError: an argument is not allowed.
        InputError: ``dataset`` is not a dataset, a shard is incomplete, or ImageHash is missing
            (``tfshards[audit]``).
        FormatError: the manifest cannot be read.
        RecordError: a record is damaged, or does not match the schema.
    """
    if keys_of and keys is None:
        raise OptionsError("keys_of= has no effect without keys=; name a file")
    for name, kinds, allowed in (
        ("fail_on", fail_on, get_args(Kind)),
        ("keys_of", keys_of, get_args(KindOfExamples)),
    ):
        if wrong := next((kind for kind in kinds if kind not in allowed), None):
            raise OptionsError(f"{name}={wrong!r} must be one of {', '.join(allowed)}")
    path = None if keys is None else any_path(keys)
    if path is not None:
        check_new_file(path, "a list of keys", holds_written_keys)
    made = _audited(dataset, distance)
    if path is not None:
        _write_keys(path, made, keys_of or _DEFAULT_KINDS)
    failed = Counter(finding.kind for finding in made.findings if finding.kind in fail_on)
    if failed:
        counts = (f"{counted(count, 'finding')} of kind {kind!r}" for kind, count in failed.items())
        report_line(f"failed: {', '.join(counts)} (fail_on=)")
    return replace(made, fail_on=tuple(fail_on))


_DEFAULT_KINDS: tuple[Kind, ...] = ("leak", "duplicate")


def _write_keys(path: AnyPath, made: Audit, kinds: Collection[Kind]) -> None:
    keys = made.keys(kinds)
    write_keys(path, keys)
    report_line(f"wrote {counted(len(keys), 'key')} to {path}")
    if contested := len({*made.keys(["conflict"])} - {*keys}):
        report_line(
            f"left out the keys of {counted(contested, 'example')} of label conflicts, since nothing "
            "shows which label is right; keys_of=conflict lists them all: correct their labels with "
            "'tfshards relabel' or remove the wrong ones, then audit again"
        )


def _audited(root: str | os.PathLike[str], distance: int | None) -> Audit:
    check_distance(distance)
    manifest = read_manifest(root)
    has_images = bool(image_names(manifest))
    if has_images and distance is not None:
        require_imagehash()
    seen = survey(any_path(root), manifest, is_hashed=has_images and distance is not None)
    counts = _label_counts(seen, manifest)
    findings: list[Finding] = []
    notes = list(_notes(seen, manifest, distance))
    if compared_names(manifest):
        found = find_repeats(seen, distance)
        if not found.is_complete:
            notes.append(
                "too many images are similar: the search for near-duplicates ended early, some may be missing"
            )
        findings += _repeated(seen, manifest, found)
    findings += class_findings(counts)
    findings += size_findings(seen, manifest)
    sizes = {name: manifest.splits[name].num_examples for name in seen.splits}
    return Audit(sizes, counts, tuple(findings), tuple(notes), KEY_FEATURE in manifest.schema.features)


def _notes(seen: Survey, manifest: Manifest, distance: int | None) -> Iterator[str]:
    compared = compared_names(manifest)
    images = image_names(manifest)
    if not compared:
        yield "no feature besides key and label: duplicates were not searched"
    elif not images:
        yield f"no images: only examples with equal {', '.join(compared)} were searched, not near-duplicates"
    elif distance is None:
        yield "only images with equal bytes were searched, not near-duplicates"
    if len(images) > 1:
        yield f"of the image features only {images[0]!r} was examined"
    if seen.num_flat:
        yield f"images of nearly one color, compared by bytes only: {seen.num_flat:,}"
    if seen.faults:
        index, fault = next(iter(seen.faults.items()))
        yield f"images that cannot be decoded: {len(seen.faults):,}; the first, {seen.keys[index]}: {fault}"
    if manifest.schema.label is None:
        yield "no labels: classes and conflicts were not examined"


def _repeated(seen: Survey, manifest: Manifest, found: Repeats) -> Iterator[Finding]:
    """Yield the leaks, the duplicates and the conflicts."""
    has_images = bool(image_names(manifest))
    what = "images" if has_images else "examples"
    sizes = [f" of {manifest.splits[name].num_examples:,}" for name in seen.splits]
    own, others = seen.split, seen.split[found.leaks.partner]
    for split, name in enumerate(seen.splits):
        for other, other_name in enumerate(seen.splits[:split]):
            is_one = (own == split) & (others == other)
            text = f"{what} of {name!r} that are also in {other_name!r}"
            yield from _finding(seen, manifest, "leak", text, sizes[split], found.leaks, is_one)
    for split, name in enumerate(seen.splits):
        text, is_one = f"{what} of {name!r} that repeat another one of it", own == split
        yield from _finding(seen, manifest, "duplicate", text, sizes[split], found.duplicates, is_one)
    text = f"{what} that also occur with another label"
    yield from _finding(seen, manifest, "conflict", text, "", found.conflicts, own >= 0)


def _finding(
    seen: Survey,
    manifest: Manifest,
    kind: Kind,
    text: str,
    of: str,
    partners: Partners,
    is_one: npt.NDArray[np.bool_],
) -> Iterator[Finding]:
    """Yield the finding about those examples that have a partner, if any, the most certain first."""
    indices = np.flatnonzero(is_one & (partners.partner >= 0))
    if not len(indices):
        return
    indices = indices[np.argsort(partners.distance[indices], kind="stable")]
    cases = tuple(
        Instance(
            "the same" if bits < 0 else f"{bits} of {HASH_BITS} bits differ",
            example_at(seen, manifest, index),
            example_at(seen, manifest, partner),
        )
        for index, partner, bits in zip(
            indices.tolist(),
            partners.partner[indices].tolist(),
            partners.distance[indices].tolist(),
            strict=True,
        )
    )
    same = int((partners.distance[indices] < 0).sum())
    certainty = f"{same:,} the same, {len(cases) - same:,} nearly the same"
    yield Finding(kind, f"{text}: {len(cases):,}{of} ({certainty})", cases)


def _label_counts(seen: Survey, manifest: Manifest) -> dict[str, dict[str, int]]:
    if manifest.schema.label is None:
        return {}
    by_split = [Counter(seen.label[seen.split == split].tolist()) for split in range(len(seen.splits))]
    labels = range(len(manifest.schema.class_names)) or sorted(set().union(*by_split))
    return {
        name: {class_name(manifest, label): counts[label] for label in labels}
        for name, counts in zip(seen.splits, by_split, strict=True)
    }


_SHOWN_INSTANCES = 5


def audit_text(made: Audit) -> str:
    """Return the findings with their first instances, the notes, and the number of examples by class."""
    lines = [line for finding in made.findings for line in _finding_lines(finding)] or ["no findings"]
    lines += [f"note: {escaped(note)}" for note in made.notes]
    if made.label_counts:
        # a split without any label has examples without classes, rather than none of each
        lines += class_lines(
            {split: counts if any(counts.values()) else {} for split, counts in made.label_counts.items()}
        )
    return "\n".join(lines)


def audit_json(made: Audit) -> dict[str, Json]:
    """Return all findings, with every instance."""
    return {
        "num_examples": dict(made.num_examples),
        "label_counts": {split: dict(counts) for split, counts in made.label_counts.items()},
        "findings": [
            {
                "kind": finding.kind,
                "message": finding.message,
                "count": len(finding.instances),
                "instances": [{"detail": one.detail, **_examples_json(one)} for one in finding.instances],
            }
            for finding in made.findings
        ],
        "notes": list(made.notes),
    }


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.kind}: {escaped(finding.message)}"
    for case in finding.instances[:_SHOWN_INSTANCES]:
        examples = [
            f"{one.key} ({one.split}{'' if one.label is None else f', {one.label}'})"
            for one in (case.example, case.like)
            if one
        ]
        yield escaped(f"    {' = '.join(examples)}{': ' if examples else ''}{case.detail}")
    more = len(finding.instances) - _SHOWN_INSTANCES
    if more > 0:
        yield f"    and {more:,} more"


def _examples_json(case: Instance) -> dict[str, Json]:
    examples = {"example": case.example, "like": case.like}
    return {
        name: {"split": one.split, "key": one.key, "label": one.label} if one else None
        for name, one in examples.items()
    }
