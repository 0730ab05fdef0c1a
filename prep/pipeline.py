"""The Beam pipeline, and the one file that imports apache_beam.

One linear chain: shard ids are spread over the workers, each worker writes whole shards. Image bytes never
enter the pipeline, and the plan is read from files, so neither shuffle nor job graph grow with the data.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import shlex
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from functools import partial
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners import create_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from tfshards.prep.area import ShardId
from tfshards.prep.files import system_fault
from tfshards.prep.progress import Progress
from tfshards.prep.shard import Job, write_shard
from tfshards.schemas import BuildError, OptionsError

# The class behind DirectRunner, named outright: DirectRunner itself first tries to download another engine.
LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

_LOG_NAME = "workers.log"
# In which Beam waits for the end of a worker process, and for its answers.
_WORKER_THREADS = ("run_worker", "beam_control_read")
_LOST_WORKER = (
    "a worker process died, perhaps for lack of memory ({log} has its last words); "
    "the same command goes on where it ended"
)


def check_beam_args(beam_args: Sequence[str]) -> None:
    """Raise OptionsError if Beam does not know one of these pipeline options, a value, or the runner."""
    given, _ = _parse(beam_args)
    if given.runner:
        try:
            # its module may bring options of its own
            create_runner(given.runner)
        except (ValueError, ImportError, AttributeError) as error:
            raise OptionsError(f"-- --runner={given.runner}: {error}") from None
    _, unknown = _parse(beam_args)
    if unknown:
        raise OptionsError(f"-- {unknown[0]}: Apache Beam has no such pipeline option")


def _parse(beam_args: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options that Beam knows, and the rest."""
    parsers: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return parsers[0].parse_known_args(list(beam_args))
    except SystemExit as end:
        if not end.code:
            # its help was asked for
            raise
        # argparse prints all of Beam's options before the one line that counts
        raise OptionsError(f"-- {said.getvalue().strip().rpartition('error: ')[2]}") from None


def write_shards(job: Job, shards: Sequence[ShardId], beam_args: Sequence[str], progress: Progress) -> None:
    """Write the shards, on the runner that ``beam_args`` names, or on Beam's local one.

    Raises:
        BuildError: a worker failed; what it had finished stays.
    """
    failures: list[BaseException] = []
    ended, is_lost = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with _quiet(), _pipeline(beam_args, job.area.root / _LOG_NAME) as pipeline:
                # PCollection[bytes] -> PCollection[ShardId] -> PCollection[None]
                _ = (
                    pipeline
                    | beam.Impulse()
                    | "List shards" >> beam.FlatMap(partial(_list_shards, list(shards)))
                    | "Spread" >> beam.Reshuffle()
                    | "Write shards" >> beam.Map(partial(write_shard, job))
                )
        except BaseException as error:  # everything must reach the main thread
            failures.append(error)
        ended.set()

    hook = threading.excepthook

    def lose_worker(death: threading.ExceptHookArgs) -> None:
        if not _is_of_beam(death):
            hook(death)
        elif death.thread and death.thread.name in _WORKER_THREADS and not ended.is_set():
            job.area.stop(_LOST_WORKER.format(log=job.area.root / _LOG_NAME))
            failures.append(death.exc_value or BuildError("a worker process died"))
            is_lost.set()
            ended.set()

    thread = threading.Thread(target=run, name="beam", daemon=True)
    # Beam would wait for ever for a worker process that has died: all that it does is to fail in a thread.
    waiting = threading.Thread(target=ended.wait, name="beam or a dead worker", daemon=True)
    threading.excepthook = lose_worker
    thread.start()
    waiting.start()
    try:
        progress.follow(waiting)
    except KeyboardInterrupt:
        job.area.stop("interrupted")
        thread.join(timeout=10)
        raise
    finally:
        if not is_lost.is_set():
            # else further threads are about to tell of the same worker
            threading.excepthook = hook
    if failures:
        raise BuildError(_reason(job, failures[0])) from failures[0]


def _is_of_beam(death: threading.ExceptHookArgs) -> bool:
    frames = traceback.walk_tb(death.exc_traceback)
    return any(frame.f_globals.get("__name__", "").startswith("apache_beam.") for frame, _ in frames)


def _list_shards(shards: list[ShardId], _: bytes) -> list[ShardId]:
    return shards


def _pipeline(beam_args: Sequence[str], log: Path) -> beam.Pipeline:
    options = PipelineOptions(list(beam_args))
    names_runner = any(argument.partition("=")[0] == "--runner" for argument in beam_args)
    direct = options.view_as(DirectOptions)
    if names_runner or direct.direct_running_mode != "multi_processing":
        return beam.Pipeline(runner=None if names_runner else LOCAL_RUNNER, options=options)
    # The same as Beam would start, but for the terminal, on which its workers log and fail in many lines.
    direct.direct_running_mode = "in_memory"
    worker = f"exec {shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main"
    command = f"{worker} 2>> {shlex.quote(str(log.absolute()))}"
    return beam.Pipeline(
        FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command)), options
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Beam's log of a worker's traceback off the terminal: the build area has the reason in a line."""
    loggers = [logging.getLogger(name) for name in ("apache_beam", "root")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _reason(job: Job, failure: BaseException) -> str:
    with suppress(FileNotFoundError):
        why = job.area.stop_path.read_text(encoding="utf-8", errors="surrogateescape")
        if why:
            return why
    # On a full disk there may be no room for the reason, and of another process Beam keeps the text alone.
    number = re.search(r"\[Errno (\d+)\]", str(failure))
    if number:
        return system_fault(job.area.out, OSError(int(number[1]), os.strerror(int(number[1]))))
    last_line = str(failure).strip().splitlines()[-1:] or [type(failure).__name__]
    return f"Apache Beam ended the pipeline: {last_line[0]}"
