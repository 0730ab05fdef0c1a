"""``OpenSplit``: the split that is read, of one dataset, or of several that are mixed and look like one."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.selection import Mix
from tfshards.loader.reading.frames import Frames, all_values
from tfshards.schemas import (
    Feature,
    FormatError,
    InputError,
    Manifest,
    OptionsError,
    Split,
    read_manifest,
)
from tfshards.schemas.companions import read_labels
from tfshards.schemas.names import id_of
from tfshards.schemas.storage import AnyPath, any_path

# The threads mostly wait for storage.
_NUM_THREADS = 16


@dataclass(frozen=True)
class OpenSplit:
    """The split that is read.

    Attributes:
        root: the directory or URL of the dataset, or of the first of several.
        manifest: the manifest of the dataset; of several, one that lists their shards with absolute paths.
        sizes: number of examples of each mixed dataset, in order; empty for a single dataset.
    """

    root: AnyPath
    manifest: Manifest
    name: str
    sizes: tuple[int, ...] = ()

    @property
    def split(self) -> Split:
        """The split itself."""
        return self.manifest.splits[self.name]

    @property
    def label(self) -> str:
        """The name of the split in errors."""
        return f"split {self.name!r}" if self.sizes else f"split {self.name!r} of {self.root}"

    def labels(self) -> npt.NDArray[np.int64]:
        """Return the label of each example, in stored order."""
        with ThreadPoolExecutor(_NUM_THREADS) as threads:
            read = list(threads.map(lambda shard: read_labels(self.root, shard), self.split.shards))
        problems = [problem for _, of_shard in read for problem in of_shard]
        if problems:
            verb = f"tfshards verify {self.root} --repair"
            what = f"{self.root}: the labels of the shards (`{verb}` rebuilds them)"
            raise FormatError(what, problems)
        return np.concatenate([np.zeros(0, np.int64), *(found for found, _ in read if found is not None)])

    def having(self, numbers: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return whether each example, in stored order, has one of the classes ``numbers``.

        Labels have files of their own; for lists of classes all records are read.
        """
        schema = self.manifest.schema
        if schema.label is not None:
            return np.isin(self.labels(), numbers)
        name = next(feature.name for feature in schema.features if feature.is_label)
        shards = self.split.shards
        frames = Frames(self.root, shards, [self.root / shard.path for shard in shards])
        lists = cast("Sequence[npt.NDArray[np.int64]]", all_values(self.root, frames, schema[name]))
        return np.array([bool(np.isin(each, numbers).any()) for each in lists], np.bool_)


def without_class(options: LoadOptions, source: OpenSplit, features: Sequence[Feature]) -> list[str]:
    """Return a warning if examples with the label -1, for no class, are delivered."""
    label, counts = source.manifest.schema.label, source.split.label_counts
    if label is None or label not in features or options.classes is not None:
        return []
    num_open = counts.get("-1", 0)
    if not counts:
        # nothing is counted in a split with such examples if the classes have names
        try:
            num_open = int((source.labels() == -1).sum())
        except FormatError:
            # damage is reported where labels are needed
            return []
    if not num_open:
        return []
    count = f"{num_open:,} of {source.split.num_examples:,} examples"
    return [
        f"{source.label}: the label of {count} is -1, for no class, which losses and metrics take for a "
        "number; classes=[...] leaves these examples out, select=(...) the labels"
    ]


def open_source(options: LoadOptions) -> OpenSplit:
    """Return the split that ``options`` name, after reading the manifest."""
    if isinstance(options.path, Mix):
        return _open_mix(options.path, options.split)
    manifest, root = read_manifest(options.path), any_path(options.path)
    return OpenSplit(root, manifest, split_name(manifest, options.split, root))


def split_name(manifest: Manifest, split: str | None, root: AnyPath) -> str:
    """Return ``split``, or the name of the only split."""
    names = ", ".join(map(repr, manifest.splits))
    if split is not None and not isinstance(split, str):
        raise OptionsError(f"split={split!r} must be one name; the splits are {names}")
    if split is None and len(manifest.splits) > 1:
        raise InputError(f"{root} has several splits; name one of {names}", code="split-missing")
    if split is not None and split not in manifest.splits:
        raise InputError(f"{root} has no split {split!r}; the splits are {names}", code="split-unknown")
    return split if split is not None else next(iter(manifest.splits))


def compressed(root: AnyPath) -> InputError:
    """Return the error for shards that no cache would unpack."""
    command = shlex.join(["tfshards", "reshard", str(root), "NEW", "--compression", "none"])
    return InputError(
        f'{root}: compressed shards are unpacked before they are read; cache="disk:FOLDER" does it once, on '
        f"a local disk and without a limit, and {command} for good",
        code="cache-needed",
    )


def _open_mix(mix: Mix, split: str | None) -> OpenSplit:
    for path in mix.weights:
        if any_path(path).is_far:
            raise OptionsError(
                f"{path} cannot be part of a Mix, whose examples are read one by one; 'tfshards merge' "
                "makes one dataset of several, or copy it to a local disk"
            )
    roots = [any_path(each) for each in mix.weights]
    manifests = [read_manifest(root) for root in roots]
    names = [split_name(manifest, split, root) for manifest, root in zip(manifests, roots, strict=True)]
    first = manifests[0]
    for root, manifest in zip(roots[1:], manifests[1:], strict=True):
        for what in ("features", "class_names"):
            if getattr(manifest.schema, what) != getattr(first.schema, what):
                raise InputError(
                    f"{root} and {roots[0]} differ in their {what.replace('_', ' ')}, so they cannot be "
                    "mixed; build one of them again with the schema of the other"
                )
        if manifest.compression != first.compression:
            raise InputError(f"{root} and {roots[0]} differ in compression; 'tfshards reshard' can change it")
    splits = [manifest.splits[name] for manifest, name in zip(manifests, names, strict=True)]
    shards = tuple(
        replace(
            shard,
            path=str((root / shard.path).absolute()),
            companions=shard.companions and str((root / shard.companions).absolute()),
        )
        for root, each in zip(roots, splits, strict=True)
        for shard in each.shards
    )
    counts: Counter[str] = Counter()
    for each in splits:
        counts.update(each.label_counts)
    combined = replace(
        first,
        build_id=id_of(" ".join(manifest.build_id for manifest in manifests)),
        splits={names[0]: Split(shards, counts)},
        options={"source": "mix", "of": [dict(manifest.options) for manifest in manifests]},
    )
    return OpenSplit(roots[0], combined, names[0], tuple(each.num_examples for each in splits))
