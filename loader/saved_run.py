"""``which`` and ``when`` for a run whose position, and with it the order, is in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tfshards.loader import receipts
from tfshards.loader.options.selection import Position, Shuffle
from tfshards.loader.receipts import Occurrence
from tfshards.schemas import InputError, OptionsError, read_manifest
from tfshards.schemas.json_reader import load_json
from tfshards.schemas.storage.any_path import local_path
from tfshards.schemas.storage.untrusted import OPTIONS, read_whole


def which(
    dataset: str | os.PathLike[str],
    position: str | os.PathLike[str],
    *,
    step: str,
    epoch: int | None = None,
    workers: int = 1,
) -> list[Occurrence]:
    """List the examples that steps of a run held.

    Args:
        dataset: folder of the dataset, or its URL.
        position: JSON file of a position of the run, as "Resume" and "Progress" save it.
        step: step of the epoch, or, without "epoch", of the whole run; or steps, such as 10:20.
        epoch: epoch, from 0.
        workers: number of workers of the run.

    Raises:
        OptionsError: an argument is not allowed, or there is no such step.
        InputError: the file is not a position, or there is no dataset.
    """
    return receipts.which(**_run_of(dataset, position, workers), step=_span("step", step), epoch=epoch)


def when(
    dataset: str | os.PathLike[str],
    position: str | os.PathLike[str],
    examples: Sequence[str],
    *,
    epochs: str = "1",
    workers: int = 1,
) -> list[Occurrence]:
    """List when examples come in a run, or came.

    Args:
        dataset: folder of the dataset, or its URL.
        position: JSON file of a position of the run, as "Resume" and "Progress" save it.
        examples: keys; numbers in stored order if the examples have no keys.
        epochs: number of epochs, or epochs, such as 10:20.
        workers: number of workers of the run.

    Raises:
        OptionsError: an argument is not allowed.
        InputError: the file is not a position, there is no dataset, or no such key in it.
    """
    has_keys = read_manifest(dataset).schema.key is not None
    given = [each if has_keys or not each.isdecimal() else int(each) for each in examples]
    return receipts.when(
        **_run_of(dataset, position, workers), examples=given, epochs=_span("epochs", epochs)
    )


def _run_of(dataset: str | os.PathLike[str], path: str | os.PathLike[str], workers: int) -> dict[str, Any]:
    """Return the options of the run that a position belongs to."""
    try:
        position = Position.from_json(load_json(read_whole(local_path(path), OPTIONS)))
        order = position.order or {}
        how, size = str(order["how"]), int(order["global_batch_size"])
        shuffle = (
            None if how == "stored" else Shuffle(int(order["seed"]), "full" if how == "full" else "runs")
        )
        for name in ("run", "lanes"):
            int(order[name])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        why = f"it has no order with {error}" if isinstance(error, KeyError) else error
        raise InputError(f"{path} is not a position, as Position.to_json() returns it: {why}") from None
    if workers < 1 or size % workers:
        raise OptionsError(f"workers={workers} must divide the global batch of {size} examples")
    return {
        "path": dataset,
        "split": order["split"],
        "batch_size": size // workers,
        "remainder": order["remainder"],
        "shuffle": shuffle,
        "start": position,
        "workers": workers,
    }


def _span(name: str, text: str) -> int | range:
    start, colon, stop = text.partition(":")
    if not start.isdecimal() or not (stop.isdecimal() if colon else True):
        raise OptionsError(f"{name}={text!r} must be a number, such as 12, or a range, such as 10:20")
    return range(int(start), int(stop)) if colon else int(start)
