"""``OrderOptions``: what the order of a run depends on; their values are checked in ``LoadOptions``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from tfshards.loader.options.selection import Classes, Part, Position, Shuffle, Tracker

Remainder: TypeAlias = Literal["drop", "pad", "keep"]


@dataclass(frozen=True, kw_only=True)
class OrderOptions:
    """What the order of a run depends on, in addition to the dataset and the batch size.

    Attributes:
        shuffle: a different order in each epoch; None keeps the stored order.
        remainder: "drop" leaves out the last ``n % G`` positions of the epoch's order; "keep" makes the last
            step smaller, perhaps empty, as ``evaluate`` and ``predict`` on one host need it; "pad" fills the
            last step with the split's first example, of weight 0, for custom loops and several hosts.
        take: the number of examples to read, the first ones in stored order; or ``Part(index, count)``, one
            of several parts of the split. With ratios, the positions of an epoch.
        classes: the classes to read, names or numbers; their labels do not change. Of lists of classes, one
            must be among them, for which all records of the split are read before the first step. Ratios by
            class resample: an epoch holds each class in exactly its share, up to rounding, and over any
            number of epochs the numbers of times that examples of a class occur differ by at most one;
            without ``take`` an epoch has as many positions as there are examples of these classes. Ratios
            are weights in any unit: each share is relative to their sum.
        start: the position at which a run is resumed; for the same order it requires the same options, and a
            number of workers that divides the lanes (see ``Shuffle``). A ``Progress``, or a position from
            one, knows these: lanes and runs are taken from it, and a different order is refused.
    """

    shuffle: Shuffle | None = None
    remainder: Remainder = "drop"
    take: int | Part | None = None
    classes: Classes | None = None
    start: Position | Tracker | None = None

    def order_options(self) -> dict[str, Any]:
        """Return these options by name, as parameters of ``LoadOptions``."""
        return {field.name: getattr(self, field.name) for field in fields(OrderOptions)}
