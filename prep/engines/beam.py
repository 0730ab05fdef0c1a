"""Run the items on Apache Beam; the only other file that imports apache_beam is ``transform``.

The pipeline is one linear chain: the items are distributed to the workers, which call the function.
Image bytes never enter the pipeline, so neither the shuffle nor the job graph grows with the data.

Beam runs in a thread. The main thread shows the progress, so that Ctrl-C always reaches it, and not Beam: it
can then cancel the job and wait for its end.
"""

from __future__ import annotations

import argparse
import io
import shlex
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfshards.prep.engines.beam_log import quiet_logging, reason
from tfshards.prep.engines.beam_workers import Workers
from tfshards.prep.engines.job import Job, JobNote, running
from tfshards.prep.engines.table import Work
from tfshards.prep.engines.worker import Requirements
from tfshards.schemas import BuildError, OptionsError
from tfshards.schemas.option import check_strings

# Beam warns about missing optional packages.
with quiet_logging():
    import apache_beam as beam
    import grpc
    from apache_beam.internal import pickler
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

_WORKER_MODULE = "apache_beam.runners.worker.sdk_worker_main"
_CONNECT_SECONDS = 3
# Tokens of the builds of this process, by which a worker recognizes that it is a thread of it (LOOPBACK).
_own_tokens: set[str] = set()


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
    if type(runner) is PortableRunner and not given.job_endpoint:
        raise OptionsError("beam-no-endpoint")
    _, unknown = _parse(arguments)
    # a job service has options of its own, which it lists when it runs
    if unknown and not isinstance(runner, PortableRunner):
        raise _unknown(unknown)


def _unknown(arguments: Sequence[str]) -> OptionsError:
    return OptionsError("beam-option-unknown", arguments=arguments[0])


def _parse(
    arguments: Sequence[str], further: Callable[[argparse.ArgumentParser], None] | None = None
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options that Beam knows, and the unknown arguments; ``further`` adds options."""
    parsers: list[argparse.ArgumentParser] = []
    printed = io.StringIO()
    try:
        with redirect_stderr(printed), quiet_logging():
            PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
            if further:
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
        _run(work, arguments)


def _run(work: Work, arguments: Sequence[str]) -> None:
    runner, options = _runner(work, arguments)
    job = Job(
        work,
        is_local=isinstance(runner, FnApiRunner),
        is_lasting=bool(options.view_as(PortableOptions).job_endpoint),
    )
    failures: list[BaseException] = []
    workers = Workers(work, failures)

    def run_pipeline() -> None:
        try:
            with _job_service(runner, options, work) as job.endpoint:
                if job.endpoint:
                    _check_options_of_service(job.endpoint, arguments)
                result = _pipeline(work, runner, options).run()
                job.start(_Handle(result))
                try:
                    result.wait_until_finish()
                finally:
                    job.finish()
        except BaseException as error:  # every failure must reach the main thread
            failures.append(error)
        work.progress.end()

    are_workers_left = False
    thread = threading.Thread(target=run_pipeline, name="beam", daemon=True)
    workers.watch()
    try:
        thread.start()
        work.progress.follow(None if job.is_local else job.measure, job.where)
    except BaseException as error:
        are_workers_left = not job.is_local
        work.stop("interrupted" if isinstance(error, KeyboardInterrupt) else str(error))
        if thread.ident is not None:
            job.cancel(thread)
            are_workers_left |= thread.is_alive()
        raise
    finally:
        # further threads may be about to fail because of the same worker, or of a lost job or job service
        workers.leave(will_fail=are_workers_left or bool(failures and not job.is_local))
    if not failures and work.area is not None and work.area.stop_reason() is not None:
        failures.append(BuildError("worker-failed"))
    if failures:
        why = reason(failures[0])
        work.stop(why)
        if not workers.is_lost:
            job.cancel(thread)
        raise BuildError("build-failed", text=why) from failures[0]
    job.forget()


def _runner(work: Work, arguments: Sequence[str]) -> tuple[beam.runners.PipelineRunner, PipelineOptions]:
    options = PipelineOptions(list(arguments))
    name = _parse(arguments)[0].runner
    runner = create_runner(name) if name else FnApiRunner()
    if isinstance(runner, DirectRunner):
        # Beam's switch would first fetch Prism from the internet, which ignores the options of this runner.
        runner = FnApiRunner()
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_processing" and isinstance(runner, FnApiRunner):
        # the workers that Beam would start, except that they log to a file rather than to the terminal
        direct.direct_running_mode = "in_memory"
        runner = FnApiRunner(
            default_environment=SubprocessSDKEnvironment.from_command_string(_worker_command(work))
        )
    return runner, options


def _worker_command(work: Work) -> str:
    log = f" 2>> {shlex.quote(str(work.log_path.absolute()))}" if work.log_path else ""
    # Ctrl-C, which reaches every process of the terminal, is left to the main process, which stops the work
    return f"trap '' INT; exec {shlex.quote(sys.executable)} -m {_WORKER_MODULE}{log}"


@contextmanager
def _job_service(runner: beam.runners.PipelineRunner, options: PipelineOptions, work: Work) -> Iterator[str]:
    """Yield the endpoint of the job service of a runner, or nothing if it has none.

    A runner without ``--job_endpoint`` starts a server of its own, such as Prism. Started by Beam, the server
    would end on Ctrl-C, before it could cancel its job, and it needs the main thread for that.
    """
    portable = options.view_as(PortableOptions)
    if isinstance(runner, PortableRunner) and portable.job_endpoint:
        # Beam would wait for minutes
        _connect(portable.job_endpoint)
    if not isinstance(runner, PortableRunner) or portable.job_endpoint:
        yield portable.job_endpoint or ""
        return
    # Prism's servers would be shared, whatever their options
    options.view_as(DebugOptions).add_experiment("disable_prism_server_singleton")
    server = runner.default_job_server(options)
    if not isinstance(server, StopOnExitJobServer):
        # it submits the job to the cluster by itself
        yield ""
        return
    # of a killed build, a folder in the build area is removed with the area
    area = work.area.root if work.area else None
    parent = area.absolute() if isinstance(area, Path) else None
    with tempfile.TemporaryDirectory(prefix="tfshards-", dir=parent) as folder:
        own = server._job_server
        own._local_temp_root = folder
        command, endpoint = own.subprocess_cmd_and_endpoint()
        log_path = work.log_path or Path(folder, "log")
        with running([str(word) for word in command], endpoint, log_path, portable.job_server_timeout):
            portable.job_endpoint = endpoint
            yield endpoint


def _check_options_of_service(endpoint: str, arguments: Sequence[str]) -> None:
    """Raise OptionsError if neither Beam nor the job service knows one of the arguments."""
    _, unknown = _parse(arguments)
    if not unknown:
        return
    service = _connect(endpoint)
    described = service.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest())

    def add(parser: argparse.ArgumentParser) -> None:
        for option in described.options:
            if f"--{option.name}" not in parser._option_string_actions:
                parser.add_argument(f"--{option.name}", nargs="?")

    _, unknown = _parse(arguments, add)
    if unknown:
        raise _unknown(unknown)


def _connect(endpoint: str) -> beam_job_api_pb2_grpc.JobServiceStub:
    channel = grpc.insecure_channel(endpoint)
    try:
        grpc.channel_ready_future(channel).result(_CONNECT_SECONDS)
    except grpc.FutureTimeoutError:
        channel.close()
        raise BuildError("beam-unreachable", endpoint=endpoint) from None
    return beam_job_api_pb2_grpc.JobServiceStub(channel)


def _pipeline(work: Work, runner: beam.runners.PipelineRunner, options: PipelineOptions) -> beam.Pipeline:
    requirements = None
    # the local runner's workers are threads of this process, or run the same programs on this machine
    if work.area is not None and not isinstance(runner, FnApiRunner):
        requirements = Requirements.of(work.area.unfinished_path(""), work.area.attempt, work.source)
        _own_tokens.add(requirements.token)
    pipeline = beam.Pipeline(runner, options)
    # PCollection[bytes] -> PCollection[item] -> PCollection[None]
    _ = (
        pipeline
        | beam.Impulse()
        | "List" >> beam.ParDo(_List(requirements, list(work.items)))
        | "Spread" >> beam.Reshuffle()
        | "Call" >> beam.ParDo(_Call(requirements, (work.function, work.area)))
    )
    return pipeline


class _Checked(beam.DoFn):  # type: ignore[misc]
    """A function of the pipeline that checks the worker before it unpickles anything of tfshards.

    The classes of this module are pickled by name, so that this much runs on a worker of any version.
    """

    def __init__(self, requirements: Requirements | None, content: object) -> None:
        super().__init__()
        self._requirements = requirements
        # threads of this process need no copy
        self._content = pickler.dumps(content) if requirements else content

    def setup(self) -> None:
        """Check the worker; runners call this once before the first item."""
        if self._requirements:
            self._requirements.check()
            self._loaded = pickler.loads(self._content)
        else:
            self._loaded = self._content


class _List(_Checked):
    """Yields the items."""

    def process(self, _: bytes) -> Iterator[object]:
        """Yield the items."""
        yield from self._loaded


class _Call(_Checked):
    """Calls the function, unless the build was stopped.

    On remote workers, a call that stopped the build, or was stopped, does not raise: its reason is in the
    build area, and the engine would repeat the task. So the job ends soon, even if nothing cancels it.
    """

    def process(self, item: object) -> None:
        """Call the function with one item."""
        function, area = self._loaded
        if self._requirements is None:
            function(item)
            return
        if area.stop_reason() is not None:
            return
        try:
            function(item)
        except Exception:
            if area.stop_reason() is None:
                raise
            if self._requirements.token not in _own_tokens:
                # to the log of the worker
                traceback.print_exc()


@dataclass(frozen=True)
class _Handle:
    """What Beam returned for a job."""

    result: Any

    @property
    def job_id(self) -> str:
        # of portable runners, or Dataflow's
        is_portable = isinstance(self.result, PipelineResult)
        return str(self.result._job_id if is_portable else getattr(self.result, "job_id", str)())

    def has_ended(self) -> bool:
        with _readable_errors():
            return bool(PipelineState.is_terminal(self.result.state))

    def cancel(self) -> None:
        with _readable_errors():
            self.result.cancel()
        while not self.has_ended():
            time.sleep(0.1)


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Raise BuildError for an error of gRPC, whose text has many lines."""
    try:
        yield
    except grpc.RpcError as error:
        details = error.details() if isinstance(error, grpc.Call) else ""
        raise BuildError("beam-failed", text=details or str(error)) from error


def cancel(note: JobNote) -> bool:
    """Cancel a job of an earlier process, wait for its end, and return whether it was running.

    Raises:
        BuildError: its job service does not answer, or does not know the job.
    """
    with quiet_logging():
        handle = _Handle(PipelineResult(_connect(note.endpoint), note.job_id, iter(()), iter(())))
        if handle.has_ended():
            return False
        handle.cancel()
        return True
