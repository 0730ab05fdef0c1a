"""Find the options in which the builds of two datasets differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfshards.prep.building.restore import builds_of
from tfshards.schemas import Manifest
from tfshards.schemas.json_reader import Json

# What appends have added shows in the examples.
_NOT_OPTIONS = ("appended",)


class Difference(NamedTuple):
    """An option, or another part of a manifest, that differs.

    Attributes:
        name: name of the option, such as ``seed``; ``features``, ``class_names`` or ``compression``.
        before: its value in the first dataset; None if it has none.
        after: its value in the second dataset.
    """

    name: str
    before: Json
    after: Json


def option_differences(one: Manifest, other: Manifest) -> tuple[Difference, ...]:
    """Return what differs between two datasets besides their examples.

    Options are those of the builds that the datasets come from, also after they were resharded or edited;
    the number of shards is the present one.
    """
    pairs = [_facts(one), _facts(other)]
    names = dict.fromkeys([*pairs[0], *pairs[1]])
    return tuple(
        Difference(name, pairs[0].get(name), pairs[1].get(name))
        for name in names
        if pairs[0].get(name) != pairs[1].get(name)
    )


def _facts(manifest: Manifest) -> Mapping[str, Json]:
    schema = manifest.schema.to_json()
    shards: Json = {name: len(split.shards) for name, split in manifest.splits.items()}
    builds = [_options(build) for build in builds_of(manifest.options)]
    facts: dict[str, Json] = {
        "features": schema["features"],
        "class_names": schema["class_names"],
        "compression": manifest.compression,
        "shards": shards,
    }
    if len(builds) == 1:
        return {**facts, **builds[0]}
    return {**facts, "builds": [*builds]}


def _options(build: Mapping[str, Json]) -> dict[str, Json]:
    apart = (*_NOT_OPTIONS, "shards", "compression")
    return {name: value for name, value in build.items() if name not in apart}
