"""``Worker``: which process this is, as given, or as a process group or the variables of a launcher say."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass

from tfshards.loader.options.validation import check_index
from tfshards.schemas import OptionsError

# Rank and size, as set by launchers that start the processes themselves. If several are set, they agree.
_LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),  # horovodrun with Gloo
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI, horovodrun with MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("RANK", "WORLD_SIZE"),  # torchrun and compatible launchers
)
# Processes of mpirun see the rank of the Slurm step itself, so Slurm is read last. SLURM_NTASKS would be the
# tasks of the allocation, in which one process may have been started by hand.
_SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")

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

    @classmethod
    def from_environment(cls) -> Worker:
        """Return the worker that a launcher assigned to this process; without a launcher, the only worker.

        Reads ``TF_CONFIG``, where the chief is the first worker and an evaluator the only one, and the
        variables of Horovod, Open MPI, MPICH, Intel MPI, torchrun, and, if none of these is set, of a job
        step of Slurm.

        Raises:
            OptionsError: variables contradict each other, cannot be parsed, or describe parameter servers.
        """
        assigned = _assigned()
        if len(set(assigned.values())) > 1:
            named = ", ".join(f"{name}: {index} of {count}" for name, (index, count) in assigned.items())
            raise OptionsError(
                f"contradictory variables of launchers ({named}); correct or unset them, or pass "
                "loader.Worker(index, count) instead"
            )
        return cls(*next(iter(assigned.values()), (0, 1)))


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
    """Return which variables say that this process is one of several, and of how many; None if none does."""
    try:
        assigned = _assigned()
    except OptionsError:
        # of parameter servers, whose coordinator may read for itself, or not for us
        return None
    return next((f"{name} names {count} workers" for name, (_, count) in assigned.items() if count > 1), None)


def reads_all(surroundings: str, function: str) -> str:
    """Return the warning that each of several workers would read the whole split."""
    return (
        f"{surroundings}, but {function}() without worker= reads the whole split in each of them, so all "
        "would train on the same examples: use loader.distribute(strategy, ...), or pass "
        "worker=loader.Worker.from_environment(), or worker=loader.Worker() if this is intended"
    )


def log_part(label: str, worker: Worker, num_steps: int) -> None:
    """Log which part of a split this process reads."""
    _LOG.info("%s: part %d of %d, %d steps an epoch", label, worker.index, worker.count, num_steps)


def _assigned() -> dict[str, tuple[int, int]]:
    """Return index and count of this process by the variables that state them."""
    cluster = _cluster_task(os.environ.get("TF_CONFIG", "").strip())
    found = {} if cluster is None else {"TF_CONFIG": cluster}
    for rank, size in (*_LAUNCHERS, _SLURM):
        given = os.environ.get(rank), os.environ.get(size)
        if None in given or (rank == _SLURM[0] and found):
            continue
        try:
            index, count = map(int, given)  # type: ignore[arg-type]
            is_there = 0 <= index < count
        except ValueError:
            is_there = False
        if not is_there:
            raise OptionsError(
                f"{rank}={given[0]} and {size}={given[1]} must be an index and a count above it; unset them, "
                "or give worker="
            )
        found[f"{rank} and {size}"] = index, count
    return found


def _cluster_task(text: str) -> tuple[int, int] | None:
    """Return index and count of this process in a ``TF_CONFIG``; None if it does not describe a cluster.

    The chief is the first worker, as it is for ``MultiWorkerMirroredStrategy``. An evaluator reads for
    itself: ``(0, 1)``.
    """
    try:
        config = json.loads(text or "{}")
        cluster = {kind: len(hosts) for kind, hosts in (config.get("cluster") or {}).items()}
        task = config.get("task") or {}
        if not cluster and not task:
            return None
        kind, index = task["type"], int(task["index"])
        chiefs = cluster.get("chief", 0) + cluster.get("master", 0)
        before = {"chief": 0, "master": 0, "worker": chiefs, "evaluator": 0, "ps": 0}[kind]
        if kind != "evaluator" and not 0 <= index < cluster[kind]:
            raise ValueError
    except (ValueError, TypeError, AttributeError, KeyError):
        raise OptionsError(
            f"TF_CONFIG={text!r} must be a JSON object with a cluster and a task in it"
        ) from None
    if "ps" in cluster:
        raise OptionsError(
            "TF_CONFIG names parameter servers, whose coordinator reads for all workers: it needs no worker="
        )
    return (0, 1) if kind == "evaluator" else (before + index, chiefs + cluster.get("worker", 0))


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
