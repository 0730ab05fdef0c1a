"""Run the items on Apache Beam: its options, its runners and their job services, and the end of a job.

Beam runs in a thread. The main thread shows the progress, so that Ctrl-C always reaches it, and not Beam: it
can then cancel the job and wait for its end.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial

from tfshards.prep.engines.beam_log import ignore_beam, quiet_logging, quiet_threads, reason
from tfshards.prep.engines.job import END_SECONDS, Job, JobNote, running
from tfshards.prep.engines.local import Crew, pickled
from tfshards.prep.engines.table import Work
from tfshards.prep.progress.lines import report_line, report_warning
from tfshards.prep.progress.threads import num_jobs
from tfshards.schemas import BuildError, OptionsError
from tfshards.schemas.json_reader import load_json
from tfshards.schemas.option import check_strings
from tfshards.schemas.storage import AnyPath
from tfshards.schemas.storage.untrusted import RECORD, read_whole

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
    from apache_beam.runners.portability.job_server import ExternalJobServer, StopOnExitJobServer
    from apache_beam.runners.portability.portable_runner import PipelineResult, PortableRunner
    from apache_beam.runners.runner import PipelineState

    from tfshards.prep.engines.pipeline import pipeline_of

_CONNECT_SECONDS = 3


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


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options that Beam knows, and the unknown arguments."""
    parsers: list[argparse.ArgumentParser] = []
    printed = io.StringIO()
    try:
        with redirect_stderr(printed), quiet_logging():
            PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
            return parsers[0].parse_known_args(list(arguments))
    except SystemExit as end:
        if not end.code:
            # the user asked for Beam's help
            raise
        # argparse prints all of Beam's options before the error
        message = printed.getvalue().strip().rpartition("error: ")[2]
        raise OptionsError("beam-usage", rpartition=message) from None


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
            result = pipeline_of(work, runner, options, crew).run()
            if job:
                job.start(_id_of(result), partial(_cancel, result))
            result.wait_until_finish()
        except BaseException as error:  # every failure must reach the main thread
            failures.append(error)
        work.progress.end()

    thread = threading.Thread(target=run_pipeline, name="beam", daemon=True)
    with _prepared(work, _parse(arguments)[0].runner, options) as (runner, job), quiet_threads():
        if job and job.endpoint:
            _check_service(job.endpoint, arguments)
        crew = None if job else _local_crew(work, options, arguments)
        try:
            thread.start()
            work.progress.follow(job.measure if job else None, job.where if job else None)
            if failures:
                raise failures[0]
            if work.area is not None and work.area.stop_reason() is not None:
                raise BuildError("worker-failed")
        except BaseException as error:
            if job:
                # threads of Beam are about to fail because of the job that ends
                ignore_beam()
            work.stop("interrupted" if isinstance(error, KeyboardInterrupt) else reason(error))
            if job and thread.ident is not None:
                job.cancel(thread)
            elif thread.ident is not None:
                thread.join(END_SECONDS)
            raise
    if job:
        job.forget()


def _local_crew(work: Work, options: PipelineOptions, arguments: Sequence[str]) -> Crew:
    """Return who works in place of the local runner's workers, and make it start one thread instead of them.

    Beam would wait forever for a worker process that has died.
    """
    direct = options.view_as(DirectOptions)
    mode, count = direct.direct_running_mode, direct.direct_num_workers or num_jobs()
    direct.direct_running_mode, direct.direct_num_workers = "in_memory", 1
    # it has a default
    is_given = any(argument.partition("=")[0] == "--direct_num_workers" for argument in arguments)
    if mode == "in_memory" and not is_given:
        return Crew.of(work)
    count = max(1, min(count, len(work.items)))
    has_processes = mode == "multi_processing" and pickled(work.function) is not None
    return Crew(count, 0) if has_processes else Crew(0, count)


@contextmanager
def _prepared(
    work: Work, name: str | None, options: PipelineOptions
) -> Iterator[tuple[beam.runners.PipelineRunner, Job | None]]:
    """Yield the runner, and the job of one that is not local; a job service that it starts ends then."""
    runner = create_runner(name) if name else FnApiRunner()
    portable = options.view_as(PortableOptions)
    # Beam's switch would first fetch Prism from the internet, which ignores the options of the local runner
    if isinstance(runner, DirectRunner | FnApiRunner):
        yield FnApiRunner(), None
        return
    if not isinstance(runner, PortableRunner) or portable.job_endpoint:
        yield runner, Job(work, portable.job_endpoint or "")
        return
    # The folder of the server is removed with the build area if this process is killed.
    log_path = work.log_path
    with tempfile.TemporaryDirectory(prefix="tfshards-", dir=log_path.parent) as folder:
        found = _server_of(runner, options, folder)
        if found is None:
            # the runner submits the job to the cluster by itself
            yield runner, Job(work)
            return
        command, portable.job_endpoint = found
        with running(command, portable.job_endpoint, log_path, portable.job_server_timeout):
            yield runner, Job(work, portable.job_endpoint, log_path)


def _server_of(runner: PortableRunner, options: PipelineOptions, folder: str) -> tuple[list[str], str] | None:
    """Return the command of the job service that a runner starts by itself, and its endpoint, or None.

    Started by Beam, it would end on Ctrl-C, before it could cancel its job.
    """
    # Prism's servers would be shared, whatever their options
    options.view_as(DebugOptions).add_experiment("disable_prism_server_singleton")
    server = runner.default_job_server(options)
    if not isinstance(server, StopOnExitJobServer):
        return None
    server._job_server._local_temp_root = folder
    command, endpoint = server._job_server.subprocess_cmd_and_endpoint()
    return [*map(str, command)], endpoint


def _check_service(endpoint: str, arguments: Sequence[str]) -> None:
    """Raise an error if no job service answers, or if it and Beam do not know one of the arguments."""
    service = _connect(endpoint)
    _, unknown = _parse(arguments)
    if unknown:
        described = service.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest())
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for name in {option.name for option in described.options}:
            parser.add_argument(f"--{name}", nargs="?")
        _, unknown = parser.parse_known_args(unknown)
    if unknown:
        raise OptionsError("beam-option-unknown", arguments=unknown[0])


def _connect(endpoint: str) -> beam_job_api_pb2_grpc.JobServiceStub:
    """Return the job service; Beam by itself would wait for minutes for one that does not answer."""
    try:
        return ExternalJobServer(endpoint, _CONNECT_SECONDS).start()
    except grpc.FutureTimeoutError:
        raise BuildError("beam-unreachable", endpoint=endpoint) from None


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


def cancel_lost_job(path: AnyPath) -> None:
    """Cancel the job that an earlier run noted at ``path``, and remove the note."""
    try:
        note = JobNote(**load_json(read_whole(path, RECORD)))
    except (ValueError, TypeError):
        path.unlink()
        return
    try:
        with quiet_logging():
            is_cancelled = _cancel(PipelineResult(_connect(note.endpoint), note.job_id, iter(()), iter(())))
        if is_cancelled:
            report_line(f"cancelled {note}, which an earlier run left")
    except Exception as error:  # whatever it is, the build does not depend on it
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        report_warning(
            f"an earlier run left {note}, which cannot be cancelled ({first_line}); if it still runs "
            "there, its tasks end at their next example"
        )
    path.unlink()
