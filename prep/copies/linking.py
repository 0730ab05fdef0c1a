"""Giving the shards of datasets new names in another one, where they need not be written again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tfshards.prep.area import BuildArea, ShardId
from tfshards.prep.copies.origin import Origin
from tfshards.prep.copies.tasks import Task, run_tasks
from tfshards.prep.progress import Progress, Reporter, Talk, counted
from tfshards.prep.proofs.verify import shard_problems
from tfshards.prep.shard import shard_path
from tfshards.schemas import BuildError, Shard


@dataclass(frozen=True)
class Linking:
    """Which shards get which names.

    Attributes:
        area: of the dataset that they will be in.
        name: of that dataset.
        origins: the datasets that they are in, in order.
    """

    area: BuildArea
    name: str
    origins: Sequence[Origin]

    def pairs(self) -> list[tuple[str, Origin, Shard, Shard]]:
        """Return each shard, with its split and dataset, and what it is in the new one; split by split."""
        splits = dict.fromkeys(split for origin in self.origins for split in origin.manifest.splits)
        found = []
        for split in splits:
            held = [
                (origin, shard)
                for origin in self.origins
                if split in origin.manifest.splits
                for shard in origin.manifest.splits[split].shards
            ]
            for index, (origin, shard) in enumerate(held):
                path = shard_path(self.name, ShardId(split, index), self.area.build_id, len(held))
                found.append((split, origin, shard, replace(shard, path=path)))
        return found


def link_shards(linking: Linking, talk: Talk) -> dict[str, tuple[Shard, ...]]:
    """Make new names for all shards and what is beside them, or copies where there are no such links.

    What then stands under a new name is compared with its digest.

    Returns the shards of each split.

    Raises:
        BuildError: a shard is not what its manifest says, or the output cannot be written.
    """
    area, pairs = linking.area, linking.pairs()
    area.open()
    (area.out / "index").mkdir(exist_ok=True)
    num_examples = sum(new.num_examples for *_, new in pairs)
    what = f"{counted(num_examples, 'example')}, {counted(len(pairs), 'shard')}, linked as they are"
    talk(f"starting build {area.build_id}: {what}")
    progress = Progress(linking.name, num_examples)
    tasks: list[Task] = [
        partial(_link, area, origin, old, new, progress.reporter) for _, origin, old, new in pairs
    ]
    run_tasks(tasks, progress)
    return {
        split: tuple(new for at, *_, new in pairs if at == split)
        for split in dict.fromkeys(p[0] for p in pairs)
    }


def _link(
    area: BuildArea, origin: Origin, old: Shard, new: Shard, reporter: Reporter, _: threading.Event
) -> None:
    try:
        area.link_shard(origin.root, old, new)
    except OSError as error:
        raise BuildError(f"{error.filename or area.out}: {error.strerror}") from None
    problems = shard_problems(area.out, new)
    if problems:
        # by the name that it has in its own dataset
        fault = str(problems[0]).replace(new.path, old.path)
        raise BuildError(f"{origin.root} is damaged: {fault}; tfshards verify names all that is wrong")
    reporter.report(new.num_examples, new.num_bytes)
