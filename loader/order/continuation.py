"""Check that a run can be resumed: its order must depend on the same facts as before."""

from __future__ import annotations

from dataclasses import fields, replace
from hashlib import sha256

import numpy as np

from tfshards.loader.options.position import ORDER_FACTS, Facts, Position
from tfshards.loader.options.shuffle import Shuffle
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.assignment import Assignment, divisors
from tfshards.loader.order.population import Population
from tfshards.loader.order.source import Source
from tfshards.schemas import OptionsError


def order_facts(
    source: Source, population: Population, assignment: Assignment, shuffle: Shuffle | None
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


def kept_shuffle(shuffle: Shuffle | None, order: Facts | None) -> Shuffle | None:
    """Return ``shuffle`` with run and lanes from the position's order, unless they are given."""
    if shuffle is None or order is None or shuffle.how != "runs" or order["how"] != "runs":
        return shuffle
    return replace(
        shuffle,
        run=int(order["run"]) if shuffle.run is None else shuffle.run,
        lanes=int(order["lanes"]) if shuffle.lanes is None else shuffle.lanes,
    )


def check_workers(order: Facts | None, batch_size: int, worker: Worker) -> None:
    """Raise unless this number of workers can resume a run.

    Raises:
        OptionsError: they do not divide its global batch, or its lanes.
    """
    if order is None:
        return
    whole, lanes = int(order["global_batch_size"]), int(order["lanes"])
    if (lanes or whole) % worker.count:
        what = f"{lanes} lanes" if lanes else f"global batch of {whole} examples"
        raise OptionsError("resume-workers", count=worker.count, what=what, divisors=divisors(lanes or whole))
    if batch_size * worker.count != whole:
        workers = "1 worker" if worker.count == 1 else f"{worker.count} workers"
        raise OptionsError(
            "resume-batch",
            batch_size=batch_size * worker.count,
            batch_size2=batch_size,
            workers=workers,
            whole=whole,
            whole2=whole // worker.count,
        )


def check_same_order(then: Facts | None, now: Facts) -> None:
    """Raise unless the order is that of the run to resume.

    Raises:
        OptionsError: it differs; the message names the first difference.
    """
    if then is None:
        return
    for name in [*ORDER_FACTS, *(name for name in then if name not in ORDER_FACTS)]:
        if then.get(name) != now.get(name):
            what, remedy = ORDER_FACTS.get(name, (repr(name), "use the release that wrote the position"))
            raise OptionsError(
                "resume-order", what=what, get=then.get(name), get2=now.get(name), remedy=remedy
            )


def check_start(start: Position, epochs: int | None, assignment: Assignment, shuffle: Shuffle | None) -> None:
    """Raise unless the epoch and the step of ``start`` exist in the run.

    Raises:
        OptionsError: it does not, or the order before ``start`` is not known.
    """
    if epochs is not None and epochs < 1:
        raise OptionsError("epochs-range", epochs=epochs)
    # A finished run that is started again has no steps left.
    is_done = start.order is not None and (start.epoch, start.step) == (epochs, 0)
    if epochs is not None and start.epoch >= epochs and not is_done:
        raise OptionsError("start-after-end", start=start, epochs=epochs, epoch=start.epoch + 1)
    if start.step and start.step >= assignment.num_steps:
        raise OptionsError("start-step", start=start, num_steps=assignment.num_steps)
    if assignment.lanes and shuffle is not None and shuffle.lanes is None and start != Position():
        usual = assignment.usual_lanes
        if assignment.lanes != usual:
            raise OptionsError(
                "resume-lanes",
                count=assignment.worker.count,
                usual=usual,
                divisors=divisors(usual),
                lanes=assignment.lanes,
            )
