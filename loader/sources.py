"""What a call of ``load`` reads: one dataset, or several that are mixed and look like one from here on."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tfshards.loader.checks import split_name
from tfshards.loader.choose import choose, mixed
from tfshards.loader.examples import Classes, Mix, Part
from tfshards.loader.population import Population
from tfshards.schemas import FormatError, InputError, Manifest, OptionsError, Problem, Split, read_manifest
from tfshards.schemas.labels import labels_path, parse_labels


@dataclass(frozen=True)
class Source:
    """A split of one dataset, or of several.

    Attributes:
        root: the dataset's directory; of several, the first one's.
        manifest: of the dataset; of several, one with their shards under absolute paths.
        name: of the split.
        parts: the examples of each dataset that is mixed, in order; empty for one alone.
        mix: the weights of these.
    """

    root: Path
    manifest: Manifest
    name: str
    parts: tuple[int, ...] = ()
    mix: Mix | None = None

    @property
    def split(self) -> Split:
        """The split itself."""
        return self.manifest.splits[self.name]

    def population(self, take: int | Part | None, classes: Classes | None) -> Population:
        """Return which examples an epoch has.

        Raises:
            OptionsError: there are no such classes, or not as many examples.
            FormatError: the labels that are needed are not those of the manifest.
        """
        what = f"split {self.name!r} of {self.root}"
        if self.mix is None:
            schema, size = self.manifest.schema, self.split.num_examples
            return choose(size, what, take, classes, schema, lambda: read_labels(self.root, self.split))
        if classes is not None:
            raise OptionsError("classes= cannot be combined with a Mix; mix datasets that have these classes")
        weights = {os.fspath(path): weight for path, weight in self.mix.weights.items()}
        return mixed(self.parts, weights, take, f"split {self.name!r}")


def source_of(path: str | os.PathLike[str] | Mix, split: str | None) -> Source:
    """Return the split ``split``, or the only one, of what is at ``path``.

    Raises:
        InputError: there is no dataset, or no such split, or mixed datasets differ.
        FormatError: a manifest breaks the format.
    """
    if not isinstance(path, Mix):
        manifest = read_manifest(path)
        return Source(Path(path), manifest, split_name(manifest, split, Path(path)))
    roots = [Path(each) for each in path.weights]
    manifests = [read_manifest(root) for root in roots]
    names = [split_name(manifest, split, root) for manifest, root in zip(manifests, roots, strict=True)]
    first = manifests[0]
    for root, manifest in zip(roots[1:], manifests[1:], strict=True):
        for what in ("features", "class_names"):
            if getattr(manifest.schema, what) != getattr(first.schema, what):
                raise InputError(
                    f"{root} and {roots[0]} differ in their {what.replace('_', ' ')}, so that they cannot be "
                    "mixed; build one of them again with the schema of the other"
                )
        if manifest.compression != first.compression:
            raise InputError(f"{root} and {roots[0]} differ in compression; `tfshards reshard` can change it")
    splits = [manifest.splits[name] for manifest, name in zip(manifests, names, strict=True)]
    shards = tuple(
        replace(shard, path=str((root / shard.path).absolute()))
        for root, each in zip(roots, splits, strict=True)
        for shard in each.shards
    )
    counts: Counter[str] = Counter()
    for each in splits:
        counts.update(each.label_counts)
    combined = replace(
        first,
        build_id=sha256(" ".join(manifest.build_id for manifest in manifests).encode()).hexdigest()[:8],
        splits={names[0]: Split(shards, counts)},
        options={"source": "mix", "of": [dict(manifest.options) for manifest in manifests]},
    )
    return Source(roots[0], combined, names[0], tuple(each.num_examples for each in splits), path)


def read_labels(root: Path, split: Split) -> npt.NDArray[np.int64]:
    """Return the label of each example of a split, in stored order.

    Raises:
        FormatError: a file of labels cannot be read, or is not that of the manifest.
    """
    problems, labels = [], [np.zeros(0, np.int64)]
    for shard in split.shards:
        path = labels_path(shard.path)
        try:
            data = (root / path).read_bytes()
        except OSError as error:
            problems.append(Problem(path, f"cannot be read: {error.strerror}"))
            continue
        if f"sha256:{sha256(data).hexdigest()}" != shard.labels_digest:
            problems.append(Problem(path, "is not the file of the manifest: its digest does not hold"))
            continue
        labels.append(parse_labels(data, shard.num_examples, path))
    if problems:
        remedy = "`tfshards verify --repair` makes them again"
        raise FormatError(f"{root}: the labels of the shards ({remedy})", problems)
    return np.concatenate(labels)
