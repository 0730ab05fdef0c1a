"""Link the shards of datasets into a new dataset, instead of writing new shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tfshards.prep.derivation.origin import SEE_VERIFY, Origin
from tfshards.prep.engines import in_process
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import Log, Progress, Reporter
from tfshards.prep.verification.check_files import shard_problems
from tfshards.prep.writing.area import BuildArea
from tfshards.prep.writing.shard_names import shard_name
from tfshards.schemas import BuildError, Shard
from tfshards.schemas.errors import counted


class _Link(NamedTuple):
    """A shard of an origin, and the same shard under its path in the new dataset."""

    split: str
    origin: Origin
    old: Shard
    new: Shard


def link_shards(
    area: BuildArea, name: str, origins: Sequence[Origin], log: Log
) -> dict[str, tuple[Shard, ...]]:
    """Link all shards, with their indexes and labels, or copy them if the file system has no hard links.

    The linked files are verified against their digests.

    Args:
        area: build area of the new dataset.
        name: name of the new dataset.
        origins: datasets whose shards are linked, in order.
        log: receives a status line.

    Returns:
        The shards of each split of the new dataset.

    Raises:
        BuildError: a shard differs from its manifest, or the output cannot be written.
    """
    links = _links(area, name, origins)
    area.open()
    num_examples = sum(link.new.num_examples for link in links)
    what = f"{counted(num_examples, 'example')}, {counted(len(links), 'shard')}, linked unchanged"
    log(f"starting merge: {what}")
    progress = Progress(name, num_examples)
    make = partial(_make, area, progress.reporter)
    in_process.run(Work(make, links, progress, area.stop, area=area))
    splits = dict.fromkeys(link.split for link in links)
    return {split: tuple(link.new for link in links if link.split == split) for split in splits}


def _links(area: BuildArea, name: str, origins: Sequence[Origin]) -> list[_Link]:
    """Return the links, split by split."""
    splits = dict.fromkeys(split for origin in origins for split in origin.manifest.splits)
    links = []
    for split in splits:
        held = [
            (origin, shard)
            for origin in origins
            if split in origin.manifest.splits
            for shard in origin.manifest.splits[split].shards
        ]
        for index, (origin, shard) in enumerate(held):
            path = shard_name(name, split, index, len(held), build_id=area.plan_id)
            links.append(_Link(split, origin, shard, replace(shard, path=path)))
    return links


def _make(area: BuildArea, reporter: Reporter, link: _Link) -> None:
    try:
        area.link_shard(link.origin.root, link.old, link.new)
    except OSError as error:
        raise BuildError("file-fault", filename=error.filename or area.out, why=error.strerror) from None
    problems = shard_problems(area.shards, link.new)
    if problems:
        # the fault is in the origin, so the message has the path there
        fault = str(problems[0]).replace(link.new.path, link.old.path)
        raise BuildError("origin-damaged", root=link.origin.root, fault=fault, see_verify=SEE_VERIFY)
    reporter.report(link.new.num_examples, link.new.num_bytes)
