"""The values that say how a dataset is read; each checks itself, nothing here reads a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from tfshards.loader.environment import rank_and_size
from tfshards.schemas import OptionsError

Remainder: TypeAlias = Literal["drop", "pad", "keep"]
Lists: TypeAlias = Literal["ragged", "padded"]
Check: TypeAlias = Literal["files", "headers"]
OnDamage: TypeAlias = Literal["raise", "skip"]

# What an order depends on, as values of JSON by name.
Facts: TypeAlias = Mapping[str, str | int]
_FACTS = frozenset(
    ("build_id", "split", "examples", "global_batch_size", "remainder", "how", "seed", "run", "lanes")
)

# The name of the weights that are delivered.
WEIGHT = "sample_weight"


@dataclass(frozen=True)
class Worker:
    """Which of the processes that read together this one is.

    Attributes:
        index: from 0 to ``count - 1``; each index is used by one process.
        count: the number of processes.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        check_index("Worker", self.index, self.count)

    @classmethod
    def from_environment(cls) -> Worker:
        """Return the worker that this process was started as; the only one if nothing says otherwise.

        ``TF_CONFIG`` is asked, where the chief is the first worker and an evaluator the only one, and the
        variables of Horovod, Open MPI, MPICH, Intel MPI, torchrun, and, if none of these is set, Slurm.

        Raises:
            OptionsError: variables contradict each other, one of a pair is missing, one cannot be understood,
                or ``TF_CONFIG`` is about parameter servers, for which there is ``distribute``.
        """
        return cls(*rank_and_size(os.environ))


@dataclass(frozen=True)
class Shuffle:
    """Another order in each epoch, a pure function of the dataset, the seed, the epoch and the global batch.

    Attributes:
        how: "runs" keeps short runs of neighbours together, so that files are read in stretches, and draws
            each batch from ``lanes`` places all over the split; "full" permutes every record by itself, which
            is for local disks and small records: each record is looked up on its own.
        seed: any integer of 64 bits.
        run: the number of neighbours that stay together, at least 2; None for about 1 MiB of records, and
            fewer in small splits or where nobody has permuted the records before they were stored.
        lanes: from how many places of the split a global batch is drawn; it divides the global batch size
            and is a multiple of the number of workers. None for the largest such number up to 256
            (64 for compressed shards).
    """

    how: Literal["runs", "full"] = "runs"
    seed: int = 0
    run: int | None = None
    lanes: int | None = None

    def __post_init__(self) -> None:
        if self.how not in ("runs", "full"):
            raise OptionsError(
                f"Shuffle.how={self.how!r} must be 'runs' or 'full'; a seed goes by its name: Shuffle(seed=7)"
            )
        check_seed("Shuffle.seed", self.seed)
        if self.how == "full" and (self.run is not None or self.lanes is not None):
            raise OptionsError("Shuffle('full') has neither runs nor lanes; leave run= and lanes= out")
        if self.run is not None:
            check_least("Shuffle.run", self.run, 2)
        if self.lanes is not None:
            check_least("Shuffle.lanes", self.lanes, 1)


@dataclass(frozen=True)
class Position:
    """The place of a batch in a run: after ``step`` batches of epoch ``epoch``, both counted from 0.

    Attributes:
        epoch: from 0.
        step: from 0.
        order: what the order of the run depends on, as ``load`` told it to a ``Progress``: a run with another
            is not gone on with, and lanes and runs are those that it began with; None where nothing is known.
    """

    epoch: int = 0
    step: int = 0
    order: Facts | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_least("Position.epoch", self.epoch, 0)
        check_least("Position.step", self.step, 0)
        if self.order is not None and not set(self.order) >= _FACTS:
            missing = ", ".join(sorted(_FACTS - set(self.order)))
            raise OptionsError(f"Position.order lacks {missing}; take it from loader.Progress().position")

    def to_json(self) -> dict[str, object]:
        """Return the position as a dict of JSON."""
        found: dict[str, object] = {"epoch": int(self.epoch), "step": int(self.step)}
        return found if self.order is None else {**found, "order": dict(self.order)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Position:
        """Return the position that ``to_json`` gave.

        Raises:
            OptionsError: it did not give ``found``.
        """
        if not isinstance(found, Mapping) or not {"epoch", "step"} <= set(found) <= {
            "epoch",
            "step",
            "order",
        }:
            raise OptionsError(
                f"{found!r} is no position; it is a dict with epoch and step, and perhaps order, as "
                "Position.to_json() returns it"
            )
        order = found.get("order")
        if order is not None and not isinstance(order, Mapping):
            raise OptionsError(
                f"order={order!r} of a position must be a dict, as Position.to_json() returns it"
            )
        return cls(found["epoch"], found["step"], order)


def check_remainder(remainder: str) -> None:
    """Raise unless ``remainder`` is one of the three words.

    Raises:
        OptionsError: it is none of them.
    """
    if remainder not in get_args(Remainder):
        raise OptionsError(f"remainder={remainder!r} must be one of {', '.join(get_args(Remainder))}")


def check_lists(lists: str) -> None:
    """Raise unless ``lists`` is one of the two words.

    Raises:
        OptionsError: it is none of them.
    """
    if lists not in get_args(Lists):
        raise OptionsError(f"lists={lists!r} must be one of {', '.join(get_args(Lists))}")


def check_damage(check: str, on_damage: str, remainder: str) -> None:
    """Raise unless both are one of their two words, and damaged records are skipped only with weights.

    Raises:
        OptionsError: they are not.
    """
    if check not in get_args(Check):
        raise OptionsError(f"check={check!r} must be one of {', '.join(get_args(Check))}")
    if on_damage not in get_args(OnDamage):
        raise OptionsError(f"on_damage={on_damage!r} must be one of {', '.join(get_args(OnDamage))}")
    if on_damage == "skip" and remainder != "pad":
        raise OptionsError(
            f"on_damage='skip' gives damaged records weight 0, which remainder={remainder!r} has no "
            "place for; use remainder='pad'"
        )


def check_names(name: str, names: object) -> None:
    """Raise unless ``names`` is None or a sequence that is not itself a string.

    Raises:
        OptionsError: it is something else.
    """
    if names is not None and (isinstance(names, (str, bytes)) or not isinstance(names, Sequence)):
        raise OptionsError(f"{name}={names!r} must be a list of names, such as {name}=['cat', 'dog']")


def check_batch_size(name: str, batch_size: int) -> None:
    """Raise unless ``batch_size`` is at least 1.

    Raises:
        OptionsError: it is less.
    """
    check_least(name, batch_size, 1)


def check_seed(name: str, seed: int) -> None:
    """Raise unless ``seed`` fits an int64.

    Raises:
        OptionsError: it does not.
    """
    check_integer(name, seed)
    if not -(2**63) <= seed < 2**63:
        raise OptionsError(f"{name}={seed} must lie between -2^63 and 2^63 - 1")


def check_type(name: str, value: object, *kinds: type) -> None:
    """Raise unless ``value`` is None or of ``kinds``; a type checker would have said so, but few run one.

    Raises:
        OptionsError: it is something else.
    """
    if value is not None and not isinstance(value, kinds):
        allowed = " or ".join(f"loader.{kind.__name__}(...)" for kind in kinds)
        raise OptionsError(f"{name}={value!r} must be {allowed}")


def check_integer(name: str, number: object) -> None:
    """Raise unless ``number`` is an integer of Python or NumPy.

    Raises:
        OptionsError: it is not.
    """
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        raise OptionsError(f"{name}={number!r} must be an integer")


def check_index(name: str, index: int, count: int) -> None:
    """Raise unless ``index`` is one of ``count``, which is at least 1; ``name`` is that of what has both.

    Raises:
        OptionsError: it is not.
    """
    check_least(f"{name}.count", count, 1)
    check_integer(f"{name}.index", index)
    if not 0 <= index < count:
        raise OptionsError(f"{name}.index={index} does not fit count={count}; use 0 to {count - 1}")


def check_least(name: str, number: int, least: int) -> None:
    """Raise unless ``number`` is an integer of at least ``least``.

    Raises:
        OptionsError: it is not.
    """
    check_integer(name, number)
    if number < least:
        raise OptionsError(f"{name}={number} must be at least {least}")
