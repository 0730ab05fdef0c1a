"""What the adapters have in common: options of samplers, numbers of examples, batches of numbers only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace

from tfshards.loader.array_batches import Batches
from tfshards.loader.arrays.examples import Batch
from tfshards.loader.options.load_options import LoadOptions
from tfshards.loader.options.order_options import OrderOptions
from tfshards.loader.options.validation import check_choice
from tfshards.loader.options.worker import Worker
from tfshards.loader.order.steps import PADDING
from tfshards.schemas import OptionsError
from tfshards.schemas.errors import check_path


@dataclass(frozen=True)
class SamplerOptions(OrderOptions):
    """The parameters of samplers.

    Attributes:
        path: the directory with ``dataset.json``, or its URL, as given to ``Records``.
        split: its name; may be left out if there is only one.
        batch_size: the number of examples in each batch of this worker.
        worker: which of several processes this is; by default as the framework or the launcher says.
        epochs: as for ``load``. Of ``remainder``, "pad" is refused: padding has no numbers.
    """

    path: str | os.PathLike[str]
    split: str | None = None
    _: KW_ONLY
    batch_size: int
    worker: Worker | None = None
    epochs: int | None = 1

    def batches(self, worker: Worker) -> Batches:
        """Return the batches of these options, without those that are not read."""
        check_path("path", self.path)
        check_choice("remainder", self.remainder, ("drop", "keep"))
        options = LoadOptions(
            self.path,
            self.split,
            batch_size=self.batch_size,
            worker=worker,
            epochs=self.epochs,
            **self.order_options(),
        )
        return Batches(options)


def numbers_at(batches: Batches, epoch: int, step: int) -> list[int]:
    """Return the numbers of the examples of a batch, without padding."""
    found: list[int] = [number for number in batches.numbers(epoch, step).tolist() if number != PADDING]
    return found


def of_worker(options: LoadOptions, default: Callable[[], Worker]) -> Batches:
    """Return the batches of options, of the framework's worker if they name none."""
    return Batches(replace(options, worker=options.worker or default()))


def check_numeric(batch: Batch, name: str | int = "") -> Batch:
    """Return a batch; raise OptionsError if one of its arrays holds bytes or lists."""
    if isinstance(batch, (Mapping, tuple)):
        parts = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        for inner, part in parts:
            check_numeric(part, inner)
    elif batch.dtype == object:
        raise OptionsError("batch-objects", name=name, found=type(batch[0]).__name__)
    return batch
