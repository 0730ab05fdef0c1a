"""Run the items on Apache Beam; ``transform`` and ``read_shards`` are for pipelines of the user.

The pipeline is one linear chain: the items are distributed to the workers, which call the function.
Image bytes never enter the pipeline, so neither the shuffle nor the job graph grows with the data.

Beam runs in a thread. The main thread shows the progress, so that Ctrl-C always reaches it, and not Beam: it
can then cancel the job and wait for its end.
"""

from __future__ import annotations

import argparse
import io
import logging
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial

from tfshards.prep.engines.beam_log import ignore_beam, quiet_logging, quiet_threads, reason
from tfshards.prep.engines.job import Job, running
from tfshards.prep.engines.table import Work
from tfshards.prep.engines.worker import Requirements
from tfshards.schemas import BuildError, OptionsError
from tfshards.schemas.option import check_strings

# Beam warns about missing optional packages.
with quiet_logging():
    import apache_beam as beam
    import grpc
    from apache_beam.options.pipeline_options import (
        DebugOptions,
        DirectOptions,
        PipelineOptions,
        PortableOptions,
    )
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
    from apache_beam.runners import DirectRunner, create_runner
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.runners.portability.job_server import StopOnExitJobServer
    from apache_beam.runners.portability.portable_runner import PipelineResult, PortableRunner
    from apache_beam.runners.runner import PipelineState
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    from tfshards.prep.engines.transform import Checked

_WORKER_MODULE = "apache_beam.runners.worker.sdk_worker_main"
_CONNECT_SECONDS = 3
_LOGGER = logging.getLogger(__name__)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise OptionsError if Beam does not accept one of these pipeline options, a value, or the runner."""
    check_strings("beam_args", arguments)
    given, _ = _parse(arguments)
    runner = None
    if given.runner:
        try:
            # the module of the runner may define further options
            runner = create_runner(given.runner)
        except (ValueError, ImportError, AttributeError) as error:
            raise OptionsError("beam-runner", runner=given.runner, error=error) from None
    # its subclasses start a job service by themselves
    if type(runner) is PortableRunner and not given.job_endpoint:
        raise OptionsError("beam-no-endpoint", runner=given.runner)
    _, unknown = _parse(arguments)
    # a job service has options of its own, which it lists when it runs
    if unknown and not isinstance(runner, PortableRunner):
        raise OptionsError("beam-option-unknown", arguments=unknown[0])


def _parse(
    arguments: Sequence[str], further: Callable[[argparse.ArgumentParser], None] = lambda _: None
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options that Beam knows, and the unknown arguments; ``further`` adds options."""
    parsers: list[argparse.ArgumentParser] = []
    printed = io.StringIO()
    try:
        with redirect_stderr(printed), quiet_logging():
            PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
            further(parsers[0])
            return parsers[0].parse_known_args(list(arguments))
    except SystemExit as end:
        if not end.code:
            # the user asked for Beam's help
            raise
        # argparse prints all of Beam's options before the error
        raise OptionsError(
            "beam-usage", rpartition=printed.getvalue().strip().rpartition("error: ")[2]
        ) from None


def run(work: Work, arguments: Sequence[str] = ()) -> None:
    """Call the function with every item, on the runner that ``arguments`` name, or on Beam's local one.

    Raises:
        BuildError: a call failed, a worker process died, or Beam ended the pipeline.
    """
    with quiet_logging():
        try:
            _run(work, arguments)
        except Exception as error:
            why = reason(error)
            work.stop(why)
            raise BuildError("build-failed", text=why) from error


def _run(work: Work, arguments: Sequence[str]) -> None:
    options = PipelineOptions(list(arguments))
    failures: list[BaseException] = []

    def run_pipeline() -> None:
        try:
            result = pipeline_of(work, runner, options).run()
            job.start(_id_of(result), partial(_cancel, result))
            result.wait_until_finish()
        except BaseException as error:  # every failure must reach the main thread
            failures.append(error)
        work.progress.end()

    def lose_worker() -> None:
        # Beam itself would wait for this worker forever
        if job.has_processes and not work.progress.has_ended:
            # before the other workers stop, whose failure ends the pipeline
            failures.append(BuildError("worker-lost-output", log_path=job.log_path))
            work.stop(str(failures[0]))
            work.progress.end()

    thread = threading.Thread(target=run_pipeline, name="beam", daemon=True)
    with _prepared(work, _parse(arguments)[0].runner, options) as (runner, job), quiet_threads(lose_worker):
        if job.endpoint:
            _check_service(job.endpoint, arguments)
        try:
            thread.start()
            work.progress.follow(None if job.is_local else job.measure, job.where)
            if failures:
                raise failures[0]
            if work.area is not None and work.area.stop_reason() is not None:
                raise BuildError("worker-failed")
        except BaseException as error:
            if job.log_path or not job.is_local:
                # threads of Beam are about to fail because of the job or the workers that end
                ignore_beam()
            work.stop("interrupted" if isinstance(error, KeyboardInterrupt) else reason(error))
            # after a failure, the thread of a local job has ended, or waits for a lost worker forever
            if thread.ident is not None and not (job.is_local and failures):
                job.cancel(thread)
            raise
    job.forget()


@contextmanager
def _prepared(
    work: Work, name: str | None, options: PipelineOptions
) -> Iterator[tuple[beam.runners.PipelineRunner, Job]]:
    """Yield the runner and the job; a job service that the runner starts by itself ends afterwards."""
    runner = create_runner(name) if name else FnApiRunner()
    direct, portable = options.view_as(DirectOptions), options.view_as(PortableOptions)
    # Beam's switch would first fetch Prism from the internet, which ignores the options of the local runner
    if isinstance(runner, DirectRunner | FnApiRunner):
        if direct.direct_running_mode != "multi_processing":
            yield FnApiRunner(), Job(work, is_local=True)
            return
        # The workers that Beam would start, except that they log to a file, not to the terminal, and leave
        # Ctrl-C, which reaches every process of the terminal, to the main process, which stops the work.
        direct.direct_running_mode = "in_memory"
        program, log = shlex.quote(sys.executable), shlex.quote(str(work.log_path))
        command_line = f"trap '' INT; exec {program} -m {_WORKER_MODULE} 2>> {log}"
        environment = SubprocessSDKEnvironment.from_command_string(command_line)
        yield FnApiRunner(default_environment=environment), Job(work, is_local=True, log_path=work.log_path)
        return
    server = None
    if isinstance(runner, PortableRunner) and not portable.job_endpoint:
        # Prism's servers would be shared, whatever their options
        options.view_as(DebugOptions).add_experiment("disable_prism_server_singleton")
        server = runner.default_job_server(options)
    if not isinstance(server, StopOnExitJobServer):
        # the job service has an address, or the runner submits the job to the cluster by itself
        yield runner, Job(work, portable.job_endpoint or "", is_local=False)
        return
    # Started by Beam, the server would end on Ctrl-C, before it could cancel its job. Its folder is removed
    # with the build area if this process is killed.
    log_path = work.log_path
    with tempfile.TemporaryDirectory(prefix="tfshards-", dir=log_path.parent) as folder:
        server._job_server._local_temp_root = folder
        command, endpoint = server._job_server.subprocess_cmd_and_endpoint()
        with running(list(map(str, command)), endpoint, log_path, portable.job_server_timeout):
            portable.job_endpoint = endpoint
            yield runner, Job(work, endpoint, is_local=False, log_path=log_path)


def _check_service(endpoint: str, arguments: Sequence[str]) -> None:
    """Raise an error if no job service answers, or if it and Beam do not know one of the arguments."""
    service = _connect(endpoint)
    if not _parse(arguments)[1]:
        return
    described = service.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest())

    def add(parser: argparse.ArgumentParser) -> None:
        for option in described.options:
            if f"--{option.name}" not in parser._option_string_actions:
                parser.add_argument(f"--{option.name}", nargs="?")

    _, unknown = _parse(arguments, add)
    if unknown:
        raise OptionsError("beam-option-unknown", arguments=unknown[0])


def _connect(endpoint: str) -> beam_job_api_pb2_grpc.JobServiceStub:
    """Return the job service; Beam by itself would wait for minutes for one that does not answer."""
    channel = grpc.insecure_channel(endpoint)
    try:
        grpc.channel_ready_future(channel).result(_CONNECT_SECONDS)
    except grpc.FutureTimeoutError:
        channel.close()
        raise BuildError("beam-unreachable", endpoint=endpoint) from None
    return beam_job_api_pb2_grpc.JobServiceStub(channel)


def pipeline_of(work: Work, runner: beam.runners.PipelineRunner, options: PipelineOptions) -> beam.Pipeline:
    """Return the pipeline that calls the function with every item."""
    requirements = None
    # the workers of the local runner are threads of this process
    if work.area is not None and not isinstance(runner, FnApiRunner):
        requirements = Requirements.of(work.area.unfinished_path(""), work.area.attempt, work.source)
    check = requirements.check if requirements else None
    pipeline = beam.Pipeline(runner, options)
    # PCollection[bytes] -> PCollection[item] -> PCollection[None]
    _ = (
        pipeline
        | beam.Impulse()
        | "List" >> beam.ParDo(_List(check, list(work.items)))
        | "Spread" >> beam.Reshuffle()
        | "Call" >> beam.ParDo(_Call(check, (work.function, work.area)))
    )
    return pipeline


class _List(Checked):
    """Yields the items."""

    def process(self, _: bytes) -> Iterator[object]:
        """Yield the items."""
        yield from self.content


class _Call(Checked):
    """Calls the function, unless the build was stopped.

    A call that stopped the build, or was stopped, does not raise: its reason is in the build area, and an
    engine would repeat the task. So the job ends soon, even if nothing cancels it.
    """

    def process(self, item: object) -> None:
        """Call the function with one item."""
        function, area = self.content
        if area is not None and area.stop_reason() is not None:
            return
        try:
            function(item)
        except Exception as error:
            if area is None or area.stop_reason() is None:
                raise
            # one that was stopped has not failed, and may end after the build has said its last line
            if getattr(error, "code", None) != "build-stopped":
                # in the log of the worker
                _LOGGER.exception("a task failed")


def _id_of(result: beam.runners.runner.PipelineResult) -> str:
    # of portable runners, or Dataflow's
    is_portable = isinstance(result, PipelineResult)
    return str(result._job_id if is_portable else getattr(result, "job_id", str)())


def _cancel(result: beam.runners.runner.PipelineResult) -> bool:
    """Cancel a job unless it has ended, wait for its end, and return whether it was running.

    Raises:
        BuildError: the job service does not answer, or does not know the job.
    """
    try:
        if PipelineState.is_terminal(result.state):
            return False
        result.cancel()
        while not PipelineState.is_terminal(result.state):
            time.sleep(0.1)
        return True
    except grpc.RpcError as error:
        # its text has many lines
        details = error.details() if isinstance(error, grpc.Call) else ""
        raise BuildError("beam-failed", text=details or str(error)) from error


def cancel(job_id: str, endpoint: str) -> bool:
    """Cancel a job of an earlier process, and return whether it was running.

    Raises:
        BuildError: its job service does not answer, or does not know the job.
    """
    with quiet_logging():
        return _cancel(PipelineResult(_connect(endpoint), job_id, iter(()), iter(())))
