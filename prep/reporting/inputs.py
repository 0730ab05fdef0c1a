"""Findings of an audit with their examples, and rejected inputs by reason."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tfshards.prep.auditing.audit import Audit, audit
from tfshards.prep.auditing.findings import FoundExample, class_findings
from tfshards.prep.auditing.similar import DEFAULT_DISTANCE, require_imagehash
from tfshards.prep.building.rejects import read_rejects
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.reporting.cards import Values, card, card_of
from tfshards.prep.reporting.catalog import Catalog
from tfshards.prep.reporting.drawing import encoded_small, thumbnail
from tfshards.prep.reporting.glimpse import Glimpse
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import InputError, Manifest, TfshardsError
from tfshards.schemas.errors import size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.untrusted import Limit, read_whole

# An audit decodes every image: two minutes for so many photos on two cores.
MOST_AUDITED = 20_000
_SHOWN = 24
_SIDE = 128
# Larger files are not read for a thumbnail.
_INPUT = Limit("an input that is shown", 1 << 28)


def audited(
    root: AnyPath, manifest: Manifest, counts: Mapping[str, Mapping[str, int]], *, wanted: bool | None
) -> Audit:
    """Return the audit of a dataset; of a large one only what its manifest shows, unless it is wanted."""
    if wanted is False:
        note = "only classes were examined: no audit was asked for"
    elif wanted is None and manifest.num_examples > MOST_AUDITED:
        note = (
            "only classes were examined: leaks, duplicates and conflicts are searched in datasets with at "
            f"most {MOST_AUDITED:,} examples, or with the option --audit"
        )
    else:
        distance: int | None = DEFAULT_DISTANCE
        try:
            require_imagehash()
        except InputError:
            distance = None
        try:
            return audit(str(root), distance=distance)
        except (TfshardsError, OSError) as error:
            note = f"the audit ended early: {error}"
    return Audit({}, counts, tuple(class_findings(counts)), (note,))


def finding_rows(made: Audit, catalog: Catalog) -> dict[FoundExample, int]:
    """Return the rows of the examples that the page shows of the findings."""
    shown = {
        example
        for finding in made.findings
        for case in finding.instances[:_SHOWN]
        for example in (case.example, case.like)
        if example is not None
    }
    rows = {example: catalog.row_of(example.split, example.number) for example in shown}
    return {example: row for example, row in rows.items() if row is not None}


def findings(made: Audit, rows: Mapping[FoundExample, int], seen: Mapping[int, Glimpse]) -> list[Values]:
    """Return the findings with their first cases, each with up to two examples."""

    def shown(example: FoundExample) -> Values:
        caption = example.split if example.label is None else f"{example.split}, {example.label}"
        glimpse = seen.get(rows.get(example, -1))
        return card_of(glimpse, caption) if glimpse else card(example.key, caption, fault="cannot be read")

    return [
        {
            "kind": finding.kind,
            "message": finding.message,
            "more": max(0, len(finding.instances) - _SHOWN),
            "cases": [
                {"detail": case.detail, "examples": [shown(one) for one in (case.example, case.like) if one]}
                for case in finding.instances[:_SHOWN]
            ],
        }
        for finding in made.findings
    ]


def source_folder(source: str | os.PathLike[str] | None) -> bytes | None:
    """Return the folder of the inputs as a real path, or None if none was given."""
    if source is None:
        return None
    if not local_path(source).is_dir():
        raise InputError("report-source", source=os.fspath(source))
    return os.path.realpath(os.fsencode(source))


def rejected(root: AnyPath, manifest: Manifest, source: bytes | None) -> tuple[list[Values], str]:
    """Return the rejected inputs by reason, the most common first, and why they cannot be listed, if so.

    A folder without any of them is probably a mistake, which is reported.
    """
    if not manifest.totals.rejected:
        return [], ""
    try:
        rejects = read_rejects(root, manifest)
    except InputError as error:
        return [], str(error)
    by_reason: dict[str, list[Reject]] = defaultdict(list)
    for reject in sorted(rejects):
        by_reason[reject.reason].append(reject)
    if source is not None and not any(
        os.path.lexists(os.path.join(source, to_bytes(reject.key))) for reject in rejects
    ):
        report_warning(
            f"source={os.fsdecode(source)!r} holds none of the rejected inputs; give the folder that the "
            "dataset was built from"
        )
    return [
        {"reason": reason, "number": len(own), "inputs": [_input(reject, source) for reject in own[:_SHOWN]]}
        for reason, own in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    ], ""


def _input(reject: Reject, source: bytes | None) -> Values:
    caption = f"{reject.detail} ({size(reject.size)})"
    data = _content(source, to_bytes(reject.key)) if source is not None else b""
    try:
        picture = thumbnail(data, _SIDE, is_damaged=True)
    except ValueError:
        # the caption has the reason
        return card(reject.key, caption)
    return card(reject.key, caption, picture=encoded_small(picture), sides=picture.size)


def _content(source: bytes, key: bytes) -> bytes:
    """Return the content of an input; empty if it is not a regular file in the folder, or is too large."""
    path = os.path.join(source, key)
    if b"\0" in key or not os.path.realpath(path).startswith(os.path.join(source, b"")):
        return b""
    try:
        return read_whole(Path(os.fsdecode(path)), _INPUT)
    except OSError:
        return b""
