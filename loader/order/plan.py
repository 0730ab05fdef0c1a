"""``ReadPlan``: which examples one worker reads, in which order; and whether a run can be resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.position import ORDER_FACTS, Facts, Position
from tfshards.loader.options.selection import Mix, Part, Shuffle
from tfshards.loader.options.validation import is_integer
from tfshards.loader.order.epoch import Order, order_seed
from tfshards.loader.order.lanes import divisors, num_lanes, run_length
from tfshards.loader.order.population import (
    Groups,
    Members,
    Population,
    Ranges,
    grouped,
    quotas_of,
    ranges_of,
    taken,
)
from tfshards.loader.reading.source import OpenSplit
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import counted

_PARSED_BYTES = 1 << 20
_MOST_PARSED = 64


def kept_shuffle(shuffle: Shuffle | None, order: Facts | None) -> Shuffle | None:
    """Return ``shuffle`` with run and lanes from the position's order, unless they are given."""
    if shuffle is None or order is None or shuffle.how != "runs" or order["how"] != "runs":
        return shuffle
    run, lanes = int(order["run"]), int(order["lanes"])
    return replace(shuffle, run=shuffle.run or run, lanes=shuffle.lanes or lanes)


def check_same_order(then: Facts | None, now: Facts) -> None:
    """Raise OptionsError, which names the first difference, if the order differs from the run's."""
    if then is None:
        return
    for name in {**dict.fromkeys(ORDER_FACTS), **then}:
        if then.get(name) != now.get(name):
            raise OptionsError(
                f"start= belongs to a run in which {name} was {then.get(name)!r}, here it is "
                f"{now.get(name)!r}; use the dataset, take=, classes=, shuffle=, remainder= and global batch "
                "size of that run, or leave start= out to begin a new run",
                code="resume-differs",
            )


def check_start(start: Position, epochs: int | None, order: Order, usual_lanes: int) -> None:
    """Raise OptionsError unless ``start`` exists in the run, and the order before it is known.

    ``usual_lanes`` is the default number of lanes for every number of workers that divides it.
    """
    # A finished run that is started again has no steps left.
    is_done = start.order is not None and (start.epoch, start.step) == (epochs, 0)
    if epochs is not None and start.epoch >= epochs and not is_done:
        raise OptionsError(
            f"start={start} is after the end, epochs={epochs}; epochs counts from the start of the run, so "
            f"use at least {start.epoch + 1}"
        )
    if start.step and start.step >= order.num_steps:
        raise OptionsError(f"start={start} does not exist: an epoch has {order.num_steps} steps")
    if start != Position() and order.lanes != usual_lanes:
        raise OptionsError(
            f"{order.worker.count} workers do not divide the {usual_lanes} lanes of the default order, so "
            f"this may not be the run to resume; use {divisors(usual_lanes)} workers, or "
            f"Shuffle(lanes={order.lanes}) if the run began with {order.worker.count}"
        )


def choose_population(options: LoadOptions, source: OpenSplit) -> Population:
    """Return the population of an epoch: which examples of ``source`` it contains, and how often."""
    take, classes = options.take, options.classes
    part = take if isinstance(take, Part) else None
    if isinstance(options.path, Mix):
        bases = np.cumsum([0, *source.sizes[:-1]])
        members = [
            taken(np.arange(base, base + size), part) for base, size in zip(bases, source.sizes, strict=True)
        ]
        ratios = {str(path): weight for path, weight in options.path.weights.items()}
        return _resampled(members, ratios, take, source)
    num_examples = source.split.num_examples
    if classes is None:
        _check_take_fits(take, num_examples, source.label)
        return ranges_of(num_examples, take)
    schema = source.manifest.schema
    if schema.label is None and (
        isinstance(classes, Mapping) or not any(each.is_label for each in schema.features)
    ):
        raise OptionsError(
            f"classes= requires one class for each example, but {source.label} has no feature of kind "
            "'label'; leave it out"
        )
    numbers = [_class_number(source, name) for name in classes]
    if isinstance(classes, Mapping):
        labels = source.labels()
        members = [taken(np.flatnonzero(labels == number), part) for number in numbers]
        return _resampled(members, classes, take, source)
    chosen = np.flatnonzero(source.having(numbers))
    if not len(chosen):
        raise OptionsError(f"{source.label} has no examples of classes={list(classes)!r}; choose others")
    _check_take_fits(take, len(chosen), f"{source.label} with classes={list(classes)!r}")
    return Members(taken(chosen, take))


def _resampled(
    members: Sequence[npt.NDArray[np.int64]],
    ratios: Mapping[str, float] | Mapping[int, float],
    take: int | Part | None,
    source: OpenSplit,
) -> Groups:
    """Return groups in these ratios, with ``take`` positions per epoch; by default the number of examples."""
    num_positions = int(take) if is_integer(take) else sum(map(len, members))
    quotas = quotas_of(list(ratios.values()), num_positions)
    for name, numbers, quota in zip(ratios, members, quotas, strict=True):
        if not len(numbers):
            raise OptionsError(f"{source.label} has no examples of {name!r}; leave it out of the ratios")
        if not quota:
            raise OptionsError(
                f"{name!r} would have none of the {num_positions} positions of an epoch; give it a larger "
                "share, or give the epoch more positions with take="
            )
    return grouped(members, quotas)


def _check_take_fits(take: int | Part | None, num_examples: int, what: str) -> None:
    if is_integer(take) and take > num_examples:
        raise OptionsError(f"take={take} exceeds the {num_examples} examples of {what}; use at most that")


def _class_number(source: OpenSplit, name: object) -> int:
    names = source.manifest.schema.class_names
    if isinstance(name, str) and name in names:
        return names.index(name)
    if is_integer(name) and (not names or 0 <= name < len(names)):
        return int(name)
    known = ", ".join(map(repr, names)) if names else "numbers only"
    raise OptionsError(f"classes= names {name!r}, which is not a class; the classes are {known}")


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadPlan:
    """What one worker reads.

    Attributes:
        shuffle: the options of the order, with lanes and runs of the run that is resumed.
        record_bytes: mean size of a record, at least 1.
        epochs: the epoch to stop before; None for no end.
        is_next_epoch_each_time: whether each iteration is the next epoch, rather than the same batches.
    """

    source: OpenSplit
    shuffle: Shuffle | None
    order: Order
    record_bytes: float
    begin: Position
    epochs: int | None
    is_next_epoch_each_time: bool

    @property
    def group(self) -> int:
        """The number of steps that are read and parsed together, of small batches several."""
        batch_bytes = self.record_bytes * self.order.batch_size
        return max(1, min(_MOST_PARSED, int(_PARSED_BYTES / batch_bytes)))

    @property
    def is_scattered(self) -> bool:
        """Whether the records that are read after one another are no neighbors."""
        return not isinstance(self.order.population, Ranges) or self.order.run == 1

    @property
    def num_steps(self) -> int | None:
        """The steps of the run; None for no end."""
        steps = self.order.num_steps
        if self.epochs is None and steps:
            return None
        return max(0, ((self.epochs or 1) - self.begin.epoch) * steps - self.begin.step)

    @cached_property
    def facts(self) -> Facts:
        """The facts that the order depends on, except the number of workers, as JSON values."""
        digest, order, shuffle = sha256(), self.order, self.shuffle
        for field in fields(order.population):
            digest.update(np.ascontiguousarray(getattr(order.population, field.name), np.int64).data)
        return {
            "build_id": self.source.manifest.build_id,
            "split": self.source.name,
            "examples": f"{order.num_positions} {digest.hexdigest()[:16]}",
            "global_batch_size": order.global_batch_size,
            "remainder": order.remainder,
            "how": "stored" if shuffle is None else shuffle.how,
            "seed": 0 if shuffle is None else shuffle.seed,
            "run": order.run,
            "lanes": order.lanes,
        }


def make_plan(options: LoadOptions, source: OpenSplit) -> ReadPlan:
    """Return what the worker of ``options`` reads of ``source``.

    Options that do not fit the dataset, or the run that they resume, are an OptionsError.
    """
    begin, worker, split = options.begin, options.this_worker, source.split
    record_bytes = max(1.0, split.record_bytes / max(1, split.num_examples))
    population = choose_population(options, source)
    if begin.order is not None:
        # before lanes of another global batch are looked at
        whole = options.batch_size * worker.count
        check_same_order(begin.order, {**begin.order, "global_batch_size": whole})
    shuffle = kept_shuffle(options.shuffle, begin.order)
    run = lanes = usual = 0
    if shuffle is not None and shuffle.how == "full":
        run = 1
    elif shuffle is not None:
        # If the workers divide the lanes, none of these values depends on the number of workers, and
        # neither does the order.
        whole = options.batch_size * worker.count
        usual, lanes = (num_lanes(whole, count, shuffle.lanes) for count in (1, worker.count))
        run = shuffle.run or run_length(
            population.num_positions,
            lanes,
            record_bytes,
            is_permuted=not _is_adopted(source.manifest.options),
        )
    order = Order(
        population=population,
        batch_size=options.batch_size,
        worker=worker,
        remainder=options.remainder,
        seed=order_seed(shuffle.seed, source.manifest.build_id) if shuffle is not None else 0,
        run=run,
        lanes=lanes,
    )
    plan = ReadPlan(
        source=source,
        shuffle=shuffle,
        order=order,
        record_bytes=record_bytes,
        begin=begin,
        epochs=options.epochs,
        is_next_epoch_each_time=options.is_one_pass and options.differs_by_epoch,
    )
    if begin.order is not None:
        check_same_order(begin.order, plan.facts)
    check_start(begin, options.epochs, order, usual)
    return plan


def no_steps(plan: ReadPlan) -> str:
    """Return the warning that an epoch has no steps, with the reason."""
    order = plan.order
    return (
        f"split {plan.source.name!r} has {order.num_positions} examples, fewer than the global batch size "
        f"{order.global_batch_size} (batch_size={order.batch_size} on each of "
        f"{counted(order.worker.count, 'worker')}), so that remainder={order.remainder!r} leaves "
        "no steps; use a smaller batch size, remainder='keep' for evaluation, or remainder='pad', which "
        "delivers weights that losses and metrics must use"
    )


def _is_adopted(options: object) -> bool:
    """Return whether a build's options mention, at any depth, files that were written elsewhere."""
    if isinstance(options, Mapping):
        return options.get("source") == "adopt" or any(map(_is_adopted, options.values()))
    return isinstance(options, list) and any(map(_is_adopted, options))
