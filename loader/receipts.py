"""``which`` and ``when``: which examples a step held, and when an example came, by arithmetic."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from tfshards.loader.options.load_options import LoadOptions, takes
from tfshards.loader.options.order_options import OrderOptions
from tfshards.loader.options.selection import Facts, Mix, Shuffle
from tfshards.loader.options.validation import check_least, is_integer
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.ops import Ints
from tfshards.loader.order.plan import ReadPlan, make_plan
from tfshards.loader.order.steps import PADDING, Steps
from tfshards.loader.reading.source import OpenSplit, open_source
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.keys import keys_at, occurrences


class Occurrence(NamedTuple):
    """An example in a batch; all numbers count from 0.

    Attributes:
        epoch: the epoch.
        step: the step in the epoch.
        worker: the index of the worker.
        row: the row in the batch of the worker.
        number: the number of the example in stored order.
        key: its key; None if it was not read, or not given.
    """

    epoch: int
    step: int
    worker: int
    row: int
    number: int
    key: bytes | None


@dataclass(frozen=True)
class WhichOptions(OrderOptions):
    """The parameters of ``which``.

    Attributes:
        path: as for ``load``, like the options of the order below.
        split: its name; may be left out if there is only one.
        batch_size: the number of examples in each batch of each worker.
        step: a step, or a ``range`` of steps: of the epoch ``epoch``, or, without it, of the whole run, which
            continues with each epoch where the previous one ended. The first step of the run is 0, also if
            it was resumed later.
        epoch: the epoch, from 0.
        workers: the number of workers at these steps.
        worker: the index of the worker whose batches are returned; None for all.
        keys: whether to read the keys, from the files of keys of the shards of these steps.
    """

    path: str | os.PathLike[str] | Mix
    split: str | None = None
    _: KW_ONLY
    batch_size: int
    step: int | range
    epoch: int | None = None
    workers: int = 1
    worker: int | None = None
    keys: bool = True


@takes(WhichOptions)
def which(options: WhichOptions) -> list[Occurrence]:
    """Return which examples steps hold, or held, by arithmetic: no log is needed, and no TensorFlow.

    Rows of padding are left out. Damaged records are not looked for: with ``on_damage="skip"``, the batches
    have padding instead of them.

    Args:
        {options}

    Returns:
        The examples in the order of steps, workers and rows.

    Raises:
        OptionsError: an option is not allowed, contradicts the others, the dataset or the run that it
            resumes, or there is no such step.
        InputError: there is no dataset in ``path``, or no such split in it.
        FormatError: the manifest breaks the format, or a file of keys is damaged.
    """
    source, plan = _opened(options, options.batch_size, options.workers)
    # all workers together are one worker with lanes, or slices of each batch, in the order of workers
    assignment = replace(plan.assignment, batch_size=plan.assignment.global_batch_size, worker=Worker())
    steps = Steps(replace(plan, assignment=assignment))
    found: list[Occurrence] = []
    for epoch, step in _positions(options, assignment.num_steps):
        numbers = steps.numbers(epoch, step).reshape(options.workers, options.batch_size)
        is_real = numbers != PADDING
        # batches of "keep" have no rows of padding
        rows = np.cumsum(is_real, axis=1) - 1 if options.remainder == "keep" else np.indices(is_real.shape)[1]
        if options.worker is not None:
            is_real &= np.arange(options.workers)[:, None] == options.worker
        columns = (np.nonzero(is_real)[0], rows[is_real], numbers[is_real])
        found += map(
            Occurrence, repeat(epoch), repeat(step), *(each.tolist() for each in columns), repeat(None)
        )
    if not options.keys or source.manifest.schema.key is None:
        return found
    numbers = np.array([each.number for each in found], np.int64)
    keys = keys_at(source.root, source.split.shards, numbers)
    return [Occurrence(*each[:-1], key) for each, key in zip(found, keys, strict=True)]


def _positions(options: WhichOptions, num_steps: int) -> Iterator[tuple[int, int]]:
    """Yield epoch and step of each step that is asked for."""
    step, epoch, worker = options.step, options.epoch, options.worker
    if worker is not None and worker not in range(options.workers):
        raise OptionsError("which-worker", worker=worker, workers=options.workers)
    if epoch is not None:
        check_least("epoch", epoch, 0)
    steps = range(step, step + 1) if is_integer(step) else step
    end = num_steps if epoch is not None or not num_steps else 2**62
    if not isinstance(steps, range) or not steps or min(steps) < 0 or max(steps) >= end:
        raise OptionsError("which-step", step=step, num_steps=num_steps)
    for each in steps:
        yield divmod(each, num_steps) if epoch is None else (epoch, each)


@dataclass(frozen=True)
class WhenOptions(OrderOptions):
    """The parameters of ``when``.

    Attributes:
        path: as for ``load``, like the options of the order below.
        split: its name; may be left out if there is only one.
        examples: keys, or numbers in stored order. For keys, the files of keys of the split are read once;
            numbers need no reading.
        batch_size: the number of examples in each batch of each worker.
        epochs: the epoch to stop before, as for ``load``, or a ``range`` of epochs, such as ``range(7, 8)``.
        workers: the number of workers in these epochs.
    """

    path: str | os.PathLike[str] | Mix
    split: str | None = None
    _: KW_ONLY
    examples: Sequence[str | bytes | int]
    batch_size: int
    epochs: int | range = 1
    workers: int = 1


@takes(WhenOptions)
def when(options: WhenOptions) -> list[Occurrence]:
    """Return when examples come, or came, by arithmetic: no log is needed, and no TensorFlow.

    Damaged records are not looked for: with ``on_damage="skip"``, batches have padding instead of them.

    Args:
        {options}

    Returns:
        Each occurrence, in the order of epochs, steps, workers and rows. An example has none in an epoch
        that leaves it out: by ``take`` or ``classes``, by ``remainder="drop"``, or by ratios, with which it
        may also occur several times.

    Raises:
        OptionsError: an option is not allowed, contradicts the others, the dataset or the run that it
            resumes, or there is no such number.
        InputError: there is no dataset in ``path``, no such split in it, or no such key in the split.
        FormatError: the manifest breaks the format, or a file of keys is damaged.
    """
    epochs = options.epochs
    if is_integer(epochs):
        check_least("epochs", epochs, 1)
        epochs = range(epochs)
    if not isinstance(epochs, range) or (epochs and min(epochs) < 0):
        raise OptionsError("when-epochs", epochs=epochs)
    source, plan = _opened(options, options.batch_size, options.workers)
    numbers, keys = _numbers(source, options.examples)
    steps, found = Steps(plan), list[Occurrence]()
    for epoch in epochs:
        asked, rows = steps.rows_of(epoch, numbers)
        columns = (each.tolist() for each in (*rows, numbers[asked]))
        found += map(Occurrence, repeat(epoch), *columns, [keys[each] for each in asked])
    return sorted(found, key=lambda each: each[:4])


def _numbers(source: OpenSplit, examples: Sequence[str | bytes | int]) -> tuple[Ints, list[bytes | None]]:
    """Return the numbers of examples, and the key of each that was named by it, without repetitions."""
    if isinstance(examples, (str, bytes)) or not all(
        isinstance(each, (str, bytes)) or is_integer(each) for each in examples
    ):
        raise OptionsError("when-examples", examples=examples)
    found: dict[int, bytes | None] = {}
    for number in filter(is_integer, examples):
        if not 0 <= number < source.split.num_examples:
            raise OptionsError(
                "when-number", number=number, label=source.label, num_examples=source.split.num_examples
            )
        found[int(number)] = None
    names = {os.fsencode(each) for each in examples if isinstance(each, (str, bytes))}
    if names:
        if source.manifest.schema.key is None:
            raise InputError("records-no-keys", root=source.root)
        # mixed datasets may have a key several times
        found |= occurrences(source.root, source.split.shards, names)
        missing = names.difference(found.values())
        if missing:
            raise InputError("when-key", label=source.label, key=os.fsdecode(min(missing)))
    return np.array([*found], np.int64), [*found.values()]


def _opened(options: WhichOptions | WhenOptions, batch_size: int, workers: int) -> tuple[OpenSplit, ReadPlan]:
    """Return the split, and the plan of the first of ``workers`` workers."""
    check_least("workers", workers, 1)
    loaded = LoadOptions(
        options.path,
        options.split,
        batch_size=batch_size,
        worker=Worker(0, workers),
        epochs=None,
        **options.order_options(),
    )
    source = open_source(loaded)
    return source, make_plan(loaded, source)


def options_of_run(order: Facts, workers: int) -> dict[str, Any]:
    """Return the options of ``which`` and ``when`` that the facts of a run's order determine."""
    how, seed = str(order["how"]), int(order["seed"])
    shuffle = None if how == "stored" else Shuffle(seed, "full" if how == "full" else "runs")
    return {
        "split": order["split"],
        "batch_size": int(order["global_batch_size"]) // workers,
        "remainder": order["remainder"],
        "shuffle": shuffle,
    }
