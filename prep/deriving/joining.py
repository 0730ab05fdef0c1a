"""Put datasets together: whether their features and classes agree, their totals, and their splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tfshards.prep.writing.build_folder import Reject
from tfshards.schemas import Feature, Schema, Split, Totals


def feature_difference(one: Schema, one_name: str, other: Schema, other_name: str) -> str | None:
    """Return the first feature in which two schemas differ, as a part of a sentence, or None.

    The order of features does not matter, except where it determines which feature holds the class. Names are
    those of the owners of the schemas in the message.
    """
    both = one, other
    features = [{repr(feature.name): _described(feature) for feature in schema.features} for schema in both]
    labels = [{"'label'": repr(schema.label.name)} if schema.label else {} for schema in both]
    return _difference("the feature", features, one_name, other_name) or _difference(
        "the first scalar feature of kind", labels, one_name, other_name
    )


def class_difference(one: Schema, one_name: str, other: Schema, other_name: str) -> str | None:
    """Return the first class in which two schemas differ; the arguments are as in ``feature_difference``."""
    classes = [
        {str(label): repr(name) for label, name in enumerate(schema.class_names)} for schema in (one, other)
    ]
    return _difference("class", classes, one_name, other_name)


def _difference(what: str, both: Sequence[Mapping[str, str]], one_name: str, other_name: str) -> str | None:
    one, other = both
    for name in {**one, **other}:
        found = one.get(name, "missing"), other.get(name, "missing")
        if found[0] != found[1]:
            return f"{what} {name} is {found[0]} in {one_name}, and {found[1]} in {other_name}"
    return None


def _described(feature: Feature) -> str:
    shape = ", ".join("?" if dim is None else str(dim) for dim in feature.shape)
    coordinates = f", {feature.coordinates}" if feature.coordinates else ""
    return f"({feature.kind}, {feature.dtype}, [{shape}]{coordinates}{', pixels' if feature.pixels else ''})"


def add_totals(parts: Sequence[Totals]) -> Totals:
    """Return the sums of the totals of several datasets."""

    def together(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))

    return Totals(
        entries=sum(part.entries for part in parts),
        accepted=sum(part.accepted for part in parts),
        rejected=sum(part.rejected for part in parts),
        skipped=sum(part.skipped for part in parts),
        reasons={
            outcome: together(part.reasons.get(outcome, {}) for part in parts)
            for outcome in ("rejected", "skipped")
        },
        conversions=together(part.conversions for part in parts),
    )


def with_rejects(totals: Totals, accepted: int, rejects: Sequence[Reject]) -> Totals:
    """Return totals with other numbers of accepted and of rejected inputs."""
    reasons = Counter(reject.reason for reject in rejects)
    return replace(
        totals,
        entries=accepted + len(rejects) + totals.skipped,
        accepted=accepted,
        rejected=len(rejects),
        reasons={**totals.reasons, "rejected": dict(sorted(reasons.items()))},
    )


def join_splits(parts: Sequence[Split], schema: Schema) -> Split:
    """Return one split with the shards of all parts, in order. It counts labels if every part does."""
    counts = sum((Counter(part.label_counts) for part in parts), Counter[str]())
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts[name] for name in names} if is_counted and counts else {})
