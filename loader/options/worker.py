"""``Worker``: which of the processes that read one dataset together this process is."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfshards.loader.options.environment import rank_and_size
from tfshards.loader.options.validation import check_index


@dataclass(frozen=True)
class Worker:
    """One of the processes that read a dataset together.

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
        """Return the worker that a launcher assigned to this process; without a launcher, the only worker.

        Reads ``TF_CONFIG``, where the chief is the first worker and an evaluator the only one, and the
        variables of Horovod, Open MPI, MPICH, Intel MPI, torchrun, and, if none of these is set, Slurm.

        Raises:
            OptionsError: variables contradict each other, one of a pair is missing, one cannot be parsed, or
                ``TF_CONFIG`` describes parameter servers, for which there is ``distribute``.
        """
        return cls(*rank_and_size(os.environ))
