"""What ``append`` reports about a source: changed and missing inputs, and what a dry run would append."""

from __future__ import annotations

from collections.abc import Iterator

from tfshards.prep.building.inputs_file import has_masks
from tfshards.prep.derivation.new_examples import NewExamples
from tfshards.prep.derivation.origin import Origin
from tfshards.prep.planning.plan import Plan, label_counts
from tfshards.prep.progress.lines import as_warning
from tfshards.schemas.errors import counted
from tfshards.schemas.sizes import size
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.summary import class_lines, table


def difference_lines(new: NewExamples, origin: Origin) -> Iterator[str]:
    """Yield lines about removed, changed, relabeled, missing and renamed inputs of a source."""
    if new.removed:
        left_out = counted(len(new.removed), "input")
        were = "was" if len(new.removed) == 1 else "were"
        yield f"leaving out {left_out} that {were} removed from {origin.root}, such as {new.removed[0]!r}"
    if new.changed:
        have = "has" if len(new.changed) == 1 else "have"
        mask = " or its mask" if has_masks(new.listing.schema) else ""
        yield as_warning(
            f"{counted(len(new.changed), 'known input')} {have} changed, such as "
            f"{new.changed[0]!r}{mask}; the dataset keeps the old content: a new input needs another name, "
            "and to replace an old one, build again with --overwrite"
        )
    if new.relabeled:
        have, their = ("has", "its example") if len(new.relabeled) == 1 else ("have", "their examples")
        yield (
            f"{counted(len(new.relabeled), 'known input')} {have} another label than {their}, such as "
            f"{new.relabeled[0]!r}; the dataset was relabeled, and keeps its labels"
        )
    if new.num_missing and not new.num_known:
        known = counted(new.num_missing, "known input")
        yield f"the source holds only new inputs; the {known} of {origin.root} stay"
    elif new.num_missing:
        are, them = ("is", "it") if new.num_missing == 1 else ("are", "them")
        yield (
            f"{counted(new.num_missing, 'known input')} {are} not in the source, such as {new.missing!r}; "
            f"the dataset keeps {them}, and a build with --overwrite would leave {them} out"
        )
    if new.renamed:
        is_one = len(new.renamed) == 1
        have, of, was = (
            ("has", "a known one that is", "it was")
            if is_one
            else ("have", "known ones that are", "they were")
        )
        key, missing = new.renamed[0]
        yield as_warning(
            f"{counted(len(new.renamed), 'new input')} {have} the content of {of} not in the source,"
            f" such as {key!r} that of {missing!r}; if {was} moved or renamed, build again with --overwrite, "
            "since append adds another example"
        )


def up_to_date_line(new: NewExamples, root: AnyPath) -> str:
    """Return the line about a source without new inputs."""
    none = f"none of the {counted(new.num_known, 'input')} is new"
    if new.changed:
        return f"{root} keeps the old content: {none}"
    return f"{root} is up to date: {none}, and none has changed"


def preview_lines(plan: Plan) -> Iterator[str]:
    """Yield what would be appended: the inputs, shards and source bytes by split, and the inputs by class."""
    yield f"would append {counted(plan.listing.num_examples, 'input')}"
    rows = [("split", "inputs", "shards", "source bytes")]
    for split, layout in plan.layouts.items():
        num_bytes = sum(int(plan.listing.sizes[shard].sum()) for shard in layout)
        rows.append((split, f"{sum(map(len, layout)):,}", f"{len(layout):,}", size(num_bytes)))
    yield from table(rows)
    if plan.listing.labels is not None:
        counts = {split: label_counts(plan.listing, layout) for split, layout in plan.layouts.items()}
        with_new = {name for split in counts.values() for name, count in split.items() if count}
        yield from class_lines(
            {
                split: {name: count for name, count in of_split.items() if name in with_new}
                for split, of_split in counts.items()
            },
            plan.listing.schema,
        )
    yield "nothing was written, and no new image was decoded: damaged ones are found when they are appended"
