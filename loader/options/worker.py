"""``Worker``: which process this is, as given or from the variables of clusters and launchers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tfshards.loader.options.validation import check_index
from tfshards.schemas import OptionsError

TF_CONFIG = "TF_CONFIG"
_REMEDY = "correct or unset them, or pass loader.Worker(index, count) instead"


class _Launcher(NamedTuple):
    rank: str
    size: str


# Launchers that start the processes themselves; if the variables of several are set, they must agree.
_LAUNCHERS = (
    _Launcher("HOROVOD_RANK", "HOROVOD_SIZE"),  # horovodrun with Gloo
    _Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI, horovodrun with MPI
    _Launcher("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    _Launcher("RANK", "WORLD_SIZE"),  # torchrun and compatible launchers
)
# Within an allocation, processes of mpirun see the rank of the Slurm step itself, so Slurm is read last.
_SLURM = _Launcher("SLURM_PROCID", "SLURM_NTASKS")


def cluster_task(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return index and count of this process from ``TF_CONFIG``; None if it does not describe a cluster.

    The chief is the first worker, as it is for ``MultiWorkerMirroredStrategy``. An evaluator reads for
    itself: ``(0, 1)``.
    """
    text = environ.get(TF_CONFIG, "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
        cluster = {str(kind): len(hosts) for kind, hosts in dict(config.get("cluster") or {}).items()}
        task = dict(config.get("task") or {})
    except (ValueError, TypeError, AttributeError) as error:
        raise OptionsError("tf-config-form", text=text) from error
    if not cluster and not task:
        return None
    kind, index = task.get("type"), task.get("index")
    if "ps" in cluster or kind == "ps":
        raise OptionsError("tf-config-servers")
    if cluster and kind == "evaluator":
        return 0, 1
    chiefs = cluster.get("chief", 0) + cluster.get("master", 0)
    known = {"chief": 0, "master": 0, "worker": chiefs}
    if kind not in known or kind not in cluster or index is None:
        raise OptionsError("tf-config-form", text=text)
    number = _number(index, f"TF_CONFIG's task index={index!r}", cluster[kind])
    return known[kind] + number, chiefs + cluster.get("worker", 0)


def _launched(launcher: _Launcher, environ: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return rank and size, keyed by the names of their variables; empty if neither is set."""
    rank, size = environ.get(launcher.rank), environ.get(launcher.size)
    if rank is None and size is None:
        return {}
    if rank is None or size is None:
        present, missing = launcher if size is None else reversed(launcher)
        raise OptionsError(
            "environment-half", present=present, environ=environ[present], missing=missing, remedy=_REMEDY
        )
    count = _number(size, f"{launcher.size}={size}", None)
    index = _number(rank, f"{launcher.rank}={rank} with {launcher.size}={size}", count)
    return {f"{launcher.rank} and {launcher.size}": (index, count)}


def _number(value: object, what: str, end: int | None) -> int:
    """Return ``value`` as an integer from 0 to ``end - 1``, or at least 1 if ``end`` is None."""
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if number < (end is None) or (end is not None and number >= end):
        allowed = "an integer of at least 1" if end is None else f"an integer from 0 to {end - 1}"
        raise OptionsError("environment-value", what=what, allowed=allowed, remedy=_REMEDY)
    return number


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
        found = {TF_CONFIG: task} if (task := cluster_task(os.environ)) is not None else {}
        for launcher in _LAUNCHERS:
            found |= _launched(launcher, os.environ)
        if not found:
            found = _launched(_SLURM, os.environ)
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{name}: {index} of {count}" for name, (index, count) in found.items())
            raise OptionsError("environment-contradicts", listed=listed, remedy=_REMEDY)
        return cls(*next(iter(found.values()), (0, 1)))


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
