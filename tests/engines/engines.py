"""The engines that are tested, each with a worker pool, by name."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.programs import until

from .flink import FlinkCluster, flink_cluster, flink_job_server
from .job_service import JobService
from .worker_pool import WorkerPool, worker_pool, worker_pools


@dataclass
class Engine:
    """An engine that runs.

    Attributes:
        jobs: its job service.
        pools: worker pools for the Python workers, one for each machine of a cluster.
        cluster: the processes between them, if the engine is a cluster.
        sizes: further pipeline options.
    """

    jobs: JobService
    pools: list[WorkerPool]
    cluster: FlinkCluster | None = None
    sizes: tuple[str, ...] = ()

    @property
    def options(self) -> list[str]:
        """Return Beam's pipeline options for a build whose workers are the pool's."""
        return [*self.jobs.options, *self.pools[0].options, *self.sizes]

    @property
    def loopback_options(self) -> list[str]:
        """Return Beam's pipeline options for a build whose workers are threads of the command."""
        return [*self.jobs.options, "--environment_type=LOOPBACK", *self.sizes]

    def busy_pool(self) -> WorkerPool:
        """Wait until all Python workers are connected to their engine; return the pool of the oldest worker.

        If a worker dies while it connects, Beam waits for minutes or for ever.
        """
        until(lambda: all(pool.is_ready() for pool in self.pools), "all Python workers are connected", 60)
        return min((pool for pool in self.pools if pool.workers()), key=lambda pool: pool.workers()[0])

    def running_jobs(self) -> list[str]:
        """Return the jobs that have not ended, as the cluster knows them, or else the job service."""
        return self.cluster.running_jobs() if self.cluster else self.jobs.running_jobs()


@contextmanager
def _flink(logs: Path) -> Iterator[Engine]:
    with worker_pool(logs) as pool, flink_job_server(logs) as jobs:
        yield Engine(jobs, [pool], sizes=("--parallelism=2",))


@contextmanager
def _flink_cluster(logs: Path) -> Iterator[Engine]:
    """Run three task managers, of which a job needs two, and as many worker pools."""
    with (
        worker_pools(logs, 3) as pools,
        flink_cluster(logs, task_managers=3) as cluster,
        flink_job_server(logs, cluster.master) as jobs,
    ):
        yield Engine(jobs, pools, cluster, ("--parallelism=2",))


ENGINES: dict[str, Callable[[Path], AbstractContextManager[Engine]]] = {
    "flink": _flink,
    "flink-cluster": _flink_cluster,
}
