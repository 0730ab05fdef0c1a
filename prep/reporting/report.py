"""Write a page of HTML that shows a dataset, without anything from a network."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from tfshards.prep.records.dataset_files import check_new_file
from tfshards.prep.reporting.cards import chosen_groups, groups, marked, marks_note, side_of
from tfshards.prep.reporting.catalog import read_catalog
from tfshards.prep.reporting.glimpse import image_of, look, roles_of
from tfshards.prep.reporting.inputs import audited, finding_rows, findings, rejected, source_folder
from tfshards.prep.reporting.options import ReportOptions
from tfshards.prep.reporting.overview import class_counts, image_facts, overview
from tfshards.schemas import InputError, OptionsError, read_manifest
from tfshards.schemas.errors import size
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.verbs import put
from tfshards.schemas.summary import escaped, span

_TEMPLATES = Path(__file__).with_name("templates")
# By which a page of a report is recognized.
_GENERATOR = b'<meta name="generator" content="tfshards '
# Examples whose sizes are measured; of more, a sample gives each share with an error of 2 % at most.
_MEASURED = 2_500
_SHOWN_RECORDS = 10
_SHOWN_MARKED = 24
_CASE_SIDE = 160
_MARKED_SIDE = 320


def report(
    dataset: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    options: ReportOptions | None = None,
) -> AnyPath:
    """Write one page of HTML that shows a dataset, and return its path.

    The page holds its pictures, styles and script, and fetches nothing. The same dataset, options and
    versions give the same bytes. Only chosen records are read, by the indexes of the shards, unless the
    dataset is audited. Damaged files are listed, and their records are left out.

    Args:
        dataset: folder or URL of the dataset.
        output: file of the page; by default ``NAME-report.html`` in the working directory.
        options: seed, source and further options.

    Raises:
        OptionsError: an argument is not allowed.
        InputError: ``dataset`` is not a dataset, the folder of a file does not exist, or a package is
            missing (``tfshards[report]``).
        FormatError: the manifest cannot be read.
        OSError: a file cannot be written.
    """
    options = ReportOptions() if options is None else options
    if not isinstance(options, ReportOptions):
        raise OptionsError("report-options-type", options=options)
    _require_packages()
    root, manifest = any_path(dataset), read_manifest(dataset)
    path = any_path(f"{manifest.name}-report.html" if output is None else output)
    check_new_file(path, "a report", lambda file: _GENERATOR in file.read(1024))
    has_pictures = image_of(manifest.schema) is not None
    source = source_folder(options.source)
    catalog = read_catalog(root, manifest)
    if not catalog.num_rows and manifest.num_examples:
        raise InputError("report-no-index", root=root)
    counts = class_counts(manifest)
    made = audited(root, manifest, counts, wanted=options.audit)
    roles = roles_of(manifest, options.boxes)
    chosen = chosen_groups(catalog, options.seed) if has_pictures else {}
    sample = catalog.some(_MEASURED, options.seed)
    texts = catalog.some(_SHOWN_RECORDS, options.seed)
    cases = finding_rows(made, catalog)
    sides = dict.fromkeys([*texts, *(sample if has_pictures else [])], 0)
    sides |= dict.fromkeys(
        (row for rows in chosen.values() for row in rows), side_of(sum(map(len, chosen.values())))
    )
    sides |= dict.fromkeys(cases.values(), _CASE_SIDE)
    seen = look(catalog, roles, sides, texts=texts)
    note = marks_note(roles)
    with_marks = catalog.some(_SHOWN_MARKED, options.seed) if note else []
    drawn = look(catalog, roles, dict.fromkeys(with_marks, _MARKED_SIDE), has_marks=True)
    groups_left = len({*(catalog.labels.tolist() if catalog.labels is not None else ())}) - len(chosen)
    rejects, rejects_fault = rejected(root, manifest, source)
    page = {
        **overview(catalog, counts),
        "version": version("tfshards"),
        "seed": options.seed,
        "facts": image_facts([seen[row] for row in sample]) if has_pictures else None,
        "rejected": rejects,
        "rejected_fault": rejects_fault,
        "has_source": source is not None,
        "findings": findings(made, cases, seen),
        "notes": made.notes,
        "marked": marked(with_marks, drawn, manifest, roles),
        "marks_note": note,
        "groups": groups(chosen, seen, manifest, counts),
        "num_groups_left": max(0, groups_left) if chosen else 0,
        "records": [seen[row] for row in texts if seen[row].text],
    }
    put(path, _rendered(page))
    return path


def _require_packages() -> None:
    """Raise InputError if a package of the extra ``report`` is not installed."""
    try:
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError("report-extra-missing", name=error.name) from None


def _printable(value: object) -> object:
    """Return text, other than markup, without characters that are not printable; anything else as it is."""
    return escaped(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _rendered(page: Mapping[str, object]) -> bytes:
    """Return a page as HTML; equal values give equal bytes."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters |= {"number": "{:,}".format, "size": size, "span": span}
    script, style = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    # no other script is run, whatever the names in the dataset hold, and nothing is fetched
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    template = environment.get_template("page.html")
    return template.render(page=page, script=script, style=style, policy=policy).encode("utf-8")
