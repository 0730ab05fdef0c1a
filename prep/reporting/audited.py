"""Findings of an audit with their examples, and rejected inputs by reason."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfshards.prep.auditing.audit import Audit, audit
from tfshards.prep.auditing.findings import Finding, FoundExample, Instance, class_findings
from tfshards.prep.auditing.similar import DEFAULT_DISTANCE, require_imagehash
from tfshards.prep.building.commit import read_rejects
from tfshards.prep.imaging.stored import encoded_small, thumbnail
from tfshards.prep.progress.lines import Log, as_warning
from tfshards.prep.reporting.class_groups import class_counts
from tfshards.prep.reporting.glimpse import Catalog, Glimpse
from tfshards.prep.reporting.pictures import Shown, picture_uri, shown
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.writing.area import Reject
from tfshards.schemas import InputError, Manifest, OptionsError, TfshardsError
from tfshards.schemas.files import local_path
from tfshards.schemas.names import rejects_name
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import Limit, read_whole
from tfshards.schemas.summary import escaped

# An audit decodes every image: two minutes for so many photos on two cores.
MOST_AUDITED = 20_000
_SHOWN_CASES = 24


@dataclass(frozen=True)
class Case:
    """One case of a finding, with one or two examples, or with none if it is about a class."""

    detail: str
    examples: tuple[Shown, ...]


@dataclass(frozen=True)
class FindingPart:
    """A finding on the page.

    Attributes:
        kind: kind of the finding.
        message: description in one line.
        cases: its first cases.
        more: number of further cases.
    """

    kind: str
    message: str
    cases: tuple[Case, ...]
    more: int


def audited(root: AnyPath, manifest: Manifest, *, wanted: bool | None) -> Audit:
    """Return the audit of a dataset; of a large one only what its manifest shows, unless it is wanted."""
    counts = class_counts(manifest)
    sizes = {name: split.num_examples for name, split in manifest.splits.items()}
    from_manifest = tuple(class_findings(counts))
    if wanted is False:
        return Audit(sizes, counts, from_manifest, ("only classes were examined: no audit was asked for",))
    if wanted is None and manifest.num_examples > MOST_AUDITED:
        note = (
            f"only classes were examined: leaks, duplicates and conflicts are searched in datasets with at "
            f"most {MOST_AUDITED:,} examples, or with the option --audit"
        )
        return Audit(sizes, counts, from_manifest, (note,))
    distance: int | None = DEFAULT_DISTANCE
    try:
        require_imagehash()
    except InputError:
        distance = None
    try:
        return audit(str(root), distance=distance)
    except (TfshardsError, OSError) as error:
        return Audit(sizes, counts, from_manifest, (f"the audit ended early: {error}",))


def rows_of_findings(made: Audit, catalog: Catalog) -> Iterator[int]:
    """Yield the rows of the examples that the page shows of the findings."""
    for finding in made.findings:
        for case in finding.instances[:_SHOWN_CASES]:
            for example in _examples(case):
                row = catalog.row_of(example.split, example.number)
                if row is not None:
                    yield row


def finding_parts(made: Audit, catalog: Catalog, seen: Mapping[int, Glimpse]) -> list[FindingPart]:
    """Return the findings as the page shows them."""
    return [
        FindingPart(
            finding.kind,
            escaped(finding.message),
            tuple(_case(case, catalog, seen) for case in finding.instances[:_SHOWN_CASES]),
            _more(finding),
        )
        for finding in made.findings
    ]


def _more(finding: Finding) -> int:
    return max(0, len(finding.instances) - _SHOWN_CASES)


def _case(case: Instance, catalog: Catalog, seen: Mapping[int, Glimpse]) -> Case:
    return Case(escaped(case.detail), tuple(_shown(one, catalog, seen) for one in _examples(case)))


def _examples(case: Instance) -> list[FoundExample]:
    return [example for example in (case.example, case.like) if example is not None]


def _shown(example: FoundExample, catalog: Catalog, seen: Mapping[int, Glimpse]) -> Shown:
    caption = example.split if example.label is None else f"{example.split}, {example.label}"
    row = catalog.row_of(example.split, example.number)
    if row is None or row not in seen:
        return Shown(escaped(example.key), caption=escaped(caption), fault="cannot be read")
    return shown(seen[row], escaped(caption))


_SHOWN = 24
_SIDE = 128
# Larger files are not read for a thumbnail.
_INPUT = Limit("an input that is shown", 1 << 28)


@dataclass(frozen=True)
class RejectedGroup:
    """The inputs that were rejected for one reason.

    Attributes:
        reason: the reason.
        count: number of inputs.
        inputs: the first ones by key, with the detail as caption.
    """

    reason: str
    count: int
    inputs: tuple[Shown, ...]


def source_folder(source: str | os.PathLike[str] | None) -> bytes | None:
    """Return the folder of the inputs as a real path, or None if none was given.

    Raises:
        OptionsError: it is a URL.
        InputError: it is not a folder.
    """
    if source is None:
        return None
    try:
        folder = local_path(source)
    except OptionsError as error:
        raise OptionsError("report-source-invalid", error=error) from None
    if not folder.is_dir():
        raise InputError("report-source", source=os.fspath(source))
    return os.path.realpath(os.fsencode(folder))


def rejected_groups(
    root: AnyPath, manifest: Manifest, source: bytes | None, log: Log
) -> tuple[list[RejectedGroup], str]:
    """Return the rejected inputs by reason, the most common first, and why they cannot be listed, if so.

    A folder without any of them is probably a mistake, about which ``log`` receives a line.
    """
    if not manifest.totals.rejected:
        return [], ""
    try:
        rejects = read_rejects(root / rejects_name(manifest.build_id))
    except InputError as error:
        return [], escaped(str(error))
    if source is not None and not any(_is_in(source, to_bytes(reject.key)) for reject in rejects):
        log(
            as_warning(
                f"source={os.fsdecode(source)!r} holds none of the rejected inputs; give the folder that the "
                "dataset was built from"
            )
        )
    by_reason: dict[str, list[Reject]] = defaultdict(list)
    for reject in sorted(rejects):
        by_reason[reject.reason].append(reject)
    ordered = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        RejectedGroup(
            escaped(reason), len(own), tuple(_shown_reject(reject, source) for reject in own[:_SHOWN])
        )
        for reason, own in ordered
    ], ""


def _shown_reject(reject: Reject, source: bytes | None) -> Shown:
    name, caption = escaped(reject.key), f"{escaped(reject.detail)} ({size(reject.size)})"
    data = _content(source, to_bytes(reject.key)) if source is not None else None
    if data is None:
        return Shown(name, caption=caption)
    try:
        picture = thumbnail(data, _SIDE, is_damaged=True)
    except ValueError:
        # the caption has the reason
        return Shown(name, caption=caption)
    uri = picture_uri(encoded_small(picture))
    return Shown(name, uri=uri, width=picture.width, height=picture.height, caption=caption)


def _is_in(source: bytes, key: bytes) -> bool:
    return os.path.lexists(os.path.join(source, key))


def _content(source: bytes, key: bytes) -> bytes | None:
    """Return the content of an input; None if it is not a regular file in the folder, or is too large."""
    path = os.path.join(source, key)
    if b"\0" in key or not os.path.realpath(path).startswith(os.path.join(source, b"")):
        return None
    try:
        return read_whole(Path(os.fsdecode(path)), _INPUT)
    except OSError:
        return None
