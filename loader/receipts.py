"""``which`` and ``when``: which examples a step held, and when an example came, from the order alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tfshards.loader.options.load_options import LoadOptions, Remainder
from tfshards.loader.options.position import Position
from tfshards.loader.options.selection import Classes, Mix, Part, Shuffle
from tfshards.loader.options.validation import check_least, invalid, is_integer, suggests
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.epoch import Order
from tfshards.loader.order.plan import make_plan
from tfshards.loader.reading.damage import PADDING
from tfshards.loader.reading.source import OpenSplit, open_source
from tfshards.schemas import InputError, OptionsError
from tfshards.schemas.json_reader import Json, load_json
from tfshards.schemas.keys import keys_at, occurrences
from tfshards.schemas.storage.paths import local_path
from tfshards.schemas.storage.stored import OPTIONS
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
    dataset: str | os.PathLike[str] | Mix,
    position: str | os.PathLike[str] | Position,
    *,
    step: str | int | range,
    epoch: int | None = None,
    workers: int = 1,
    take: int | Part | None = None,
    classes: Classes | None = None,
) -> list[Occurrence]:
    """List the examples that steps of a run held, or hold: from its order, which is computed.

    Rows of padding are left out. Damaged records are not looked for: where a run skipped them, its batches
    had padding.

    Args:
        dataset: folder of the dataset, or its URL.
        position: any position of the run, which has its order, or a JSON file of one ("Position.to_json").
        step: step of the epoch, or, without "epoch", of the whole run, from 0; or steps, such as 10:20.
        epoch: epoch, from 0.
        workers: number of workers at these steps.
        take: "take" of the run, which a position does not know.
        classes: class of the run, if it did not read all.

    Returns:
        The examples in the order of steps, workers and rows.

    Raises:
        OptionsError: an argument is not allowed, the run had another order, or there is no such step.
        InputError: the file is not a position, or there is no dataset.
        FormatError: the manifest breaks the format, or a file of keys is damaged.
    """
    run = _opened(dataset, position, workers, take, classes)
    num_steps = run.order.num_steps
    end = num_steps if epoch is not None or not num_steps else 2**62
    steps = _span("step", step, end)
    if epoch is not None:
        check_least("epoch", epoch, 0)
    found: list[Occurrence] = []
    for each in steps:
        of_epoch, within = divmod(each, num_steps) if epoch is None else (epoch, each)
        found += run.occurrences(of_epoch, within, within + 1)
    source = run.source
    if source.manifest.schema.key is None:
        return found
    read = keys_at(source.root, source.split.shards, np.array([each.number for each in found], np.int64))
    return [each._replace(key=key) for each, key in zip(found, read, strict=True)]


@suggests
def when(
    dataset: str | os.PathLike[str] | Mix,
    position: str | os.PathLike[str] | Position,
    examples: Sequence[str] | Sequence[bytes] | Sequence[int],
    *,
    epochs: str | int | range = 1,
    workers: int = 1,
    take: int | Part | None = None,
    classes: Classes | None = None,
) -> list[Occurrence]:
    """List when examples come in a run, or came: from its order, which is computed.

    The order of each epoch is searched, 10^8 examples in some seconds. Damaged records are not looked for:
    where a run skipped them, its batches had padding.

    Args:
        dataset: folder of the dataset, or its URL.
        position: any position of the run, which has its order, or a JSON file of one ("Position.to_json").
        examples: keys; numbers in stored order if the examples have no keys.
        epochs: number of epochs, or epochs, such as 10:20.
        workers: number of workers in these epochs.
        take: "take" of the run, which a position does not know.
        classes: class of the run, if it did not read all.

    Returns:
        Each occurrence, in the order of epochs, steps, workers and rows. An example has none in an epoch
        that leaves it out: by ``take`` or ``classes``, by ``remainder="drop"``, or by ratios, with which it
        may also occur several times.

    Raises:
        OptionsError: an argument is not allowed, the run had another order, or there is no such number.
        InputError: the file is not a position, there is no dataset, or no such key in it.
        FormatError: the manifest breaks the format, or a file of keys is damaged.
    """
    count = int(epochs) if isinstance(epochs, str) and epochs.isdecimal() else epochs
    chosen = range(count) if is_integer(count) else _span("epochs", count)
    if not chosen:
        raise invalid("epochs", epochs, "at least 1")
    run = _opened(dataset, position, workers, take, classes)
    asked = _numbers(run.source, examples)
    # padding is -2, and never asked for
    is_asked = np.zeros(run.source.split.num_examples + 2, np.bool_)
    is_asked[[*asked]] = True
    together = max(1, _TOGETHER // run.order.batch_size)
    found: list[Occurrence] = []
    for epoch in chosen if run.order.num_steps else ():
        for step in range(0, run.order.num_steps, together):
            found += run.occurrences(epoch, step, min(step + together, run.order.num_steps), is_asked)
    return [each._replace(key=asked[each.number]) for each in found]


def _span(name: str, given: str | int | range, end: int = 2**62) -> range:
    """Return numbers from 0 to before ``end``: one, a range, or either as text."""
    span = given
    if isinstance(given, str):
        start, colon, stop = given.partition(":")
        if start.isdecimal() and (stop.isdecimal() if colon else True):
            span = range(int(start), int(stop)) if colon else int(start)
    if is_integer(span):
        span = range(span, span + 1)
    # the ends, as a range may be long
    if not isinstance(span, range) or not span or min(span[0], span[-1]) < 0 or max(span[0], span[-1]) >= end:
        below = f" and below {end}" if end < 2**62 else ""
        raise invalid(name, given, f"a number, such as 12, or a range, such as 10:20, from 0{below}")
    return span


@dataclass(frozen=True)
class _Run:
    """The order of a run.

    Attributes:
        order: the order of one worker, whose batches join those of all workers.
    """

    source: OpenSplit
    order: Order
    workers: int

    def occurrences(
        self, epoch: int, step: int, end: int, is_asked: npt.NDArray[np.bool_] | None = None
    ) -> Iterator[Occurrence]:
        """Yield the examples of the steps ``[step, end)``; of all, or those that are asked for."""
        numbers = self.order.numbers(epoch, step, end).reshape(end - step, self.workers, -1)
        steps, workers, rows = np.nonzero(numbers != PADDING if is_asked is None else is_asked[numbers])
        found = numbers[steps, workers, rows].tolist()
        if self.order.remainder == "keep":
            # batches have no rows of padding
            rows = (np.cumsum(numbers[steps, workers] != PADDING, axis=-1) - 1)[np.arange(len(rows)), rows]
        places = zip(steps.tolist(), workers.tolist(), rows.tolist(), found, strict=True)
        for at, worker, row, number in places:
            yield Occurrence(epoch, step + at, worker, row, number, None)


def _opened(
    dataset: str | os.PathLike[str] | Mix,
    position: str | os.PathLike[str] | Position,
    workers: int,
    take: int | Part | None,
    classes: Classes | None,
) -> _Run:
    check_least("workers", workers, 1)
    begin = position
    try:
        if not isinstance(begin, Position):
            begin = Position.from_json(load_json(local_path(begin).read_whole(OPTIONS)))
        order = begin.order or {}
        how, size, remainder = str(order["how"]), int(order["global_batch_size"]), order["remainder"]
        shuffle = None if how == "stored" else Shuffle(int(order["seed"]), cast("Any", how))
        _ = int(order["run"]), int(order["lanes"])
    except OSError as error:
        raise InputError(f"{position}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        why = f"it has no order with {error}" if isinstance(error, KeyError) else error
        raise InputError(f"{position} is not a position of a run: {why}") from None
    if size % workers:
        raise OptionsError(f"workers={workers} must divide the global batch of {size} examples")
    options = LoadOptions(
        dataset,
        cast("str", order["split"]),
        batch_size=size // workers,
        take=take,
        classes=classes,
        shuffle=shuffle,
        remainder=cast("Remainder", remainder),
        epochs=None,
        start=begin,
        worker=Worker(0, workers),
    )
    source = open_source(options)
    plan = make_plan(options, source)
    return _Run(source, replace(plan.order, batch_size=size, worker=Worker()), workers)


def _numbers(
    source: OpenSplit, examples: Sequence[str] | Sequence[bytes] | Sequence[int]
) -> dict[int, bytes | None]:
    """Return the numbers of examples with the key of each that was named by it."""
    count, found = source.split.num_examples, dict[int, bytes | None]()
    has_keys, names = source.manifest.schema.key is not None, set[bytes]()
    for example in [examples] if isinstance(examples, (str, bytes)) else examples:
        is_number = isinstance(example, str) and example.isdecimal() and not has_keys
        number = int(example) if is_number else example
        if isinstance(number, (str, bytes)):
            names.add(os.fsencode(number))
        elif is_integer(number) and 0 <= number < count:
            found[int(number)] = None
        else:
            raise invalid("examples", example, f"keys, or numbers of the {count} of {source.label}, from 0")
    if names:
        if not has_keys:
            raise InputError(f"{source.root}: the examples have no keys; use their numbers")
        # mixed datasets may have a key several times
        found |= occurrences(source.root, source.split.shards, names)
        missing = names.difference(found.values())
        if missing:
            raise InputError(f"{source.label} has no example with the key {os.fsdecode(min(missing))!r}")
    return found
