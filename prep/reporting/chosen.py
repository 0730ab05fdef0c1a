"""Choose examples of a dataset by seed, and read them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias, TypeVar

import numpy as np

from tfshards.prep.deriving.stored import Origin, labels_of
from tfshards.prep.verification.show import Found, look_at
from tfshards.schemas.index import IntArray

T = TypeVar("T")
# The split of an example, and its number in it.
At: TypeAlias = tuple[str, int]


class Choice:
    """All examples of a dataset, one split after another, with a random number for each of them."""

    def __init__(self, origin: Origin, seed: int) -> None:
        manifest = origin.manifest
        sizes = [split.num_examples for split in manifest.splits.values()]
        self._origin, self._names = origin, [*manifest.splits]
        self._split = np.repeat(np.arange(len(sizes)), sizes)
        self._number = np.concatenate([np.arange(size) for size in sizes])
        self._scores = np.random.default_rng(seed % (1 << 64)).random(manifest.num_examples)

    def some(self, count: int) -> list[At]:
        """Return at most ``count`` examples, in stored order."""
        if len(self._scores) > count:
            return self._at(np.sort(np.argpartition(self._scores, count)[:count]))
        return self._at(np.arange(len(self._scores)))

    def groups(self, most: int, count: Callable[[int], int]) -> dict[str, tuple[int, list[At]]]:
        """Return for each class, or each split if there are no labels, how many examples it has, and some.

        Args:
            most: how many groups are returned.
            count: returns how many examples each of so many groups shows.
        """
        schema, shards = self._origin.manifest.schema, self._origin.manifest.shards
        labels = labels_of(self._origin, shards) if schema.label else None
        group = self._split if labels is None else labels
        order = np.lexsort((self._scores, group))
        present, firsts = np.unique(group[order], return_index=True)
        rows = np.split(order, firsts[1:])[: len(present)][:most]
        names = [
            self._names[each] if labels is None else schema.class_name(each) for each in present.tolist()
        ]
        shown = count(len(rows))
        return {name: (len(own), self._at(own[:shown])) for name, own in zip(names, rows, strict=False)}

    def _at(self, rows: IntArray) -> list[At]:
        found = zip(self._split[rows].tolist(), self._number[rows].tolist(), strict=True)
        return [(self._names[split], number) for split, number in found]


def read(origin: Origin, chosen: Collection[At], look: Callable[[Found], T]) -> dict[At, T]:
    """Return what ``look`` returns for chosen examples."""
    numbers = {name: [number for of, number in chosen if of == name] for name in origin.manifest.splits}
    parts = look_at(
        origin.root,
        origin.manifest,
        {name: np.array(sorted(own), np.int64) for name, own in numbers.items()},
        lambda some: [((one.split, one.number), look(one)) for one in some],
        "report",
    )
    return dict(pair for part in parts for pair in part)
