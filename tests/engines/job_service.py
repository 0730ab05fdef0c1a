"""A job service: where Beam's PortableRunner submits a pipeline; every engine here has one."""

from dataclasses import dataclass

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from .processes import Service

_STATES = beam_job_api_pb2.JobState
_ENDED = {_STATES.DONE, _STATES.FAILED, _STATES.CANCELLED, _STATES.UPDATED, _STATES.DRAINED}


def jobs_running(endpoint: str) -> list[str]:
    """Return the jobs of a job service that have not ended, with their states."""
    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        jobs = stub.GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=10).job_info
    return [f"{job.job_id} {_STATES.Enum.Name(job.state)}" for job in jobs if job.state not in _ENDED]


@dataclass(frozen=True)
class JobService:
    """A job service on a port of this machine."""

    service: Service
    port: int

    @property
    def options(self) -> list[str]:
        """Return Beam's pipeline options that name the job service."""
        return ["--runner=PortableRunner", f"--job_endpoint=localhost:{self.port}"]

    def running_jobs(self) -> list[str]:
        """Return the jobs that have not ended, with their states."""
        return jobs_running(f"localhost:{self.port}")
