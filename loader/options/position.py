"""``Position``: the batch at which a run begins or is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from tfshards.loader.options.validation import check_least
from tfshards.schemas import OptionsError

# The facts that the order of a run depends on, as JSON values by name.
Facts: TypeAlias = Mapping[str, str | int]
_FACTS = frozenset(
    ("build_id", "split", "examples", "global_batch_size", "remainder", "how", "seed", "run", "lanes")
)


@dataclass(frozen=True)
class Position:
    """The position of a batch in a run: after ``step`` batches of epoch ``epoch``, both counted from 0.

    Attributes:
        epoch: from 0.
        step: from 0.
        order: the facts that the order of the run depends on, as ``load`` recorded them in a ``Progress``; a
            run with a different order cannot be resumed, and lanes and runs are those that it began with;
            None if they are not known.
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
        """Return the position as a dict of JSON values."""
        found: dict[str, object] = {"epoch": int(self.epoch), "step": int(self.step)}
        return found if self.order is None else {**found, "order": dict(self.order)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Position:
        """Return the position that ``to_json`` returned as ``found``.

        Raises:
            OptionsError: ``to_json`` did not return ``found``.
        """
        if not isinstance(found, Mapping) or not {"epoch", "step"} <= set(found) <= {
            "epoch",
            "step",
            "order",
        }:
            raise OptionsError(
                f"{found!r} is not a position, a dict with epoch, step and optionally order, as "
                "Position.to_json() returns it"
            )
        order = found.get("order")
        if order is not None and not isinstance(order, Mapping):
            raise OptionsError(
                f"order={order!r} of a position must be a dict, as Position.to_json() returns it"
            )
        return cls(found["epoch"], found["step"], order)


@runtime_checkable
class Tracker(Protocol):
    """An object that keeps the position of a run and records the dataset loaded there: a ``Progress``."""

    @property
    def position(self) -> Position:
        """The position of the next batch."""
        ...

    def load_from_here(self, order: Facts, steps_per_epoch: int, epochs: int | None) -> None:
        """Attach a dataset that starts at this position."""
        ...
