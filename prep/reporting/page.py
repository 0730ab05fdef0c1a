"""Render a page from the values of its parts, without anything from a network."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tfshards.prep.reporting.audited import FindingPart
from tfshards.prep.reporting.class_groups import ClassRow, Group
from tfshards.prep.reporting.image_facts import ImageFacts
from tfshards.prep.reporting.overview import Conversion, Guarantee, SplitPart
from tfshards.prep.reporting.pictures import Shown
from tfshards.prep.reporting.rejected import RejectedGroup
from tfshards.schemas import InputError

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
