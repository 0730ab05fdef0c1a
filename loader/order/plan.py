"""``ReadPlan``: which examples one worker reads, in which order; and whether a run can be resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.selection import ORDER_FACTS, Facts, Mix, Part, Position, Shuffle
from tfshards.loader.options.validation import is_integer
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.assignment import Assignment, Stored, assign, divisors
from tfshards.loader.order.epoch import RunOrder, order_seed
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


def order_facts(
    source: OpenSplit, population: Population, assignment: Assignment, shuffle: Shuffle | None
) -> Facts:
    """Return the facts that the order of a run depends on, except the number of workers, as JSON values."""
    digest = sha256()
    for field in fields(population):
        digest.update(np.ascontiguousarray(getattr(population, field.name), np.int64).data)
    return {
        "build_id": source.manifest.build_id,
        "split": source.name,
        "examples": f"{assignment.num_positions} {digest.hexdigest()[:16]}",
        "global_batch_size": assignment.global_batch_size,
        "remainder": assignment.remainder,
        "how": "stored" if shuffle is None else shuffle.how,
        "seed": 0 if shuffle is None else shuffle.seed,
        "run": assignment.run,
        "lanes": assignment.lanes,
    }


def facts_of(options: LoadOptions, source: OpenSplit, plan: ReadPlan) -> Facts:
    """Return the facts that the order of a plan depends on."""
    shuffle = kept_shuffle(options.shuffle, options.begin.order)
    return order_facts(source, plan.population, plan.assignment, shuffle)


def kept_shuffle(shuffle: Shuffle | None, order: Facts | None) -> Shuffle | None:
    """Return ``shuffle`` with run and lanes from the position's order, unless they are given."""
    if shuffle is None or order is None or shuffle.how != "runs" or order["how"] != "runs":
        return shuffle
    run, lanes = int(order["run"]), int(order["lanes"])
    return replace(shuffle, run=shuffle.run or run, lanes=shuffle.lanes or lanes)


def check_workers(order: Facts | None, batch_size: int, worker: Worker) -> None:
    """Raise OptionsError unless this number of workers divides the lanes or the global batch of a run."""
    if order is None:
        return
    whole, lanes, count = int(order["global_batch_size"]), int(order["lanes"]), worker.count
    if (lanes or whole) % count:
        what = f"{lanes} lanes" if lanes else f"global batch of {whole} examples"
        raise OptionsError("resume-workers", count=count, what=what, divisors=divisors(lanes or whole))
    if batch_size * count != whole:
        raise OptionsError(
            "resume-batch",
            batch_size=batch_size * count,
            batch_size2=batch_size,
            count=count,
            whole=whole,
            whole2=whole // count,
        )


def check_same_order(then: Facts | None, now: Facts) -> None:
    """Raise OptionsError, which names the first difference, if the order differs from the run's."""
    if then is None:
        return
    for name in [*ORDER_FACTS, *(name for name in then if name not in ORDER_FACTS)]:
        if then.get(name) != now.get(name):
            what, remedy = ORDER_FACTS.get(name, (repr(name), "use the release that wrote the position"))
            raise OptionsError(
                "resume-order", what=what, get=then.get(name), get2=now.get(name), remedy=remedy
            )


def check_start(start: Position, epochs: int | None, assignment: Assignment, shuffle: Shuffle | None) -> None:
    """Raise OptionsError unless ``start`` exists in the run, and the order before it is known."""
    if epochs is not None and epochs < 1:
        raise OptionsError("epochs-range", epochs=epochs)
    # A finished run that is started again has no steps left.
    is_done = start.order is not None and (start.epoch, start.step) == (epochs, 0)
    if epochs is not None and start.epoch >= epochs and not is_done:
        raise OptionsError("start-after-end", start=start, epochs=epochs, epoch=start.epoch + 1)
    if start.step and start.step >= assignment.num_steps:
        raise OptionsError("start-step", start=start, num_steps=assignment.num_steps)
    usual, is_default = assignment.usual_lanes, shuffle is not None and shuffle.lanes is None
    if is_default and start != Position() and assignment.lanes != usual:
        raise OptionsError(
            "resume-lanes",
            count=assignment.worker.count,
            usual=usual,
            divisors=divisors(usual),
            lanes=assignment.lanes,
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
        raise OptionsError("classes-no-label", label=source.label)
    numbers = [_class_number(source, name) for name in classes]
    if isinstance(classes, Mapping):
        labels = source.labels()
        members = [taken(np.flatnonzero(labels == number), part) for number in numbers]
        return _resampled(members, classes, take, source)
    chosen = np.flatnonzero(source.having(numbers))
    if not len(chosen):
        raise OptionsError("classes-no-examples", label=source.label, classes=list(classes))
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
            raise OptionsError("ratio-no-examples", label=source.label, name=name)
        if not quota:
            raise OptionsError("ratio-no-positions", name=name, num_positions=num_positions)
    return grouped(members, quotas)


def _check_take_fits(take: int | Part | None, num_examples: int, what: str) -> None:
    if is_integer(take) and take > num_examples:
        raise OptionsError("take-too-many", take=take, num_examples=num_examples, what=what)


def _class_number(source: OpenSplit, name: object) -> int:
    names = source.manifest.schema.class_names
    if isinstance(name, str) and name in names:
        return names.index(name)
    if is_integer(name) and (not names or 0 <= name < len(names)):
        return int(name)
    known = ", ".join(map(repr, names)) if names else "numbers only"
    raise OptionsError("classes-unknown", name=name, known=known)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadPlan:
    """What one worker reads.

    Attributes:
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
    def group(self) -> int:
        """The number of steps that are read and parsed together, of small batches several."""
        batch_bytes = self.record_bytes * self.assignment.batch_size
        return max(1, min(_MOST_PARSED, int(_PARSED_BYTES / batch_bytes)))

    @property
    def is_scattered(self) -> bool:
        """Whether the records that are read after one another are no neighbors."""
        return not isinstance(self.population, Ranges) or self.order.run == 1

    @property
    def num_steps(self) -> int | None:
        """The steps of the run; None for no end."""
        steps = self.assignment.num_steps
        if self.epochs is None and steps:
            return None
        return max(0, ((self.epochs or 1) - self.begin.epoch) * steps - self.begin.step)


def make_plan(options: LoadOptions, source: OpenSplit) -> ReadPlan:
    """Return what the worker of ``options`` reads of ``source``.

    Options that do not fit the dataset, or the run that they resume, are an OptionsError.
    """
    begin, split = options.begin, source.split
    stored = Stored(
        max(1.0, split.record_bytes / max(1, split.num_examples)),
        len(split.shards),
        is_permuted=not _is_adopted(source.manifest.options),
        is_compressed=source.manifest.compression != "none",
    )
    population = choose_population(options, source)
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
        # see MOST_COMPRESSED_LANES
        is_entered=not stored.is_compressed,
    )
    return ReadPlan(
        population=population,
        order=order,
        assignment=assignment,
        record_bytes=stored.record_bytes,
        begin=begin,
        epochs=options.epochs,
        is_next_epoch_each_time=options.is_one_pass and options.differs_by_epoch,
        facts=facts,
    )


def no_steps(source: OpenSplit, assignment: Assignment) -> str:
    """Return the warning that an epoch has no steps, with the reason."""
    return (
        f"split {source.name!r} has {assignment.num_positions} examples, fewer than the global batch size "
        f"{assignment.global_batch_size} (batch_size={assignment.batch_size} on each of "
        f"{counted(assignment.worker.count, 'worker')}), so that remainder={assignment.remainder!r} leaves "
        "no steps; use a smaller batch size, remainder='keep' for evaluation, or remainder='pad', which "
        "delivers weights that losses and metrics must use"
    )


def _is_adopted(options: object) -> bool:
    """Return whether a build's options mention, at any depth, files that were written elsewhere."""
    if isinstance(options, Mapping):
        return options.get("source") == "adopt" or any(map(_is_adopted, options.values()))
    return isinstance(options, list) and any(map(_is_adopted, options))
