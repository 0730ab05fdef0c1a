"""``which`` and ``when``: which examples a step held, and when an example came, from the order alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import LoadOptions, Remainder
from tfshards.loader.options.selection import Classes, Mix, Part, Position, Shuffle, Tracker
from tfshards.loader.options.validation import check_least, invalid, is_integer, suggests
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.epoch import Ints
from tfshards.loader.order.plan import make_plan
from tfshards.loader.order.steps import Steps
from tfshards.loader.reading.damage import PADDING
from tfshards.loader.reading.source import OpenSplit, open_source
from tfshards.schemas import InputError
from tfshards.schemas.json_reader import Json
from tfshards.schemas.keys import keys_at, occurrences
from tfshards.schemas.summary import escaped

# Positions of an epoch that are searched together.
_TOGETHER = 1 << 20


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

    def __repr__(self) -> str:
        """Return the numbers, each after its name, and the key."""
        numbers = ", ".join(f"{name} {value}" for name, value in zip(self._fields, self[:-1], strict=False))
        return numbers if self.key is None else f"{numbers}, key {escaped(os.fsdecode(self.key))}"

    def to_json(self) -> dict[str, Json]:
        """Return the attributes by name; the key as text."""
        return {**self._asdict(), "key": None if self.key is None else os.fsdecode(self.key)}


@suggests
def which(
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    *,
    batch_size: int,
    step: int | range,
    epoch: int | None = None,
    take: int | Part | None = None,
    classes: Classes | None = None,
    shuffle: Shuffle | None = None,
    remainder: Remainder = "drop",
    start: Position | Tracker | None = None,
    workers: int = 1,
    keys: bool = True,
) -> list[Occurrence]:
    """Return which examples steps hold, or held: no log is needed, and no TensorFlow.

    Rows of padding are left out. Damaged records are not looked for: with ``on_damage="skip"``, the batches
    have padding instead of them.

    Args:
        path: as for ``load``, like all parameters that are not described here.
        batch_size: the number of examples in each batch of each worker.
        step: a step, or a ``range`` of steps: of the epoch ``epoch``, or, without it, of the whole run, which
            continues with each epoch where the previous one ended. The first step of the run is 0, also if
            it was resumed later.
        epoch: the epoch, from 0.
        start: a position of the run, which knows its lanes and runs.
        workers: the number of workers at these steps.
        keys: whether to read the keys, from the files of keys of the shards of these steps.

    Returns:
        The examples in the order of steps, workers and rows.

    Raises:
        OptionsError: an option is not allowed, contradicts the others, the dataset or the run that it
            resumes, or there is no such step.
        InputError: there is no dataset in ``path``, or no such split in it.
        FormatError: the manifest breaks the format, or a file of keys is damaged.
    """
    source, order = _opened(locals())
    num_steps = order.plan.assignment.num_steps
    steps = range(int(step), int(step) + 1) if is_integer(step) else step
    end = num_steps if epoch is not None or not num_steps else 2**62
    if not isinstance(steps, range) or not steps or min(steps) < 0 or max(steps) >= end:
        raise invalid("step", step, f"a step from 0, or a range; an epoch has {num_steps} steps")
    if epoch is not None:
        check_least("epoch", epoch, 0)
    found: list[Occurrence] = []
    for each in steps:
        of_epoch, within = divmod(each, num_steps) if epoch is None else (epoch, each)
        numbers = order.numbers(of_epoch, within).reshape(1, workers, batch_size)
        found += _occurrences(of_epoch, within, numbers, numbers != PADDING, remainder)
    if not keys or source.manifest.schema.key is None:
        return found
    read = keys_at(source.root, source.split.shards, np.array([each.number for each in found], np.int64))
    return [each._replace(key=key) for each, key in zip(found, read, strict=True)]


@suggests
def when(
    path: str | os.PathLike[str] | Mix,
    split: str | None = None,
    *,
    examples: Sequence[str | bytes | int],
    batch_size: int,
    epochs: int | range = 1,
    take: int | Part | None = None,
    classes: Classes | None = None,
    shuffle: Shuffle | None = None,
    remainder: Remainder = "drop",
    start: Position | Tracker | None = None,
    workers: int = 1,
) -> list[Occurrence]:
    """Return when examples come, or came: no log is needed, and no TensorFlow.

    The order of each epoch is computed and searched, 10^8 examples in some seconds. Damaged records are not
    looked for: with ``on_damage="skip"``, batches have padding instead of them.

    Args:
        path: as for ``load``, like all parameters that are not described here.
        examples: keys, or numbers in stored order. For keys, the files of keys of the split are read once;
            numbers need no reading.
        batch_size: the number of examples in each batch of each worker.
        epochs: the epoch to stop before, as for ``load``, or a ``range`` of epochs, such as ``range(7, 8)``.
        start: a position of the run, which knows its lanes and runs.
        workers: the number of workers in these epochs.

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
    check_least("workers", workers, 1)
    chosen = range(int(epochs)) if is_integer(epochs) else epochs
    if not isinstance(chosen, range) or not chosen or min(chosen) < 0:
        raise invalid("epochs", epochs, "a number of epochs of at least 1, or a range of epochs from 0")
    source, order = _opened(locals())
    asked = _numbers(source, examples)
    # padding is -2, and never asked for
    is_asked = np.zeros(source.split.num_examples + 2, np.bool_)
    is_asked[[*asked]] = True
    num_steps, size = order.plan.assignment.num_steps, batch_size * workers
    together = max(1, _TOGETHER // size)
    found: list[Occurrence] = []
    for epoch in chosen:
        for step in range(0, num_steps, together):
            numbers = order.numbers(epoch, step, min(step + together, num_steps))
            found += _occurrences(
                epoch, step, numbers.reshape(-1, workers, batch_size), is_asked[numbers], remainder
            )
    return [each._replace(key=asked[each.number]) for each in found]


_OF_ORDER = ("path", "split", "batch_size", "take", "classes", "shuffle", "remainder", "start")


def _opened(given: Mapping[str, Any]) -> tuple[OpenSplit, Steps]:
    """Return the split, and the steps of one worker whose batches join the batches of all workers.

    Args:
        given: the parameters of ``which`` or ``when``.
    """
    check_least("workers", given["workers"], 1)
    worker, order = Worker(0, given["workers"]), {name: given[name] for name in _OF_ORDER}
    options = LoadOptions(**order, epochs=None, worker=worker)
    source = open_source(options)
    plan = make_plan(options, source)
    assignment = replace(plan.assignment, batch_size=plan.assignment.global_batch_size, worker=Worker())
    return source, Steps(replace(plan, assignment=assignment))


def _occurrences(
    epoch: int, step: int, numbers: Ints, is_chosen: npt.NDArray[np.bool_], remainder: Remainder
) -> Iterator[Occurrence]:
    """Yield the chosen examples of the steps from ``step`` on, ``(steps, workers, batch_size)``."""
    steps, workers, rows = np.nonzero(is_chosen.reshape(numbers.shape))
    found = numbers[steps, workers, rows].tolist()
    if remainder == "keep":
        # batches have no rows of padding
        rows = (np.cumsum(numbers[steps, workers] != PADDING, axis=-1) - 1)[np.arange(len(rows)), rows]
    places = zip(steps.tolist(), workers.tolist(), rows.tolist(), found, strict=True)
    for at, worker, row, number in places:
        yield Occurrence(epoch, step + at, worker, row, number, None)


def _numbers(source: OpenSplit, examples: Sequence[str | bytes | int]) -> dict[int, bytes | None]:
    """Return the numbers of examples with the key of each that was named by it."""
    count, found = source.split.num_examples, dict[int, bytes | None]()
    if isinstance(examples, (str, bytes)):
        examples = [examples]
    for example in examples:
        if is_integer(example) and 0 <= example < count:
            found[int(example)] = None
        elif not isinstance(example, (str, bytes)):
            raise invalid("examples", example, f"keys, or numbers of the {count} of {source.label}, from 0")
    names = {os.fsencode(each) for each in examples if isinstance(each, (str, bytes))}
    if names:
        if source.manifest.schema.key is None:
            raise InputError("records-no-keys", root=source.root)
        # mixed datasets may have a key several times
        found |= occurrences(source.root, source.split.shards, names)
        missing = names.difference(found.values())
        if missing:
            raise InputError(f"{source.label} has no example with the key {os.fsdecode(min(missing))!r}")
    return found
