"""Write a page of HTML that shows a dataset, without anything from a network."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from tfshards.prep.auditing.audit import Audit
from tfshards.prep.auditing.audit import audit as audit_of
from tfshards.prep.auditing.findings import class_counts, class_findings
from tfshards.prep.building.made import made_of
from tfshards.prep.building.rejects import read_rejects
from tfshards.prep.deriving.stored import Origin, damage_named, labels_of, open_origin
from tfshards.prep.imaging.coordinates import Floats
from tfshards.prep.imaging.pillow import Header, Picture, opened
from tfshards.prep.imaging.reasons import LOSSES
from tfshards.prep.imaging.stored import stored_header
from tfshards.prep.progress.lines import report_warning
from tfshards.prep.records.dataset_files import check_new_file
from tfshards.prep.reporting.pictures import Marks, Thumbnail, as_thumbnail, drawn, image_of, scaled
from tfshards.prep.sources.keys import to_bytes
from tfshards.prep.verification.show import Found, description, look_at
from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import InputError, Manifest, OptionsError, Schema
from tfshards.schemas.errors import check_path, size
from tfshards.schemas.index import IntArray
from tfshards.schemas.json_reader import Json
from tfshards.schemas.manifest import FORMAT_VERSION
from tfshards.schemas.storage import AnyPath, any_path
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.untrusted import Limit, read_whole
from tfshards.schemas.storage.verbs import put
from tfshards.schemas.summary import escaped, span

T = TypeVar("T")
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
_SHOWN_RECORDS, _SHOWN_MARKED, _SHOWN_CASES = 10, 24, 24
_INPUT_SIDE, _CASE_SIDE, _MARKED_SIDE = 128, 160, 320
# Thumbnails of a page, of which those of photos of 96 pixels have about 2 KB each as text, by their number;
# and examples of each class.
_SIDES = {400: 160, 1_600: 128, 4_000: 96}
_FEWEST, _MOST = 2, 16
# Larger files are not read for a thumbnail.
_INPUT = Limit("an input that is shown", 1 << 28)


@dataclass(frozen=True, repr=False)
class Report:
    """A page that was written.

    Attributes:
        path: its file.
    """

    path: AnyPath

    def __repr__(self) -> str:
        return str(self.path)

    def to_json(self) -> dict[str, Json]:
        """Return the path as JSON values."""
        return {"page": str(self.path)}


def report(
    dataset: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    source: str | os.PathLike[str] | None = None,
    audit: bool | None = None,
) -> Report:
    """Write one page of HTML that shows a dataset.

    The page holds its pictures, styles and script, and fetches nothing. The same dataset, options and
    versions give the same bytes. Only chosen records are read, by the indexes of the shards, unless the
    dataset is audited.

    Args:
        dataset: folder of the dataset, or its URL.
        output: file of the page; by default ``NAME-report.html`` in the working directory.
        seed: random seed for the examples that are shown.
        source: folder of the inputs, for thumbnails of rejected ones.
        audit: read all records, to find leaks, duplicates and conflicts; by default only of datasets with
            at most 20,000 examples.

    Raises:
        OptionsError: an argument is not allowed.
        InputError: ``dataset`` is not a dataset, or lacks a shard, the folder of a file does not exist, or
            Jinja is missing (``tfshards[report]``).
        BuildError: a record that is read is damaged.
        FormatError: the manifest or an index cannot be read.
        OSError: a file cannot be written.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise OptionsError(f"seed={seed!r} must be an integer")
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(f"a report requires {error.name}: pip install 'tfshards[report]'") from None
    inputs = None if source is None else _real_folder(source)
    with damage_named():
        origin = open_origin(dataset)
        root, manifest, schema = origin.root, origin.manifest, origin.manifest.schema
        path = any_path(f"{manifest.name}-report.html" if output is None else output)
        check_new_file(path, "a report", lambda file: _GENERATOR in file.read(1024))
        counts = class_counts({name: split.label_counts for name, split in manifest.splits.items()}, schema)
        made = _audited(root, manifest, counts, audit)
        choice, image, marks = _Choice(origin, seed), image_of(schema), Marks.of(schema)
        groups = choice.groups(max(_SIDES) // _FEWEST, partial(_per_group, schema)) if image else {}
        chosen = [at for _, some in groups.values() for at in some]
        sample, texts = choice.some(_MEASURED) if image else [], choice.some(_SHOWN_RECORDS)
        cases = [case for finding in made.findings for case in finding.cases[:_SHOWN_CASES]]
        with_marks = choice.some(_SHOWN_MARKED) if marks else []
        sides = dict.fromkeys([*texts, *sample, *with_marks], 0)
        sides |= dict.fromkeys(chosen, _side(len(chosen)))
        sides |= {(one.split, one.number): _CASE_SIDE for case in cases for one in case.examples}

        def cards_of(found: Found) -> tuple[_Card, _Card | None]:
            at, values = (found.split, found.number), found.values
            one = _card(found, partial(drawn, schema, sides[at], values) if image and sides[at] else None)
            if at in texts:
                one = one._replace(
                    text={each.name: description(each, schema, values[each.name]) for each in schema.features}
                )
            if marks is None or at not in with_marks:
                return one, None
            marked = _card(found, partial(marks.drawn, _MARKED_SIDE, values))
            return one, marked._replace(caption="" if marked.fault else marks.caption(values, schema))

        cards = _read(origin, sides, cards_of)
    page = {
        "manifest": manifest,
        "format": FORMAT_VERSION,
        "version": version("tfshards"),
        "seed": seed,
        # other tools do not promise balance
        "is_adopted": made_of(manifest).source == "adopt",
        "colors": {name: f"var(--series-{number % 6 + 1})" for number, name in enumerate(manifest.splits)},
        "counts": counts,
        "remedies": {loss.conversion: loss.remedy for loss in LOSSES},
        "facts": _facts([cards[at][0] for at in sample]),
        "rejected": _rejected(root, manifest, inputs),
        "has_source": inputs is not None,
        "audit": made,
        "cards": {at: card for at, (card, _) in cards.items()},
        "most": _SHOWN_CASES,
        "marks": marks,
        "marked": [cards[at][1] for at in with_marks],
        "groups": groups,
        "most_groups": max(_SIDES) // _FEWEST,
        "records": [cards[at][0] for at in texts],
    }
    put(path, _rendered(page))
    return Report(path)


class _Choice:
    """All examples of a dataset, one split after another, with a random number for each of them."""

    def __init__(self, origin: Origin, seed: int) -> None:
        manifest = origin.manifest
        sizes = [split.num_examples for split in manifest.splits.values()]
        self._origin, self._names = origin, [*manifest.splits]
        self._split = np.repeat(np.arange(len(sizes)), sizes)
        self._number = np.concatenate([np.arange(size) for size in sizes])
        self._scores = np.random.default_rng(seed % (1 << 64)).random(manifest.num_examples)

    def some(self, count: int) -> list[At]:
        """Return at most ``count`` examples, in stored order."""
        if len(self._scores) > count:
            return self._at(np.sort(np.argpartition(self._scores, count)[:count]))
        return self._at(np.arange(len(self._scores)))

    def groups(self, most: int, count: Callable[[int], int]) -> dict[str, tuple[int, list[At]]]:
        """Return for each class, or each split if there are no labels, how many examples it has, and some.

        Args:
            most: how many groups are returned.
            count: returns how many examples each of so many groups shows.
        """
        schema, shards = self._origin.manifest.schema, self._origin.manifest.shards
        labels = labels_of(self._origin, shards) if schema.label else None
        group = self._split if labels is None else labels
        order = np.lexsort((self._scores, group))
        present, firsts = np.unique(group[order], return_index=True)
        rows = np.split(order, firsts[1:])[: len(present)][:most]
        names = [
            self._names[each] if labels is None else schema.class_name(each) for each in present.tolist()
        ]
        shown = count(len(rows))
        return {name: (len(own), self._at(own[:shown])) for name, own in zip(names, rows, strict=False)}

    def _at(self, rows: IntArray) -> list[At]:
        found = zip(self._split[rows].tolist(), self._number[rows].tolist(), strict=True)
        return [(self._names[split], number) for split, number in found]


def _read(origin: Origin, chosen: Collection[At], look: Callable[[Found], T]) -> dict[At, T]:
    """Return what ``look`` returns for chosen examples."""
    numbers = {name: [number for of, number in chosen if of == name] for name in origin.manifest.splits}
    parts = look_at(
        origin.root,
        origin.manifest,
        {name: np.array(sorted(own), np.int64) for name, own in numbers.items()},
        lambda some: [((one.split, one.number), look(one)) for one in some],
        "report",
    )
    return dict(pair for part in parts for pair in part)


class _Card(NamedTuple):
    """One example or input as the page shows it: its key, where it is, its thumbnail, or why it has none.

    The header and the number of bytes are those of its encoded image.
    """

    name: str
    caption: str = ""
    split: str = ""
    place: str = ""
    picture: Thumbnail | None = None
    fault: str = ""
    header: Header | None = None
    num_bytes: int = 0
    text: Mapping[str, str] = {}


def _card(found: Found, draw: Callable[[], Picture] | None) -> _Card:
    """Return an example with what a function draws."""
    values, image, fault, picture = found.values, image_of(found.schema), "", None
    encoded = cast("bytes", values[image.name][0]) if image and image.is_encoded else b""
    try:
        picture = as_thumbnail(draw()) if draw else None
    except ValueError as error:
        fault = str(error)
    return _Card(
        found.key,
        split=found.split,
        place=f"{found.split}:{found.number}",
        picture=picture,
        fault=fault,
        header=stored_header(encoded) if encoded else None,
        num_bytes=len(encoded),
    )


def _side(num_pictures: int) -> int:
    """Return the side in pixels of the square that each of so many thumbnails fits."""
    return next((side for most, side in _SIDES.items() if num_pictures <= most), min(_SIDES.values()))


def _per_group(schema: Schema, num_groups: int) -> int:
    """Return how many examples of each class are shown, or of each split without labels."""
    return max(_FEWEST, min(_MOST, max(_SIDES) // max(1, num_groups))) * (1 if schema.label else 3)


def _audited(
    root: AnyPath, manifest: Manifest, counts: Mapping[str, Mapping[str, int]], wanted: bool | None
) -> Audit:
    """Return the audit of a dataset; of a large one only what its manifest shows, unless it is wanted."""
    if wanted is False:
        note = "only classes were examined: no audit was asked for"
    elif wanted is None and manifest.num_examples > _MOST_AUDITED:
        note = (
            "only classes were examined: leaks, duplicates and conflicts are searched in datasets with at "
            f"most {_MOST_AUDITED:,} examples, or with audit=True"
        )
    else:
        return audit_of(str(root))
    return Audit(manifest, counts, tuple(class_findings(counts)), (note,))


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


def _real_folder(source: str | os.PathLike[str]) -> bytes:
    """Return a folder as a real path, or raise InputError."""
    check_path("source", source)
    if not local_path(source).is_dir():
        raise InputError(f"source={os.fspath(source)!r} is not a folder; name the folder of the inputs")
    return os.path.realpath(os.fsencode(source))


def _rejected(root: AnyPath, manifest: Manifest, source: bytes | None) -> list[tuple[str, int, list[_Card]]]:
    """Return the rejected inputs by reason, the most common first: how many, and some of them.

    A folder without any of them is probably a mistake, which is reported.
    """
    rejects = sorted(read_rejects(root, manifest))
    paths = (os.path.join(source or b"", to_bytes(reject.key)) for reject in rejects)
    if source is not None and rejects and not any(map(os.path.lexists, paths)):
        report_warning(
            f"source={os.fsdecode(source)!r} holds none of the rejected inputs; give the folder that the "
            "dataset was built from"
        )
    found = []
    for reason, count in Counter(reject.reason for reject in rejects).most_common():
        some = [reject for reject in rejects if reject.reason == reason][:_SHOWN_CASES]
        found.append((reason, count, [_input(reject, source) for reject in some]))
    return found


def _input(reject: Reject, source: bytes | None) -> _Card:
    """Return a rejected input with what can be decoded of it, if it is a regular file in the folder."""
    card = _Card(reject.key, f"{reject.detail} ({size(reject.size)})")
    key = to_bytes(reject.key)
    path = os.path.join(source or b"", key)
    if source is None or b"\0" in key or not os.path.realpath(path).startswith(os.path.join(source, b"")):
        return card
    try:
        data = read_whole(Path(os.fsdecode(path)), _INPUT)
        # what can be decoded of a damaged file is shown
        with opened(data, allows_truncated=True) as image:
            return card._replace(picture=as_thumbnail(scaled(image, _INPUT_SIDE)))
    except (OSError, ValueError):
        # the caption has the reason
        return card


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
