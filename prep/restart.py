"""Why a build starts over: what it is, compared with what an unfinished one in the same output was to be.

A build writes down what it is in its area, ``build.json``; the plan files beside it say of which inputs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np

from tfshards.prep.area import BuildArea, other_areas
from tfshards.prep.commit import build_of, generations
from tfshards.prep.forecast import Forecast
from tfshards.prep.progress import counted
from tfshards.prep.sources.listing import Listing, Row
from tfshards.schemas import FORMAT_VERSION, Manifest
from tfshards.schemas.atomic import write_atomically
from tfshards.schemas.reading import Json

_NOTE_NAME = "build.json"
# Fields of the note beside the options, and what they are called.
_WHAT = {
    "format_version": "the format",
    "name": "the dataset's name",
    "schema": "features or class names",
    "identity": "the inputs' content",
    "skipped": "skipped entries",
}


def note_build(area: BuildArea, plan: Forecast, name: str) -> None:
    """Write down what the build is, so that another one can say why it is another one."""
    path = area.root / _NOTE_NAME
    if not path.exists():
        area.root.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(_note(plan, name)).encode("ascii"))


def give_up_others(area: BuildArea, plan: Forecast, name: str, current: Manifest | None) -> Iterator[str]:
    """Take away what other builds into the same output have left unfinished; yield a line on each.

    Args:
        area: of the build that takes their place.
        plan: what it builds.
        name: of its dataset.
        current: the committed dataset, which stays.
    """
    for left in list(other_areas(area.out, area.build_id)):
        if not re.fullmatch("[0-9a-f]{8}", left.name):
            # such as the copies of arrays that this build has just made
            continue
        if current is None or left.name != current.build_id:
            if (left / _NOTE_NAME).exists():
                # else it had not begun
                yield f"giving up build {left.name}, {_how_far(left)}: {_why(left, plan, name)}"
            for path in generations(area.out, current):
                if build_of(path) == left.name:
                    path.unlink()
        shutil.rmtree(left, ignore_errors=True)


def _note(plan: Forecast, name: str) -> dict[str, Json]:
    listing = plan.listing
    return {
        "format_version": FORMAT_VERSION,
        "name": name,
        "options": dict(plan.options),
        "schema": listing.schema.to_json(),
        "identity": listing.identity,
        "skipped": dict(listing.skipped),
        "num_examples": listing.num_examples,
    }


def _how_far(left: Path) -> str:
    planned = {path.stem for layout in ("first", "final") for path in left.glob(f"{layout}/*.plan")}
    finished = {path.stem for layout in ("first", "final") for path in left.glob(f"{layout}/*.done")}
    of = f" of {counted(len(planned), 'shard')}" if planned else ""
    return f"{len(finished)}{of} finished" if finished else "no shard finished"


def _why(left: Path, plan: Forecast, name: str) -> str:
    """Return what has changed since the build whose area is ``left`` was started."""
    try:
        then: dict[str, Json] = json.loads((left / _NOTE_NAME).read_bytes())
        now = _note(plan, name)
        before, after = (cast("dict[str, Json]", note["options"]) for note in (then, now))
        options = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        changed = [f"options changed ({', '.join(options)})"] if options else []
        changed += [f"{what} changed" for field, what in _WHAT.items() if then[field] != now[field]]
        inputs = _changed_inputs(left, plan.listing, cast("int", then["num_examples"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "it is of another release"
    if inputs:
        changed.append(f"inputs changed ({inputs})")
    return ", ".join(changed) or "inputs changed"


def _changed_inputs(left: Path, listing: Listing, num_examples: int) -> str:
    """Return how many inputs came, went and changed; empty if none did, or not all were written down."""
    seen = np.zeros(listing.num_examples, dtype=np.bool_)
    counts = {"added": 0, "removed": 0, "of other size or time": 0, "of another label": 0}
    rows = 0
    for path in left.glob("first/*.plan"):
        for row in map(Row._make, json.loads(path.read_bytes())):
            rows += 1
            number = listing.find(row.key)
            if number is None:
                counts["removed"] += 1
                continue
            seen[number] = True
            stamp = (int(listing.sizes[number]), int(listing.stamps[number]))
            counts["of other size or time"] += stamp != (row.size, row.stamp)
            label = -1 if listing.labels is None else int(listing.labels[number])
            counts["of another label"] += label != row.label
    if rows != num_examples:
        return ""
    counts["added"] = int(np.count_nonzero(~seen))
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)
