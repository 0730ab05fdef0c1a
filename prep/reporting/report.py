"""Write a page of HTML that shows a dataset, without anything from a network."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from tfshards.prep.progress.lines import Log, to_stderr
from tfshards.prep.reporting.audited import (
    FindingPart,
    RejectedGroup,
    audited,
    finding_parts,
    rejected_groups,
    rows_of_findings,
    source_folder,
)
from tfshards.prep.reporting.class_groups import (
    ClassRow,
    Group,
    choose_marked,
    chosen_groups,
    class_chart,
    class_counts,
    class_rows,
    groups,
    marked_examples,
    marks_note,
    roles_of,
)
from tfshards.prep.reporting.glimpse import Catalog, Glimpse, Want, image_of, look, read_catalog
from tfshards.prep.reporting.options import ReportOptions
from tfshards.prep.reporting.overview import (
    Conversion,
    Guarantee,
    ImageFacts,
    SplitPart,
    conversions,
    guarantees,
    image_facts,
    option_rows,
    problems,
    split_parts,
    tiles,
)
from tfshards.prep.reporting.pictures import Shown, contact_sheet, is_sheet, side_of
from tfshards.schemas import InputError, Manifest, OptionsError, read_manifest
from tfshards.schemas.files import write_atomically
from tfshards.schemas.manifest_file import check_new_file
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.summary import escaped

_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Page:
    """Everything that a page shows; text is escaped of characters that are not printable, but not for HTML.

    Attributes:
        name: name of the dataset.
        version: version of tfshards.
        seed: the seed by which examples were chosen.
        tiles: name and value of the most important numbers.
        features: name, kind, dtype and shape of each feature.
        guarantees: what holds of the dataset.
        problems: what is wrong with its files.
        splits: its splits.
        class_chart: chart of the classes as SVG; empty without labels.
        class_rows: its classes; empty without labels.
        facts: what its images are like; None without images.
        sample: number of examples from which ``facts`` was made.
        options: name and value of the options of the build.
        conversions: conversions of images.
        reasons: outcome, reason and number of inputs that are not in the dataset.
        rejected: rejected inputs by reason.
        rejected_fault: why the rejected inputs cannot be listed.
        has_source: whether the folder of the inputs was given.
        findings: findings of the audit.
        notes: what the audit did not examine.
        marked: examples with masks and boxes.
        marks_note: what the boxes mean.
        groups: examples of each class.
        has_pictures: whether the examples of groups are pictures rather than text.
        num_groups_left: number of classes that are not shown.
        records: examples as text.
    """

    name: str
    version: str
    seed: int
    tiles: list[tuple[str, str]]
    features: list[tuple[str, str, str, str]]
    guarantees: list[Guarantee]
    problems: list[str]
    splits: list[SplitPart]
    class_chart: str
    class_rows: list[ClassRow]
    facts: ImageFacts | None
    sample: int
    options: list[tuple[str, str]]
    conversions: list[Conversion]
    reasons: list[tuple[str, str, int]]
    rejected: list[RejectedGroup]
    rejected_fault: str
    has_source: bool
    findings: list[FindingPart]
    notes: list[str]
    marked: list[Shown]
    marks_note: str
    groups: list[Group]
    has_pictures: bool
    num_groups_left: int
    records: list[tuple[str, list[tuple[str, str]]]]


def require_packages() -> None:
    """Raise InputError if a package of the extra ``report`` is not installed."""
    try:
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError("report-extra-missing", name=error.name) from None


def is_page(file: BinaryIO) -> bool:
    """Return whether a file begins as a page of a report does."""
    return b'<meta name="generator" content="tfshards ' in file.read(1024)


def rendered(page: Page) -> bytes:
    """Return a page as HTML; equal values give equal bytes."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script, style = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    # no other script is run, whatever the names in the dataset hold, and nothing is fetched
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    template = environment.get_template("page.html")
    return template.render(page=page, script=script, style=style, policy=policy).encode("utf-8")


# Examples whose sizes are measured; of more, a sample gives each share with an error of 2 % at most.
_MEASURED = 2_500
_SHOWN_RECORDS = 10
_CASE_SIDE = 160
_MARKED_SIDE = 320


def report(
    dataset: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    png: str | os.PathLike[str] | None = None,
    options: ReportOptions | None = None,
    log: Log = to_stderr,
) -> AnyPath:
    """Write one page of HTML that shows a dataset, and return its path.

    The page holds its pictures, styles and script, and fetches nothing. The same dataset, options and
    versions give the same bytes. Only chosen records are read, by the indexes of the shards, unless the
    dataset is audited. Damaged files are listed, and their records are left out.

    Args:
        dataset: folder or URL of the dataset.
        output: file of the page; by default ``NAME-report.html`` in the working directory.
        png: file for the contact sheet as a picture; none by default.
        options: seed, source and further options.
        log: called with a line for each warning.

    Raises:
        OptionsError: an argument is not allowed, or ``png`` is given but the dataset has no pictures.
        InputError: ``dataset`` is not a dataset, the folder of a file does not exist, or a package is
            missing (``tfshards[report]``).
        FormatError: the manifest cannot be read.
        OSError: a file cannot be written.
    """
    options = ReportOptions() if options is None else options
    if not isinstance(options, ReportOptions):
        raise OptionsError("report-options-type", options=options)
    if png is not None:
        _check_png(png)
    require_packages()
    root, manifest = any_path(dataset), read_manifest(dataset)
    path = any_path(f"{manifest.name}-report.html" if output is None else output)
    check_new_file(path, "a report", is_page)
    if png is not None and image_of(manifest.schema) is None:
        raise OptionsError("png-no-images")
    source = source_folder(options.source)
    catalog = read_catalog(root, manifest)
    if not catalog.num_rows and manifest.num_examples:
        raise InputError("report-no-index", root=root)
    made = audited(root, manifest, wanted=options.audit)
    roles = roles_of(root, manifest, catalog, options)
    chosen = chosen_groups(manifest, catalog, options.seed) if roles.image else {}
    marked = choose_marked(catalog, roles, options.seed)
    sample = catalog.some(_MEASURED, options.seed).tolist()
    cases = list(rows_of_findings(made, catalog)) if roles.image else []
    texts = catalog.some(_SHOWN_RECORDS, options.seed).tolist()
    side = side_of(sum(map(len, chosen.values())))
    wanted = {
        **dict.fromkeys(sample if roles.image else [], Want()),
        **dict.fromkeys(texts, Want(has_text=True)),
        **dict.fromkeys((row for rows in chosen.values() for row in rows), Want(side)),
        **dict.fromkeys(cases, Want(_CASE_SIDE)),
    }
    for row in texts:
        # the same record may be shown both ways
        wanted[row] = Want(wanted[row].side, has_text=True)
    seen = look(root, manifest, catalog, wanted, roles)
    drawn = look(root, manifest, catalog, dict.fromkeys(marked, Want(_MARKED_SIDE, has_marks=True)), roles)
    counts = class_counts(manifest)
    rejected, rejected_fault = rejected_groups(root, manifest, source, log)
    page = Page(
        name=escaped(manifest.name),
        version=version("tfshards"),
        seed=options.seed,
        tiles=tiles(manifest),
        features=_features(manifest),
        guarantees=list(guarantees(manifest, catalog)),
        problems=problems(catalog),
        splits=list(split_parts(manifest)),
        class_chart=class_chart(counts),
        class_rows=class_rows(counts),
        facts=image_facts([seen[row] for row in sample]) if roles.image else None,
        sample=len(sample),
        options=list(option_rows(manifest.options)),
        conversions=conversions(manifest),
        reasons=_reasons(manifest),
        rejected=rejected,
        rejected_fault=rejected_fault,
        has_source=source is not None,
        findings=finding_parts(made, catalog, seen),
        notes=[escaped(note) for note in made.notes],
        marked=marked_examples(marked, drawn, manifest, roles),
        marks_note=marks_note(roles),
        groups=groups(chosen, seen, _group_counts(manifest, counts)),
        has_pictures=roles.image is not None,
        num_groups_left=_num_groups_left(catalog, chosen),
        records=_records(texts, seen),
    )
    write_atomically(path, rendered(page))
    if png is not None:
        write_atomically(any_path(png), contact_sheet(chosen, seen))
    return path


def _check_png(png: str | os.PathLike[str]) -> None:
    """Raise if the contact sheet, a PNG, cannot be written to this file."""
    found = any_path(png)
    if found.suffix.lower() != ".png":
        raise OptionsError("png-suffix", png=os.fspath(png))
    check_new_file(found, "a contact sheet", is_sheet)


def _features(manifest: Manifest) -> list[tuple[str, str, str, str]]:
    return [
        (
            escaped(feature.name),
            feature.kind,
            feature.dtype,
            " x ".join("?" if dim is None else str(dim) for dim in feature.shape) or "scalar",
        )
        for feature in manifest.schema.features
    ]


def _reasons(manifest: Manifest) -> list[tuple[str, str, int]]:
    return [
        (outcome, escaped(reason), count)
        for outcome, reasons in manifest.totals.reasons.items()
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    ]


def _group_counts(manifest: Manifest, counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return the number of examples of each class, or of each split without labels."""
    if manifest.schema.label is None:
        return {escaped(name): split.num_examples for name, split in manifest.splits.items()}
    names = next(iter(counts.values()), {})
    return {escaped(name): sum(own[name] for own in counts.values()) for name in names}


def _num_groups_left(catalog: Catalog, chosen: Mapping[str, object]) -> int:
    if catalog.labels is None or not chosen:
        return 0
    return len(set(catalog.labels.tolist())) - len(chosen)


def _records(rows: list[int], seen: Mapping[int, Glimpse]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return place and features of examples as text."""
    return [
        (
            f"{escaped(seen[row].split)}:{seen[row].number}",
            [(escaped(name), text) for name, text in seen[row].text.items()],
        )
        for row in rows
        if seen[row].text
    ]
