"""Derive a dataset from the records of others: the common part of ``reshard`` and ``merge``.

As for a build, the output is locked, writing the manifest is the commit, an interrupted call resumes, and a
repeated call finds the dataset up to date.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tfshards.prep.building.commit import commit, complete, identified
from tfshards.prep.building.decisions import Wanted, is_up_to_date, up_to_date
from tfshards.prep.building.output import claimed, dataset_name, discard_others, output_folder, read_damage
from tfshards.prep.building.rivals import unless_committed
from tfshards.prep.derivation.origin import Origin
from tfshards.prep.planning.options import Options
from tfshards.prep.progress.lines import Log
from tfshards.prep.writing.area import BuildArea
from tfshards.schemas import BuildError, Manifest, Schema, Shard, Split
from tfshards.schemas.digests import digest_together
from tfshards.schemas.storage import AnyPath

# Writes the shards to the output of the area and returns the shards of each split.
Write: TypeAlias = Callable[[BuildArea], Mapping[str, tuple[Shard, ...]]]


def new_dataset(
    dataset: str | os.PathLike[str], name: str | None, origins: Sequence[Origin]
) -> tuple[AnyPath, str]:
    """Return the folder and the name of a derived dataset.

    Raises:
        OptionsError: the folder is an origin or is inside one, or its name is invalid for a dataset.
    """
    folder = output_folder(dataset, *(origin.root for origin in origins))
    return folder, dataset_name(folder, Options(name=name))


def digest_of_origins(origins: Sequence[Origin]) -> str:
    """Return the digest of the datasets that a dataset is derived from."""
    texts = "".join(origin.manifest.to_text() for origin in origins)
    return f"sha256:{hashlib.sha256(texts.encode('ascii')).hexdigest()}"


def derive(
    outline: Manifest,
    origins: Sequence[Origin],
    folder: AnyPath,
    write: Write,
    *,
    overwrite: bool,
    log: Log,
    has_new_keys: bool = False,
) -> Manifest:
    """Write and commit a dataset and return its manifest.

    Args:
        outline: manifest of the dataset without a build id, with splits that have no shards yet.
        origins: datasets whose examples it holds.
        folder: folder of the dataset.
        write: function that writes the shards.
        overwrite: replace another dataset, which stays readable until this one is committed.
        log: receives status lines.
        has_new_keys: whether the records have other keys than those of the origins, so that only their number
            is verified.

    Raises:
        InputError: another process writes to the folder, or it holds another dataset and ``overwrite`` is
            False.
        BuildError: the shards do not hold the examples of the origins; nothing is committed.
    """
    wanted = Wanted(outline.name, outline.schema, outline.options, outline.inputs_digest)
    area = BuildArea(folder, wanted.plan_id, outline.options)
    with claimed(folder) as state:
        if overwrite:
            state = read_damage(state, wanted, log)
        found = is_up_to_date(state, wanted, overwrite=overwrite)
        discard_others(state, wanted.plan_id, outline.options, log)
        if found:
            assert state.manifest is not None
            complete(state.manifest, folder, log)
            log(up_to_date(folder, is_compared=overwrite))
            return state.manifest

        def write_and_commit() -> Manifest:
            rejects = [reject for origin in origins for reject in origin.rejects()]
            shards = write(area)
            splits = {name: Split(shards[name], split.label_counts) for name, split in outline.splits.items()}
            manifest = identified(replace(outline, splits=splits))
            verify_examples(manifest, [origin.manifest for origin in origins], has_new_keys=has_new_keys)
            return commit(manifest, rejects, None, area, state, log)

        return unless_committed(write_and_commit, state, area, wanted, log)


def join_splits(parts: Sequence[Split], schema: Schema) -> Split:
    """Return one split with the shards of all parts, in order. It counts labels if every part does."""
    counts = sum((Counter(part.label_counts) for part in parts), Counter[str]())
    names = schema.class_names or sorted(counts, key=int)
    is_counted = all(part.label_counts or not part.num_examples for part in parts)
    shards = tuple(shard for part in parts for shard in part.shards)
    return Split(shards, {name: counts[name] for name in names} if is_counted and counts else {})


def verify_examples(made: Manifest, of: Sequence[Manifest], *, has_new_keys: bool = False) -> None:
    """Raise BuildError unless each split holds exactly the examples that it has in the datasets ``of``.

    With new keys, the digests of the records differ, so that only the number of examples is compared.
    """
    for name, split in made.splits.items():
        parts = [manifest.splits[name] for manifest in of if name in manifest.splits]
        expected = sum(part.num_examples for part in parts), digest_together(p.examples_digest for p in parts)
        is_same = has_new_keys or split.examples_digest == expected[1]
        if split.num_examples != expected[0] or not is_same:
            raise BuildError(
                "copies-differ",
                name=name,
                num_examples=split.num_examples,
                examples_digest=split.examples_digest,
                expected=expected[0],
                expected2=expected[1],
            )
