"""Put datasets together: check that their features and classes agree, and join splits and totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tfshards.schemas import InputError, Manifest, Schema, Split, Totals


def check_same_schema(one: Schema, one_name: str, other: Schema, other_name: str) -> None:
    """Raise InputError about the first feature or class in which two schemas differ, by their owners' names.

    The order of features does not matter, except where it determines which feature holds the class.
    """
    both = one, other
    features = [{repr(feature.name): f"({feature.text})" for feature in schema.features} for schema in both]
    labels = [{"'label'": repr(schema.label.name)} if schema.label else {} for schema in both]
    classes = [{str(label): repr(name) for label, name in enumerate(each.class_names)} for each in both]
    for what, (first, second) in (
        ("the feature", features),
        ("the first scalar feature of kind", labels),
        ("class", classes),
    ):
        for name in {**first, **second}:
            found = first.get(name, "missing"), second.get(name, "missing")
            if found[0] != found[1]:
                difference = f"{what} {name} is {found[0]} in {one_name}, and {found[1]} in {other_name}"
                raise InputError(f"{difference}; build one with the features and class names of the other")


def joined(parts: Sequence[Manifest], schema: Schema) -> tuple[dict[str, Split], Totals]:
    """Return the splits of several datasets, with the shards of each in order, and the sums of their totals.

    A split counts labels if each of its parts does. The totals have what does not follow from the splits and
    the rejected inputs, see ``building.rejects.with_lists``.
    """
    names = dict.fromkeys(name for part in parts for name in part.splits)
    splits = {
        name: _joined_split([part.splits[name] for part in parts if name in part.splits], schema)
        for name in names
    }
    totals = [part.totals for part in parts]
    return splits, Totals(
        entries=0,
        accepted=0,
        skipped=sum(each.skipped for each in totals),
        reasons={"rejected": {}, "skipped": _sum(each.reasons.get("skipped", {}) for each in totals)},
        conversions=_sum(each.conversions for each in totals),
    )


def _joined_split(parts: Sequence[Split], schema: Schema) -> Split:
    counts = _sum(part.label_counts for part in parts)
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts.get(name, 0) for name in names} if is_counted and counts else {})


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))
