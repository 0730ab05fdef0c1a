"""The options of a build that a manifest records, in the form of a file of options."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from typing import cast

from tfshards.prep.cli.config_file import arguments_of
from tfshards.prep.planning.options import Options
from tfshards.prep.sources.kind import Recorded
from tfshards.prep.sources.registry import KINDS
from tfshards.schemas import InputError, Manifest, read_manifest
from tfshards.schemas.json_reader import Json
from tfshards.schemas.option import changed_values


def read_build(dataset: str) -> Manifest:
    """Return the manifest of a dataset that one build made from its source.

    Raises:
        InputError: there is no dataset, or the manifest records no options of a build.
    """
    manifest = read_manifest(dataset)
    kind = manifest.options.get("source")
    if kind not in KINDS:
        raise InputError("records-no-options", dataset=dataset, kind=kind or "another program")
    return manifest


def recorded_options(
    manifest: Manifest, dataset: str, inputs: Sequence[str], keys: Mapping[str, argparse.Action]
) -> dict[str, object]:
    """Return the options of a build that are not the defaults, by their keys in a file of options.

    Args:
        manifest: manifest of the dataset, see ``read_build``.
        dataset: folder of the dataset, whose class names the new one is to have.
        inputs: the source of the new dataset and, for a table, the folder of its images if it is given.
        keys: the arguments by their keys.
    """
    given = manifest.options
    recorded = Recorded(manifest.schema, given, is_grown=False, follow_links=False, log=_ignore)
    options: dict[str, object] = {
        **KINDS[str(given["source"])]().recorded(recorded, inputs),
        **changed_values(Options, given),
        "compression": None if manifest.compression == "none" else manifest.compression,
        "seed": given["seed"] or None,
        "shards": given["shards"],
        "class_names_from": dataset if manifest.schema.class_names else None,
        "name": manifest.name,
    }
    key_of_dest = {action.dest: key for key, action in keys.items()}
    found = {key_of_dest[name]: value for name, value in options.items() if value not in (None, ())}
    # an empty mapping of folders is given as an empty text
    return {key: list(value) if isinstance(value, tuple) else value or "" for key, value in found.items()}


def taken_text(
    dataset: str, manifest: Manifest, taken: Mapping[str, object], keys: Mapping[str, argparse.Action]
) -> str:
    """Return the line that reports which options come from a dataset."""
    flags = [
        _typed(argument) for key, value in taken.items() for argument in arguments_of(keys[key], value, key)
    ]
    added = cast("list[Json]", manifest.options.get("appended", []))
    grown = f"; of its first build, without {len(added)} appends" if added else ""
    return f"options of {dataset}{grown}: {' '.join(flags) or 'the defaults'}"


def _typed(argument: str) -> str:
    flag, equals, value = argument.partition("=")
    return f"{flag} {shlex.quote(value)}" if equals else flag


def _ignore(_: str) -> None:
    """Drop a status line."""
