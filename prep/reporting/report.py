"""Write a page of HTML that shows a dataset, without anything from a network."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from tfshards.prep.auditing.audit import Audit
from tfshards.prep.auditing.audit import audit as audit_of
from tfshards.prep.auditing.findings import class_counts, class_findings
from tfshards.prep.building.made import made_of
from tfshards.prep.building.rejects import read_rejects
from tfshards.prep.deriving.stored import Origin, damage_named, labels_of, open_origin
from tfshards.prep.imaging.coordinates import Floats
from tfshards.prep.imaging.pillow import Header
from tfshards.prep.imaging.reasons import LOSSES
from tfshards.prep.imaging.stored import stored_header
from tfshards.prep.records.dataset_files import check_new_file
from tfshards.prep.reporting.pictures import Thumbnail, as_thumbnail, drawn, image_of, marks_of
from tfshards.prep.verification.show import Found, look_at
from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import InputError, Manifest
from tfshards.schemas.errors import size
from tfshards.schemas.index import IntArray
from tfshards.schemas.manifest import FORMAT_VERSION
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.summary import escaped, span

# The split of an example, and its number in it.
At: TypeAlias = tuple[str, int]
_TEMPLATES = Path(__file__).with_name("templates")
# By which a page of a report is recognized.
_GENERATOR = b'<meta name="generator" content="tfshards '
# An audit decodes every image: two minutes for so many photos on two cores.
_MOST_AUDITED = 20_000
# Examples whose sizes are measured; of more, a sample gives each share with an error of 2 % at most.
_MEASURED = 2_500
_BINS = 30
_SHOWN_CASES = 24
_CASE_SIDE = 160
# Thumbnails of a page, of which those of photos of 96 pixels have about 2 KB each as text; examples of each
# class, and how many classes are shown.
_MOST_PICTURES, _SIDE = 2_000, 96
_FEWEST, _MOST, _MOST_GROUPS = 2, 16, 1_000
# Masks, boxes and keypoints are seen only on larger ones, which at most so many can be.
_MARKED_SIDE, _MOST_MARKED = 320, 100


def report(
    dataset: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
) -> str:
    """Write one page of HTML that shows a dataset.

    The page holds its pictures, styles and script, and fetches nothing. The same dataset and versions give
    the same bytes. A dataset with at most 20,000 examples is audited, too; of others, only chosen records are
    read, by the indexes of the shards.

    Args:
        dataset: folder of the dataset, or its URL.
        output: file of the page; by default ``NAME-report.html`` in the working directory.

    Returns:
        The path of the page.

    Raises:
        InputError: ``dataset`` is not a dataset, or lacks a shard, the folder of a file does not exist, or
            Jinja is missing (``tfshards[report]``).
        BuildError: a record that is read is damaged.
        FormatError: the manifest or an index cannot be read.
        OSError: a file cannot be written.
    """
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(f"a report requires {error.name}: pip install 'tfshards[report]'") from None
    with damage_named():
        origin = open_origin(dataset)
        root, manifest, schema = origin.root, origin.manifest, origin.manifest.schema
        path = any_path(f"{manifest.name}-report.html" if output is None else output)
        check_new_file(path, "a report", lambda file: _GENERATOR in file.read(1024))
        counts = class_counts({name: split.label_counts for name, split in manifest.splits.items()}, schema)
        made = _audited(root, manifest, counts)
        choice, image, marks = _Choice(origin), image_of(schema), marks_of(schema)
        groups = choice.groups() if image else {}
        chosen = [at for _, some in groups.values() for at in some]
        sample = choice.some(_MEASURED) if image else []
        cases = [case for finding in made.findings for case in finding.cases[:_SHOWN_CASES]]
        is_large = bool(marks) and len(chosen) <= _MOST_MARKED
        sides = dict.fromkeys(sample, 0)
        sides |= dict.fromkeys(chosen, _MARKED_SIDE if is_large else _SIDE)
        for one in (one for case in cases for one in case.examples):
            sides[one.split, one.number] = max(_CASE_SIDE, sides.get((one.split, one.number), 0))
        numbers = {
            name: np.array(sorted(number for of, number in sides if of == name), np.int64)
            for name in manifest.splits
        }

        def card(found: Found) -> tuple[At, _Card]:
            at = found.split, found.number
            return at, _card(found, sides[at] if image else 0)

        parts = look_at(root, manifest, numbers, lambda some: [*map(card, some)], "report")
        cards = dict(chain.from_iterable(parts))
    page = {
        "manifest": manifest,
        "format": FORMAT_VERSION,
        "version": version("tfshards"),
        # other tools do not promise balance
        "is_adopted": made_of(manifest).source == "adopt",
        "colors": {name: f"var(--series-{number % 6 + 1})" for number, name in enumerate(manifest.splits)},
        "counts": counts,
        "remedies": {loss.conversion: loss.remedy for loss in LOSSES},
        "facts": _facts([cards[at] for at in sample]),
        "rejected": _rejected(root, manifest),
        "audit": made,
        "cards": cards,
        "most": _SHOWN_CASES,
        "marks": marks,
        "is_large": is_large,
        "groups": groups,
        "most_groups": _MOST_GROUPS,
    }
    path.put(_rendered(page))
    return str(path)


class _Choice:
    """All examples of a dataset, one split after another, with a random number for each of them."""

    def __init__(self, origin: Origin) -> None:
        manifest = origin.manifest
        sizes = [split.num_examples for split in manifest.splits.values()]
        self._origin, self._names = origin, [*manifest.splits]
        self._split = np.repeat(np.arange(len(sizes)), sizes)
        self._number = np.concatenate([np.arange(size) for size in sizes])
        self._scores = np.random.default_rng(0).random(manifest.num_examples)

    def some(self, count: int) -> list[At]:
        """Return at most ``count`` examples, in stored order."""
        if len(self._scores) > count:
            return self._at(np.sort(np.argpartition(self._scores, count)[:count]))
        return self._at(np.arange(len(self._scores)))

    def groups(self) -> dict[str, tuple[int, list[At]]]:
        """Return for each class, or each split if there are no labels, how many examples it has, and some."""
        schema, shards = self._origin.manifest.schema, self._origin.manifest.shards
        labels = labels_of(self._origin, shards) if schema.label else None
        group = self._split if labels is None else labels
        order = np.lexsort((self._scores, group))
        present, firsts = np.unique(group[order], return_index=True)
        rows = np.split(order, firsts[1:])[: len(present)][:_MOST_GROUPS]
        names = [
            self._names[each] if labels is None else schema.class_name(each) for each in present.tolist()
        ]
        shown = max(_FEWEST, min(_MOST, _MOST_PICTURES // max(1, len(rows))))
        return {name: (len(own), self._at(own[:shown])) for name, own in zip(names, rows, strict=False)}

    def _at(self, rows: IntArray) -> list[At]:
        found = zip(self._split[rows].tolist(), self._number[rows].tolist(), strict=True)
        return [(self._names[split], number) for split, number in found]


class _Card(NamedTuple):
    """One example as the page shows it: its key, where it is, its thumbnail, or why it has none.

    The header and the number of bytes are those of its encoded image.
    """

    name: str
    split: str
    place: str
    picture: Thumbnail | None
    fault: str
    header: Header | None
    num_bytes: int


def _card(found: Found, side: int) -> _Card:
    """Return an example, with a thumbnail if there is a side."""
    schema, values, fault, picture = found.schema, found.values, "", None
    image = image_of(schema)
    encoded = cast("bytes", values[image.name][0]) if image and image.is_encoded else b""
    try:
        picture = as_thumbnail(drawn(schema, side, values)) if side else None
    except ValueError as error:
        fault = str(error)
    return _Card(
        found.key,
        found.split,
        f"{found.split}:{found.number}",
        picture,
        fault,
        header=stored_header(encoded) if encoded else None,
        num_bytes=len(encoded),
    )


def _audited(root: AnyPath, manifest: Manifest, counts: Mapping[str, Mapping[str, int]]) -> Audit:
    """Return the audit of a dataset; of a large one only what its manifest shows."""
    if manifest.num_examples <= _MOST_AUDITED:
        return audit_of(str(root))
    note = (
        "only classes were examined: leaks, duplicates and conflicts are searched in datasets with at most "
        f"{_MOST_AUDITED:,} examples; tfshards audit DATASET searches in any"
    )
    return Audit(manifest, tuple(class_findings(counts)), (note,))


def _facts(cards: Sequence[_Card]) -> dict[str, object] | None:
    """Return what the images of a sample are like, or None if no header was read."""
    known = [(card.header, card.num_bytes) for card in cards if card.header]
    if not known:
        return None
    width, height, num_bytes = np.array([(*header.size, count) for header, count in known], np.float64).T
    measures = {
        "Width in pixels": (width, "{:,.0f}".format),
        "Height in pixels": (height, "{:,.0f}".format),
        "Aspect ratio": (width / np.maximum(height, 1), "{:.2f}".format),
        "Encoded size": (num_bytes, size),
    }
    return {
        "num_images": len(known),
        "num_unreadable": len(cards) - len(known),
        "histograms": {name: _histogram(*measure) for name, measure in measures.items()},
        "kinds": Counter(header.kind for header, _ in known).most_common(),
        "sizes": Counter("{} x {}".format(*header.size) for header, _ in known).most_common(),
    }


def _histogram(values: Floats, form: Callable[[float], str]) -> dict[str, object]:
    """Return the bins of a histogram, of equal ratio where the values span two decades, and the median."""
    low, middle, high = np.quantile(values, [0, 0.5, 1]).tolist()
    spread = f"all {form(low)}" if low == high else f"median {form(middle)}, {form(low)} to {form(high)}"
    is_log = low > 0 and high / low >= 100
    if low == high:
        low, high = low * 0.9 - 0.5, high * 1.1 + 0.5
    edges = (np.geomspace if is_log else np.linspace)(low, high, _BINS + 1)
    # the ends of logarithmic bins are rounded
    edges[0], edges[-1] = low, high
    counts, _ = np.histogram(values, edges)
    ends = [form(edge) for edge in edges.tolist()]
    spans = (f"{start} to {end}" for start, end in pairwise(ends))
    bins = list(zip(spans, counts.tolist(), strict=True))
    return {"spread": spread, "bins": bins, "most": int(counts.max()), "ticks": ends[:: _BINS // 2]}


def _rejected(root: AnyPath, manifest: Manifest) -> list[tuple[str, int, list[Reject]]]:
    """Return the rejected inputs by reason, the most common first: how many, and some of them."""
    rejects = sorted(read_rejects(root, manifest))
    by_reason = Counter(reject.reason for reject in rejects).most_common()
    return [
        (reason, count, [each for each in rejects if each.reason == reason][:_SHOWN_CASES])
        for reason, count in by_reason
    ]


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
