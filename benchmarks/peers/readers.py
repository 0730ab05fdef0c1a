"""What a reader of the shoot-out is: a training run of some workers, in which any step can be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

EXAMPLES, GLOBAL_BATCH_SIZE, EPOCHS, SEED = 800, 40, 2, 7
PAYLOAD_BYTES = 64
WORKER_COUNTS = (1, 2, 4)
FILES = 8


@dataclass(frozen=True)
class Run:
    """How a training run reads.

    Attributes:
        workers: the number of processes of the training run, 40 / workers examples a step each.
        processes: the number of processes with which each worker reads ahead; 0 for the tool's default way.
        elastic: whether the number of workers may change later, where a tool has another reader for that.
    """

    workers: int
    processes: int = 0
    elastic: bool = False

    @property
    def batch_size(self) -> int:
        """The number of examples in the batch of one worker."""
        return GLOBAL_BATCH_SIZE // self.workers


class Step(NamedTuple):
    """One step: its epoch, the ids of the global batch, and a function that returns the tool's checkpoint."""

    epoch: int
    ids: list[int]
    save: Callable[[], Any]


class Reader(Protocol):
    """The reader of a tool, a module of this folder."""

    # The distributions whose versions are printed, and what the tool offers.
    ELASTIC: bool
    PROCESSES: bool

    @staticmethod
    def write(folder: Path) -> None:
        """Write the examples with ids 0 to ``EXAMPLES - 1`` into ``folder``."""

    @staticmethod
    def steps(folder: Path, run: Run, epoch: int, state: Any) -> Iterator[Step]:
        """Yield the steps of a run from its beginning, or from a checkpoint that was saved in ``epoch``."""


def payload(number: int) -> bytes:
    """Return the payload of an example."""
    return number.to_bytes(8, "big") * (PAYLOAD_BYTES // 8)
