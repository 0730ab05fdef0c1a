"""``Worker``: which process this is, as given, or as an initialized process group states it."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass

from tfshards.loader.options.validation import check_index

# The number of processes, as set by launchers that start them: horovodrun, Open MPI, MPICH and Intel MPI,
# torchrun, srun. SLURM_NTASKS would be the tasks of an allocation, in which one process is started by hand.
_SIZES = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

_LOG = logging.getLogger(__name__)


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


def usual_worker() -> Worker:
    """Return the rank of this process in an initialized group of PyTorch or JAX, else the only worker."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        return Worker(group.get_rank(), group.get_world_size())
    jax = sys.modules.get("jax")
    # absent in old releases; without it, asking JAX would start its devices
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if jax is not None and is_initialized is not None and is_initialized():
        return Worker(jax.process_index(), jax.process_count())
    return Worker()


def other_workers() -> str | None:
    """Return which variable says that this process is one of several, and of how many; None if none does."""
    sizes = {name: os.environ.get(name, "") for name in _SIZES}
    try:
        config, kinds = json.loads(os.environ.get("TF_CONFIG") or "{}"), ("chief", "master", "worker")
        # an evaluator, or the coordinator of parameter servers, reads for itself
        if config["task"]["type"] in kinds and "ps" not in config["cluster"]:
            sizes["TF_CONFIG"] = str(sum(len(config["cluster"].get(kind, ())) for kind in kinds))
    except (ValueError, TypeError, AttributeError, KeyError):
        # not a cluster
        pass
    several = (name for name, size in sizes.items() if size.isdecimal() and int(size) > 1)
    return next((f"{name} names {sizes[name]} workers" for name in several), None)


def reads_all(surroundings: str, function: str) -> str:
    """Return the warning that each of several workers would read the whole split."""
    return (
        f"{surroundings}, but {function}() without worker= reads the whole split in each of them, so all "
        "would train on the same examples: use loader.distribute(strategy, ...), or pass "
        "worker=loader.Worker(rank, count), or worker=loader.Worker() if this is intended"
    )


def log_part(label: str, worker: Worker, num_steps: int) -> None:
    """Log which part of a split this process reads."""
    _LOG.info("%s: part %d of %d, %d steps an epoch", label, worker.index, worker.count, num_steps)


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
