"""The findings of an audit, with the examples that resemble each other side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfshards.prep.auditing.audit import Audit, audit
from tfshards.prep.auditing.findings import Example, Finding, Instance, class_findings
from tfshards.prep.auditing.similar import DEFAULT_DISTANCE, require_imagehash
from tfshards.prep.reporting.catalog import Catalog
from tfshards.prep.reporting.class_groups import class_counts
from tfshards.prep.reporting.glimpse import Glimpse
from tfshards.prep.reporting.pictures import Shown, shown
from tfshards.schemas import InputError, Manifest, TfshardsError
from tfshards.schemas.storage import AnyPath
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


def _examples(case: Instance) -> list[Example]:
    return [example for example in (case.example, case.like) if example is not None]


def _shown(example: Example, catalog: Catalog, seen: Mapping[int, Glimpse]) -> Shown:
    caption = example.split if example.label is None else f"{example.split}, {example.label}"
    row = catalog.row_of(example.split, example.number)
    if row is None or row not in seen:
        return Shown(escaped(example.key), caption=escaped(caption), fault="cannot be read")
    return shown(seen[row], escaped(caption))
