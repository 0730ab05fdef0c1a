"""From datasets to a dataset that is made of their records: what ``reshard`` and ``merge`` share.

The same promises as a build's: the output is locked, the manifest is the commit, what was stopped goes on,
and a second call finds the dataset up to date.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from tfshards.prep.area import BuildArea, other_areas
from tfshards.prep.commit import commit, finish, forget_generations
from tfshards.prep.copies.origin import Origin
from tfshards.prep.options import Options
from tfshards.prep.output import check_folder, claimed, committed, dataset_name, output_folder
from tfshards.prep.progress import Talk
from tfshards.schemas import (
    MANIFEST_NAME,
    BuildError,
    Manifest,
    Schema,
    Shard,
    Split,
)
from tfshards.schemas.digests import digest_together
from tfshards.schemas.reading import Json

# Writes the shards into the area's output and returns those of each split.
Write: TypeAlias = Callable[[BuildArea], Mapping[str, tuple[Shard, ...]]]


def new_dataset(out: str | os.PathLike[str], name: str | None, origins: Sequence[Origin]) -> tuple[Path, str]:
    """Return the folder of a dataset made of others, and its name.

    Raises:
        OptionsError: the output is that of an origin or lies in it, or cannot be a name.
        InputError: it holds files but no dataset.
    """
    folder = output_folder(out)
    for origin in origins:
        check_folder(folder, origin.root)
    return folder, dataset_name(folder, Options(name=name))


def derived_id(name: str, options: Mapping[str, Json], origins: Sequence[Origin]) -> str:
    """Return the build id: a hash of all that decides which bytes are written."""
    digest = hashlib.sha256(json.dumps([name, options], sort_keys=True).encode("ascii"))
    for origin in origins:
        digest.update(origin.manifest.to_text().encode("ascii"))
    return digest.hexdigest()[:8]


def derive(
    outline: Manifest,
    origins: Sequence[Origin],
    folder: Path,
    write: Write,
    *,
    overwrite: bool,
    talk: Talk,
) -> Manifest:
    """Make the dataset ``outline`` in ``folder`` and return its manifest.

    Args:
        outline: the manifest, but for the shards, of which its splits have none yet.
        origins: the datasets whose examples it holds.
        folder: where it is made.
        write: writes the shards.
        overwrite: replace another dataset; it stays whole until this one is committed.
        talk: is given each line about its course.

    Raises:
        InputError: another process writes there, or there is another dataset and ``overwrite`` is not given.
        BuildError: the shards do not hold what the origins hold; nothing is committed.
    """
    area = BuildArea(folder, outline.build_id)
    with claimed(folder):
        current = committed(folder, outline.build_id, outline.options, overwrite=overwrite)
        if current is not None or not (folder / MANIFEST_NAME).exists():
            _clear(area, current, talk)
        if current and current.build_id == outline.build_id:
            _finish(current, area, talk)
            talk(f"{folder} is up to date")
            return current
        rejects = [reject for origin in origins for reject in origin.rejects()]
        shards = write(area)
        splits = {name: Split(shards[name], split.label_counts) for name, split in outline.splits.items()}
        manifest = replace(outline, splits=splits)
        prove(manifest, [origin.manifest for origin in origins])
        commit(manifest, rejects, area)
        _finish(manifest, area, talk)
    return manifest


def join_splits(parts: Sequence[Split], schema: Schema) -> Split:
    """Return the split that has the shards of several, in their order; its labels are counted if all are."""
    counts = sum((Counter(part.label_counts) for part in parts), Counter[str]())
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts[name] for name in names} if is_counted and counts else {})


def prove(made: Manifest, of: Sequence[Manifest]) -> None:
    """Raise BuildError unless each split holds the very examples that it has in the datasets ``of``."""
    for name, split in made.splits.items():
        parts = [manifest.splits[name] for manifest in of if name in manifest.splits]
        there = sum(part.num_examples for part in parts), digest_together(p.examples_digest for p in parts)
        if (split.num_examples, split.examples_digest) != there:
            raise BuildError(
                f"split {name!r}: {split.num_examples} examples of digest {split.examples_digest} were "
                f"written, but {there[0]} of {there[1]} stand in what they come from; tfshards verify --deep "
                "names what is damaged there"
            )


def _clear(area: BuildArea, current: Manifest | None, talk: Talk) -> None:
    """Take away what others have left unfinished, and what belongs to no dataset any more."""
    for left in list(other_areas(area.out, area.build_id)):
        if re.fullmatch("[0-9a-f]{8}", left.name) and not (current and current.build_id == left.name):
            talk(f"giving up build {left.name}: it was to be another dataset")
        shutil.rmtree(left, ignore_errors=True)
    forget_generations(area.out, {area.build_id}, current)


def _finish(manifest: Manifest, area: BuildArea, talk: Talk) -> None:
    for problem in finish(manifest, area):
        talk(f"warning: TensorFlow Datasets will not open this dataset: {problem}")
