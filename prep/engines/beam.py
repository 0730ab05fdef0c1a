"""Run the items on Apache Beam, the default engine; no other file imports apache_beam.

The pipeline is one linear chain: the items are distributed to the workers, which call the function.
Image bytes never enter the pipeline, so neither the shuffle nor the job graph grows with the data.
"""

from __future__ import annotations

import argparse
import io
import logging
import shlex
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial

from tfshards.prep.engines.table import Work
from tfshards.schemas import BuildError, OptionsError
from tfshards.schemas.argument_types import check_strings


@contextmanager
def _quiet_logging() -> Iterator[None]:
    """Suppress Beam's log on the terminal, since the raised error has all that a user needs to know."""
    root = logging.getLogger()
    loggers = [logging.getLogger("apache_beam"), root]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    # Without a handler, Beam's options would install one that prints for the rest of the program.
    silent = logging.NullHandler()
    root.addHandler(silent)
    try:
        yield
    finally:
        root.removeHandler(silent)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# Beam warns about missing optional packages.
with _quiet_logging():
    import apache_beam as beam
    from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
    from apache_beam.runners import DirectRunner, create_runner
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

# Names of the threads in which Beam waits for a worker process to end, and for its responses.
WORKER_THREADS = ("run_worker", "beam_control_read")
_WORKER_MODULE = "apache_beam.runners.worker.sdk_worker_main"
_LOST_WORKER = (
    "a worker process died, perhaps because memory ran out (its output is in {log}); "
    "run the same command to resume"
)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise OptionsError if Beam does not accept one of these pipeline options, a value, or the runner."""
    check_strings("beam_args", arguments)
    given, _ = _parse(arguments)
    if given.runner:
        try:
            # the module of the runner may define further options
            create_runner(given.runner)
        except (ValueError, ImportError, AttributeError) as error:
            raise OptionsError(f"Apache Beam: --runner={given.runner}: {error}") from None
    _, unknown = _parse(arguments)
    if unknown:
        raise OptionsError(f"Apache Beam: {unknown[0]} is not a pipeline option")


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options that Beam knows, and the unknown arguments."""
    parsers: list[argparse.ArgumentParser] = []
    printed = io.StringIO()
    try:
        with redirect_stderr(printed), _quiet_logging():
            PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
            return parsers[0].parse_known_args(list(arguments))
    except SystemExit as end:
        if not end.code:
            # the user asked for Beam's help
            raise
        # argparse prints all of Beam's options before the error
        raise OptionsError(f"Apache Beam: {printed.getvalue().strip().rpartition('error: ')[2]}") from None


def run(work: Work, arguments: Sequence[str] = ()) -> None:
    """Call the function with every item, on the runner that ``arguments`` name, or on Beam's local one.

    Raises:
        BuildError: a call failed, a worker process died, or Beam ended the pipeline.
    """
    failures: list[BaseException] = []
    is_lost = threading.Event()

    def run_pipeline() -> None:
        try:
            with _quiet_logging(), _pipeline(work, arguments) as pipeline:
                # PCollection[bytes] -> PCollection[item] -> PCollection[None]
                _ = (
                    pipeline
                    | beam.Impulse()
                    | "List" >> beam.FlatMap(partial(_list_items, list(work.items)))
                    | "Spread" >> beam.Reshuffle()
                    | "Call" >> beam.Map(work.function)
                )
        except BaseException as error:  # every failure must reach the main thread
            failures.append(error)
        work.progress.end()

    hook = threading.excepthook

    def lose_worker(death: threading.ExceptHookArgs) -> None:
        if not _is_of_beam(death):
            hook(death)
        elif death.thread and death.thread.name in WORKER_THREADS and not work.progress.has_ended:
            reason = _LOST_WORKER.format(log=work.log_path)
            work.stop(reason)
            failures.append(BuildError(reason))
            is_lost.set()
            work.progress.end()

    thread = threading.Thread(target=run_pipeline, name="beam", daemon=True)
    # Beam waits forever for a worker process that has died; the only sign is an exception in a thread.
    threading.excepthook = lose_worker
    try:
        thread.start()
        work.progress.follow()
    except KeyboardInterrupt:
        work.stop("interrupted")
        if thread.ident is not None:
            thread.join(timeout=10)
        raise
    finally:
        if not is_lost.is_set():
            # otherwise further threads are about to fail because of the same worker
            threading.excepthook = hook
    if failures:
        raise BuildError(_message(failures[0])) from failures[0]


def _is_of_beam(death: threading.ExceptHookArgs) -> bool:
    frames = traceback.walk_tb(death.exc_traceback)
    return any(frame.f_globals.get("__name__", "").startswith("apache_beam.") for frame, _ in frames)


def _list_items(items: list[object], _: bytes) -> list[object]:
    return items


def _pipeline(work: Work, arguments: Sequence[str]) -> beam.Pipeline:
    options = PipelineOptions(list(arguments))
    name = _parse(arguments)[0].runner
    runner = create_runner(name) if name else FnApiRunner()
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_processing" and isinstance(runner, FnApiRunner | DirectRunner):
        # the workers that Beam would start, except that they log to a file rather than to the terminal
        direct.direct_running_mode = "in_memory"
        runner = FnApiRunner(
            default_environment=SubprocessSDKEnvironment.from_command_string(_worker_command(work))
        )
    return beam.Pipeline(runner, options)


def _worker_command(work: Work) -> str:
    log = f" 2>> {shlex.quote(str(work.log_path.absolute()))}" if work.log_path else ""
    return f"exec {shlex.quote(sys.executable)} -m {_WORKER_MODULE}{log}"


def _message(failure: BaseException) -> str:
    if isinstance(failure, BuildError):
        return str(failure)
    last_line = str(failure).strip().splitlines()[-1:] or [type(failure).__name__]
    return f"Apache Beam ended the pipeline: {last_line[0]}"
