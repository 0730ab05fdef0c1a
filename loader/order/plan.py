"""``Plan``: which examples one worker reads, in which order and at which steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.position import Facts, Position
from tfshards.loader.options.shuffle import Shuffle
from tfshards.loader.order.assignment import Assignment, Stored, assign
from tfshards.loader.order.choose import choose_population
from tfshards.loader.order.continuation import (
    check_same_order,
    check_start,
    check_workers,
    kept_shuffle,
    order_facts,
)
from tfshards.loader.order.epoch import RunOrder
from tfshards.loader.order.population import Population, Ranges
from tfshards.loader.order.random_bits import order_seed
from tfshards.loader.order.source import Source
from tfshards.schemas import OptionsError


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What one worker reads.

    Attributes:
        population: which examples there are.
        order: the run order of each epoch.
        assignment: the positions of this worker.
        record_bytes: the mean size of a record.
        begin: the position of the first batch.
        epochs: the epoch to stop before; None for no end.
        is_next_epoch_each_time: whether each iteration is the next epoch, rather than the same batches.
        facts: what the order depends on; None unless the run is resumed or tracked.
    """

    population: Population
    order: RunOrder
    assignment: Assignment
    record_bytes: float
    begin: Position
    epochs: int | None
    is_next_epoch_each_time: bool
    facts: Facts | None

    @property
    def num_steps(self) -> int | None:
        """The steps of the run; None for no end."""
        steps = self.assignment.num_steps
        if self.epochs is None and steps:
            return None
        return max(0, ((self.epochs or 1) - self.begin.epoch) * steps - self.begin.step)


def make_plan(options: LoadOptions, source: Source) -> Plan:
    """Return what the worker of ``options`` reads of ``source``.

    Raises:
        OptionsError: options do not fit the dataset, or the run that they resume.
        FormatError: the labels that are needed differ from the manifest.
    """
    population = choose_population(options, source)
    begin, stored = options.begin, _stored(source)
    _check_enterable(stored, population, options.shuffle)
    check_workers(begin.order, options.batch_size, options.this_worker)
    shuffle = kept_shuffle(options.shuffle, begin.order)
    assignment = assign(
        population.num_positions,
        stored,
        batch_size=options.batch_size,
        worker=options.this_worker,
        remainder=options.remainder,
        shuffle=shuffle,
    )
    facts = None
    if begin.order is not None or options.tracker is not None:
        facts = order_facts(source, population, assignment, shuffle)
        check_same_order(begin.order, facts)
    check_start(begin, options.epochs, assignment, shuffle)
    order = RunOrder(
        num_positions=population.num_positions,
        run=assignment.run,
        seed=order_seed(shuffle.seed, source.manifest.build_id) if shuffle is not None else 0,
        lanes=assignment.lanes,
        # In compressed shards, entering a lane at a random rank would decompress twice as much.
        is_entered=not stored.is_compressed,
    )
    return Plan(
        population=population,
        order=order,
        assignment=assignment,
        record_bytes=stored.record_bytes,
        begin=begin,
        epochs=options.epochs,
        is_next_epoch_each_time=options.is_one_pass and options.differs_by_epoch,
        facts=facts,
    )


def no_steps(source: Source, assignment: Assignment) -> str:
    """Return the warning that an epoch has no steps, with the reason."""
    count = assignment.worker.count
    workers = "1 worker" if count == 1 else f"{count} workers"
    return (
        f"split {source.name!r} has {assignment.num_positions} examples, fewer than the global batch size "
        f"{assignment.global_batch_size} (batch_size={assignment.batch_size} on each of "
        f"{workers}), so that remainder={assignment.remainder!r} leaves no steps; use a "
        "smaller batch size or remainder='pad'"
    )


def _stored(source: Source) -> Stored:
    split = source.split
    return Stored(
        max(1.0, split.record_bytes / max(1, split.num_examples)),
        len(split.shards),
        is_permuted=not _is_adopted(source.manifest.options),
        is_compressed=source.manifest.compression != "none",
    )


def _is_adopted(options: object) -> bool:
    """Return whether a build's options mention, at any depth, files that were written elsewhere."""
    if isinstance(options, Mapping):
        return options.get("source") == "adopt" or any(map(_is_adopted, options.values()))
    return isinstance(options, list) and any(map(_is_adopted, options))


def _check_enterable(stored: Stored, population: Population, shuffle: Shuffle | None) -> None:
    """Raise if single records of compressed shards would be read, decompressing all before each of them."""
    is_full = shuffle is not None and shuffle.how == "full"
    if stored.is_compressed and (is_full or not isinstance(population, Ranges)):
        raise OptionsError("compressed-random")
